"""Compressed and plain bytes: all that a file holds, whatever it is made of."""

from __future__ import annotations

import bz2
import gzip
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from hadabeam.mechanisms.errors import InputError, ParameterError
from hadabeam.transforms import streams

CODECS = ["gzip", "bzip2", "zstd"]
DATA = random.Random(1).randbytes(3000) + b"a" * 3_000_000 + b"last line"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes], str]:
    def _write(data: bytes) -> str:
        (tmp_path / "data").write_bytes(data)
        return str(tmp_path / "data")

    return _write


def read(path: str, compression: str, piece: int = 70_001) -> tuple[bytes, bool]:
    source = streams.open_source(path, compression)
    out, buffer = bytearray(), bytearray(piece)
    with memoryview(buffer) as view:
        while size := source.readinto(view):
            out += view[:size]
    source.close()
    return bytes(out), source.damaged


@pytest.fixture(params=CODECS)
def codec(request: Any) -> str:
    return str(request.param)


@pytest.fixture
def packed(codec: str) -> bytes:
    return _compress(DATA, codec)


def _compress(data: bytes, codec: str) -> bytes:
    compressors: dict[str, Any] = {
        "gzip": gzip.compress,
        "bzip2": bz2.compress,
        "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    }
    return bytes(compressors[codec](data))


def test_one_and_several_members(codec: str, packed: bytes, write: Any) -> None:
    assert read(write(packed), codec) == (DATA, False)
    assert read(write(packed + _compress(b"", codec) + packed), codec) == (DATA * 2, False)


@pytest.mark.parametrize("piece", [1, 7])
def test_small_reads(codec: str, piece: int, write: Any) -> None:
    data = b"line\n" * 1000
    assert read(write(_compress(data, codec) * 2), codec, piece) == (data * 2, False)


def test_zeros_may_follow(codec: str, packed: bytes, write: Any) -> None:
    assert read(write(packed + b"\0" * 100_000 + packed + b"\0"), codec) == (DATA * 2, False)


def test_other_bytes_after_the_end_are_damage(codec: str, packed: bytes, write: Any) -> None:
    assert read(write(packed + b"x"), codec) == (DATA, True)


@pytest.mark.parametrize("kept", [0.5, 0.999])
def test_truncated(codec: str, kept: float, write: Any) -> None:
    # Text that does not compress well, so that a part of the file is a part of the text.
    data = random.Random(2).randbytes(2_000_000)
    packed = _compress(data, codec)
    got, damaged = read(write(packed[: int(len(packed) * kept)]), codec)
    assert damaged
    assert data.startswith(got)
    assert len(got) > (0.2 if kept == 0.5 else 0.5) * len(data)


def test_a_truncated_second_member(codec: str, packed: bytes, write: Any) -> None:
    got, damaged = read(write(packed + packed[:-2]), codec)
    assert damaged
    assert (DATA * 2).startswith(got)
    assert len(got) >= len(DATA)


def test_corrupt(codec: str, packed: bytes, write: Any) -> None:
    middle = len(packed) // 2
    flipped = bytes([packed[middle] ^ 0xFF])
    assert read(write(packed[:middle] + flipped + packed[middle + 1 :]), codec)[1]


def test_empty(codec: str, write: Any) -> None:
    assert read(write(b""), codec) == (b"", False)
    assert read(write(_compress(b"", codec)), codec) == (b"", False)


def test_zstd_skippable_frames(write: Any) -> None:
    skippable = struct.pack("<II", 0x184D2A50, 5) + b"12345"
    packed = _compress(DATA, "zstd")
    assert read(write(skippable + packed + skippable + packed), "zstd") == (DATA * 2, False)


def test_sniff(codec: str, packed: bytes) -> None:
    assert streams.sniff_compression(packed[:16]) == codec
    assert streams.sniff_compression(_compress(b"", codec)[:16]) == codec
    assert streams.sniff_compression(b"BZh is a name\n") == "none"
    assert streams.sniff_compression(b"") == "none"


def test_byte_ranges_of_plain_files(write: Any) -> None:
    source = streams.open_source(write(b"0123456789"), "none", 3, 7)
    buffer = bytearray(100)
    with memoryview(buffer) as view:
        assert source.readinto(view) == 4
        assert source.readinto(view) == 0
    assert buffer[:4] == b"3456"
    source.close()


def test_directory_missing_and_unreadable(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is a directory; .*/\*"):
        streams.open_file(str(tmp_path))
    with pytest.raises(InputError, match="does not exist"):
        streams.open_file(str(tmp_path / "nothing"))


def test_unknown_compression() -> None:
    with pytest.raises(ParameterError, match="compression must be one of auto, none, gzip"):
        streams.check_compression("rar")
