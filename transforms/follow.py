"""Follows a folder of logs: which bytes of which file are new, whole lines only.

Pure Python without Beam, so that what happens to files can be tested by itself. All that has to
survive a restart is in a :class:`Progress`.

A file is known by its *fingerprint*, a digest of the bytes that were read from its start (up to
:data:`FINGERPRINT_BYTES`), not by its name: renamed or copied, it goes on where it was, and a
file whose start has changed is a new one. Compressed files are known by their decompressed start,
so that a rotated log is not read again when it is compressed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from ..mechanisms.errors import InputError
from .blocks import MAX_RECORD_BYTES
from .streams import open_file, open_source, sniff_compression

#: How much of a file's start tells it from others. A header that files share does no harm: the
#: fingerprint covers all that was read, up to this many bytes.
FINGERPRINT_BYTES = 1 << 14
#: A last line without an end is read when its file has not changed for so many seconds.
SETTLED_SECONDS = 60.0
#: A file that can only be read whole is read when it has not changed for so many seconds.
WHOLE_SECONDS = 5.0
#: So many files that are gone are remembered, in case that they come back under other names.
MOST_GONE = 1000

_WHOLE_MAGIC = (b"PAR1", b"Obj\x01")


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
      waiting: whether it is such a file, and has not been read since it changed.
    """

    offset: int = 0
    covered: int = 0
    digest: bytes = b""
    size: int = -1
    changed: float = 0.0
    inode: int = 0
    whole: bool = False
    waiting: bool = False

    def is_start_of(self, head: bytes) -> bool:
        """Whether the bytes that were read are the first ones of ``head``."""
        return 0 < self.covered <= len(head) and self.digest == _digest(head[: self.covered])

    def read_to(self, offset: int, head: bytes) -> Seen:
        """With the text read up to ``offset``; ``head`` is its start."""
        covered = min(offset, len(head), FINGERPRINT_BYTES)
        return replace(self, offset=offset, covered=covered, digest=_digest(head[:covered]))


@dataclass(frozen=True)
class Task:
    """New bytes of a file, as they were found at one look at the folder.

    Attributes:
      path: the file.
      end: where to stop; what is behind it is the next round's.
      settled: whether a last line without an end is to be read.
    """

    path: str
    end: int
    settled: bool = False


@dataclass(frozen=True)
class Progress:
    """How far a folder was read. Never changed in place.

    Attributes:
      files: path to what is known of it.
      gone: fingerprints and offsets of files whose names are gone, the latest last.
      todo: what remains of the round.
      greatest: the greatest event time so far, in microseconds; None before there was one.
      fresh: whether the round at hand has brought a later event time.
      live: whether the newest record was young when it was read.
      started: when the round's look at the folder began, in microseconds.
      reading: whether a file is being read that cannot be read in parts.
      deadline: when to stop, in microseconds; None is never.
    """

    files: dict[str, Seen] = field(default_factory=dict)
    gone: tuple[Seen, ...] = ()
    todo: tuple[Task, ...] = ()
    greatest: int | None = None
    fresh: bool = False
    live: bool = False
    started: int = 0
    reading: bool = False
    deadline: int | None = None

    def with_file(self, path: str, seen: Seen, todo: tuple[Task, ...]) -> Progress:
        """With news of one file, and what remains."""
        return replace(self, files={**self.files, path: seen}, todo=todo)

    def with_time(self, latest: int | None) -> Progress:
        """With records whose greatest event time is ``latest``."""
        if latest is None:
            return self
        # A time of the future must not close windows that are still to come.
        latest = min(latest, max(self.started, self.greatest or self.started))
        if self.greatest is not None and latest <= self.greatest:
            return self
        return replace(self, greatest=latest, fresh=True)

    def watermark(self, max_delay: int) -> int | None:
        """What no further record is expected to precede, after a round; None if nothing is known.

        The greatest event time less ``max_delay``. Where the newest record was younger than
        ``max_delay`` when it was read, the logs are live, and the clock less
        ``max_delay`` holds as well: that is what lets windows end while nothing comes.
        """
        if self.greatest is None:
            return None
        newest = max(self.greatest, self.started) if self.live else self.greatest
        return newest - max_delay


def look(progress: Progress, paths: Iterable[str], now: float) -> Progress:
    """Looks at the files of a folder and plans a round.

    Args:
      progress: with nothing left to do.
      paths: the files that are there.
      now: the time in seconds since 1970.

    Returns:
      Progress with tasks for all files that have something new, the oldest first.
    """
    before = progress.files
    files: dict[str, Seen] = {}
    gone = list(progress.gone)
    tasks: list[tuple[float, str, Task]] = []
    for path in sorted(set(paths)):
        known = before.get(path)
        with contextlib.suppress(FileNotFoundError):
            size, changed, inode = _stat(path)
            if known is None or (known.size, known.changed, known.inode) != (size, changed, inode):
                found = _identify(path, size, inode, known, [*before.values(), *gone])
                found = replace(found, size=size, changed=changed, inode=inode)
                if known is not None and not (found.covered and found.digest == known.digest):
                    # Its content may turn up under another name.
                    gone.append(known)
            else:
                found = known
            files[path] = found
            quiet = now - changed
            if found.whole:
                if found.waiting and quiet >= WHOLE_SECONDS:
                    tasks.append((changed, path, Task(path, size)))
            elif found.offset < size and (found is not known or quiet >= SETTLED_SECONDS):
                tasks.append((changed, path, Task(path, size, quiet >= SETTLED_SECONDS)))
    gone.extend(seen for path, seen in before.items() if path not in files)
    return replace(
        progress,
        files=files,
        gone=tuple(gone[-MOST_GONE:]),
        todo=tuple(task for _, _, task in sorted(tasks, key=lambda item: item[:2])),
        started=int(now * 1_000_000),
        fresh=False,
    )


def _stat(path: str) -> tuple[int, float, int]:
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
    return _stat(path)[0]


def _identify(path: str, size: int, inode: int, known: Seen | None, others: list[Seen]) -> Seen:
    """Which of the files that were seen this is, or a new one."""
    if not size:
        return Seen()
    head, whole = read_head(path)
    if known is not None and known.whole == whole and known.is_start_of(head):
        if not whole and known.inode == inode:
            # Cut short in place: what is written from here on is new.
            return replace(known, offset=min(known.offset, size))
        return replace(known, waiting=whole)
    fingerprints = {(seen.covered, seen.digest): seen for seen in others if seen.covered}
    for covered in sorted({covered for covered, _ in fingerprints}, reverse=True):
        if covered <= len(head):
            match = fingerprints.get((covered, _digest(head[:covered])))
            if match is not None:
                return replace(match, whole=whole, waiting=whole)
    return Seen(whole=whole, waiting=whole)


def read_head(path: str) -> tuple[bytes, bool]:
    """The start of a file's text, and whether the file can only be read as a whole.

    Raises:
      FileNotFoundError: if it is gone.
    """
    with _opened(path) as handle:
        head = _read(handle, FINGERPRINT_BYTES)
    compression = sniff_compression(head)
    if compression == "none":
        return head, head.startswith(_WHOLE_MAGIC)
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


@dataclass(frozen=True)
class Piece:
    """Something to parse.

    Attributes:
      path: the file.
      offset: where in its (decompressed) text the piece starts.
      data: whole lines (or records); empty for a file that is to be read as a whole, from the
        offset on.
      whole: whether it is such a file.
    """

    path: str
    offset: int
    data: bytes = b""
    whole: bool = False


def take_piece(
    progress: Progress, cut: Callable[[str, bytes], int], piece_bytes: int
) -> tuple[Progress, Piece | None]:
    """The next piece of the round, and the progress once it is read.

    Args:
      progress: with something to do.
      cut: given a path and bytes from the start of a record on, the size of the leading whole
        records.
      piece_bytes: the usual size of a piece.

    Returns:
      The progress, and the piece; None if the task at hand has (or can have) no more.

    Raises:
      InputError: if a record is longer than 256 MiB.
    """
    task, rest = progress.todo[0], progress.todo[1:]
    seen = progress.files[task.path]
    try:
        if seen.whole:
            read = replace(seen, waiting=False)
            return progress.with_file(task.path, read, rest), Piece(
                task.path, seen.offset, whole=True
            )
        with _opened(task.path) as handle:
            head = _read(handle, FINGERPRINT_BYTES)
            if seen.covered and not seen.is_start_of(head):
                # Replaced since the look; the next one finds out by what.
                changed = replace(seen, size=-1)
                return progress.with_file(task.path, changed, rest), None
            size = piece_bytes
            while True:
                handle.seek(seen.offset)
                data = _read(handle, min(size, task.end - seen.offset))
                at_end = seen.offset + len(data) >= task.end or len(data) < size
                whole = cut(task.path, data) if b"\n" in data else 0
                if whole or at_end:
                    break
                if size > MAX_RECORD_BYTES:
                    raise InputError(
                        f"{task.path} has a record at byte {seen.offset} that does not end within "
                        f"{MAX_RECORD_BYTES >> 20} MiB; look for a missing line end there"
                    )
                size *= 2
    except FileNotFoundError:
        return replace(progress, todo=rest), None
    if at_end and task.settled:
        whole = len(data)
    if not whole:
        return replace(progress, todo=rest), None
    read = seen.read_to(seen.offset + whole, head)
    todo = rest if at_end else progress.todo
    return progress.with_file(task.path, read, todo), Piece(task.path, seen.offset, data[:whole])


@contextlib.contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """An open file; FileNotFoundError if it is gone, InputError for anything else."""
    if "://" not in path and not os.path.exists(path):
        raise FileNotFoundError(path)
    handle = open_file(path)
    try:
        yield handle
    finally:
        handle.close()


def _read(handle: BinaryIO, size: int) -> bytes:
    parts = []
    while size > 0 and (data := handle.read(size)):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def _digest(head: bytes) -> bytes:
    return hashlib.sha256(head).digest()[:16]
