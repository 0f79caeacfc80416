"""Reports on their way out and back in: the header, packing, and who is refused.

Within the pipeline a report batch holds ``column``, ``bit``, and ``payload`` and ``key``
where there are any. On the wire every report (or every pack of reports) also says which
collection and epoch it belongs to; see ``schemas/report.avsc``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import TaggedOutput

from ..mechanisms.oracle import Array, FrequencyOracle
from ..schemas.avro import arrow_schema
from . import windows
from .checks import check_oracle
from .count import split_by_key
from .element_types import typed
from .limit import WindowTally
from .privatize import fixed_rows
from .records import TALLIES

#: Reports in one packed row.
PACK = 1 << 16


@dataclass
class FormatReports(beam.PTransform):
    """Report batches to batches of rows that can be written.

    Takes what ``Privatize`` gives. Gives ``None``: a PCollection of batches with the
    columns of ``report.avsc`` (or ``packed_reports.avsc``), and ``TALLIES``: a PCollection
    of ``(window_start, window_end, {"reports": n})``.

    Within a batch reports are sorted by what they say, so that their order tells nothing.

    Attributes:
      oracle: the mechanism that made the reports.
      packed: whether one row holds up to 65,536 reports.
    """

    oracle: FrequencyOracle
    packed: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        check_oracle(self.oracle)

    def expand(self, pcoll: beam.PCollection) -> dict[str | None, beam.PCollection]:
        found = pcoll | "Format" >> beam.ParDo(_Format(self.oracle, self.packed)).with_outputs(
            TALLIES, main="rows"
        )
        return {
            None: typed(found.rows, pa.RecordBatch),
            TALLIES: typed(found[TALLIES], WindowTally),
        }


class _Format(beam.DoFn):
    def __init__(self, oracle: FrequencyOracle, packed: bool) -> None:
        self._collection = oracle.collection_id
        self._packed = packed

    def process(
        self, reports: pa.RecordBatch, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[Any]:
        if not reports.num_rows:
            return
        yield TaggedOutput(TALLIES, (*windows.bounds(window), {"reports": reports.num_rows}))
        epoch = windows.epoch(window)
        if not self._packed:
            yield report_rows(reports, self._collection, epoch)
            return
        parts: Any = [(None, reports)]
        if "key" in reports.schema.names:
            parts = split_by_key(reports)
        for key, part in parts:
            yield packed_rows(part, self._collection, epoch, key)


def _sorted(reports: pa.RecordBatch) -> pa.RecordBatch:
    keys = [reports.column("bit").to_numpy(), reports.column("column").to_numpy()]
    if "payload" in reports.schema.names:
        payload = fixed_rows(reports.column("payload"))
        keys.insert(0, np.ascontiguousarray(payload).view(f"S{payload.shape[1]}").ravel())
    return reports.take(pa.array(np.lexsort(keys)))


def report_rows(reports: pa.RecordBatch, collection: str, epoch: int) -> pa.RecordBatch:
    """A report batch with the columns of ``report.avsc``, sorted by what reports say."""
    reports = _sorted(reports)
    n = reports.num_rows
    schema = arrow_schema("report")
    columns: dict[str, Any] = {
        "collection": pa.repeat(collection, n),
        "epoch": pa.repeat(pa.scalar(epoch, pa.int64()), n),
        "event_time": pa.repeat(pa.scalar(epoch, pa.int64()), n).cast(pa.timestamp("us", "UTC")),
    }
    for name in ("column", "bit", "payload", "key"):
        if name in reports.schema.names:
            columns[name] = reports.column(name)
    arrays = [
        columns[field.name].cast(field.type) if field.name in columns else pa.nulls(n, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def packed_rows(
    reports: pa.RecordBatch, collection: str, epoch: int, key: str | None = None
) -> pa.RecordBatch:
    """A report batch of one key as rows of ``packed_reports.avsc``."""
    reports = _sorted(reports)
    column = reports.column("column").to_numpy().astype("<i4")
    bits = reports.column("bit").to_numpy()
    payload = None
    if "payload" in reports.schema.names:
        payload = fixed_rows(reports.column("payload"))
    rows = []
    for start in range(0, reports.num_rows, PACK):
        part = slice(start, start + PACK)
        rows.append(
            {
                "collection": collection,
                "epoch": epoch,
                "event_time": epoch,
                "key": key,
                "reports": len(column[part]),
                "columns": column[part].tobytes(),
                "bits": np.packbits(bits[part], bitorder="little").tobytes(),
                "payload": None if payload is None else payload[part].tobytes(),
            }
        )
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema("packed_reports"))


@dataclass(frozen=True)
class ReportArrays:
    """Received reports of one collection, epoch and key, as arrays.

    Attributes:
      epoch: start of the window in microseconds; 0 where there is none.
      key: the key of a per-key estimate, or None.
      column: int32[n].
      bit: uint8[n].
      payload: uint8[n, w], or None for oracles whose message is one bit.
    """

    epoch: int
    key: str | None
    column: Array
    bit: Array
    payload: Array | None = None

    def to_batch(self) -> pa.RecordBatch:
        """The report batch that the counters take."""
        columns: dict[str, Any] = {"column": pa.array(self.column), "bit": pa.array(self.bit)}
        if self.payload is not None:
            width = self.payload.shape[1]
            columns["payload"] = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(width), len(self.payload), [None, pa.py_buffer(self.payload.tobytes())]
            )
        return pa.RecordBatch.from_pydict(columns)


def unpack_row(row: dict[str, Any], width: int) -> ReportArrays | None:
    """The reports of a packed row, or None if its parts do not fit together.

    Args:
      row: with the fields of ``packed_reports.avsc``.
      width: the oracle's ``payload_bytes``.
    """
    n = row["reports"]
    columns, bits, payload = row["columns"], row["bits"], row["payload"]
    if n is None or n < 0 or columns is None or bits is None or row["epoch"] is None:
        return None
    if len(columns) != 4 * n or len(bits) != (n + 7) // 8 or len(payload or b"") != width * n:
        return None
    return ReportArrays(
        row["epoch"],
        row["key"],
        np.frombuffer(columns, "<i4"),
        np.unpackbits(np.frombuffer(bits, np.uint8), count=n, bitorder="little"),
        np.frombuffer(payload, np.uint8).reshape(n, width) if width else None,
    )


def keep_valid(oracle: FrequencyOracle, reports: ReportArrays) -> tuple[ReportArrays, int]:
    """The reports that the oracle can have sent, and how many it cannot have."""
    valid = oracle.valid(reports.column, reports.bit, reports.payload)
    refused = int(len(valid) - np.count_nonzero(valid))
    if not refused:
        return reports, 0
    return (
        ReportArrays(
            reports.epoch,
            reports.key,
            reports.column[valid],
            reports.bit[valid],
            None if reports.payload is None else reports.payload[valid],
        ),
        refused,
    )
