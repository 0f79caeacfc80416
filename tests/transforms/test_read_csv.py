"""CSV: quoted line breaks, awkward quotes, ragged records, headers."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hadabeam.mechanisms.errors import InputError, ParameterError
from hadabeam.transforms.blocks import Block
from hadabeam.transforms.csv_format import CsvParser, Header, check_delimiter, read_header
from hadabeam.transforms.fields import RecordFields
from hadabeam.transforms.streams import FileSource
from hadabeam.transforms.texts import to_text

FIELDS = RecordFields("user", "page")
HEADER = Header(("user", "page", "other"), ",", 0)
RECORDS = st.one_of(
    st.lists(st.sampled_from(["a", "", '"q"', '"a ""b"" c"', '"x\ny"', '"r\r\n"', "é", '"m,n"']),
             min_size=3, max_size=3).map(",".join),
    st.lists(st.sampled_from([*'aé",;\r\0 ', '""', "\n", "b,c,d"]), max_size=8).map("".join),
)  # fmt: skip


def texts(parser: CsvParser, data: bytes) -> tuple[list[list[Any]], list[int], list[int]]:
    rows = parser.parse(Block(0, bytearray(data)))
    columns = [to_text(column).to_pylist() for column in rows.columns]
    return (
        [list(row) for row in zip(*columns, strict=True)],
        rows.positions.tolist(),
        rows.bad_positions.tolist(),
    )


@settings(max_examples=200)
@given(
    st.lists(RECORDS, max_size=6),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.sampled_from([b"", b"\xff"]),
)
@example(["\ra,b,c", "d,e,f\r"], "\r\n", True, b"")
@example(['"a"\r,b,c'], "\n", True, b"")
def test_a_record_does_not_depend_on_its_block(
    records: list[str], newline: str, last: bool, foreign: bytes
) -> None:
    data = newline.join(records).encode() + foreign + (newline.encode() if last else b"")
    parser = CsvParser("log", HEADER, ["user", "page"])
    expected: list[list[Any]] = []
    good: list[int] = []
    bad: list[int] = []
    for start, end, _ in parser.cutter.walk(data):
        record = data[start:end].removesuffix(b"\n").removesuffix(b"\r")
        if record:
            row = parser.read_record(record)
            (bad if row is None else good).append(start)
            expected += [] if row is None else [row]
    assert texts(parser, data) == (expected, good, bad)


def test_arrow_reads_regular_blocks() -> None:
    parser = CsvParser("log", HEADER, ["page"])
    data = bytearray(b'a,"x ""y""\n z",1\r\n,,\n')
    starts, _, regular = parser.cutter.records(data)
    assert regular
    columns = parser._fast(data, len(starts))
    assert columns is not None
    assert columns[0].to_pylist() == ['x "y"\n z', ""]


@pytest.mark.parametrize(
    ("record", "row"),
    [
        (b"a,b,c", ["a", "b"]),
        (b',"",', [None, None]),
        (b'"a""b","c,d",', ['a"b', "c,d"]),
        (b'5" pipe,"x" y,', ['5" pipe', "x y"]),
        (b"a,b", None),
        (b"a,b,c,d", None),
        (b'a,"b,c', None),
        (b"a\0,b,c", ["a\0", "b"]),
        (b"\xff,b,c", None),
    ],
)
def test_the_rule_for_a_record(record: bytes, row: list[str | None] | None) -> None:
    assert CsvParser("log", HEADER, ["user", "page"]).read_record(record) == row


@pytest.mark.parametrize("irregular", [False, True])
@pytest.mark.parametrize("split_bytes", [1, 30, 1000, 10**6])
@pytest.mark.parametrize("block_bytes", [1, 50, 10**6])
def test_ranges_do_not_cut_quoted_line_breaks(
    files: Any, irregular: bool, split_bytes: int, block_bytes: int
) -> None:
    rows = [f'u{i},"line\nbreak ""{i % 3}"", and\r\nmore",\n' for i in range(30)]
    if irregular:
        rows.insert(15, 'u99,5" pipe,\n')
    path = files.write_bytes("log.csv", ("user,page,x\n" + "".join(rows)).encode())
    found = files.read(path, FIELDS, split_bytes=split_bytes, block_bytes=block_bytes)
    expected = {(f"u{i}", f'line\nbreak "{i % 3}", and\r\nmore'): 1 for i in range(30)}
    assert found.rows == {**expected, **({("u99", '5" pipe'): 1} if irregular else {})}
    assert found.tally == {"records_read": 30 + irregular}


def test_positions(files: Any) -> None:
    text = 'user,page\n\n"a\nb",x\nshort\n,x\r\n'
    path = files.write_bytes("log.csv", text.encode())
    found = files.read(path, FIELDS, raw=True)
    assert [letter[::2] for letter in found.letters] == [
        ("unparseable", text.index("short")),
        ("missing_user", text.index(",x\r")),
    ]
    assert [letter.raw for letter in found.letters] == [b"short", b",x"]


@pytest.mark.parametrize(
    ("name", "text", "delimiter"),
    [
        ("log.csv", "user,page;x\na,b;c\n", ","),
        ("log.csv", 'user;"p,a,g,e"\n', ";"),
        ("log.csv", "user|page\n", "|"),
        ("log.csv", "user\tpage\n", "\t"),
        ("log.tsv", "user,x,y\tpage\n", "\t"),
        ("log.csv", "user\n", ","),
    ],
)
def test_delimiter(name: str, text: str, delimiter: str) -> None:
    header = read_header(FileSource(io.BytesIO(text.encode())), name)
    assert header is not None
    assert header.delimiter == delimiter


def test_header() -> None:
    data = b"\xef\xbb\xbf\r\n user ,page\r\na,b\n"
    header = read_header(FileSource(io.BytesIO(data)), "log.csv")
    assert header == Header(("user", "page"), ",", data.index(b"a,b"))
    quoted = read_header(FileSource(io.BytesIO(b'"a ""b""","c\nd"\n1,2\n')), "log.csv")
    assert quoted == Header(('a "b"', "c\nd"), ",", 16)
    assert read_header(FileSource(io.BytesIO(b"\n\n")), "log.csv") is None


@pytest.mark.parametrize("data", [b"us\xffer,page\n", b"user\0,page\n", b'"user,page\n'])
def test_what_is_no_header(files: Any, data: bytes) -> None:
    path = files.write_bytes("log.csv", data)
    with pytest.raises(InputError, match="does not start with a CSV header"):
        files.read(path, FIELDS)


def test_missing_and_double_columns(files: Any) -> None:
    path = files.write_bytes("log.csv", b"user,pages,secret\nsecret-user,secret-page,x\n")
    with pytest.raises(InputError, match="has no field 'page'; did you mean 'pages'") as caught:
        files.read(path, FIELDS)
    assert "secret-" not in str(caught.value)
    # A file without a header: its first line is a record, and no message may quote it.
    path = files.write_bytes("bare.csv", b"secret-user,secret-page\nsecret-user,x\n")
    with pytest.raises(InputError, match=r"none of the fields 'user', 'page'; does") as caught:
        files.read(path, FIELDS)
    assert "secret-" not in str(caught.value)
    # One whose names are like those that are asked for is a header.
    for header, hint in (("User,Page", "User"), ("user_id,pages", "user_id")):
        path = files.write_bytes("other.csv", f"{header}\na,b\n".encode())
        with pytest.raises(InputError, match=f"no field 'user'; did you mean '{hint}'"):
            files.read(path, FIELDS)
    path = files.write_bytes("two.csv", b"user,page,page\n")
    with pytest.raises(InputError, match="has 2 columns 'page'"):
        files.read(path, FIELDS)


def test_columns_with_dots(files: Any) -> None:
    path = files.write_bytes("log.csv", b"user,request.path\na,x\n")
    for field in ("request.path", r"request\.path"):
        assert files.read(path, RecordFields("user", field)).rows == {("a", "x"): 1}


def test_header_only_and_empty(files: Any) -> None:
    for data in (b"", b"user,page", b"user,page\n\n\n"):
        found = files.read(files.write_bytes("log.csv", data), FIELDS)
        assert (found.rows, found.letters, found.tally) == ({}, [], {})


@pytest.mark.parametrize("delimiter", ["", ",,", '"', "\n", "é"])
def test_bad_delimiter(delimiter: str) -> None:
    with pytest.raises(ParameterError, match="delimiter must be 'auto' or one ASCII"):
        check_delimiter(delimiter)
