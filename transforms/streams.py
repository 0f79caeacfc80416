"""Bytes of files: local or on any Beam filesystem, plain or compressed, read once in order.

Decompression is our own loop over zlib, bz2 and zstandard, because it must go on over
several members (``cat a.gz b.gz``), bound what one read brings into memory, and hand out all
that a truncated file still holds before it says that something is missing.
"""

from __future__ import annotations

import bz2
import contextlib
import os
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import Any, BinaryIO, Protocol

import zstandard
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from ..mechanisms.errors import InputError, ParameterError
from .files import is_local

#: How much of a file tells what it holds.
HEAD_BYTES = 1 << 16
#: The compressions that are read, and the endings of file names that tell them.
COMPRESSIONS = ("auto", "none", "gzip", "bzip2", "zstd")
_ENDINGS = {
    ".gz": "gzip",
    ".gzip": "gzip",
    ".bz2": "bzip2",
    ".bzip2": "bzip2",
    ".zst": "zstd",
    ".zstd": "zstd",
}
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd"}
# What follows b"BZh9": a block, or the end of an empty stream.
_BZIP2_STARTS = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")
_INPUT = 1 << 16
# zstd gives no way to bound what a read brings out, so less goes in.
_ZSTD_INPUT = 1 << 14
_PIECE = 1 << 20


class Source(Protocol):
    """Bytes in order. ``readinto`` fills a part of ``view``; 0 is the end."""

    @property
    def damaged(self) -> bool: ...

    def readinto(self, view: memoryview) -> int: ...

    def close(self) -> None: ...


def check_compression(compression: str) -> str:
    """Returns ``compression``, or says which there are.

    Raises:
      ParameterError: if it is none of :data:`COMPRESSIONS`.
    """
    if compression not in COMPRESSIONS:
        raise ParameterError(f"compression must be one of {', '.join(COMPRESSIONS)}")
    return compression


def strip_compression(path: str) -> tuple[str, str | None]:
    """The name without the ending of a compression, and that compression (or None)."""
    stem, ending = os.path.splitext(path)
    found = _ENDINGS.get(ending.lower())
    return (stem, found) if found else (path, None)


def sniff_compression(head: bytes) -> str:
    """The compression that the first bytes of a file show, or ``none``.

    Ten bytes are enough. (``BZh`` alone could be text.)
    """
    name = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "none")
    return "none" if name == "bzip2" and head[4:10] not in _BZIP2_STARTS else name


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Turns what a filesystem says on opening or matching ``path`` into an InputError."""
    try:
        yield
    except IsADirectoryError:
        raise InputError(f"{path} is a directory; to read the files in it, give {path}/*") from None
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; check its name") from None
    except PermissionError:
        raise InputError(f"{path} may not be read; check its permissions") from None
    except (BeamIOError, OSError, ValueError) as error:
        # Beam raises ValueError for a scheme whose client is not installed, and says which.
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise InputError(f"{path} cannot be opened: {why}") from None


def open_file(path: str) -> BinaryIO:
    """Opens a file for reading at random places, without decompressing it.

    Local files are opened plainly, which is faster; all others by Beam's filesystems.

    Raises:
      InputError: if it is a directory, does not exist or cannot be opened.
    """
    with explained(path):
        if is_local(path):
            return open(path, "rb", buffering=0)
        handle: BinaryIO = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
        return handle


class FileSource:
    """The bytes ``[start, end)`` of an open file; ``end`` None is the end of the file."""

    damaged = False

    def __init__(self, handle: BinaryIO, start: int = 0, end: int | None = None) -> None:
        self._handle = handle
        self._left = None if end is None else end - start
        self._readinto: Callable[[memoryview], int | None] | None = getattr(
            handle, "readinto", None
        )
        if start:
            handle.seek(start)

    def readinto(self, view: memoryview) -> int:
        if self._left is not None:
            view = view[: self._left]
        if not len(view):
            return 0
        if self._readinto is not None:
            size = self._readinto(view) or 0
        else:
            data = self._handle.read(len(view))
            size = len(data)
            view[:size] = data
        if self._left is not None:
            self._left -= size
        return size

    def close(self) -> None:
        self._handle.close()


class DecompressedSource:
    """The decompressed bytes of a whole file.

    Attributes:
      damaged: True once the end was reached of a file that is truncated or corrupt, or
        that has something else after its last member. What could be decompressed before
        has been handed out.
    """

    def __init__(self, handle: BinaryIO, compression: str) -> None:
        self.damaged = False
        self._handle = handle
        self._pieces = self._decompress(compression)
        self._piece = memoryview(b"")

    def readinto(self, view: memoryview) -> int:
        while not len(self._piece):
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._piece = memoryview(piece)
        size = min(len(view), len(self._piece))
        view[:size] = self._piece[:size]
        self._piece = self._piece[size:]
        return size

    def close(self) -> None:
        self._pieces.close()
        self._handle.close()

    def _decompress(self, compression: str) -> Generator[bytes, None, None]:
        open_member, errors, magic = _CODECS[compression]
        size = _ZSTD_INPUT if compression == "zstd" else _INPUT
        waiting = self._handle.read(size) or b""
        first = True
        while True:
            if not first:
                # Zeros may pad a file (tape blocks). Anything else that is no member is not ours.
                while waiting and not waiting.strip(b"\0"):
                    waiting = self._handle.read(size) or b""
                waiting = waiting.lstrip(b"\0") if waiting[:1] == b"\0" else waiting
                while waiting and len(waiting) < len(magic):
                    more = self._handle.read(size) or b""
                    if not more:
                        break
                    waiting += more
                if not waiting.startswith(magic) and not _skippable(waiting, compression):
                    self.damaged = bool(waiting)
                    return
            first = False
            if not waiting:
                return
            member = open_member()
            while not member.eof:
                try:
                    piece, waiting = member.step(waiting)
                except errors:
                    self.damaged = True
                    return
                if piece:
                    yield piece
                if not member.eof and not waiting and member.needs_input:
                    waiting = self._handle.read(size) or b""
                    if not waiting:
                        self.damaged = True
                        return
            waiting = member.unused


def _skippable(head: bytes, compression: str) -> bool:
    """Whether a zstd skippable frame starts here (pzstd writes them)."""
    return (
        compression == "zstd"
        and 0x50 <= (head or b"\0")[0] <= 0x5F
        and head[1:4] == b"\x2a\x4d\x18"
    )


class _Gzip:
    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)
        self.needs_input = True

    def step(self, data: bytes) -> tuple[bytes, bytes]:
        piece = self._inner.decompress(data, _PIECE)
        rest = self._inner.unconsumed_tail
        # A full piece may have more behind it that needs no further input.
        self.needs_input = len(piece) < _PIECE
        return piece, rest

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused(self) -> bytes:
        return self._inner.unused_data


class _Bzip2:
    def __init__(self) -> None:
        self._inner = bz2.BZ2Decompressor()

    def step(self, data: bytes) -> tuple[bytes, bytes]:
        return self._inner.decompress(data, _PIECE), b""

    @property
    def needs_input(self) -> bool:
        return self._inner.needs_input

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused(self) -> bytes:
        return self._inner.unused_data


class _Zstd:
    needs_input = True

    def __init__(self) -> None:
        # The window that `zstd --long=31` uses; the library's own limit is lower.
        self._inner = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()

    def step(self, data: bytes) -> tuple[bytes, bytes]:
        return self._inner.decompress(data), b""

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof)

    @property
    def unused(self) -> bytes:
        return bytes(self._inner.unused_data)


_CODECS: dict[str, tuple[Callable[[], Any], Any, bytes]] = {
    "gzip": (_Gzip, zlib.error, b"\x1f\x8b"),
    "bzip2": (_Bzip2, (OSError, EOFError), b"BZh"),
    "zstd": (_Zstd, zstandard.ZstdError, b"\x28\xb5\x2f\xfd"),
}


def open_source(path: str, compression: str, start: int = 0, end: int | None = None) -> Source:
    """Opens the decompressed bytes of a file, or a byte range of a plain one.

    Raises:
      InputError: as :func:`open_file`.
    """
    handle = open_file(path)
    if compression == "none":
        return FileSource(handle, start, end)
    return DecompressedSource(handle, compression)


def read_head(path: str, compression: str, size: int = HEAD_BYTES) -> bytes:
    """The first decompressed bytes of a file, ``size`` at most.

    Raises:
      InputError: as :func:`open_file`.
    """
    source = open_source(path, compression)
    try:
        head = bytearray(size)
        with memoryview(head) as view:
            filled = 0
            while filled < size and (got := source.readinto(view[filled:])):
                filled += got
    finally:
        source.close()
    return bytes(head[:filled])
