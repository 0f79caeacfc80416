"""Access logs in common and combined format, with their warts."""

from __future__ import annotations

from typing import Any

import pytest

from hadabeam.mechanisms.errors import InputError
from hadabeam.transforms.blocks import Block
from hadabeam.transforms.combined import FIELDS, CombinedParser, looks_like
from hadabeam.transforms.fields import RecordFields

TIME = "[10/Oct/2000:13:55:36 -0700]"
BROWSER = '"http://a.example/?q=1" "Mozilla/5.0 (X11; Linux)"'


def read(line: str | bytes) -> dict[str, str] | None:
    """The fields that are not missing; None if the line is unparseable."""
    data = line.encode() if isinstance(line, str) else line
    rows = CombinedParser("log", FIELDS).parse(Block(0, bytearray(data)))
    if len(rows.bad_positions):
        return None
    values = [column.to_pylist()[0] for column in rows.columns]
    return {name: value for name, value in zip(FIELDS, values, strict=True) if value is not None}


def test_combined() -> None:
    line = f'::1 - frank {TIME} "GET /a?b=c HTTP/1.0" 200 2326 {BROWSER}'
    assert read(line) == {
        "host": "::1",
        "user": "frank",
        "time": TIME[1:-1],
        "method": "GET",
        "path": "/a?b=c",
        "status": "200",
        "size": "2326",
        "referrer": "http://a.example/?q=1",
        "user_agent": "Mozilla/5.0 (X11; Linux)",
    }


def test_common() -> None:
    found = read(f'h - - {TIME} "HEAD / HTTP/1.1" 304 -')
    assert found is not None
    assert found.pop("time") == TIME[1:-1]
    assert found.pop("referrer", "") == found.pop("user_agent", "") == ""
    assert found == {"host": "h", "method": "HEAD", "path": "/", "status": "304"}


@pytest.mark.parametrize(
    ("request_line", "method", "path"),
    [
        ("GET / HTTP/2.0", "GET", "/"),
        ("GET /old", "GET", "/old"),
        ("GET /a b.html HTTP/1.1", "GET", "/a b.html"),
        (r"GET /\"x\" HTTP/1.1", "GET", r"/\"x\""),
        ("M-SEARCH * HTTP/1.1", "M-SEARCH", "*"),
        ("OPTIONS rtsp://h/ RTSP/1.0", "OPTIONS", "rtsp://h/ RTSP/1.0"),
        ("-", None, None),
        ("", None, None),
        (r"\x16\x03\x01\x02", None, None),
        (r"\x03\x00\x00/*\xE0 \x00", None, None),
    ],
)
def test_requests(request_line: str, method: str | None, path: str | None) -> None:
    found = read(f'h - - {TIME} "{request_line}" 400 0 "-" "-"')
    assert found is not None
    assert (found.get("method"), found.get("path")) == (method, path)
    assert found["status"] == "400"


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        (f'2001:db8::1 - - {TIME} "-" 408 - "-" "-"', "host", "2001:db8::1"),
        (f'h - John Smith {TIME} "-" 408 - "-" "-"', "user", "John Smith"),
        (f'h - - {TIME} "-" 408 - "-" "say \\"hi\\""', "user_agent", 'say \\"hi\\"'),
        (f'h - - {TIME} "-" 408 - "-" "ends \\\\"', "user_agent", "ends \\\\"),
        (f'h - - {TIME} "-" 200 5 "-" "x" 0.003 "10.0.0.1" -', "user_agent", "x"),
        (f'h - - {TIME} "-" 200 5 "-" "é"\r\n', "user_agent", "é"),
        ('h - - [nonsense] "-" 200 5', "time", "nonsense"),
    ],
)
def test_warts(line: str, name: str, value: str) -> None:
    found = read(line)
    assert found is not None
    assert found[name] == value


def test_cut_lines_are_unparseable() -> None:
    line = f'1.2.3.4 - - {TIME} "GET / HTTP/1.1" 200 17 {BROWSER}'
    # Where a cut leaves a whole common line, or a whole number, nothing shows it.
    whole = {line.index(" 17") + n for n in (2, 3)} | {line.index(' "http') + 1, len(line)}
    for size in range(1, len(line) + 1):
        assert (read(line[:size]) is not None) == (size in whole), size


def test_garbage_and_foreign_bytes() -> None:
    assert read("garbage") is None
    assert read(f'h - - {TIME} "GET / HTTP/1.1" OK 17') is None
    assert read(f'h - - {TIME} "GET /é HTTP/1.1" 200 17'.encode("latin1")) is None
    two = f'h - - {TIME} "-" 200 17\nh - - {TIME} "/é" 200 17\n'.encode("latin1")
    rows = CombinedParser("log", ["status"]).parse(Block(10, bytearray(two)))
    assert rows.columns[0].to_pylist() == ["200"]
    assert rows.positions.tolist() == [10]
    assert rows.bad_positions.tolist() == [10 + two.index(b"\n") + 1]


@pytest.mark.parametrize("block_bytes", [1, 200, 10**6])
@pytest.mark.parametrize("split_bytes", [1, 77, 10**6])
def test_a_file(files: Any, block_bytes: int, split_bytes: int) -> None:
    lines = [f'10.0.0.{i} - - {TIME} "GET /{i} HTTP/1.1" {200 + i} -' for i in range(9)]
    lines[3] = lines[3][:40]
    lines[5] = "  "
    path = files.write_bytes("access.log", "\n".join(lines).encode())
    fields = RecordFields("host", "status", "time", "path")
    found = files.read(path, fields, block_bytes=block_bytes, split_bytes=split_bytes)
    assert found.rows == {
        (f"10.0.0.{i}", str(200 + i), 971_211_336_000_000, f"/{i}"): 1
        for i in range(9)
        if i not in (3, 5)
    }
    assert [letter[::2] for letter in found.letters] == [
        ("unparseable", "\n".join(lines).index(lines[3] + "\n"))
    ]
    assert found.tally == {"records_read": 8, "unparseable": 1}


def test_unknown_field(files: Any) -> None:
    path = files.write_bytes("access.log", f'h - - {TIME} "-" 200 17\n'.encode())
    with pytest.raises(InputError, match=r"has no field 'agent'.*user_agent"):
        files.read(path, RecordFields("host", "agent"))


def test_looks_like() -> None:
    assert looks_like([f'h - - {TIME} "GET / HTTP/1.1" 200 17 {BROWSER}'.encode()])
    assert not looks_like([b'{"user": 1}', b"user,page"])
