"""Temporary files that many workers write and one step gathers: a *run* for each bundle."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import IO

from apache_beam.io.filesystems import FileSystems

from . import files


class Runs:
    """A hidden folder beside an output file for the runs that will make it up.

    It is named when the pipeline is built, so that all workers, and whoever tidies up
    after them, know it; a bundle that is tried twice writes two runs of which one is
    handed on, and the other goes with the folder.

    Args:
      path: the output file, or what the names of several begin with.
      private: whether only their owner may read the runs.
    """

    def __init__(self, path: str, *, private: bool = False) -> None:
        self._private = private
        self.folder = files.temporary_name(path)

    @contextlib.contextmanager
    def new(self) -> Iterator[tuple[str, IO[bytes]]]:
        """Opens a new run: ``(its name, a binary file)``. It is removed on an error.

        Raises:
          InputError: if the file system refuses.
        """
        name = FileSystems.join(self.folder, uuid.uuid4().hex)
        with files.explained(self.folder):
            files.make_parent(name)
            try:
                with files.create(name, private=self._private) as file:
                    yield name, file
            except BaseException:
                files.remove([name])
                raise

    def discard(self) -> None:
        """Removes the folder, with the runs that nobody took."""
        files.remove_folder(self.folder)
