"""Adding reports up. The arithmetic is the oracle's; this wraps it for Beam."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics

from ..mechanisms.oracle import Array, FrequencyOracle
from . import windows
from .checks import check_fanout, check_oracle
from .element_types import typed
from .privatize import fixed_rows


@beam.typehints.with_input_types(pa.RecordBatch)
@beam.typehints.with_output_types(np.ndarray)
class CountFn(beam.CombineFn):
    """Report batches to the oracle's counts.

    The accumulator is the int64 array of counts, so the result depends neither on order
    nor on grouping nor on retries.
    """

    def __init__(self, oracle: FrequencyOracle) -> None:
        self._oracle = oracle

    def create_accumulator(self) -> Array:
        return self._oracle.zero()

    def add_input(self, accumulator: Array, reports: pa.RecordBatch) -> Array:
        accumulator += count_batch(self._oracle, reports)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[Array]) -> Array:
        total = self._oracle.zero()
        for accumulator in accumulators:
            total += accumulator
        return total

    def extract_output(self, accumulator: Array) -> Array:
        return accumulator


def count_batch(oracle: FrequencyOracle, reports: pa.RecordBatch) -> Array:
    """The counts of one report batch: int64 of ``oracle.state_shape``."""
    payload = None
    if "payload" in reports.schema.names:
        payload = fixed_rows(reports.column("payload"))
    columns, messages = oracle.decode(
        reports.column("column").to_numpy(), reports.column("bit").to_numpy(), payload
    )
    return oracle.count(columns, messages)


class CountReports:
    """Counts of all reports, or of the reports of each key.

    ``CountReports.Globally(oracle)`` takes report batches (as ``Privatize`` gives them)
    and gives one array of counts for each window. ``CountReports.PerKey(oracle)`` takes
    report batches with a ``key`` column and gives ``(key, counts)``.
    """

    @dataclass
    class Globally(beam.PTransform):
        """Report batches to counts, one array a window.

        Without windows, no reports give the counts of no reports; in windows, a window
        without reports gives nothing.

        Attributes:
          oracle: the mechanism that the reports come from.
          fanout: sums in so many groups first. Helps where one worker cannot add fast
            enough; slower on one machine.
        """

        oracle: FrequencyOracle
        fanout: int | None = None

        def __post_init__(self) -> None:
            super().__init__()
            check_oracle(self.oracle)
            self.fanout = check_fanout(self.fanout)

        def default_label(self) -> str:
            return "CountReports.Globally"

        def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
            combine = beam.CombineGlobally(CountFn(self.oracle))
            if self.fanout:
                combine = combine.with_fanout(self.fanout)
            if not windows.is_unwindowed(pcoll):
                combine = combine.without_defaults()
            found = pcoll | "Metrics" >> beam.ParDo(_Meter()) | "Add" >> combine
            # With a fanout Beam loses the types of a combiner.
            return typed(found, np.ndarray)

    @dataclass
    class PerKey(beam.PTransform):
        """Report batches with keys to ``(key, counts)``, one for each key and window.

        Attributes:
          oracle: the mechanism that the reports come from.
          fanout: sums the reports of each key in so many groups first, for keys that hold
            most of the reports.
        """

        oracle: FrequencyOracle
        fanout: int | None = None

        def __post_init__(self) -> None:
            super().__init__()
            check_oracle(self.oracle)
            self.fanout = check_fanout(self.fanout)

        def default_label(self) -> str:
            return "CountReports.PerKey"

        def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
            combine = beam.CombinePerKey(CountFn(self.oracle))
            if self.fanout:
                combine = combine.with_hot_key_fanout(self.fanout)
            found = (
                pcoll
                | "Metrics" >> beam.ParDo(_Meter())
                | "SplitByKey"
                >> beam.FlatMap(split_by_key).with_output_types(tuple[str, pa.RecordBatch])
                | "Add" >> combine
            )
            return typed(found, tuple[str, np.ndarray])


@beam.typehints.with_output_types(pa.RecordBatch)
class _Meter(beam.DoFn):
    def process(self, reports: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        Metrics.counter("hadabeam", "reports").inc(reports.num_rows)
        yield reports


def split_by_key(reports: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """A report batch as one batch for each key in it, without the ``key`` column."""
    keys = reports.column("key")
    if not pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_encode()
    codes = keys.indices.to_numpy(zero_copy_only=False)
    bare = reports.drop_columns(["key"])
    order = np.argsort(codes, kind="stable")
    found, starts = np.unique(codes[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    for code, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True):
        rows: Any = pa.array(order[start:end])
        # take() copies: a slice would carry the whole batch when it is pickled.
        yield keys.dictionary[code].as_py(), bare.take(rows)
