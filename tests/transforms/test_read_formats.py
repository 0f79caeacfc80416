"""The same records give the same rows in every format, compression, range and block size."""

from __future__ import annotations

import bz2
import datetime
import gzip
import os
import random
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest
import zstandard

from hadabeam.mechanisms.errors import InputError, ParameterError
from hadabeam.transforms.fields import RecordFields, format_path, parse_path
from hadabeam.transforms.splits import detect, match_files, plan_splits

UTC = datetime.timezone.utc
FIELDS = RecordFields("user", "page", "time", "country")
GENERATOR = random.Random(4)
PAGES = ["home", "search", "cart, full", 'with "quotes"', "línea\nnueva", "7", "7.5", None, "\t"]
ROWS: list[dict[str, Any]] = [
    {
        "user": None if i % 17 == 5 else f"user-{GENERATOR.randrange(50)}",
        "page": GENERATOR.choice(PAGES),
        "time": datetime.datetime(2024, 1, 1, tzinfo=UTC)
        + datetime.timedelta(microseconds=GENERATOR.randrange(10**14)),
        "country": GENERATOR.choice(["de", "fr", None]),
    }
    for i in range(300)
]
COMPRESSIONS = ["none", "gzip", "bzip2", "zstd"]
FORMATS = ["jsonl", "csv", "tsv", "parquet", "avro"]


def compress(data: bytes, compression: str) -> bytes:
    compressors: dict[str, Any] = {
        "none": bytes,
        "gzip": gzip.compress,
        "bzip2": bz2.compress,
        "zstd": zstandard.ZstdCompressor().compress,
    }
    return bytes(compressors[compression](data))


def _expected() -> dict[Any, int]:
    counts: dict[Any, int] = {}
    for row in ROWS:
        if row["user"] is not None:
            micros = round(row["time"].timestamp() * 1e6)
            key = (row["user"], row["page"], micros, row["country"])
            counts[key] = counts.get(key, 0) + 1
    return counts


EXPECTED = _expected()
TALLY = {"records_read": 300, "missing_user": sum(row["user"] is None for row in ROWS)}


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("format", FORMATS)
def test_formats_and_compressions(files: Any, format: str, compression: str) -> None:
    path = files.write(ROWS, format, compression)
    if format == "parquet" and compression != "none":
        with pytest.raises(InputError, match="is a compressed Parquet file"):
            files.read(path, FIELDS)
        return
    for block_bytes in (10, 3000, 10**7):
        for threads in (0, 2):
            found = files.read(path, FIELDS, block_bytes=block_bytes, threads=threads)
            assert found.rows == EXPECTED
            assert found.tally == TALLY
            assert len(found.letters) == TALLY["missing_user"]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("split_bytes", [50, 101, 5000, 10**8])
def test_ranges(files: Any, format: str, split_bytes: int) -> None:
    path = files.write(ROWS, format)
    found = files.read(path, FIELDS, split_bytes=split_bytes, block_bytes=700)
    assert (found.rows, found.tally) == (EXPECTED, TALLY)


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_ranges_of_a_byte(files: Any, format: str) -> None:
    path = files.write(ROWS[:12], format)
    whole = files.read(path, FIELDS)
    assert sum(whole.rows.values()) == 11
    assert files.read(path, FIELDS, split_bytes=1, block_bytes=1) == whole


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("split_bytes", [10, 10**6])
def test_awkward_but_valid_jsonl(files: Any, compression: str, split_bytes: int) -> None:
    """CR LF, blank lines, a mark at the start, no last line end, an object beyond a block."""
    lines = [b'{"user": "a", "page": 7}', b"", b'{"user": "b", "page": "7"}', b" \t"]
    lines += [b'{"user": "c", "page": "x", "more": "' + b"y" * 100_000 + b'"}']
    lines += [b'{"user": "d", "page": 7.0}']
    data = b"\xef\xbb\xbf" + b"\r\n".join(lines)
    path = files.write_bytes("log.jsonl", compress(data, compression))
    found = files.read(path, RecordFields("user", "page"), block_bytes=64, split_bytes=split_bytes)
    assert found.rows == {("a", "7"): 1, ("b", "7"): 1, ("c", "x"): 1, ("d", "7"): 1}
    assert found.tally == {"records_read": 4}


@pytest.mark.parametrize("compression", ["gzip", "bzip2", "zstd"])
def test_several_members(files: Any, compression: str) -> None:
    first, second = b'{"user": "a", "page": "x"}\n{"us', b'er": "b", "page": "y"}'
    data = compress(first, compression) + compress(b"", compression) + compress(second, compression)
    path = files.write_bytes("log.jsonl", data)
    assert files.read(path, RecordFields("user", "page")).rows == {("a", "x"): 1, ("b", "y"): 1}


def test_broken_jsonl_is_counted(files: Any) -> None:
    lines = [
        b'{"user": "a", "page": "x"}',
        b'{"user": "b", "page": "x", ',
        b'{"user": "c\x00", "page": "x"}',
        '{"user": "\u00e9", "page": "x"}'.encode("latin1"),
        b'{"user": null, "page": "x"}',
        b'{"page": "x"}',
        b'{"user": {"id": 1}, "page": "x"}',
        b'{"user": 8, "page": {"id": 1}}',
        b"user,page",
    ]
    path = files.write_bytes("log.jsonl", b"\n".join(lines))
    found = files.read(path, RecordFields("user", "page"))
    assert found.rows == {("a", "x"): 1, ("8", None): 1}
    assert found.tally == {"records_read": 9, "unparseable": 4, "missing_user": 3}


@pytest.mark.parametrize("format", ["jsonl", "csv"])
@pytest.mark.parametrize("compression", ["gzip", "bzip2", "zstd"])
def test_truncated_files_are_read_up_to_the_cut(
    files: Any, format: str, compression: str, caplog: Any
) -> None:
    generator = random.Random(5)
    rows = [{"user": generator.randbytes(40).hex(), "page": "x"} for _ in range(20_000)]
    path = Path(files.write(rows, format, compression))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    found = files.read(str(path), RecordFields("user", "page"))
    assert "is truncated or damaged" in caplog.text
    good = sum(found.rows.values())
    # One for all that is missing, where it would start.
    assert found.tally == {"records_read": good + 1, "unparseable": 1}
    text = files.encode(rows, format)
    (letter,) = found.letters
    header = 1 if format == "csv" else 0
    assert text[: letter.position].count(b"\n") == good + header
    assert text[letter.position - 1 : letter.position] == b"\n"
    assert 5000 < good < 16_000
    assert set(found.rows) <= {(row["user"], row["page"]) for row in rows}


def test_detect_by_name_and_content(files: Any) -> None:
    samples = {
        "jsonl": b'\xef\xbb\xbf\n {"user": 1}\n',
        "csv": b"user,page\na,b\n",
        "combined": b'h - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 200 17\n',
    }
    for format, data in samples.items():
        assert detect(files.write_bytes("file.log", data)) == (format, "none")
        assert detect(files.write_bytes("file", data), compression="none") == (format, "none")
    for format in FORMATS:
        for compression in COMPRESSIONS:
            path = files.write(ROWS[:5], format, compression)
            if (format, compression != "none") == ("parquet", True):
                continue
            expected = ("csv" if format == "tsv" else format, compression)
            assert detect(path) == expected
            unnamed = str(files.folder / "unnamed")
            shutil.copy(path, unnamed)
            assert detect(unnamed) == expected
    assert detect(files.write_bytes("x.CSV", b""))[0] == "csv"
    assert detect(files.write_bytes("x", b"")) == ("jsonl", "none")
    # The content tells the compression: some stores decompress what is named .gz.
    assert detect(files.write_bytes("x.jsonl.gz", b"{}\n")) == ("jsonl", "none")


@pytest.mark.parametrize("data", [b"some prose without a format\n", b"\0\1\2,\3\n"])
def test_unknown_format(files: Any, data: bytes) -> None:
    with pytest.raises(InputError, match=r"format of .* cannot be told"):
        detect(files.write_bytes("notes.txt", data))


def test_wrong_parameters(files: Any) -> None:
    path = files.write_bytes("x.jsonl", b"{}\n")
    with pytest.raises(ParameterError, match="input_format must be one of auto, jsonl"):
        detect(path, format="xml")
    with pytest.raises(ParameterError, match="split_bytes must be 1 or more"):
        plan_splits(path, 3, split_bytes=0)
    with pytest.raises(InputError, match="is not compressed with gzip"):
        detect(path, compression="gzip")


def test_match_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in (".hidden.jsonl", "b.jsonl", "a.jsonl", "sub/c.jsonl", "odd[1].jsonl", "d.csv"):
        (tmp_path / name).write_text("12345")
    found = match_files(f"{tmp_path}/*.jsonl")
    assert [Path(path).name for path, _ in found] == ["a.jsonl", "b.jsonl", "odd[1].jsonl"]
    assert {size for _, size in found} == {5}
    assert len(match_files(f"{tmp_path}/**")) == 5  # and not the hidden one
    twice = match_files([f"{tmp_path}/a.jsonl", f"{tmp_path}/?.jsonl"])
    assert [Path(path).name for path, _ in twice] == ["a.jsonl", "b.jsonl"]
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "a.jsonl")
    spellings = ["a.jsonl", "./a.jsonl", "sub/../a.jsonl", "link.jsonl"]
    assert len(match_files([f"{tmp_path}/{name}" for name in spellings])) == 1
    (tmp_path / "link.jsonl").unlink()
    assert len(match_files(f"{tmp_path}/odd[1].jsonl")) == 1
    with pytest.raises(InputError, match=r"no file matches .*; check the pattern"):
        match_files(f"{tmp_path}/*.parquet")
    with pytest.raises(InputError, match=r"is a directory; .*/\*'"):
        match_files(str(tmp_path))
    assert len(match_files(f"{tmp_path}/.*.jsonl")) == 1
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is no regular file"):
        match_files(str(tmp_path / "pipe"))
    with pytest.raises(InputError, match=r"nowhere://x/\* cannot be opened: "):
        match_files("nowhere://x/*")


@pytest.mark.parametrize(
    ("field", "path"),
    [
        ("page", ("page",)),
        ("request.path", ("request", "path")),
        (r"a\.b.c", ("a.b", "c")),
        (r"a\\.b", ("a\\", "b")),
        ("naïve name", ("naïve name",)),
    ],
)
def test_field_paths(field: str, path: tuple[str, ...]) -> None:
    assert parse_path(field) == path
    assert parse_path(format_path(path)) == path


@pytest.mark.parametrize("field", ["", ".", "a.", ".a", "a..b", "a\\", r"a\b", None, 7])
def test_bad_fields(field: Any) -> None:
    with pytest.raises(ParameterError, match="field"):
        parse_path(field)
    if field is not None:
        with pytest.raises(ParameterError, match="field"):
            RecordFields("user", "page", time=field)


def test_columns_are_distinct() -> None:
    assert RecordFields("a", "a", "t", "a").columns == ("a", "t")


def test_a_cut_csv_record_does_not_pass_for_whole(files: Any) -> None:
    text = b"user,page\n" + b"".join(b"u%d,page-number-%d\n" % (i, i) for i in range(2000))
    packed = zlib.compressobj(wbits=31)
    data = packed.compress(text[:-6]) + packed.flush(zlib.Z_SYNC_FLUSH)  # and then nothing
    path = files.write_bytes("log.csv.gz", data)
    for block_bytes in (10, 10**6):
        found = files.read(path, RecordFields("user", "page"), block_bytes=block_bytes)
        assert found.tally == {"records_read": 2000, "unparseable": 1}
        assert ("u1999", "page-number-") not in {(u, p[:12]) for u, p in found.rows}
        assert [letter.position for letter in found.letters] == [text.index(b"u1999")]
