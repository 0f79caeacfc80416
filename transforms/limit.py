"""At most one record per user and window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.trigger import AfterWatermark, DefaultTrigger, TriggerFn
from apache_beam.utils.windowed_value import WindowedValue

from ..mechanisms.domain import Domain
from ..mechanisms.errors import ParameterError
from ..mechanisms.limit import keep_one_per_user
from ..mechanisms.prf import Prf
from . import windows
from .checks import check_domain, check_user_keys, check_whole, check_windowing
from .element_types import typed
from .encode import EncodedRecords, RecordEncoder, check_unknown, pack, unpack
from .privatize import mark_timed
from .randomness import LoadedKeys, UserKeys
from .records import TALLIES, Tally
from .spill import SegmentReader, SegmentWriter

#: How many records a worker gathers before it hands them on.
FLUSH_RECORDS = 1_000_000

#: A tally, and the window it belongs to (None and None for the whole run).
WindowTally = tuple[int | None, int | None, Tally]


def _fires_once(trigger: TriggerFn) -> bool:
    """Whether a bounded collection comes in one part in each window."""
    if isinstance(trigger, AfterWatermark):
        return trigger.early is None and trigger.late is None
    return isinstance(trigger, DefaultTrigger)


@dataclass
class LimitContributions(beam.PTransform):
    """Keeps one record of each user in each window: the privacy unit is the user.

    Takes a PCollection of record batches (:mod:`hadabeam.transforms.records`), in any
    windows. Gives ``None``: a PCollection of batches with the columns ``user``
    (binary(16), the pseudonym), ``value`` (int32, the domain index) and ``key`` if there
    are keys; and :data:`~hadabeam.transforms.records.TALLIES`: a PCollection of
    ``(window_start, window_end, tally)``.

    The record kept has the least keyed hash of user, value, time and key
    (:mod:`hadabeam.mechanisms.limit`), so it is the same in any order and sharding. It is
    one record of the user over all keys of a per-key estimate.

    Attributes:
      domain: the values that can be reported.
      keys: the keys by reference; default: none, with a salt of the job's own.
      unknown: what becomes of a missing value or one outside the domain: "other" (needs
        ``domain.with_other()``), "drop" or "fail". Who stays away must not depend on the
        private value: "drop" and "fail" are for domains that are known to be closed.
      windowing: splits batches by their ``event_time`` into these windows. None: records
        stay in the windows that they are in.
      shards: into how many groups users are hashed in each window. One group's records
        must fit in the memory of a worker, at about 60 bytes each, and each group costs
        about a millisecond. None: 64, or 16 with event-time windows, whose groups are many.
      spill_folder: a folder that all workers share (:mod:`hadabeam.transforms.spill`);
        None hands the bytes to the runner's own shuffle.

    Raises:
      ParameterError: if a choice is unknown or ``shards`` is not in 1 to 65,536; when it is
        applied, if the collection is unbounded (see ``StreamEstimates``), its windows merge, or
        they have a trigger.
    """

    domain: Domain
    keys: UserKeys = field(default_factory=UserKeys)
    unknown: str = "other"
    windowing: windows.Windowing | None = None
    shards: int | None = None
    spill_folder: str | None = None

    def __post_init__(self) -> None:
        super().__init__()
        check_domain(self.domain)
        check_user_keys(self.keys)
        check_unknown(self.domain, self.unknown)
        if self.windowing is not None:
            check_windowing(self.windowing)
        if self.shards is None:
            self.shards = 64 if self.windowing is None else 16
        self.shards = check_whole("shards", self.shards, 1, 2**16)

    def expand(self, pcoll: beam.PCollection) -> dict[str | None, beam.PCollection]:
        if pcoll.windowing.windowfn.is_merging():
            raise ParameterError(
                "LimitContributions cannot keep one record of a user in windows that merge, such "
                "as sessions; use fixed, sliding or calendar windows"
            )
        if not _fires_once(pcoll.windowing.triggerfn):
            raise ParameterError(
                f"with the trigger {pcoll.windowing.triggerfn} a window comes in parts, and "
                "LimitContributions would let users report in each; leave the trigger out, or use "
                "StreamEstimates for early results"
            )
        if not pcoll.is_bounded:
            raise ParameterError(
                "LimitContributions is for bounded collections: late records would be lost, and a "
                "second pane would count users again; use StreamEstimates"
            )
        scattered = pcoll | "ScatterByUser" >> beam.ParDo(
            _Scatter(
                self.domain,
                self.keys,
                self.unknown,
                self.windowing,
                self.shards or 1,
                self.spill_folder,
            )
        ).with_outputs(TALLIES, main="segments")
        segments = typed(scattered.segments, tuple[int, bytes])
        if self.windowing is not None:
            segments |= "Windows" >> beam.WindowInto(self.windowing.window_fn())
        kept = (
            segments
            | "GroupByShard" >> beam.GroupByKey()
            | "KeepOne"
            >> beam.ParDo(_KeepOne(self.keys, self.spill_folder)).with_outputs(TALLIES, main="kept")
        )
        tallies = (
            typed(scattered[TALLIES], WindowTally)
            | "ReadingToGlobal" >> beam.WindowInto(beam.window.GlobalWindows()),
            typed(kept[TALLIES], WindowTally)
            | "LimitToGlobal" >> beam.WindowInto(beam.window.GlobalWindows()),
        )
        return {
            None: typed(kept.kept, pa.RecordBatch),
            TALLIES: tallies | "Tallies" >> beam.Flatten(),
        }


class _Scatter(beam.DoFn):
    """Record batches to ``(shard, packed records)``, gathered over many batches."""

    def __init__(
        self,
        domain: Domain,
        keys: UserKeys,
        unknown: str,
        windowing: windows.Windowing | None,
        shards: int,
        spill_folder: str | None,
    ) -> None:
        self._domain = domain
        self._keys = keys
        self._unknown = unknown
        self._windowing = windowing
        self._shards = shards
        self._folder = spill_folder

    def setup(self) -> None:
        self._encoder = RecordEncoder(self._domain, self._keys.load().users, self._unknown)
        self._writer = SegmentWriter(self._folder)

    def start_bundle(self) -> None:
        self._held: dict[tuple[Any, int, int], list[EncodedRecords]] = {}
        self._rows = 0

    def process(
        self,
        batch: pa.RecordBatch,
        window: Any = beam.DoFn.WindowParam,
    ) -> Iterator[Any]:
        encoded, tally = self._encoder.encode(batch)
        if tally:
            for name, number in tally.items():
                Metrics.counter("hadabeam", name).inc(number)
            yield TaggedOutput(TALLIES, (None, None, tally))
        if self._windowing is not None and encoded.times is None and len(encoded):
            raise ParameterError("event-time windows need batches with an event_time column")
        for (granule, shard), part in self._split(encoded, window):
            self._held.setdefault((window, granule, shard), []).append(part)
        self._rows += len(encoded)
        if self._rows >= FLUSH_RECORDS:
            # In the windows they were held in, not in that of the batch at hand.
            yield from self._flush()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from self._flush()

    def _split(
        self, records: EncodedRecords, window: Any
    ) -> Iterator[tuple[tuple[int, int], EncodedRecords]]:
        """The records of each (granule, shard).

        A granule is the start of a period: all records in it lie in the same windows. Where
        windows are there already, it is the timestamp that what is gathered in one will have.
        """
        if not len(records):
            return
        pair = records.users[:, :2].copy().view("<u2").ravel()
        shard = pair % np.uint16(self._shards) if self._shards < 2**16 else pair
        if self._windowing is None or records.times is None:
            # uint16: NumPy's stable sort of it is a radix sort.
            order = np.argsort(shard, kind="stable")
            granule = np.full(len(records), int(window.max_timestamp().micros))
        else:
            granule = self._windowing.granules(records.times)
            order = np.lexsort((shard, granule))
        sorted_records, shard, granule = records.take(order), shard[order], granule[order]
        changes = np.flatnonzero((shard[1:] != shard[:-1]) | (granule[1:] != granule[:-1])) + 1
        starts = [0, *changes.tolist(), len(order)]
        for start, end in pairwise(starts):
            where = (int(granule[start]), int(shard[start]))
            yield where, sorted_records.take(slice(start, end))

    def _flush(self) -> list[WindowedValue]:
        places = list(self._held)
        elements = self._writer.write([pack(self._held[place]) for place in places])
        self._held, self._rows = {}, 0
        return [
            WindowedValue((shard, element), windows.timestamp(granule), [window])
            for (window, granule, shard), element in zip(places, elements, strict=True)
        ]


class _KeepOne(beam.DoFn):
    """The packed records of one shard and window to a batch with one record of each user."""

    def __init__(self, keys: UserKeys, spill_folder: str | None) -> None:
        self._keys = keys
        self._folder = spill_folder
        self._loaded: LoadedKeys | None = None

    def setup(self) -> None:
        self._loaded = self._keys.load()
        self._limit = self._loaded.limit
        self._reader = SegmentReader(self._folder)

    def process(
        self, shard: tuple[int, Iterable[bytes]], window: Any = beam.DoFn.WindowParam
    ) -> Iterator[Any]:
        records = unpack([self._reader.read(element) for element in shard[1]])
        keys = None
        if records.keys is not None:
            keys = key_pseudonyms(self._limit, records)
        kept = keep_one_per_user(self._limit, records.users, records.values, records.times, keys)
        over = len(records) - len(kept)
        if over:
            Metrics.counter("hadabeam", "over_limit").inc(over)
            yield TaggedOutput(TALLIES, (*windows.bounds(window), {"over_limit": over}))
        yield mark_timed(records.take(kept).to_arrow(), records.times is not None)


def key_pseudonyms(prf: Prf, records: EncodedRecords) -> Any:
    """uint8[n, 16]: one for each record's key."""
    if records.keys is None or not records.key_names:
        return np.zeros((len(records), 16), np.uint8)
    # The empty key is a key as well; a leading mark keeps it from being an empty id.
    return prf.pseudonyms(["k" + name for name in records.key_names])[records.keys]
