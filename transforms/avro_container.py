"""The container around Avro records: header, blocks, codecs (Avro 1.11, "Object Container Files").

Our own reading of it, because a large file is divided at its blocks, and because of a
damaged one we want to know which blocks are lost and how many records they held.
"""

from __future__ import annotations

import bz2
import json
import lzma
import struct
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import zstandard

from ..mechanisms.errors import InputError
from .streams import Source, open_file

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
_MAX_BYTES = 256 << 20  # more is no block and no header, but damage
_MAX_HEAD = 20
#: What reading damaged bytes ends in: any length, any branch, any text.
DAMAGE = (
    EOFError, ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError,
    MemoryError, RecursionError, OSError, struct.error, zlib.error, lzma.LZMAError,
    zstandard.ZstdError, pa.ArrowException,
)  # fmt: skip


class Header(NamedTuple):
    """The header of a file: its schema, how blocks are compressed and marked, its size."""

    schema: Any
    codec: str
    sync: bytes
    size: int


class Stream:
    """Reads exact numbers of bytes from a source, ahead of what is asked for."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.position = 0
        #: Whether the end was met.
        self.exhausted = False
        self._buffer = bytearray(1 << 16)
        self._used = self._filled = 0

    def read(self, size: int) -> bytes:
        """Exactly ``size`` bytes.

        Raises:
          EOFError: if fewer are left. (``position`` does not move then.)
          ValueError: if the size makes no sense.
        """
        if not 0 <= size <= _MAX_BYTES:
            raise ValueError
        available = min(size, self._filled - self._used)
        data = bytearray(self._buffer[self._used : self._used + available])
        self._used += available
        while len(data) < size:
            with memoryview(self._buffer) as view:
                self._filled = self.source.readinto(view)
            self._used = min(size - len(data), self._filled)
            if not self._filled:
                self.exhausted = True
                raise EOFError
            data += self._buffer[: self._used]
        self.position += size
        return bytes(data)

    def read_long(self) -> int:
        """A zigzag varint.

        Raises:
          EOFError: if it is cut.
          ValueError: if it has more than 64 bits.
        """
        number = shift = 0
        while True:
            byte = self.read(1)[0]
            number |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7
            if shift > 63:
                raise ValueError


def write_long(number: int) -> bytes:
    """The inverse of :meth:`Stream.read_long` for numbers from 0 up."""
    number <<= 1
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def read_header(stream: Stream, path: str) -> Header:
    """Reads the header, which is where a file starts.

    Raises:
      InputError: if there is none, or the codec is unknown.
    """
    metadata: dict[bytes, bytes] = {}
    try:
        if stream.read(len(MAGIC)) != MAGIC:
            raise ValueError
        while count := stream.read_long():
            if count < 0:
                stream.read_long()
            for _ in range(abs(count)):
                name = stream.read(stream.read_long())
                metadata[name] = stream.read(stream.read_long())
        sync = stream.read(SYNC_BYTES)
        schema = json.loads(metadata[b"avro.schema"])
        codec = metadata.get(b"avro.codec", b"null").decode()
    except DAMAGE:
        raise InputError(
            f"{path} is no Avro file, or its header is damaged; write it again, or leave it out"
        ) from None
    if codec not in _CODECS:
        raise InputError(
            f"{path} is compressed with an unknown codec; write it with one of {', '.join(_CODECS)}"
        )
    return Header(schema, codec, sync, stream.position)


def one_block(schema: Any, rows: int, data: bytes) -> bytes:
    """A container that holds ``rows`` records, encoded in ``data``, uncompressed."""
    text = json.dumps(schema).encode()
    sync = bytes(SYNC_BYTES)
    parts = [MAGIC, write_long(1), write_long(11), b"avro.schema", write_long(len(text)), text]
    parts += [b"\0", sync, write_long(rows), write_long(len(data)), data, sync]
    return b"".join(parts)


def decompress(codec: str, data: bytes) -> bytes:
    """The records of a block.

    Raises:
      One of :data:`DAMAGE` if it is damaged.
    """
    return _CODECS[codec](data)


def _deflate(data: bytes) -> bytes:
    inner = zlib.decompressobj(wbits=-15)
    records = inner.decompress(data)
    if not inner.eof:
        raise EOFError
    return records


def _snappy(data: bytes) -> bytes:
    packed, checksum = data[:-4], data[-4:]
    # Its length comes first, as a varint that is not zigzag.
    size = shift = 0
    for byte in packed[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    if size > _MAX_BYTES:
        raise ValueError
    records: bytes = pa.decompress(packed, size, "snappy", asbytes=True)
    if zlib.crc32(records) != int.from_bytes(checksum, "big"):
        raise ValueError
    return records


def _zstandard(data: bytes) -> bytes:
    inner = zstandard.ZstdDecompressor().decompressobj()
    records: bytes = inner.decompress(data)
    if not inner.eof:
        raise EOFError
    return records


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": _deflate,
    "snappy": _snappy,
    "bzip2": bz2.decompress,
    "xz": lzma.decompress,
    "zstandard": _zstandard,
}


def plan_blocks(path: str, split_bytes: int) -> list[tuple[int, int | None, int]]:
    """Divides a plain file at its blocks into parts of about ``split_bytes``.

    Only the heads of blocks are read, so that the rows before each part are known.

    Returns:
      Start, end (None: that of the file) and number of the first row.

    Raises:
      InputError: if it is no Avro file.
    """
    with open_file(path) as handle:
        size = handle.seek(0, 2)
        handle.seek(0)
        first = position = read_header(Stream(_Handle(handle)), path).size
        parts: list[tuple[int, int | None, int]] = []
        first_row = row = 0
        while size - first > split_bytes and position < size:
            handle.seek(position)
            stream = Stream(_Bytes(handle.read(_MAX_HEAD)))
            try:
                rows, length = stream.read_long(), stream.read_long()
            except (EOFError, ValueError):
                break  # damaged: the reader of the last part will meet it
            following = position + stream.position + length + SYNC_BYTES
            if rows < 0 or length < 0 or following > size:
                break
            row += rows
            position = following
            if position - first >= split_bytes and position < size:
                parts.append((first, position, first_row))
                first, first_row = position, row
        return [*parts, (first, None, first_row)]


class _Handle:
    """A file handle as a source."""

    damaged = False

    def __init__(self, handle: BinaryIO) -> None:
        self._handle = handle

    def readinto(self, view: memoryview) -> int:
        data = self._handle.read(len(view)) or b""
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._handle.close()


class _Bytes:
    """Some bytes as a source."""

    damaged = False

    def __init__(self, data: bytes) -> None:
        self._data = data

    def readinto(self, view: memoryview) -> int:
        data, self._data = self._data[: len(view)], self._data[len(view) :]
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._data = b""
