"""The door of the streaming core: batches get their users' pseudonyms and lose their ids."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from ..mechanisms.domain import Domain
from ..mechanisms.errors import ParameterError
from .batching import BATCH_RECORDS, as_record
from .encode import RecordEncoder
from .randomness import UserKeys
from .records import TALLIES, record_batch

#: So many rows of a batch say which lane it goes to.
_SAMPLE = 64


@beam.typehints.with_output_types(pa.RecordBatch)
class BatchArrivals(beam.DoFn):
    """``(user, value)`` pairs, or ``(key, (user, value))``, to record batches with times.

    The time of a record is the timestamp of its element. A batch is made within a bundle,
    and has the timestamp of its earliest record, so that the watermark waits for it. Record
    batches pass through as they are.

    Args:
      keyed: whether elements are ``(key, (user, value))``.

    Raises:
      ParameterError: if an element has another form. The message does not show it.
    """

    def __init__(self, keyed: bool = False) -> None:
        self._keyed = keyed

    def start_bundle(self) -> None:
        self._held: list[tuple[Any, Any, int, Any]] = []

    def process(self, element: Any, timestamp: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        if isinstance(element, pa.RecordBatch):
            yield element
            return
        key, user, value = as_record(element, self._keyed)
        self._held.append((user, value, int(timestamp.micros), key))
        if len(self._held) >= BATCH_RECORDS:
            yield GlobalWindows.windowed_value(*self._batch())

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._held:
            yield GlobalWindows.windowed_value(*self._batch())

    def _batch(self) -> tuple[pa.RecordBatch, Timestamp]:
        held, self._held = self._held, []
        users, values, times, keys = zip(*held, strict=True)
        batch = record_batch(users, values, times, keys if self._keyed else None)
        return batch, Timestamp(micros=min(times))


class EncodeArrivals(beam.DoFn):
    """Record batches to ``(lane, encoded batch)``.

    An encoded batch has the columns ``user`` (binary(16), the pseudonym), ``value`` (int32,
    the domain index), ``event_time`` (int64) and ``key`` if there are keys. Tallies of what
    was dropped go to ``TALLIES``. Times are read as ``LimitContributions`` reads them, and what is
    none is ``bad_time``. The timestamp that a batch has in Beam must not be later than its
    earliest record: the watermark waits for no more than that.

    Args:
      domain: the values that can be reported.
      keys: the keys by reference.
      unknown: "other", "drop" or "fail".
      keyed: whether batches must have a ``key`` column.
      lanes: see :class:`~hadabeam.transforms.lateness.AssignWindows`.
    """

    def __init__(
        self, domain: Domain, keys: UserKeys, unknown: str, keyed: bool = False, lanes: int = 1
    ) -> None:
        self._domain = domain
        self._keys = keys
        self._unknown = unknown
        self._keyed = keyed
        self._lanes = lanes

    def setup(self) -> None:
        self._encoder = RecordEncoder(self._domain, self._keys.load().users, self._unknown)

    def process(self, batch: pa.RecordBatch) -> Iterator[Any]:
        names = batch.schema.names
        if "event_time" not in names:
            raise ParameterError("streaming estimates need batches with an event_time column")
        if self._keyed != ("key" in names):
            raise ParameterError(
                "a per-key estimate needs batches with a column 'key'"
                if self._keyed
                else "batches have a column 'key'; use StreamEstimates.PerKey, or drop the column"
            )
        records, tally = self._encoder.encode(batch)
        if tally:
            for name, number in tally.items():
                Metrics.counter("hadabeam", name).inc(number)
            yield TaggedOutput(TALLIES, (None, None, tally))
        if len(records):
            encoded = records.to_arrow().append_column("event_time", pa.array(records.times))
            yield lane_of(encoded, self._lanes), encoded


def lane_of(batch: pa.RecordBatch, lanes: int) -> bytes:
    """The lane of a batch, by its content: a batch that is tried again gets the same one."""
    if lanes == 1:
        return b"\0"
    sample = repr(batch.slice(0, _SAMPLE).to_pydict()).encode()
    return b"%d" % (zlib.crc32(sample) % lanes)
