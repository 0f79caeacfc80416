"""From the rows of a reader to record batches, dead letters and tallies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .fields import RecordFields
from .records import DeadLetter, Tally
from .rows import Rows
from .texts import to_text
from .times import check_time_unit, to_micros


class Extracted(NamedTuple):
    """What one block gave.

    Attributes:
      records: the usable records (see :mod:`.records`), in buffers of their own.
      dead_letters: the others.
      tally: ``records_read``, and how many were dropped for which reason.
    """

    records: pa.RecordBatch
    dead_letters: list[DeadLetter]
    tally: Tally


class Extractor:
    """Makes records of rows whose columns are ``fields.columns``. Threads may share it.

    Args:
      fields: which column is what.
      file: the file that the rows come from, for dead letters.
      time_unit: how numbers in the time field are understood.
      raw: whether dead letters carry the text of the record.
    """

    def __init__(
        self, fields: RecordFields, file: str, time_unit: str = "auto", raw: bool = False
    ) -> None:
        self._fields = fields
        self._file = file
        self._unit = check_time_unit(time_unit)
        self._raw = raw

    def __call__(self, rows: Rows) -> Extracted:
        """Drops rows without a user or, where times are read, without a valid time."""
        letters = [
            self._letter("unparseable", rows, row, bad=True)
            for row in range(len(rows.bad_positions))
        ]
        tally = {"records_read": len(rows) + len(letters), "unparseable": len(letters)}
        batch = self._batch(rows)
        missing = _nulls(batch.column("user"))
        drop = missing
        reasons = [("missing_user", missing)]
        if self._fields.time is not None:
            bad_time = _nulls(batch.column("event_time")) & ~missing
            reasons.append(("bad_time", bad_time))
            drop = missing | bad_time
        for reason, mask in reasons:
            found = np.flatnonzero(mask)
            tally[reason] = len(found)
            letters.extend(self._letter(reason, rows, int(row)) for row in found)
        if drop.any():
            batch = batch.filter(pa.array(~drop))
        return Extracted(batch, letters, {name: n for name, n in tally.items() if n})

    def _batch(self, rows: Rows) -> pa.RecordBatch:
        given = dict(zip(self._fields.columns, rows.columns, strict=False))
        if not given:  # rows of nothing but bad records
            given = dict.fromkeys(self._fields.columns, pa.array([], pa.string()))
        fields = self._fields
        wanted = {field for field in (fields.user, fields.value, fields.key) if field is not None}
        texts = {field: _own(to_text(given[field])) for field in wanted}
        columns = {"user": texts[fields.user], "value": texts[fields.value]}
        if fields.time is not None:
            columns["event_time"] = to_micros(given[fields.time], self._unit)
        if fields.key is not None:
            columns["key"] = texts[fields.key]
        return pa.RecordBatch.from_pydict(columns)

    def _letter(self, reason: str, rows: Rows, row: int, bad: bool = False) -> DeadLetter:
        position = int((rows.bad_positions if bad else rows.positions)[row])
        return DeadLetter(reason, self._file, position, rows.raw(row, bad) if self._raw else None)


def _nulls(column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if not column.null_count:
        return np.zeros(len(column), bool)
    result: np.ndarray[tuple[int], np.dtype[np.bool_]] = column.is_null().to_numpy(
        zero_copy_only=False
    )
    return result


def _own(column: pa.Array) -> pa.Array:
    """The column in buffers that hold nothing else."""
    if column.offset == 0 and column.get_total_buffer_size() <= 2 * column.nbytes + 4096:
        return column
    return pc.take(column, pa.array(np.arange(len(column), dtype=np.int64)))
