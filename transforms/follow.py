"""Follows a folder of logs: which bytes of which file are new, whole lines only.

Pure Python without Beam, so that what happens to files can be tested by itself. All that has to
survive a restart is in a :class:`Progress`. Which file is which, whatever its name, is told by
:mod:`~hadabeam.transforms.file_identity`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from ..mechanisms.errors import InputError
from .blocks import MAX_RECORD_BYTES
from .file_identity import (
    FINGERPRINT_BYTES,
    SETTLED_SECONDS,
    WHOLE_SECONDS,
    Asked,
    Seen,
    identify,
    is_whole,
    opened,
    read_bytes,
    read_head,
    stat_file,
)

#: So many files that are gone are remembered, in case that they come back under other names.
MOST_GONE = 1000


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
    asked: list[Asked] = []
    for path in sorted(set(paths)):
        known = before.get(path)
        with contextlib.suppress(FileNotFoundError):
            size, changed, inode = stat_file(path)
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
                    whole = size > 0 and is_whole(path)
                    if whole and quiet < WHOLE_SECONDS:
                        # It keeps what is known of its name until its content can be told.
                        files[path] = replace(found, whole=True, waiting=True)
                    else:
                        head = read_head(path)[0] if size else b""
                        files[path] = found
                        asked.append(Asked(path, whole, head))
                except InputError:
                    # Whoever reads it finds out why it cannot be used.
                    unusable = Seen(size=size, changed=changed, inode=inode, whole=True)
                    files[path] = replace(unusable, waiting=True)
                    asked.append(Asked(path, True, b""))
    gone = identify(files, asked, before, progress.gone, now)
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
        with opened(task.path) as handle:
            head = read_bytes(handle, FINGERPRINT_BYTES)
            if seen.covered and not seen.is_start_of(head):
                # Replaced since the look; the next one finds out by what.
                changed = replace(seen, size=-1)
                return progress.with_file(task.path, changed, rest), None
            size = piece_bytes
            while True:
                handle.seek(seen.offset)
                data = read_bytes(handle, min(size, task.end - seen.offset))
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
