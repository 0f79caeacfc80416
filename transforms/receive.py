"""Ready-made reports at the door of the streaming core: who is refused, and who sent what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput

from ..mechanisms.errors import ParameterError
from ..mechanisms.oracle import FrequencyOracle
from .arrivals import lane_of
from .encode import EncodedRecords
from .randomness import ReportKeys
from .records import DEAD_LETTERS, TALLIES
from .report_files import ReportParser
from .report_form import PACKED, PLAIN, ReportForm
from .reports import ReportArrays
from .rows import Rows
from .windows import Windowing


class ReceiveReports(beam.DoFn):
    """Batches with the columns of ``report.avsc`` (or packed) to ``(lane, report batch)``.

    A report batch has ``column``, ``bit``, ``payload`` if the oracle has one, ``event_time`` (the
    report's epoch), ``key`` if there are keys, and ``user`` where reports have a sender or an
    id: the pseudonym by which repetitions are told. What is refused goes to ``TALLIES``
    and ``DEAD_LETTERS``.

    Args:
      oracle: the mechanism that the reports come from.
      windowing: the windows that they were made with.
      keys: the assignment key by reference, where the sender's column is to be checked.
      keyed: whether keys are kept apart; else all reports are counted together.
      lanes: see :class:`~hadabeam.transforms.lateness.AssignWindows`.
    """

    def __init__(
        self,
        oracle: FrequencyOracle,
        windowing: Windowing,
        keys: ReportKeys,
        keyed: bool = False,
        lanes: int = 1,
    ) -> None:
        self._oracle = oracle
        self._windowing = windowing
        self._keys = keys
        self._keyed = keyed
        self._lanes = lanes

    def setup(self) -> None:
        self._prf = self._keys.load()

    def process(self, batch: pa.RecordBatch) -> Iterator[Any]:
        form = self._form(batch.schema.names)
        # The folder source says where the rows are from.
        file = (batch.schema.metadata or {}).get(b"file", b"").decode()
        positions = np.arange(batch.num_rows)
        if "position" in batch.schema.names:
            positions = batch.column("position").to_numpy()
        parser = ReportParser(
            self._oracle, file, form, self._prf, self._keys.assigned, self._windowing
        )
        parsed = parser(Rows([batch.column(name) for name in form.fields], positions))
        tally = parsed.tally
        found = [self._batch(reports) for reports in parsed.reports if len(reports.column)]
        if parsed.identified is not None and len(parsed.identified):
            found.append(self._identified(parsed.identified))
        for reports in found:
            yield lane_of(reports, self._lanes), reports
        for letter in parsed.dead_letters:
            yield TaggedOutput(DEAD_LETTERS, letter)
        for name, number in tally.items():
            Metrics.counter("hadabeam", name).inc(number)
        if tally:
            yield TaggedOutput(TALLIES, (None, None, tally))

    @staticmethod
    def _form(names: list[str]) -> ReportForm:
        wanted = PACKED if "columns" in names else PLAIN
        required = ("collection", "epoch", *(("columns",) if wanted is PACKED else ("column",)))
        for name in required:
            if name not in names:
                raise ParameterError(f"batches of reports need a column {name!r}")
        return ReportForm(wanted is PACKED, tuple(name for name in wanted if name in names))

    def _batch(self, reports: ReportArrays) -> pa.RecordBatch:
        batch = reports.to_batch()
        times = pa.repeat(pa.scalar(reports.epoch, pa.int64()), batch.num_rows)
        batch = batch.append_column("event_time", times)
        if self._keyed:
            batch = batch.append_column("key", pa.repeat(reports.key or "", batch.num_rows))
        return batch

    def _identified(self, records: EncodedRecords) -> pa.RecordBatch:
        """Reports with a sender or an id; see ``ParsedReports``."""
        batch = ReportArrays(
            0,
            None,
            (records.values >> 1).astype(np.int32),
            (records.values & 1).astype(np.uint8),
            records.payload,
        ).to_batch()
        batch = batch.append_column("event_time", pa.array(records.times, pa.int64()))
        batch = batch.append_column("user", records.to_arrow().column("user"))
        if self._keyed:
            names = pa.array(records.key_names, pa.string())
            batch = batch.append_column("key", names.take(pa.array(records.keys)))
        return batch
