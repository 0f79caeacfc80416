"""Records to reports: the step after which nothing private is left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics

from ..mechanisms.errors import ParameterError
from ..mechanisms.oracle import Array, FrequencyOracle
from . import windows
from .checks import check_oracle, check_user_keys
from .randomness import LoadedKeys, UserKeys

#: In the metadata of a batch: see :func:`mark_timed`.
_TIMED = b"hadabeam timed"


@dataclass
class Privatize(beam.PTransform):
    """Turns each user's record into a report.

    Takes what ``LimitContributions`` gives: batches that hold each user at most once in
    a window. Gives a PCollection of report batches with the columns ``column`` (int32),
    ``bit`` (uint8), ``payload`` (fixed-size binary, only for oracles whose message is
    wider) and ``key`` if there are keys, in the windows of the records.

    Coins belong to the window (whose start is the reports' epoch), to the question of the keys,
    to whether the estimate is per key, and to whether times had a part in the choice of records.

    Attributes:
      oracle: the mechanism.
      keys: the same that ``LimitContributions`` was given.
      memo: "window" (fresh coins in each window) or "forever" (the same coin for the same
        true bit for as long as the key lives; needs keys).

    Raises:
      ParameterError: if ``memo`` is unknown, is "forever" without keys, or is not "forever"
        where the oracle has two stages.
    """

    oracle: FrequencyOracle
    keys: UserKeys = field(default_factory=UserKeys)
    memo: str = "window"

    def __post_init__(self) -> None:
        super().__init__()
        check_oracle(self.oracle)
        check_user_keys(self.keys)
        check_memo(self.memo, self.keys, self.oracle)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        return pcoll | "Randomize" >> beam.ParDo(_Privatize(self.oracle, self.keys, self.memo))


def check_memo_choice(memo: str) -> None:
    """Raises ParameterError unless a memo is a choice."""
    if memo not in ("window", "forever"):
        raise ParameterError("memo must be 'window' or 'forever'")


def check_memo(memo: str, keys: UserKeys, oracle: FrequencyOracle) -> None:
    """Raises ParameterError unless a memo is a choice that the keys and the oracle allow."""
    check_memo_choice(memo)
    if memo == "forever" and not keys.keyed:
        raise ParameterError("memo='forever' needs an assignment key and a coin key")
    if oracle.two_stages and memo != "forever":
        raise ParameterError("instant_epsilon is a second stage on top of memo='forever'")


@beam.typehints.with_output_types(pa.RecordBatch)
class _Privatize(beam.DoFn):
    def __init__(self, oracle: FrequencyOracle, keys: UserKeys, memo: str) -> None:
        self._oracle = oracle
        self._keys = keys
        self._forever = memo == "forever"
        self._loaded: LoadedKeys | None = None

    def setup(self) -> None:
        self._loaded = self._keys.load()

    def process(
        self, batch: pa.RecordBatch, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[pa.RecordBatch]:
        assert self._loaded is not None
        if not pa.types.is_fixed_size_binary(batch.schema.field("user").type):
            raise ParameterError(
                "Privatize takes the batches that LimitContributions gives: without it a user "
                "with several records would send several reports"
            )
        epoch, (_, end) = windows.epoch(window), windows.bounds(window)
        yield report_batch(
            self._oracle,
            self._loaded,
            batch,
            epoch,
            self._forever,
            end=end,
            timed=_is_timed(batch),
        )
        Metrics.counter("hadabeam", "privatized").inc(batch.num_rows)


def mark_timed(batch: pa.RecordBatch, timed: bool) -> pa.RecordBatch:
    """Notes on a batch whether times had a part in the choice of its records."""
    return batch.replace_schema_metadata({_TIMED: b"1"}) if timed else batch


def _is_timed(batch: pa.RecordBatch) -> bool:
    return _TIMED in (batch.schema.metadata or {})


def report_batch(
    oracle: FrequencyOracle,
    keys: LoadedKeys,
    batch: pa.RecordBatch,
    epoch: int,
    forever: bool = False,
    *,
    end: int | None = None,
    timed: bool = False,
) -> pa.RecordBatch:
    """The reports of one batch of limited records (see :class:`Privatize`).

    Args:
      oracle: the mechanism.
      keys: the keys.
      batch: of one window.
      epoch: the window's start in microseconds, or ``NO_WINDOW``.
      forever: whether coins are the same in all windows.
      end: the window's end in microseconds, or None.
      timed: whether times had a part in the choice of each user's record.
    """
    users = fixed_rows(batch.column("user"))
    columns = keys.columns(oracle, users)
    keyed = "key" in batch.schema.names
    coins = keys.coins(oracle, users, epoch, forever, end=end, keyed=keyed, timed=timed)
    messages = oracle.randomize(batch.column("value").to_numpy(), columns, coins)
    column, bit, payload = oracle.encode(columns, messages)
    arrays: dict[str, Any] = {"column": pa.array(column), "bit": pa.array(bit)}
    if payload is not None:
        arrays["payload"] = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(payload.shape[1]),
            len(payload),
            [None, pa.py_buffer(np.ascontiguousarray(payload))],
        )
    if keyed:
        arrays["key"] = batch.column("key")
    return pa.RecordBatch.from_pydict(arrays)


def fixed_rows(column: pa.FixedSizeBinaryArray) -> Array:
    """uint8[n, width]: the rows of a fixed-size binary column without nulls."""
    width = column.type.byte_width
    data = np.frombuffer(column.buffers()[1], np.uint8)
    start = column.offset * width
    return data[start : start + len(column) * width].reshape(len(column), width)
