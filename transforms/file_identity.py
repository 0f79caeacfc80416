"""Which file is which: names change, content is copied, cut short and compressed.

A file is known by its *fingerprint*, a digest of the bytes that were read from its start (up to
:data:`FINGERPRINT_BYTES`): where its own name is gone or holds something else, the file that begins
with them goes on where it was. What was read of a file is handed on to one name at most, so that
files of the same content are as many files. Compressed files are known by their decompressed start,
so that a rotated log is not read again when it is compressed; Parquet and Avro by all their bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO, NamedTuple

from .streams import open_file, open_source, sniff_compression

#: How much of a file's start tells it from others. A header that files share does no harm: the
#: fingerprint covers all that was read, up to this many bytes.
FINGERPRINT_BYTES = 1 << 14
#: A last line without an end is read when its file has not changed for so many seconds.
SETTLED_SECONDS = 60.0
#: A file that can only be read whole is read when it has not changed for so many seconds.
WHOLE_SECONDS = 5.0

_WHOLE_MAGIC = (b"PAR1", b"Obj\x01")
# What rotation puts behind a name: numbers and dates, and the ending of a compression.
_ROTATED = re.compile(r"([-._]\d+)*([-._](gz|gzip|bz2|bzip2|zst|zstd))?$", re.IGNORECASE)


@dataclass(frozen=True)
class Seen:
    """What is known of a file.

    Attributes:
      offset: how much of its (decompressed) text was read.
      covered: how many bytes the fingerprint covers.
      digest: the fingerprint.
      size: its size on the disk when it was last looked at; -1 if never.
      changed: when it was last changed by then, in seconds.
      inode: what the file system calls it, or 0.
      whole: whether it can only be read as a whole (compressed, Parquet, Avro).
      waiting: whether it is yet to be read or told from others, and holds the watermark.
      done: of such a file: its size on the disk when it was read; -1 if never.
      since: when it began to wait, in seconds; for a file that is gone, when it was missed.
      path: the name of a file that is gone.
      aside: whether it could not be used, and is left until it changes.
    """

    offset: int = 0
    covered: int = 0
    digest: bytes = b""
    size: int = -1
    changed: float = 0.0
    inode: int = 0
    whole: bool = False
    waiting: bool = False
    done: int = -1
    since: float = 0.0
    path: str = ""
    aside: bool = False

    def is_start_of(self, head: bytes) -> bool:
        """Whether the bytes that were read are the first ones of ``head``."""
        return 0 < self.covered <= len(head) and self.digest == _digest(head[: self.covered])

    def read_to(self, offset: int, head: bytes) -> Seen:
        """With the text read up to ``offset``; ``head`` is its start."""
        covered = min(offset, len(head), FINGERPRINT_BYTES)
        return replace(self, offset=offset, covered=covered, digest=_digest(head[:covered]))


class Asked(NamedTuple):
    """A file that may be another one than before: is it whole, and how does it begin?"""

    path: str
    whole: bool
    head: bytes


def identify(
    files: dict[str, Seen],
    asked: list[Asked],
    before: dict[str, Seen],
    gone: Iterable[Seen],
    now: float,
) -> list[Seen]:
    """Tells which of the files that were seen the ``asked`` ones are, or that they are new.

    Args:
      files: path to what is known of the files that are there; what it says of the ``asked``
        ones is replaced.
      asked: files that are new or have changed, and can be told.
      before: path to what was known at the last look.
      gone: files whose content was nowhere at the last look.
      now: the time in seconds since 1970.

    Returns:
      The files whose content is nowhere now, the latest last.
    """
    heads = {item.path: item.head for item in asked}
    pool = list(gone)
    earlier = len(pool)
    for path, seen in before.items():
        # A file that is changing may still hold what it held; one that was replaced does not.
        moved = path not in files or path in heads or files[path].inode != seen.inode
        if seen.covered and moved:
            pool.append(replace(seen, path=path, since=now))
    by_start: dict[tuple[int, bytes], list[int]] = {}
    for number, seen in enumerate(pool):
        if seen.covered:
            by_start.setdefault((seen.covered, seen.digest), []).append(number)
    lengths = sorted({covered for covered, _ in by_start})
    pairs: list[tuple[tuple[bool, bool, int, bool, int], int, int]] = []
    for index, item in enumerate(asked):
        file = files[item.path]
        for covered, digest in _digests(item.head, lengths):
            for number in by_start.get((covered, digest), ()):
                old = pool[number]
                inode = 0 != old.inode == file.inode
                related = _rotated_from(item.path, old.path)
                # Of what left before, only what rotation may have made of it, or what comes back
                # untouched: the same content may come again.
                own = item.path == old.path
                late = old.since < file.since - (SETTLED_SECONDS if related else 0.0)
                back = related and (own or inode) and old.changed == file.changed
                if number >= earlier or back or not (late or own):
                    rank = (inode, own, covered, related, number)
                    pairs.append((rank, index, number))
    taken: dict[int, int] = {}
    used: set[int] = set()
    for _, index, number in sorted(pairs, reverse=True):
        if index not in taken and number not in used:
            taken[index] = number
            used.add(number)
    for index, item in enumerate(asked):
        match = pool[taken[index]] if index in taken else None
        files[item.path] = _continued(files, item, match)
        if match is None and not item.whole and now - files[item.path].since < WHOLE_SECONDS:
            # Logs are rotated by a copy, and cut short after it: who goes on is told by that.
            waiting = _has_original(item, files, heads)
            files[item.path] = replace(files[item.path], waiting=waiting)
    for number in used:
        owner = files.get(pool[number].path)
        here = number >= earlier and pool[number].path not in heads
        if here and owner is not None and owner.waiting:
            # Its name holds something else, which is not known yet.
            blank = Seen(size=owner.size, changed=owner.changed, inode=owner.inode)
            files[pool[number].path] = replace(
                blank, whole=owner.whole, waiting=True, since=owner.since
            )
    return [
        seen
        for number, seen in enumerate(pool)
        if number not in used
        and not (number >= earlier and seen.path in files and seen.path not in heads)
    ]


def _has_original(item: Asked, files: dict[str, Seen], heads: dict[str, bytes]) -> bool:
    """Whether a file looks like a copy of one that its name goes on from, and that is there."""
    for at, letter in enumerate(item.path):
        name = item.path[:at]
        if letter in "-._" and name in files:
            other = heads.get(name, b"")
            both = min(len(other), len(item.head))
            if files[name].is_start_of(item.head) or (both and other[:both] == item.head[:both]):
                return True
    return False


def _continued(files: dict[str, Seen], item: Asked, old: Seen | None) -> Seen:
    """What is known of a file that goes on where ``old`` was, or is new."""
    file = files[item.path]
    known = Seen() if old is None else old
    found = replace(
        file,
        offset=known.offset,
        covered=known.covered,
        digest=known.digest,
        done=known.done,
        whole=item.whole,
        waiting=False,
        aside=False,
    )
    if item.whole:
        complete = old is not None and old.whole and old.done == file.size
        return replace(
            found, covered=len(item.head), digest=_digest(item.head), waiting=not complete
        )
    if old is not None:
        # Cut short in place: what is written from here on is new.
        same = old.path == item.path and old.inode == file.inode
        return replace(found, offset=min(old.offset, file.size)) if same else found
    return found


def _rotated_from(path: str, old: str) -> bool:
    """Whether the one name may come from the other by rotation or compression."""
    return _ROTATED.sub("", path) == _ROTATED.sub("", old)


def _digests(head: bytes, lengths: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """The digests of starts of ``head``, of ascending lengths."""
    state, done = hashlib.sha256(), 0
    for length in lengths:
        if length > len(head):
            return
        state.update(head[done:length])
        done = length
        yield length, state.digest()[:16]


def stat_file(path: str) -> tuple[int, float, int]:
    """Size, time of the last change and inode. Object stores have whole files and no inodes."""
    if "://" not in path:
        found = os.stat(path)
        return found.st_size, found.st_mtime, found.st_ino
    from apache_beam.io.filesystems import FileSystems

    matched = FileSystems.match([path])[0].metadata_list
    if not matched:
        raise FileNotFoundError(path)
    return matched[0].size_in_bytes, float(matched[0].last_updated_in_seconds or 0.0), 0


def file_size(path: str) -> int:
    """The size of a file in bytes.

    Raises:
      FileNotFoundError: if it is gone.
    """
    return stat_file(path)[0]


def is_whole(path: str) -> bool:
    """Whether a file can only be read as a whole."""
    with opened(path) as handle:
        head = read_bytes(handle, 16)
    return sniff_compression(head) != "none" or head.startswith(_WHOLE_MAGIC)


def read_head(path: str) -> tuple[bytes, bool]:
    """The start of a file's text, and whether the file can only be read as a whole.

    Parquet and Avro have no text; the digest of all their bytes stands for its start.

    Raises:
      FileNotFoundError: if it is gone.
    """
    with opened(path) as handle:
        head = read_bytes(handle, FINGERPRINT_BYTES)
        if head.startswith(_WHOLE_MAGIC):
            state = hashlib.sha256(head)
            while data := handle.read(1 << 20):
                state.update(data)
            return state.digest(), True
    compression = sniff_compression(head)
    if compression == "none":
        return head, False
    source = open_source(path, compression)
    try:
        buffer = bytearray(FINGERPRINT_BYTES)
        with memoryview(buffer) as view:
            size = 0
            while size < len(view) and (got := source.readinto(view[size:])):
                size += got
    finally:
        source.close()
    return bytes(buffer[:size]), True


@contextlib.contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """An open file; FileNotFoundError if it is gone, InputError for anything else."""
    if "://" not in path and not os.path.exists(path):
        raise FileNotFoundError(path)
    handle = open_file(path)
    try:
        yield handle
    finally:
        handle.close()


def read_bytes(handle: BinaryIO, size: int) -> bytes:
    parts = []
    while size > 0 and (data := handle.read(size)):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def _digest(head: bytes) -> bytes:
    return hashlib.sha256(head).digest()[:16]
