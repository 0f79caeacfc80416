"""Reads JSON Lines: one record is one non-blank line that is an object.

Arrow parses whole blocks, many times faster than any parser a line at a time, but not by
our rule: it takes two objects on a line or one over several lines, minds the types of
columns, and fails for a whole block. So its result is used only where it must agree with the
rule for single lines (:meth:`JsonlParser.read_line`); all other blocks are read line by line.
What a line yields never depends on its block. ``tests/transforms/test_read_jsonl.py``
compares the two on generated and mutated lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from .blocks import Block
from .fields import Path
from .lines import BLANK, find_lines, join_lines
from .records import canonical
from .rows import Rows
from .texts import is_utf8

Array = np.ndarray[Any, Any]

_TYPES = (pa.string(), pa.int64(), pa.float64(), pa.bool_())
_EXACT = 2.0**53
_WIDE = 2.0**63
_DEEP = 200
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKETS = re.compile(rb"[\[\]{}]")
_LOOK = 64  # lines from which the types of columns are guessed


class _UnparseableError(Exception):
    """A line that is no record."""


class _Digits(str):
    """The digits of an integer in JSON, which are its canonical text whatever its size."""


class JsonlParser:
    """Turns blocks of lines into columns. One parser may serve several threads.

    Attributes:
      paths: the fields, each the names on the way into nested objects.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)
        # Arrow's schema cannot have a field both as text and as an object.
        self._one_schema = not any(
            path != other and path == other[: len(path)] for path in paths for other in paths
        )
        # What columns held last. A wrong guess costs time, never a different answer.
        self._types: tuple[pa.DataType, ...] | None = None

    def parse(self, block: Block) -> Rows:
        """The columns of a block: texts, or numbers or booleans where all rows have those."""
        starts, stops, uniform = find_lines(block.data)
        if not len(starts):
            return Rows.of(self._empty(), block, starts, stops)
        if self._types is None:
            self._types = self._guess(block.data, starts, stops)
        columns = self._fast(block.data, starts, stops, uniform)
        if columns is not None:
            return Rows.of(columns, block, starts, stops)
        return self._line_by_line(block, starts, stops)

    def _empty(self) -> list[pa.Array]:
        return [pa.array([], pa.string()) for _ in self.paths]

    # Many lines at a time.

    def _fast(
        self, data: bytearray, starts: Array, stops: Array, uniform: bool
    ) -> list[pa.Array] | None:
        """Arrow's columns if they are what :meth:`read_line` gives for each line, else None."""
        characters = np.frombuffer(data, np.uint8)
        # With these ends no object can span lines, and then equal numbers of lines and
        # rows mean that no line holds two.
        if (characters[starts] != 123).any() or (characters[stops - 1] != 125).any():
            return None
        if not self._one_schema or not is_utf8(data):
            return None
        if not uniform:
            data = join_lines(data, starts, stops)
        types = self._types or (pa.string(),) * len(self.paths)
        table = _read_json(data, _schema(self.paths, types))
        if table is None or table.num_rows != len(starts):
            return None
        columns = []
        for path, kind in zip(self.paths, types, strict=True):
            column = _descend(table, path)
            if kind == pa.float64() and pc.any(pc.greater_equal(pc.abs(column), _EXACT)).as_py():
                return None  # it may be an integer that a double cannot hold
            columns.append(column)
        return columns

    def _guess(self, data: bytearray, starts: Array, stops: Array) -> tuple[pa.DataType, ...]:
        rows = []
        for start, stop in zip(starts[:_LOOK].tolist(), stops[:_LOOK].tolist(), strict=True):
            try:
                rows.append([_find(orjson.loads(data[start:stop]), path) for path in self.paths])
            except orjson.JSONDecodeError:
                continue
        return _types_of(rows, len(self.paths))

    # A line at a time.

    def _line_by_line(self, block: Block, starts: Array, stops: Array) -> Rows:
        data = block.data
        rows: list[list[object]] = []
        bad: list[int] = []
        for number, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            try:
                rows.append(self._objects(bytes(data[start:stop])))
            except _UnparseableError:
                bad.append(number)
        self._types = _types_of(rows[-_LOOK:], len(self.paths))
        columns = [
            pa.array([canonical(row[i]) or None for row in rows], pa.string())
            for i in range(len(self.paths))
        ]
        return Rows.of(columns, block, starts, stops, bad)

    def read_line(self, line: bytes) -> list[str | None] | None:
        """The texts of one line's fields; None if the line is no record.

        A record is an object in UTF-8 as RFC 8259 defines it. NaN and Infinity (Python
        writes them) and nesting of any depth are let pass in fields that are not
        read. Of a name that is given twice the last counts. Objects, lists and
        NaN as a field's value are missing.
        """
        line = line.strip(BLANK)
        if not (line.startswith(b"{") and line.endswith(b"}")):
            return None
        try:
            return [canonical(value) or None for value in self._objects(line)]
        except _UnparseableError:
            return None

    def _objects(self, line: bytes) -> list[object]:
        if line[:1] != b"{":
            raise _UnparseableError
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            return self._lenient(line)
        values = [_find(record, path) for path in self.paths]
        if any(isinstance(value, float) and abs(value) >= _WIDE for value in values):
            # It may be an integer beyond 64 bits, whose digits are the id.
            return [_find(_with_digits(record, line), path) for path in self.paths]
        return values

    def _lenient(self, line: bytes) -> list[object]:
        """What arrow accepts beyond the standard: the fields that it can read."""
        if line[-1:] != b"}" or not is_utf8(line):
            raise _UnparseableError
        table = _read_json(line, pa.schema([]))
        if table is None or table.num_rows != 1:
            raise _UnparseableError
        values = []
        for path in self.paths:
            for kind in _TYPES:
                table = _read_json(line, _schema([path], [kind]))
                if table is not None:
                    values.append(_descend(table, path)[0].as_py())
                    break
            else:
                raise _UnparseableError
        return values


def _with_digits(record: Any, line: bytes) -> Any:
    """The record with its integers as :class:`_Digits`.

    A record nested so deeply that the answer could depend on how deep the caller's stack
    is stays as it is.
    """
    depth = deepest = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub(b"", line)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return record if deepest > _DEEP else json.loads(line, parse_int=_digits)


def _digits(text: str) -> _Digits:
    return _Digits("0" if text == "-0" else text)


def _find(record: Any, path: Path) -> object:
    for name in path:
        if not isinstance(record, dict):
            return None
        record = record.get(name)
    return record


def _types_of(rows: Sequence[Sequence[object]], columns: int) -> tuple[pa.DataType, ...]:
    """The arrow types with which the next block is tried."""
    types = []
    for column in range(columns):
        kinds = {type(row[column]) for row in rows} - {type(None)}
        if kinds and kinds <= {int, _Digits}:
            types.append(pa.int64())
        elif kinds and kinds <= {int, float, _Digits}:
            types.append(pa.float64())
        elif kinds == {bool}:
            types.append(pa.bool_())
        else:
            types.append(pa.string())
    return tuple(types)


def _schema(paths: Sequence[Path], types: Sequence[pa.DataType]) -> pa.Schema:
    """The schema of nothing but the fields ``paths``."""
    tree: dict[str, Any] = {}
    for path, kind in zip(paths, types, strict=True):
        branch = tree
        for name in path[:-1]:
            branch = branch.setdefault(name, {})
        branch[path[-1]] = kind
    return pa.schema(_arrow_fields(tree))


def _arrow_fields(tree: dict[str, Any]) -> list[pa.Field]:
    return [
        pa.field(name, pa.struct(_arrow_fields(kind)) if isinstance(kind, dict) else kind)
        for name, kind in tree.items()
    ]


def _read_json(data: bytes | bytearray, schema: pa.Schema) -> pa.Table | None:
    """Arrow's table, or None where it finds an error (its messages quote the data)."""
    read = pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 64)
    parse = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        return pyarrow.json.read_json(pa.BufferReader(pa.py_buffer(data)), read, parse)
    except (pa.ArrowException, UnicodeDecodeError):
        return None


def _descend(table: pa.Table, path: Path) -> pa.Array:
    column = table.column(path[0])
    column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    for name in path[1:]:
        # Takes the nulls of the parent along, which `field` would not.
        column = pc.struct_field(column, [name])
    return column
