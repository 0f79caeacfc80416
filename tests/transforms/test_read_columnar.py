"""Parquet and Avro: types become the canonical text; parts are read once; damage is told."""

from __future__ import annotations

import datetime
import decimal
import enum
import io
import json
import uuid
import zlib
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from hadabeam.mechanisms.errors import InputError
from hadabeam.transforms.avro_container import MAGIC, one_block, write_long
from hadabeam.transforms.extract import Extractor
from hadabeam.transforms.fields import RecordFields
from hadabeam.transforms.reading import read_split
from hadabeam.transforms.records import canonical
from hadabeam.transforms.rows import Rows
from hadabeam.transforms.splits import plan_splits
from hadabeam.transforms.texts import to_text

FIELDS = RecordFields("user", "page")
UTC = datetime.timezone.utc
MOMENT = datetime.datetime(2024, 3, 1, 10, 30, 5, 250_000)


@pytest.mark.parametrize(
    ("values", "kind", "texts"),
    [
        ([7, -8, None], pa.int8(), ["7", "-8", None]),
        ([2**64 - 1], pa.uint64(), ["18446744073709551615"]),
        ([7.0, -0.0, 0.1, 1e300, float("nan")], pa.float64(), ["7", "0", "0.1", "1e+300", None]),
        ([7.0, 0.1], pa.float32(), ["7", "0.10000000149011612"]),
        ([0.5], pa.float16(), ["0.5"]),
        ([True, False, None], pa.bool_(), ["true", "false", None]),
        (["a", "", None], pa.string(), ["a", None, None]),
        (["a"], pa.large_string(), ["a"]),
        (["a"], pa.string_view(), ["a"]),
        ([b"a", b"\xff", None], pa.binary(), ["a", "\\xff", None]),
        ([b"ab"], pa.binary(2), ["ab"]),
        ([b"ab"], pa.large_binary(), ["ab"]),
        ([decimal.Decimal("7.50"), decimal.Decimal("-0.00"), decimal.Decimal("100.00")],
         pa.decimal128(9, 2), ["7.5", "0", "100"]),
        ([datetime.date(2024, 3, 1)], pa.date32(), ["2024-03-01"]),
        ([MOMENT], pa.timestamp("us"), ["2024-03-01T10:30:05.25"]),
        ([MOMENT.replace(microsecond=0)], pa.timestamp("s", "UTC"), ["2024-03-01T10:30:05Z"]),
        ([MOMENT], pa.timestamp("ns", "Europe/Berlin"), ["2024-03-01T10:30:05.25Z"]),
        ([[1]], pa.list_(pa.int8()), [None]),
        ([{"a": 1}], pa.struct([("a", pa.int8())]), [None]),
        ([None], pa.null(), [None]),
        ([uuid.UUID(int=1).bytes], pa.uuid(),
         ["00000000-0000-0000-0000-000000000001"]),
    ],
)  # fmt: skip
def test_texts_of_arrow_columns(values: list[Any], kind: Any, texts: list[str | None]) -> None:
    column = pa.array(values, kind)
    assert to_text(column).to_pylist() == texts
    if not pa.types.is_nested(kind) and not pa.types.is_null(kind) and kind != pa.uuid():
        repeated = pa.concat_arrays([column, column]).slice(1)
        assert to_text(repeated).to_pylist() == (texts + texts)[1:]


@given(st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=9))
def test_dictionaries(values: list[str | None]) -> None:
    column = pa.array(values, pa.string()).dictionary_encode()
    assert to_text(column).to_pylist() == [value or None for value in values]


class _Page(str, enum.Enum):
    HOME = "home"


class _Code(enum.IntEnum):
    OK = 200


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.int64(7), "7"),
        (np.uint64(2**64 - 1), "18446744073709551615"),
        (np.float64(7.0), "7"),
        (np.float32(0.5), "0.5"),
        (np.bool_(True), "true"),
        (np.str_("a"), "a"),
        (np.bytes_(b"a"), "a"),
        (np.datetime64("2024-03-01T10:30:05.25", "ns"), "2024-03-01T10:30:05.25"),
        (np.datetime64("2024-03-01"), "2024-03-01T00:00:00"),
        (np.datetime64("NaT"), None),
        (np.longdouble(1), None),
        (decimal.Decimal("7.50"), "7.5"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (datetime.date(2024, 3, 1), "2024-03-01"),
        (bytearray(b"a"), "a"),
        (memoryview(b"\xff"), "\\xff"),
        ((1, 2), None),
        (_Page.HOME, "home"),
        (_Code.OK, "200"),
    ],
)
def test_texts_of_what_pairs_hold(value: Any, text: str | None) -> None:
    assert canonical(value) == text


@given(st.lists(st.floats(), max_size=20))
def test_floats_are_canonical(values: list[float]) -> None:
    column = pa.array(values, pa.float64())
    assert to_text(column).to_pylist() == [canonical(value) for value in values]


ROWS = [{"user": f"u{i}", "page": f"p{i % 7}", "other": "x" * 50} for i in range(1000)]
EXPECTED = {(row["user"], row["page"]): 1 for row in ROWS}


@pytest.mark.parametrize("format", ["parquet", "avro"])
@pytest.mark.parametrize("split_bytes", [1, 3000, 10**9])
@pytest.mark.parametrize("threads", [0, 2])
def test_parts_are_read_once(files: Any, format: str, split_bytes: int, threads: int) -> None:
    path = files.write(ROWS, format)
    splits = plan_splits(path, 10**6, split_bytes=split_bytes)
    assert len(splits) > 5 if split_bytes == 1 else len(splits) >= 1
    assert (len(splits) == 1) == (split_bytes == 10**9)
    found = files.read(path, FIELDS, split_bytes=split_bytes, threads=threads)
    assert found.rows == EXPECTED
    assert found.tally == {"records_read": 1000}


@pytest.mark.parametrize("format", ["parquet", "avro"])
@pytest.mark.parametrize("split_bytes", [1, 10**9])
def test_positions_are_row_numbers(files: Any, format: str, split_bytes: int) -> None:
    rows = [{"user": None if i % 250 == 3 else "u", "page": "p"} for i in range(1000)]
    path = files.write(rows, format)
    found = files.read(path, FIELDS, split_bytes=split_bytes)
    assert [(x.reason, x.position) for x in found.letters] == [
        ("missing_user", n) for n in (3, 253, 503, 753)
    ]


def test_parquet_structs(files: Any) -> None:
    nested = pa.array(
        [{"path": "x", "n": 1}, None, {"path": None, "n": 2}],
        pa.struct([("path", pa.string()), ("n", pa.int32())]),
    )
    table = pa.table({"user": ["a", "b", "c"], "request": nested, "a.b": ["d", "o", "t"]})
    out = io.BytesIO()
    pq.write_table(table, out)
    path = files.write_bytes("log.parquet", out.getvalue())
    found = files.read(path, RecordFields("user", "request.path", key="request.n"))
    assert found.rows == {("a", "x", "1"): 1, ("b", None, None): 1, ("c", None, "2"): 1}
    for field in ("a.b", r"a\.b"):
        found = files.read(path, RecordFields("user", field))
        assert found.rows == {("a", "d"): 1, ("b", "o"): 1, ("c", "t"): 1}
    with pytest.raises(InputError, match=r"has no field 'request.paths'; did you mean 'request.p"):
        files.read(path, RecordFields("user", "request.paths"))
    with pytest.raises(InputError, match=r"has no field 'user.x'"):
        files.read(path, RecordFields("user.x", "user"))


def _avro(path: Path, schema: dict[str, Any], rows: list[Any], **options: Any) -> str:
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, **options)
    return str(path)


def test_avro_types(files: Any, tmp_path: Path) -> None:
    stamp = {"type": "long", "logicalType": "timestamp-millis"}
    inner = {"type": "record", "name": "inner", "fields": [{"name": "path", "type": "string"}]}
    schema = {
        "type": "record",
        "name": "visit",
        "fields": [
            {"name": "user", "type": ["null", "string", "long"]},
            {"name": "time", "type": ["null", stamp]},
            {"name": "request", "type": ["null", inner]},
            {"name": "again", "type": "inner"},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
            {"name": "blob", "type": "bytes"},
            {"name": "share", "type": "float"},
            {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["A", "B"]}},
            *({"name": f"f{i}", "type": "string", "default": ""} for i in range(20)),
        ],
    }
    first = {
        "user": 7,
        "time": MOMENT.replace(tzinfo=UTC),
        "request": {"path": "x"},
        "again": {"path": "y"},
        "day": datetime.date(2024, 3, 1),
        "blob": b"\xff",
        "share": 0.5,
        "kind": "B",
    }
    second = {**first, "user": "seven", "time": None, "request": None}
    path = _avro(tmp_path / "log.avro", schema, [first, second])
    micros = 1_709_289_005_250_000
    for value, texts in {
        "request.path": ("x", None),
        "again.path": ("y", "y"),
        "day": ("2024-03-01", "2024-03-01"),
        "time": ("2024-03-01T10:30:05.25Z", None),
        "blob": ("\\xff", "\\xff"),
        "share": ("0.5", "0.5"),
        "kind": ("B", "B"),
        "request": (None, None),
    }.items():
        found = files.read(path, RecordFields("user", value))
        assert found.rows == {("7", texts[0]): 1, ("seven", texts[1]): 1}, value
    found = files.read(path, RecordFields("user", "kind", time="time"))
    assert found.rows == {("7", "B", micros): 1}
    assert found.tally == {"records_read": 2, "bad_time": 1}
    with pytest.raises(InputError, match="has no field 'users'; did you mean 'user'"):
        files.read(path, RecordFields("users", "kind"))


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "zstandard", "snappy"])
def test_avro_codecs(files: Any, codec: str) -> None:
    try:
        path = files.write(ROWS, "avro", codec=codec)
    except ValueError:  # fastavro writes it only with another library; we read it without
        path = _recompress(files, codec)
    assert files.read(path, FIELDS, split_bytes=3000).rows == EXPECTED


def _recompress(files: Any, codec: str) -> str:
    """Writes ROWS as one block in a codec that fastavro cannot write here."""
    path = Path(files.write(ROWS, "avro", codec="null", interval=10**9))
    schema = fastavro.reader(path.open("rb")).metadata["avro.schema"].encode()
    record = io.BytesIO()
    for row in ROWS:
        fastavro.schemaless_writer(record, json.loads(schema), row)
    data = record.getvalue()
    if codec == "snappy":
        packed = pa.compress(data, "snappy", asbytes=True) + zlib.crc32(data).to_bytes(4, "big")
    else:
        packed = zstandard.ZstdCompressor().compress(data)
    sync = bytes(range(16))
    parts = [MAGIC, write_long(2)]
    for text in (b"avro.schema", schema, b"avro.codec", codec.encode()):
        parts += [write_long(len(text)), text]
    parts += [b"\0", sync, write_long(len(ROWS)), write_long(len(packed)), packed, sync]
    return str(files.write_bytes("log.avro", b"".join(parts)))


def test_times_that_python_cannot_hold(files: Any, tmp_path: Path) -> None:
    stamp = {"type": "long", "logicalType": "timestamp-micros"}
    fields = [{"name": "user", "type": "string"}, {"name": "time", "type": "long"}]
    plain = {"type": "record", "name": "r", "fields": fields}
    path = tmp_path / "log.avro"
    stamped = {**plain, "fields": [fields[0], {"name": "time", "type": stamp}]}
    encoded = io.BytesIO()
    for row in ({"user": "a", "time": 2**62}, {"user": "b", "time": 5}):
        fastavro.schemaless_writer(encoded, plain, row)
    path.write_bytes(one_block(stamped, 2, encoded.getvalue()))
    found = files.read(str(path), RecordFields("user", "user", time="time"))
    assert found.rows == {("b", "b", 5): 1}
    assert found.tally == {"records_read": 2, "bad_time": 1}


def test_a_cut_avro_file_is_read_up_to_the_cut(files: Any, caplog: Any) -> None:
    path = Path(files.write(ROWS, "avro"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    for split_bytes in (1, 10**9):
        found = files.read(str(path), FIELDS, split_bytes=split_bytes)
        lost = found.tally["unparseable"]
        # The head of the cut block is there, and says how many rows it held.
        assert found.tally["records_read"] == 1000
        assert sum(found.rows.values()) == 1000 - lost
        assert [x.position for x in found.letters] == list(range(1000 - lost, 1000))
    assert "is cut or damaged from row" in caplog.text


def test_a_damaged_avro_block_loses_only_its_rows(files: Any) -> None:
    path = Path(files.write(ROWS, "avro"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    found = files.read(str(path), FIELDS)
    assert found.tally["records_read"] == 1000
    assert 0 < found.tally["unparseable"] < 100
    assert sum(found.rows.values()) == 1000 - found.tally["unparseable"]


def test_gzipped_avro_truncated(files: Any) -> None:
    path = Path(files.write(ROWS, "avro", "gzip"))
    assert files.read(str(path), FIELDS).rows == EXPECTED
    path.write_bytes(path.read_bytes()[:-100])
    found = files.read(str(path), FIELDS)
    assert found.tally["unparseable"] >= 1
    assert 0 < sum(found.rows.values()) < 1000


@pytest.mark.parametrize("format", ["parquet", "avro"])
@pytest.mark.parametrize("kept", [3, 40])
def test_damaged_headers(files: Any, format: str, kept: int) -> None:
    path = Path(files.write([{"user": "canary-user", "page": "canary-page"}] * 9, format))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError, match=r"is no (Parquet|Avro) file, or") as caught:
        files.read(str(path), FIELDS)
    assert caught.value.__cause__ is None
    assert "canary" not in str(caught.value)


def test_damaged_parquet_pages(files: Any) -> None:
    path = Path(files.write(ROWS, "parquet"))
    data = bytearray(path.read_bytes())
    data[4:4000] = bytes(3996)
    path.write_bytes(data)
    with pytest.raises(InputError, match="or is damaged or cut"):
        files.read(str(path), FIELDS)


def test_unknown_avro_codec_and_no_records(files: Any, tmp_path: Path) -> None:
    path = Path(files.write(ROWS, "avro"))
    path.write_bytes(path.read_bytes().replace(b"deflate", b"deflatf"))
    with pytest.raises(InputError, match="unknown codec; write it with one of null, deflate"):
        files.read(str(path), FIELDS)
    texts = _avro(tmp_path / "texts.avro", {"type": "string"}, ["a"])
    with pytest.raises(InputError, match="holds no records with fields"):
        files.read(texts, FIELDS)


def test_batches_are_in_buffers_of_their_own(files: Any) -> None:
    whole = pa.array([f"user{i}" for i in range(10_000)])
    piece = whole.slice(10, 5)
    rows = Rows([piece, piece], np.arange(5))
    batch = Extractor(FIELDS, "log")(rows).records
    assert batch.column("user").get_total_buffer_size() < 1000
    assert batch.column("user").equals(piece)
    path = files.write(ROWS, "parquet", group=10**6)
    (split,) = plan_splits(path, 10**6)
    for found in read_split(split, FIELDS.columns, Extractor(FIELDS, path)):
        column = found.records.column("user")
        assert column.get_total_buffer_size() <= 2 * column.nbytes + 4096
