"""Blocks and byte ranges: each record is read once, wherever it is cut."""

from __future__ import annotations

import io
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hadabeam.mechanisms.errors import InputError
from hadabeam.transforms import blocks, csv_ranges
from hadabeam.transforms.blocks import LineCutter, read_blocks, skip_partial_line
from hadabeam.transforms.csv_ranges import CsvCutter
from hadabeam.transforms.streams import FileSource, Source

TEXTS = st.lists(
    st.sampled_from([b"\n", b"a\n", b"bb\r\n", b"x" * 50 + b"\n", b"c", b"\r", b"d" * 300]),
    max_size=30,
).map(b"".join)


SIZES = st.one_of(st.integers(1, 8), st.integers(1, 400))


def lines_of(data: bytes, start: int, end: int, block_bytes: int) -> list[tuple[int, bytes]]:
    source: Source = FileSource(io.BytesIO(data), max(start - 1, 0))
    offset = start
    if start:
        source, offset = skip_partial_line(source, start)
    found = []
    for block in read_blocks(
        source, LineCutter(), name="log", offset=offset, end=end, block_bytes=block_bytes
    ):
        position = block.offset
        for line in _lines(block.data):
            found.append((position, line))
            position += len(line)
    return found


def _lines(data: bytes | bytearray) -> list[bytes]:
    return list(io.BytesIO(bytes(data)))


@settings(max_examples=300)
@given(TEXTS, SIZES, SIZES)
@example(b"a\na\na\n", 2, 4)
def test_ranges_hold_each_line_once(data: bytes, split: int, block_bytes: int) -> None:
    found = [
        line
        for start in range(0, len(data), split)
        for line in lines_of(data, start, min(start + split, len(data)), block_bytes)
    ]
    assert [line for _, line in found] == _lines(data)
    assert all(data[position:].startswith(line) for position, line in found)


@given(TEXTS, SIZES)
def test_blocks_are_whole_lines_of_about_the_size(data: bytes, block_bytes: int) -> None:
    source = FileSource(io.BytesIO(data))
    found = list(read_blocks(source, LineCutter(), name="log", block_bytes=block_bytes))
    assert b"".join(block.data for block in found) == data
    assert all(block.data.endswith(b"\n") for block in found[:-1])
    longest = max(map(len, _lines(data)), default=0)
    assert all(len(block.data) <= max(block_bytes, 2 * longest, 4) for block in found)


@pytest.mark.parametrize("split", [1, 2, 3, 4, 5, 100])
def test_byte_order_mark_is_dropped(split: int) -> None:
    data = b"\xef\xbb\xbfab\ncd\n"
    found = [
        line
        for start in range(0, len(data), split)
        for line in lines_of(data, start, min(start + split, len(data)), 4)
    ]
    assert found == [(3, b"ab\n"), (6, b"cd\n")]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_is_named(encoding: str) -> None:
    source = FileSource(io.BytesIO("\ufeff{}\n".encode(encoding)))
    with pytest.raises(InputError, match=r"log is UTF-16 text; convert it to UTF-8"):
        list(read_blocks(source, LineCutter(), name="log"))


@pytest.mark.parametrize("end", [None, 300])
def test_a_record_without_end(monkeypatch: pytest.MonkeyPatch, end: int | None) -> None:
    monkeypatch.setattr(blocks, "MAX_RECORD_BYTES", 1 << 10)
    source = FileSource(io.BytesIO(b"ok\n" + b"x" * (1 << 20)))
    with pytest.raises(InputError, match="has a record at byte"):
        list(read_blocks(source, LineCutter(), name="log", block_bytes=100, end=end))


CSV_PIECES = ["a,b,c\n", '"x"', ",", "\n", '"', '"l\nm",', "\r\n", '""', 'q""r', ";", "é", " "]
CSV_TEXTS = st.lists(st.sampled_from(CSV_PIECES), max_size=25).map("".join).map(str.encode)


def _by_state(data: bytes) -> list[tuple[int, bool]]:
    """Ends of records by RFC 4180's state machine, a character at a time."""
    ends = []
    state = "start"
    for position, character in enumerate(data.decode("latin1")):
        if state == "quoted":
            state = "closing" if character == '"' else "quoted"
        elif state == "closing" and character == '"':
            state = "quoted"
        elif character == "\n":
            ends.append((position + 1, True))
            state = "start"
        elif character == ",":
            state = "start"
        elif state == "start" and character == '"':
            state = "quoted"
        else:
            state = "field"
    if data and (not ends or ends[-1][0] < len(data)):
        ends.append((len(data), state != "quoted"))
    return ends


@given(CSV_TEXTS)
def test_csv_records_are_those_of_the_state_machine(data: bytes) -> None:
    cutter = CsvCutter(",")
    expected = _by_state(data)
    assert [(end, closed) for _, end, closed in cutter.walk(data)] == expected
    complete = [end for end, closed in expected if closed and data[end - 1 : end] == b"\n"]
    assert cutter.cut(bytearray(data)) == (complete[-1] if complete else 0)
    starts, stops, regular = cutter.records(bytearray(data))
    spans = zip([0, *(end for end, _ in expected)], (end for end, _ in expected), strict=False)
    stripped = [
        (start, start + len(data[start:end].removesuffix(b"\n").removesuffix(b"\r")))
        for start, end in spans
    ]
    assert list(zip(starts.tolist(), stops.tolist(), strict=True)) == [
        (start, stop) for start, stop in stripped if stop > start
    ]
    if regular:
        assert all(closed for _, closed in expected)


@given(CSV_TEXTS, st.integers(1, 60), st.integers(1, 20))
def test_csv_ranges_start_where_records_do(data: bytes, split: int, scan: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_ranges, "_SCAN_BYTES", scan)
        source = FileSource(io.BytesIO(data))
        ranges = csv_ranges.plan_ranges(source, 0, len(data), split, CsvCutter(","))
    assert b"".join(data[start:end] for start, end in ranges) == data
    ends = {end for end, _ in _by_state(data)}
    assert {end for _, end in ranges} <= ends
    assert all(start < end for start, end in ranges)


def test_csv_ranges_are_about_as_long_as_asked() -> None:
    generator = random.Random(3)
    record = [b'"a ""quoted"" name","two\nlines",1\n', b"plain,x,2\n", b',"",\n']
    data = b"".join(generator.choice(record) for _ in range(10_000))
    ranges = csv_ranges.plan_ranges(
        FileSource(io.BytesIO(data)), 0, len(data), 10_000, CsvCutter(",")
    )
    assert len(ranges) == len(data) // 10_000 + 1
    assert max(end - start for start, end in ranges) < 10_100
