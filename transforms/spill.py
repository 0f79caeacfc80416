"""Handing sub-batches from readers to shards through a private folder.

A runner on one machine would hold everything that is shuffled in memory, several times
over. Given a folder that all its workers share, only references go through the
shuffle. Other engines have a shuffle of their own, and get the bytes.

The folder holds pseudonyms and value indexes: private data, so its mode is 0700, it
lies on the machine that reads the logs, and it is removed when the job ends.
"""

from __future__ import annotations

import json
import mmap
import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..mechanisms.errors import InputError
from . import files

_INLINE = b"d"
_REFERENCE = b"r"


@contextmanager
def private_folder(parent: str | None = None) -> Iterator[str]:
    """A new folder of mode 0700, removed with its content at the end.

    Args:
      parent: where to make it; default: the system's folder for temporary files.

    Raises:
      InputError: if it cannot be made there.
    """
    try:
        folder = tempfile.mkdtemp(prefix="hadabeam-", dir=parent)
    except OSError as error:
        raise InputError(
            f"cannot make a temporary folder in {parent or tempfile.gettempdir()}: "
            f"{error.strerror}; name another with --temp_dir"
        ) from None
    with files.removed_at_the_end(folder):
        yield folder


class SegmentWriter:
    """Turns packed segments into the elements that are shuffled.

    Args:
      folder: the shared private folder, or None to put the bytes into the elements.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def write(self, segments: list[bytes]) -> list[bytes]:
        """One element for each segment, in order; all segments go to one new file."""
        if self._folder is None:
            return [_INLINE + segment for segment in segments]
        # A name of its own for every call: a retried bundle writes another file, and only
        # references from the attempt that succeeded are followed.
        name = uuid.uuid4().hex
        elements, at = [], 0
        descriptor = os.open(Path(self._folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            for segment in segments:
                file.write(segment)
                reference = json.dumps([name, at, len(segment)]).encode()
                elements.append(_REFERENCE + reference)
                at += len(segment)
        return elements


class SegmentReader:
    """Reads what :class:`SegmentWriter` wrote, in any process that shares the folder."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._maps: dict[str, mmap.mmap] = {}

    def read(self, element: bytes) -> bytes | memoryview:
        """The packed segment of an element."""
        if element[:1] == _INLINE:
            return memoryview(element)[1:]
        name, at, length = json.loads(element[1:])
        if name not in self._maps:
            if self._folder is None:
                raise RuntimeError("a spilled segment came to a worker that was given no folder")
            with Path(self._folder, name).open("rb") as file:
                self._maps[name] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return memoryview(self._maps[name])[at : at + length]
