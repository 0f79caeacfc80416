"""Cuts text into blocks of whole records, some megabytes each.

A block is what one thread parses at a time. Which block a record is in never changes
what is read from it: blocks only end where records end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from ..mechanisms.errors import InputError
from .streams import Source

BLOCK_BYTES = 8 << 20
#: A record longer than this is an error: what has no end would fill the memory.
MAX_RECORD_BYTES = 256 << 20

_BOM = b"\xef\xbb\xbf"
_FOREIGN_BOMS = (b"\xff\xfe", b"\xfe\xff")
_HEAD = 4
_TAIL = 1 << 16


class Block(NamedTuple):
    """Whole records, and the offset of the first in the (decompressed) file."""

    offset: int
    data: bytearray


class Cutter(Protocol):
    """Finds where the last whole record in ``data`` ends."""

    def cut(self, data: bytearray) -> int:
        """The size of the leading whole records; 0 if there is none."""


class LineCutter:
    """Records are lines."""

    def cut(self, data: bytearray) -> int:
        return data.rfind(b"\n") + 1


def read_blocks(
    source: Source,
    cutter: Cutter,
    *,
    name: str,
    offset: int = 0,
    end: int | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[Block]:
    """Yields blocks of the records that start before ``end``.

    Args:
      source: the bytes, from ``offset`` on (see :func:`line_source_start`). For line
        records it may go on beyond ``end``.
      cutter: knows where records end.
      name: the file's name, for errors.
      offset: where the first byte of the source lies in the file.
      end: records that start here or later belong to another range; None reads all.
      block_bytes: the usual size of a block. A longer record makes a longer block.

    Raises:
      InputError: if a record is longer than :data:`MAX_RECORD_BYTES`, or the text
        is not UTF-8 by its byte order mark.
    """
    if end is not None and offset >= end:
        return
    first = offset == 0
    carry = b""
    while True:
        size = _target(block_bytes, offset, end)
        # The first bytes are looked at together: a mark must not be cut.
        data, at_end = _fill(source, carry, max(size, _HEAD) if first else size)
        if first:
            first = False
            skipped = _check_bom(data, name)
            del data[:skipped]
            offset += skipped
        if end is not None and offset + len(data) >= end:
            _finish_line(source, data, end - offset, name, offset)
            if data:
                yield Block(offset, data)
            return
        if at_end:
            yield from _last(source, cutter, data, offset)
            return
        size = cutter.cut(data)
        while not size:
            # Twice as much each time, so that a long record is copied few times.
            if len(data) > MAX_RECORD_BYTES:
                raise _too_long(name, offset)
            data, at_end = _fill(source, data, _target(2 * len(data), offset, end))
            if at_end or (end is not None and offset + len(data) >= end):
                break
            size = cutter.cut(data)
        if not size:
            if end is not None and offset + len(data) >= end:
                _finish_line(source, data, end - offset, name, offset)
            yield from _last(source, cutter, data, offset)
            return
        carry = bytes(memoryview(data)[size:])
        del data[size:]
        hand = [Block(offset, data)]
        offset += size
        del data
        yield hand.pop()  # and nothing here keeps it alive


def _last(source: Source, cutter: Cutter, data: bytearray, offset: int) -> Iterator[Block]:
    """The last block. Of a damaged file the last record is cut, and must not pass for whole."""
    if source.damaged and not data.endswith(b"\n"):
        del data[cutter.cut(data) :]
    if data:
        yield Block(offset, data)


def _target(block_bytes: int, offset: int, end: int | None) -> int:
    return block_bytes if end is None else max(min(block_bytes, end - offset), 1)


def _fill(source: Source, carry: bytes | bytearray, size: int) -> tuple[bytearray, bool]:
    """``carry`` and what follows it up to ``size`` bytes (one at least), and if it is all."""
    kept = len(carry)
    data = bytearray(max(size, kept + 1))
    data[:kept] = carry
    filled = kept
    with memoryview(data) as view:
        while filled < len(view):
            got = source.readinto(view[filled:])
            if not got:
                break
            filled += got
    at_end = filled < len(data)
    del data[filled:]
    return data, at_end


def _finish_line(source: Source, data: bytearray, limit: int, name: str, offset: int) -> None:
    """Completes the line that starts before ``limit``, and drops what starts after it."""
    end = data.find(b"\n", max(limit - 1, 0))
    while end < 0:
        if len(data) > MAX_RECORD_BYTES + limit:
            raise _too_long(name, offset)
        more, at_end = _fill(source, b"", _TAIL)
        newline = more.find(b"\n")
        data += more
        if newline >= 0:
            end = len(data) - len(more) + newline
        elif at_end:
            return
    del data[end + 1 :]


def skip_partial_line(source: Source, offset: int) -> tuple[Source, int]:
    """Drops the rest of the line that the byte before ``offset`` belongs to.

    Args:
      source: opened at ``offset - 1``.
      offset: where a range starts, > 0.

    Returns:
      The source from the first line on that starts at ``offset`` or later, and where it is.
    """
    position = offset - 1
    while True:
        data, at_end = _fill(source, b"", _TAIL)
        newline = data.find(b"\n")
        if newline >= 0:
            return _Prepended(bytes(data[newline + 1 :]), source), position + newline + 1
        position += len(data)
        if at_end:
            return source, position


class _Prepended:
    """Bytes that were read ahead, then the source that they came from."""

    def __init__(self, head: bytes, source: Source) -> None:
        self._head = memoryview(head)
        self._source = source

    @property
    def damaged(self) -> bool:
        return self._source.damaged

    def readinto(self, view: memoryview) -> int:
        if not len(self._head):
            return self._source.readinto(view)
        size = min(len(view), len(self._head))
        view[:size] = self._head[:size]
        self._head = self._head[size:]
        return size

    def close(self) -> None:
        self._source.close()


def _check_bom(data: bytearray, name: str) -> int:
    if data[:2] in _FOREIGN_BOMS:
        raise InputError(f"{name} is UTF-16 text; convert it to UTF-8, e.g. with iconv")
    return len(_BOM) if data.startswith(_BOM) else 0


def _too_long(name: str, offset: int) -> InputError:
    return InputError(
        f"{name} has a record at byte {offset} that does not end within "
        f"{MAX_RECORD_BYTES >> 20} MiB; look for a missing line end or closing quote there"
    )
