"""Reads CSV and TSV: a header line, then one record a line or quoted over several.

Every field is text, and an empty one is missing. Arrow parses whole blocks; where it could
differ from the rule for single records (:meth:`CsvParser.read_record`), or fails, a
block is read record by record.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv

from ..mechanisms.errors import InputError, ParameterError
from .blocks import Block, read_blocks
from .csv_ranges import CsvCutter
from .fields import missing_field, nearest, parse_path
from .rows import Rows
from .streams import Source
from .texts import is_utf8

Array = np.ndarray[Any, Any]

_DELIMITERS = ",\t;|"
_HEADER_BYTES = 1 << 16
_CLOSE = re.compile(rb'[^"]*(?:""[^"]*)*"')


class Header(NamedTuple):
    """The header of a file.

    Attributes:
      names: of the columns, without blanks around them.
      delimiter: the character between fields.
      end: where in the (decompressed) file the first record after it starts.
    """

    names: tuple[str, ...]
    delimiter: str
    end: int


def check_delimiter(delimiter: str) -> str:
    """Returns ``delimiter``, or says what it has to be.

    Raises:
      ParameterError: if it is neither ``auto`` nor one ASCII character that can part fields.
    """
    if delimiter != "auto" and (
        len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0'
    ):
        raise ParameterError(
            "delimiter must be 'auto' or one ASCII character such as ',' or a tab, "
            "and no quote or line end"
        )
    return delimiter


def read_header(source: Source, name: str, delimiter: str = "auto") -> Header | None:
    """Reads the header of a file; None if the file is empty.

    Args:
      source: the file from its start.
      name: the file's name. The ending ``.tsv`` or ``.tab`` means tabs.
      delimiter: or ``auto``: of comma, tab, semicolon and bar the one that is in
        the header most often outside quotes.

    Raises:
      InputError: if the header is not UTF-8 text.
    """
    cutter = CsvCutter("," if delimiter == "auto" else delimiter)
    for block in read_blocks(source, cutter, name=name, block_bytes=_HEADER_BYTES):
        if delimiter == "auto":
            first = next(cutter.walk(block.data))[1]
            cutter = CsvCutter(guess_delimiter(block.data[:first], name))
        for start, end, _ in cutter.walk(block.data):
            record = block.data[start:end].strip(b"\r\n")
            if not record:
                continue
            fields = split_record(bytes(record), cutter) if is_utf8(record) else None
            if fields is None or b"\0" in record:
                raise InputError(
                    f"{name} does not start with a CSV header in UTF-8; "
                    "give the right input format, or convert the file"
                )
            names = tuple(field.strip() for field in fields)
            return Header(names, cutter.delimiter, block.offset + end)
    return None


def guess_delimiter(header: bytes | bytearray, name: str) -> str:
    """The delimiter of a file by its name or its header line."""
    if name.lower().endswith((".tsv", ".tab")):
        return "\t"
    unquoted = b"".join(bytes(header).split(b'"')[::2]).decode("utf-8", "replace")
    return max(_DELIMITERS, key=unquoted.count)


def split_record(record: bytes, cutter: CsvCutter) -> list[str] | None:
    """The fields of one record without its line end; None if a quote does not close."""
    fields = []
    position = 0
    while True:
        match = cutter.field.match(record, position)
        field = match[0] if match else b""
        position += len(field)
        if field[:1] == b'"':
            close = _CLOSE.match(field, 1).end() - 1  # type: ignore[union-attr]
            field = field[1:close].replace(b'""', b'"') + field[close + 1 :]
        fields.append(field.decode())
        if position == len(record):
            return fields
        if record[position : position + 1] != cutter.delimiter.encode():
            return None
        position += 1


class CsvParser:
    """Turns blocks of CSV into columns. One parser may serve several threads.

    Attributes:
      header: the header of the file.
      columns: numbers of the columns that are read.

    Raises:
      InputError: if a field is no column of the file, or of several.
    """

    def __init__(self, name: str, header: Header, fields: Sequence[str]) -> None:
        self.header = header
        self.cutter = CsvCutter(header.delimiter)
        if not any(_places(header.names, field) for field in fields) and not all(
            nearest(field, header.names) is not None for field in fields
        ):
            # Perhaps it is a record: its parts are no fields, nor like them. A message must not
            # quote one.
            raise InputError(
                f"the first line of {name} names none of the fields "
                f"{', '.join(map(repr, fields))}; does the file begin with a header, and are they "
                "written there in this way?"
            )
        self.columns = tuple(_find(name, header.names, field) for field in fields)
        numbers = [str(number) for number in range(len(header.names))]
        wanted = [str(number) for number in self.columns]
        self._parse = pyarrow.csv.ParseOptions(
            delimiter=header.delimiter, newlines_in_values=True, ignore_empty_lines=True
        )
        self._convert = pyarrow.csv.ConvertOptions(
            include_columns=wanted,
            column_types={number: pa.string() for number in wanted},
            strings_can_be_null=False,
        )
        self._names = numbers

    def parse(self, block: Block) -> Rows:
        """The columns of a block: string[n] each, null where a field is empty."""
        data = block.data
        starts, stops, regular = self.cutter.records(data)
        columns = self._fast(data, len(starts)) if regular and len(starts) else None
        if columns is not None:
            return Rows.of(columns, block, starts, stops)
        rows: list[list[str | None]] = []
        bad: list[int] = []
        for number, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            row = self.read_record(bytes(data[start:stop]))
            if row is None:
                bad.append(number)
            else:
                rows.append(row)
        columns = [
            pa.array([row[i] for row in rows], pa.string()) for i in range(len(self.columns))
        ]
        return Rows.of(columns, block, starts, stops, bad)

    def read_record(self, record: bytes) -> list[str | None] | None:
        """The texts of one record without its line end; None if it is unparseable.

        It is unparseable if it is not UTF-8, if a quote does not close, or if it has more
        or fewer fields than the header. What follows a closing quote belongs to the field.
        """
        fields = split_record(record, self.cutter) if is_utf8(record) else None
        if fields is None or len(fields) != len(self.header.names):
            return None
        return [fields[number] or None for number in self.columns]

    def _fast(self, data: bytearray, records: int) -> list[pa.Array] | None:
        # Arrow ends lines at a lone carriage return, which is an ordinary character here.
        if data.count(b"\r") != data.count(b"\r\n") or not is_utf8(data):
            return None
        read = pyarrow.csv.ReadOptions(
            use_threads=False, block_size=len(data) + 64, column_names=self._names
        )
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(pa.py_buffer(data)), read, self._parse, self._convert
            )
        except pa.ArrowException:  # its message quotes the data
            return None
        if table.num_rows != records:
            return None
        return [_chunk(table.column(str(number))) for number in self.columns]


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _places(names: Sequence[str], field: str) -> list[int]:
    """The columns that have a field's name: as it stands, or else with its dots unescaped."""
    for wanted in dict.fromkeys((field, *parse_path(field)[:1])):
        if wanted in names and (wanted == field or len(parse_path(field)) == 1):
            return [place for place, given in enumerate(names) if given == wanted]
    return []


def _find(name: str, names: Sequence[str], field: str) -> int:
    found = _places(names, field)
    if not found:
        raise missing_field(name, field, names)
    if len(found) > 1:
        given = names[found[0]]
        raise InputError(f"{name} has {len(found)} columns {given!r}; rename them")
    return found[0]
