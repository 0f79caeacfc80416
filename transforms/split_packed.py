"""Packed reports in parts that fit into messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa

from ..schemas.avro import arrow_schema

#: Bytes of a message, at most: half of what brokers of Kafka take unless told otherwise.
MESSAGE_BYTES = 512_000
#: Base64, in JSON, takes 4 bytes for 3.
_INFLATION = 4 / 3
#: For the other fields of a row, but for the key.
_HEADER_BYTES = 1_000
#: Bits of eight reports are one byte.
_STEP = 8


class SplitPacked(beam.PTransform):
    """Splits rows of ``packed_reports.avsc`` so that each fits into a message.

    A row keeps 8 reports, however large these are.

    Input: PCollection[pyarrow.RecordBatch] with the columns of ``packed_reports.avsc``. Output: the
    same, of one row each.

    Args:
      message_bytes: of a message, at most (default 512,000).
    """

    def __init__(self, message_bytes: int = MESSAGE_BYTES) -> None:
        super().__init__()
        self._bytes = message_bytes

    def expand(self, batches: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[pa.RecordBatch]:
        return batches | "Split" >> beam.FlatMap(split_packed, self._bytes).with_output_types(
            pa.RecordBatch
        )


def split_packed(
    batch: pa.RecordBatch, message_bytes: int = MESSAGE_BYTES
) -> Iterator[pa.RecordBatch]:
    """The rows of a batch in parts; see :class:`SplitPacked`."""
    schema = arrow_schema("packed_reports")
    for row in batch.cast(schema).to_pylist():
        for part in _parts(row, message_bytes):
            yield pa.RecordBatch.from_pylist([part], schema)


def _parts(row: dict[str, Any], message_bytes: int) -> Iterator[dict[str, Any]]:
    n = row["reports"]
    payload = row["payload"]
    width = len(payload) // n if payload and n else 0
    # In JSON a character takes up to 6 bytes.
    room = message_bytes - _HEADER_BYTES - 6 * len(row["key"] or "")
    # A column is 4 bytes, a bit an eighth.
    most = int(room / ((4 + 1 / 8 + width) * _INFLATION)) // _STEP * _STEP
    step = max(most, _STEP)
    for start in range(0, max(n, 1), step):
        stop = min(start + step, n)
        yield {
            **row,
            "reports": stop - start,
            "columns": row["columns"][4 * start : 4 * stop],
            "bits": row["bits"][start // 8 : (stop + 7) // 8],
            "payload": None if payload is None else payload[width * start : width * stop],
        }
