"""Avro rows made of columns are what fastavro makes of dicts, byte for byte."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadabeam.transforms import avro_blocks
from hadabeam.transforms.avro_blocks import encode_rows, write_blocks

INT64 = st.integers(-(2**63), 2**63 - 1)
TYPES: dict[str, tuple[Any, pa.DataType, st.SearchStrategy[Any]]] = {
    "flag": ("boolean", pa.bool_(), st.booleans()),
    "int": ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", pa.int64(), INT64),
    "double": ("double", pa.float64(), st.floats()),
    "text": ("string", pa.string(), st.text(max_size=200)),
    "bytes": ("bytes", pa.binary(), st.binary(max_size=200)),
    "time": (
        {"type": "long", "logicalType": "timestamp-micros"},
        pa.timestamp("us", "UTC"),
        INT64,
    ),
}
FIELDS = [
    *({"name": name, "type": kind} for name, (kind, _, _) in TYPES.items()),
    *({"name": f"maybe_{name}", "type": ["null", kind]} for name, (kind, _, _) in TYPES.items()),
]
SCHEMA = {"type": "record", "name": "Row", "fields": FIELDS}
ARROW = pa.schema(
    [(name, kind) for name, (_, kind, _) in TYPES.items()]
    + [(f"maybe_{name}", kind) for name, (_, kind, _) in TYPES.items()]
)
ROW = st.fixed_dictionaries(
    {
        **{name: values for name, (_, _, values) in TYPES.items()},
        **{f"maybe_{name}": st.none() | values for name, (_, _, values) in TYPES.items()},
    }
)


def columns(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, ARROW)


def by_fastavro(row: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, SCHEMA, row)
    return file.getvalue()


@settings(max_examples=200, deadline=None)
@given(st.lists(ROW, max_size=8), st.integers(0, 3))
def test_rows_are_those_of_fastavro(rows: list[dict[str, Any]], skip: int) -> None:
    data, ends = encode_rows(columns(rows).slice(skip), SCHEMA)
    starts = [0, *ends[:-1]]
    encoded = [data[start:end].tobytes() for start, end in zip(starts, ends, strict=False)]
    assert encoded == [by_fastavro(row) for row in rows[skip:]]


@pytest.mark.parametrize("block_bytes", [1, 100, 1 << 18])
def test_blocks_are_read_back(block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_blocks, "BLOCK_BYTES", block_bytes)
    schema = {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "number", "type": "long"}, {"name": "text", "type": "string"}],
    }
    rows = [{"number": 3**i, "text": "x" * (i * i % 70)} for i in range(39)]
    file = io.BytesIO()
    fastavro.write.Writer(file, schema, codec="deflate", sync_marker=b"s" * 16)
    table = pa.Table.from_pylist(rows)
    write_blocks(file, table.slice(0, 0), schema, b"s" * 16)
    write_blocks(file, table, schema, b"s" * 16)
    file.seek(0)
    assert list(fastavro.reader(file)) == rows
    file.seek(0)
    blocks = [block.num_records for block in fastavro.block_reader(file)]
    assert len(blocks) == {1: 39, 100: 19, 1 << 18: 1}[block_bytes]


def test_chunked_columns() -> None:
    schema = {"type": "record", "name": "Row", "fields": [{"name": "n", "type": "long"}]}
    table = pa.table({"n": pa.chunked_array([[1, 2], [], [3]], pa.int64())})
    data, ends = encode_rows(table, schema)
    assert data.tolist() == [2, 4, 6]
    assert ends.tolist() == [1, 2, 3]


@pytest.mark.parametrize("kind", ["float", ["string", "null"], ["null", "int", "long"]])
def test_other_types_are_refused(kind: Any) -> None:
    schema = {"type": "record", "name": "Row", "fields": [{"name": "n", "type": kind}]}
    with pytest.raises(NotImplementedError):
        encode_rows(pa.table({"n": pa.array(np.zeros(1))}), schema)
