"""Tables as Avro, Parquet, CSV or JSON Lines, byte for byte the same for the same table.

What a format could vary is fixed: rows are cut into blocks by number, however the table
is chunked in memory; Avro's sync marker comes from the content; CSV and JSON write each
float with the fewest digits that read back as the same number. Times are
``timestamp-micros`` in Avro and Parquet, and ISO 8601 in UTC (``2025-01-06T00:00:00Z``) in
CSV and JSON. Bytes are base64 in CSV and JSON. JSON has no infinite numbers and no NaN:
they are null there.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import IO, Any

import fastavro
import fastavro.write
import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ..mechanisms.errors import ParameterError
from ..schemas.avro import arrow_schema, load_schema
from .avro_blocks import write_blocks

#: Formats of tables; each is also the extension of its files.
FORMATS = ("avro", "parquet", "csv", "jsonl")

#: Rows that are encoded at a time (Avro, CSV, JSON).
_CHUNK_ROWS = 1 << 14
#: Rows that an Avro file's sync marker is made of.
_MARKER_ROWS = 1 << 10
#: Rows of a Parquet row group.
_GROUP_ROWS = 1 << 20
_EPOCH = datetime.datetime(1970, 1, 1)


def check_format(format: str) -> str:
    """Returns an output format, or says which there are.

    Raises:
      ParameterError: if it is none of :data:`FORMATS`.
    """
    if format not in FORMATS:
        raise ParameterError(f"the output format must be one of {', '.join(FORMATS)}")
    return format


class TableEncoder:
    """Writes a table to a binary file, piece by piece.

    A context manager; the file is complete once it is left without an error. The same
    pieces give the same bytes, and so does the same table as one piece, however it is
    chunked.

    Args:
      file: an open binary file; stays open.
      format: one of :data:`FORMATS`.
      schema: name of the schema (``estimate``, ``report``, ``packed_reports``).

    Raises:
      ParameterError: if the format is unknown.
    """

    def __init__(self, file: IO[bytes], format: str, schema: str) -> None:
        self._file = file
        self._format = check_format(format)
        self._name = schema
        self._schema = arrow_schema(schema)
        self._writer: Any = None
        self.rows = 0

    def write(self, table: pa.Table | pa.RecordBatch) -> None:
        """Adds rows.

        Args:
          table: has the schema's columns, in any order; types are cast where no
            information is lost.

        Raises:
          pyarrow.ArrowInvalid: if a value does not fit its column's type.
          KeyError: if a column is missing.
        """
        table = conform(table, self._name)
        self.rows += table.num_rows
        rows = _GROUP_ROWS if self._format == "parquet" else _CHUNK_ROWS
        for piece in _pieces(table, rows):
            if self._writer is None:
                self._open(piece, table.num_rows)
            self._write_piece(piece)

    def _open(self, first: pa.Table, rows: int) -> None:
        if self._format == "avro":
            self._avro = load_schema(self._name)
            self._sync = _sync_marker(self._name, first, rows)
            # Writes the header; the blocks are ours, as rows need no Python objects there.
            self._writer = fastavro.write.Writer(
                self._file, self._avro, codec="deflate", sync_marker=self._sync
            )
        elif self._format == "parquet":
            self._writer = pa.parquet.ParquetWriter(
                self._file, self._schema, compression="zstd", store_schema=True
            )
        elif self._format == "csv":
            self._writer = pa.csv.CSVWriter(self._file, as_text(first.slice(0, 0)).schema)
        else:
            self._writer = self._file

    def _write_piece(self, piece: pa.Table) -> None:
        if self._format == "avro":
            write_blocks(self._file, piece, self._avro, self._sync)
        elif self._format == "parquet":
            self._writer.write_table(piece, row_group_size=_GROUP_ROWS)
        elif self._format == "csv":
            self._writer.write_table(as_text(piece))
        else:
            self._file.write(b"".join(line + b"\n" for line in json_rows(piece)))

    def close(self) -> None:
        """Writes what is still missing: headers of an empty table, the last block, a footer."""
        if self._writer is None:
            self._open(self._schema.empty_table(), 0)
        if self._format in ("parquet", "csv"):
            self._writer.close()

    def __enter__(self) -> TableEncoder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()


def conform(table: pa.Table | pa.RecordBatch, schema: str) -> pa.Table:
    """A table with exactly the columns of a schema; see :meth:`TableEncoder.write`."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    wanted = arrow_schema(schema)
    table = table.select(wanted.names)
    return table if table.schema.equals(wanted) else table.cast(wanted)


def json_rows(table: pa.Table) -> Iterator[bytes]:
    """The rows of a table as JSON objects, as lines of ``jsonl`` files but without their ends."""
    return (orjson.dumps(row) for row in row_dicts(as_text(table)))


def _pieces(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    """The table in pieces of ``rows`` rows, each in one chunk, whatever its own chunks are."""
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows).combine_chunks()


def row_dicts(table: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows of a table; faster than ``to_pylist``."""
    names = table.column_names
    columns = [column.to_pylist() for column in table.columns]
    for row in zip(*columns, strict=True):
        yield dict(zip(names, row, strict=True))


def _sync_marker(name: str, first: pa.Table, rows: int) -> bytes:
    """16 bytes that depend on the content only.

    They must not be guessable from outside the table, or a value could hold them and cut
    a block in two for readers that look for them.
    """
    digest = hashlib.sha256(f"hadabeam {name} {rows}\n".encode())
    for row in row_dicts(as_text(first.slice(0, _MARKER_ROWS))):
        digest.update(orjson.dumps(row))
    return digest.digest()[:16]


def as_text(table: pa.Table) -> pa.Table:
    """Timestamps as ISO 8601, bytes as base64."""
    for index, field in enumerate(table.schema):
        convert: Callable[[Any], str]
        if pa.types.is_timestamp(field.type):
            convert, column = iso_time, table.column(index).cast(pa.int64())
        elif pa.types.is_binary(field.type):
            convert, column = _base64, table.column(index)
        else:
            continue
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.chunks else pa.array([], column.type)
        # A table has few different times, so each is written once.
        encoded = column.dictionary_encode()
        texts = pa.array([convert(item) for item in encoded.dictionary.to_pylist()], pa.string())
        table = table.set_column(index, field.name, texts.take(encoded.indices))
    return table


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def iso_time(microseconds: int) -> str:
    """A time in ISO 8601 and UTC, with a fraction only where there is one.

    Raises:
      OverflowError: if the year is not in 1 to 9999.
    """
    time = _EPOCH + datetime.timedelta(microseconds=microseconds)
    return time.isoformat() + "Z"
