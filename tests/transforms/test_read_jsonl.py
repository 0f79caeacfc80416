"""JSON Lines: what a line yields never depends on the lines beside it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hadabeam.transforms.blocks import Block
from hadabeam.transforms.fields import RecordFields, parse_path
from hadabeam.transforms.jsonl import JsonlParser
from hadabeam.transforms.lines import find_lines
from hadabeam.transforms.records import DeadLetter, canonical
from hadabeam.transforms.texts import to_text
from hadabeam.transforms.times import to_micros

FIELDS = ["user", "page", "request.path", r"a\.b", "time"]
PATHS = [parse_path(field) for field in FIELDS]

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 10),
    st.sampled_from([2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**40]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([7.0, -0.0, 1e3, 1e22, 5e-324, 1e300]),
    st.text(max_size=5),
    st.sampled_from(["", "7", "é", "\u2028", "\0", "a\nb", "\U0001f600", "]}", '"{', "NaN"]),
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(st.text(), SCALARS))
REQUESTS = st.one_of(VALUES, st.dictionaries(st.sampled_from(["path", "query"]), SCALARS))
NAMES = st.sampled_from(["user", "page", "a.b", "time", "other", "naïve"])
RECORDS = st.builds(
    lambda first, request: {**first, **({} if request == 0 else {"request": request})},
    st.dictionaries(NAMES, VALUES, max_size=5),
    REQUESTS,
)
# Most records alike, so that whole blocks are read by arrow.
PLAIN = st.one_of(
    st.fixed_dictionaries({"user": st.text(max_size=3), "page": st.text(max_size=3)}),
    st.fixed_dictionaries({"user": st.integers(-(2**63), 2**63 - 1), "time": st.integers()}),
    st.fixed_dictionaries({"user": st.floats(-1e16, 1e16), "page": st.booleans()}),
    st.fixed_dictionaries(
        {"user": st.none(), "request": st.fixed_dictionaries({"path": st.text(max_size=2)})}
    ),
)
LINES = st.one_of(
    st.tuples(st.one_of(RECORDS, PLAIN), st.booleans()).map(
        lambda pair: json.dumps(pair[0], ensure_ascii=pair[1]).encode("utf-8", "surrogatepass")
    ),
    st.sampled_from(
        [
            b'{"user": NaN}',
            b'{"user": "a", "other": NaN}',
            b'{"user": "a", "time": Infinity, "other": -Infinity}',
            b'{"user": "a", "user": "b"}',
            b'{"other": 1, "other": 2, "user": "a"}',
            b'{"user": "a"} {"user": "b"}',
            b'{"user": "a"}{',
            b'{"user": "\\ud800"}',
            b'{"user": "\xff"}',
            b'{"user": "a", "other": "\xff"}',
            b'{"user": "a\0b"}',
            b'{"user": "a"}\0{}',
            b'{"user": "a", "time": 1e400}',
            b'{"user": 007}',
            b'{"user": -0}',
            b'{"user": -0.0, "page": 7.0}',
            b'{"user": 12345678901234567890123, "page": 1.5}',
            b'{"user": "a", "request": {"path": "x", "path": "y"}}',
            b'{"user": "a", "request": {"path": "x"}, "request": null}',
            b'{"user": "a", "other": ' + b"[" * 2000 + b"]" * 2000 + b"}",
            b'{"user": 1e30, "other": ' + b"[" * 900 + b"]" * 900 + b"}",
            b'{"\\u0075ser": "escaped name"}',
            b'{"user": "a",}',
            b"{'user': 'a'}",
            b'{"user": "a" // comment\n}',
            b'\xef\xbb\xbf{"user": "a"}',
            b"[1, 2]", b'"user"', b"7", b"null", b"{}", b"{", b"}", b"", b"  ", b"\r", b"\0",
            b' \t{"user": "blanks"} \r',
            b'{"user": "cut',
            b'{"user": {"user": "nested"}}',
        ]
    ),
)  # fmt: skip
MUTATED = st.tuples(LINES, st.integers(0, 60), st.binary(max_size=2)).map(
    lambda t: (t[0][: t[1]] + t[2] + t[0][t[1] + 1 :]).replace(b"\n", b" ")
)


def texts(parser: JsonlParser, data: bytes) -> tuple[list[list[Any]], list[int], list[int]]:
    rows = parser.parse(Block(0, bytearray(data)))
    columns = [to_text(column).to_pylist() for column in rows.columns]
    return (
        [list(row) for row in zip(*columns, strict=True)],
        rows.positions.tolist(),
        rows.bad_positions.tolist(),
    )


@settings(max_examples=250)
@given(
    st.one_of(
        st.lists(st.one_of(LINES, MUTATED), max_size=6),
        st.lists(PLAIN.map(lambda record: json.dumps(record).encode()), min_size=1, max_size=4),
    ),
    st.booleans(),
)
@example([b'{"user": "a"}', b'{"user": "b"} {"user": "c"}', b"{}"], True)
@example([b'{"user": "a"', b"}", b'{"user": "b"}{"user": "c"}'], True)
@example([b'{"user": 1}', b'{"user": 9007199254740993}', b'{"user": 1.5}'], True)
def test_a_line_does_not_depend_on_its_block(lines: list[bytes], newline: bool) -> None:
    lines = [part for line in lines for part in line.split(b"\n")]
    data = b"\n".join(lines) + (b"\n" if newline else b"")
    expected: list[list[Any]] = []
    good, bad = [], []
    position = 0
    for line in lines:
        if stripped := line.strip(b" \t\r\n"):
            row = JsonlParser(PATHS).read_line(line)
            start = position + line.index(stripped)
            if row is None:
                bad.append(start)
            else:
                good.append(start)
                expected.append(row)
        position += len(line) + 1
    parser = JsonlParser(PATHS)
    # Twice, because what a parser has seen chooses the types it tries next.
    for _ in range(2):
        assert texts(parser, data) == (expected, good, bad)


@given(PLAIN, st.integers(2, 5))
def test_arrow_reads_blocks_of_like_records(record: dict[str, Any], n: int) -> None:
    line = json.dumps(record).encode() + b"\n"
    paths = [parse_path(name) for name in ("user", "page")]
    parser = JsonlParser(paths)
    data = bytearray(line * n)
    starts, stops, uniform = find_lines(data)
    parser._types = parser._guess(data, starts, stops)
    columns = parser._fast(data, starts, stops, uniform)
    if columns is None:  # only where a number is too large for its column
        numbers = [x for x in record.values() if isinstance(x, (int, float))]
        assert any(abs(number) >= 2**53 for number in numbers)
    else:
        assert to_text(columns[0]).to_pylist() == [canonical(record["user"]) or None] * n


@given(st.one_of(st.integers(-(10**20), 10**20), st.floats(-1e19, 1e19), st.text(max_size=8)))
def test_times_do_not_depend_on_how_they_were_read(time: Any) -> None:
    line = json.dumps({"time": time}).encode()
    parser = JsonlParser([("time",)])
    fast = parser.parse(Block(0, bytearray(line + b"\n")))
    slow = pa.array(parser.read_line(line), pa.string())
    assert to_micros(fast.columns[0]).equals(to_micros(slow))


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (b'{"user": 7, "page": 7.0}', ["7", "7"]),
        (b'{"user": true, "page": false}', ["true", "false"]),
        (b'{"user": 123456789012345678901234567890}', ["123456789012345678901234567890", None]),
        (b'{"user": 18446744073709551616, "page": 0.1}', ["18446744073709551616", "0.1"]),
        (b'{"user": "a", "page": ["x"]}', ["a", None]),
        (b'{"user": "a", "page": {"x": 1}}', ["a", None]),
        (b'{"user": "", "page": ""}', [None, None]),
        (b'{"user": "a", "other": NaN}', ["a", None]),
        (b'{"user": NaN}', [None, None]),
        (b'{"user": "first", "user": "last"}', ["last", None]),
        (b"{}", [None, None]),
        (b'{"user": "a"} {"user": "b"}', None),
        (b'["user"]', None),
        (b'{"user": "\xff"}', None),
        (b'{"user": "half', None),
    ],
)
def test_the_rule_for_a_line(line: bytes, row: list[str | None] | None) -> None:
    assert JsonlParser([("user",), ("page",)]).read_line(line) == row


def test_a_field_and_one_inside_it() -> None:
    parser = JsonlParser([("a",), ("a", "b")])
    rows, _, bad = texts(parser, b'{"a": {"b": "x"}}\n{"a": "y"}\n{"a": null}\n')
    assert rows == [[None, "x"], ["y", None], [None, None]]
    assert not bad


def test_integers_stay_on_the_fast_path() -> None:
    parser = JsonlParser([("user",)])
    column = parser.parse(Block(0, bytearray(b'{"user": 7}\n{"user": -8}\n'))).columns[0]
    assert column.type == pa.int64()


def test_positions_and_raw_records(files: Any) -> None:
    lines = [
        b'{"u": "a", "p": "x", "t": 5}',
        b"broken",
        b"",
        b'  {"u": null, "p": "x", "t": 5}',
        b'{"u": "b", "p": "x", "t": "soon"}',
        b'{"u": null, "t": "soon"}',
    ]
    path = files.write_bytes("log.jsonl", b"\r\n".join(lines))
    found = files.read(path, RecordFields("u", "p", "t"), raw=True, block_bytes=40)
    assert found.rows == {("a", "x", 5_000_000): 1}
    whole = b"\r\n".join(lines)
    expected = [
        ("unparseable", lines[1]),
        ("missing_user", lines[3].strip()),
        ("bad_time", lines[4]),
        ("missing_user", lines[5]),
    ]
    assert found.letters == [
        DeadLetter(reason, path, whole.index(line), line) for reason, line in expected
    ]
    assert found.tally == {
        "records_read": 5,
        "unparseable": 1,
        "missing_user": 2,
        "bad_time": 1,
    }
    assert all(letter.raw is None for letter in files.read(path, RecordFields("u", "p")).letters)
