"""Avro rows straight from Arrow columns, without a Python object for each value.

A row in Avro's binary encoding is the concatenation of its fields. So a table is encoded
column by column into pieces (a length for each row, and the bytes of all rows one after
another), and the pieces are then laid into place. A million estimates take about two
seconds, against fourteen when each row goes through a Python dict.

Covers what tables of hadabeam hold: ``boolean``, ``int``, ``long``, ``double``, ``string``,
``bytes``, logical types on these, and unions of null and one of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import pyarrow as pa

#: Bytes of rows in a block, before compression.
BLOCK_BYTES = 1 << 18
#: Estimates are mostly digits of noise, on which a higher level is only slower.
_LEVEL = 1

_Array = np.ndarray[Any, Any]
#: ``(lengths int64[n], bytes uint8[sum(lengths)])``.
_Piece = tuple[_Array, _Array]


def write_blocks(file: IO[bytes], table: pa.Table, schema: dict[str, Any], sync: bytes) -> None:
    """Writes a table's rows as blocks of an Avro object container with codec ``deflate``.

    Args:
      file: an open binary file that has its header already.
      table: the columns of the schema, in order, each in one chunk.
      schema: the Avro schema of a record.
      sync: the file's 16-byte sync marker.

    Raises:
      NotImplementedError: if a field's type is none of those above.
    """
    data, ends = encode_rows(table, schema)
    for start, stop in _blocks(ends):
        first = ends[start - 1] if start else 0
        packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        packed = packer.compress(data[first : ends[stop - 1]].data) + packer.flush()
        numbers = _varints(np.array([stop - start, len(packed)], np.int64))[1]
        file.write(numbers.tobytes() + packed + sync)


def _blocks(ends: _Array) -> Iterator[tuple[int, int]]:
    """Row ranges of at least one row and about :data:`BLOCK_BYTES`."""
    start = 0
    while start < len(ends):
        limit = (ends[start - 1] if start else 0) + BLOCK_BYTES
        stop = max(int(np.searchsorted(ends, limit, side="right")), start + 1)
        yield start, stop
        start = stop


def encode_rows(table: pa.Table, schema: dict[str, Any]) -> tuple[_Array, _Array]:
    """The rows of a table in Avro's binary encoding.

    Returns:
      ``(data uint8[total], ends int64[n])``: row i is ``data[ends[i - 1]:ends[i]]``.

    Raises:
      NotImplementedError: if a field's type is not covered.
    """
    pieces: list[_Piece] = []
    for field, column in zip(schema["fields"], table.columns, strict=True):
        pieces += _column(_one_chunk(column), field["type"])
    lengths = sum((piece[0] for piece in pieces), np.zeros(table.num_rows, np.int64))
    ends = np.cumsum(lengths)
    data = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    places = ends - lengths
    for piece_lengths, content in pieces:
        _lay(data, places, piece_lengths, content)
        places += piece_lengths
    return data, ends


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _lay(data: _Array, places: _Array, lengths: _Array, content: _Array) -> None:
    """Copies each row's bytes of a piece to the row's place."""
    if not len(content):
        return
    if lengths.min() == lengths.max():
        each = int(lengths[0])
        data[places[:, None] + np.arange(each)] = content.reshape(-1, each)
        return
    before = np.cumsum(lengths) - lengths
    data[np.repeat(places - before, lengths) + np.arange(len(content))] = content


def _column(column: pa.Array, kind: Any) -> list[_Piece]:
    n = len(column)
    if not isinstance(kind, list):
        return _values(column, kind)
    branches = [branch for branch in kind if branch != "null"]
    if len(branches) != 1 or kind[0] != "null":
        raise NotImplementedError("a union is null and one other type, in this order")
    valid = np.asarray(column.is_valid())
    # The branch's index, as a varint: 0 is null, 1 the other.
    index = (np.ones(n, np.int64), np.where(valid, 2, 0).astype(np.uint8))
    pieces = [index]
    for lengths, content in _values(column.drop_null(), branches[0]):
        spread = np.zeros(n, np.int64)
        spread[valid] = lengths
        pieces.append((spread, content))
    return pieces


def _values(column: pa.Array, kind: Any) -> list[_Piece]:
    """The pieces of values without nulls."""
    name = kind["type"] if isinstance(kind, dict) else kind
    n = len(column)
    if name == "double":
        numbers = np.ascontiguousarray(column.to_numpy(zero_copy_only=False), "<f8")
        return [(np.full(n, 8, np.int64), numbers.view(np.uint8))]
    if name == "boolean":
        flags = column.to_numpy(zero_copy_only=False).astype(np.uint8)
        return [(np.ones(n, np.int64), flags)]
    if name in ("int", "long"):
        whole = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return [_varints(whole)]
    if name in ("string", "bytes"):
        return _texts(column)
    raise NotImplementedError(f"no encoding for the Avro type {name}")


def _texts(column: pa.Array) -> list[_Piece]:
    _, offsets, content = column.buffers()
    n = len(column)
    if not n:
        return []
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    ends = np.frombuffer(offsets, width)[column.offset : column.offset + n + 1].astype(np.int64)
    lengths = np.diff(ends)
    data = np.frombuffer(content, np.uint8) if content else np.zeros(0, np.uint8)
    return [_varints(lengths), (lengths, data[ends[0] : ends[-1]])]


def _varints(numbers: _Array) -> _Piece:
    """Avro's ints and longs: zigzag, then 7 bits a byte, the least first."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    lengths = np.ones(len(numbers), np.int64)
    for groups in range(1, 10):
        lengths += zigzag >= np.uint64(1 << (7 * groups))
    most = int(lengths.max(initial=1))
    shifts = np.arange(most, dtype=np.uint64) * np.uint64(7)
    groups_of = (zigzag[:, None] >> shifts) & np.uint64(0x7F)
    more = np.arange(most) < lengths[:, None] - 1
    octets = (groups_of | np.where(more, np.uint64(0x80), np.uint64(0))).astype(np.uint8)
    return lengths, octets[np.arange(most) < lengths[:, None]]
