"""Follows a folder of logs: which bytes of which file are new, whole lines only.

Pure Python without Beam, so that what happens to files can be tested by itself. All that has to
survive a restart is in a :class:`Progress`.

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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import BinaryIO, NamedTuple

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

    def with_offset(self, path: str, offset: int) -> Progress:
        """With the text of a file that is read whole read up to ``offset``."""
        return replace(self, files={**self.files, path: replace(self.files[path], offset=offset)})

    def set_aside(self, path: str) -> Progress:
        """Without the file, until it changes."""
        todo = tuple(task for task in self.todo if task.path != path)
        seen = self.files[path]
        aside = replace(seen, aside=True, waiting=False, done=seen.size if seen.whole else -1)
        return self.with_file(path, aside, todo)

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
        A file that waits to be read may hold any time, so there is no news while one does.
        """
        if self.greatest is None or any(seen.waiting for seen in self.files.values()):
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
    asked: list[_Asked] = []
    for path in sorted(set(paths)):
        known = before.get(path)
        with contextlib.suppress(FileNotFoundError):
            size, changed, inode = _stat(path)
            same = known and (known.size, known.changed, known.inode) == (size, changed, inode)
            quiet = now - changed
            at_rest = same or quiet < WHOLE_SECONDS if known and known.aside else same
            if known and at_rest and not known.waiting:
                files[path] = known
            else:
                waited = known is not None and known.waiting
                since = known.since if known is not None and waited else now
                found = replace(
                    known or Seen(), size=size, changed=changed, inode=inode, since=since
                )
                try:
                    whole = size > 0 and _is_whole(path)
                    if whole and quiet < WHOLE_SECONDS:
                        # It keeps what is known of its name until its content can be told.
                        files[path] = replace(found, whole=True, waiting=True)
                    else:
                        head = read_head(path)[0] if size else b""
                        files[path] = found
                        asked.append(_Asked(path, whole, head))
                except InputError:
                    # Whoever reads it finds out why it cannot be used.
                    unusable = Seen(size=size, changed=changed, inode=inode, whole=True)
                    files[path] = replace(unusable, waiting=True)
                    asked.append(_Asked(path, True, b""))
    gone = _identify(files, asked, before, progress.gone, now)
    tasks: list[tuple[float, str, Task]] = []
    due = {item.path for item in asked}
    for path, found in files.items():
        if found.aside or (found.waiting and not (found.whole and path in due)):
            continue
        quiet = now - found.changed
        new = found.offset < found.size and (path in due or quiet >= SETTLED_SECONDS)
        if found.waiting or (new and not found.whole):
            settled = quiet >= SETTLED_SECONDS and not found.whole
            tasks.append((found.changed, path, Task(path, found.size, settled)))
    return replace(
        progress,
        files=files,
        gone=tuple(gone[-MOST_GONE:]),
        todo=tuple(task for _, _, task in sorted(tasks, key=lambda item: item[:2])),
        started=int(now * 1_000_000),
        fresh=False,
    )


class _Asked(NamedTuple):
    """A file that may be another one than before: is it whole, and how does it begin?"""

    path: str
    whole: bool
    head: bytes


def _identify(
    files: dict[str, Seen],
    asked: list[_Asked],
    before: dict[str, Seen],
    gone: Iterable[Seen],
    now: float,
) -> list[Seen]:
    """Tells which of the files that were seen the ``asked`` ones are, or that they are new.

    Replaces what ``files`` says of them. Returns the files whose content is nowhere now.
    """
    names = {item.path for item in asked}
    pool = list(gone)
    for path, seen in before.items():
        # A file that is changing may still hold what it held; one that was replaced does not.
        moved = path not in files or path in names or files[path].inode != seen.inode
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
                # Of what left before the file came, only what rotation may have made of it: the
                # same content may come again.
                grace = SETTLED_SECONDS if related else 0.0
                late = old.since < file.since - grace
                if not late or item.path == old.path or (related and inode):
                    rank = (inode, item.path == old.path, covered, related, number)
                    pairs.append((rank, index, number))
    taken: dict[int, int] = {}
    used: set[int] = set()
    for _, index, number in sorted(pairs, reverse=True):
        if index not in taken and number not in used:
            taken[index] = number
            used.add(number)
    for index, item in enumerate(asked):
        match = pool[taken[index]] if index in taken else None
        files[item.path] = _continued(files, item, match, now)
    for number in used:
        owner = files.get(pool[number].path)
        if pool[number].path not in names and owner is not None and owner.waiting:
            # Its name holds something else, which is not known yet.
            blank = Seen(size=owner.size, changed=owner.changed, inode=owner.inode)
            files[pool[number].path] = replace(
                blank, whole=owner.whole, waiting=True, since=owner.since
            )
    return [
        seen
        for number, seen in enumerate(pool)
        if number not in used
        and not (seen.path in files and seen.path not in names and seen.since == now)
    ]


def _continued(files: dict[str, Seen], item: _Asked, old: Seen | None, now: float) -> Seen:
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
    if now - file.since < WHOLE_SECONDS and any(
        item.path[:at] in files and files[item.path[:at]].is_start_of(item.head)
        for at, letter in enumerate(item.path)
        if letter in "-._"
    ):
        # Logs are rotated by a copy, and cut short after it: who goes on is told by that.
        return replace(found, waiting=True)
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


def _is_whole(path: str) -> bool:
    """Whether a file can only be read as a whole."""
    with _opened(path) as handle:
        head = _read(handle, 16)
    return sniff_compression(head) != "none" or head.startswith(_WHOLE_MAGIC)


def read_head(path: str) -> tuple[bytes, bool]:
    """The start of a file's text, and whether the file can only be read as a whole.

    Parquet and Avro have no text; the digest of all their bytes stands for its start.

    Raises:
      FileNotFoundError: if it is gone.
    """
    with _opened(path) as handle:
        head = _read(handle, FINGERPRINT_BYTES)
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
            read = replace(seen, waiting=False, done=seen.size)
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
