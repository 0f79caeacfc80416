"""Where output goes: checked names, whole files or none, no leftovers.

A reader must never meet half a file. On a local disk (and on HDFS) a file is written
under a hidden temporary name in the folder of its final name and then renamed, which
is atomic. On object stores (``gs://``, ``s3://``, ...) a rename is a copy and a
deletion, while creating an object is atomic; there the file is made up locally, and
created when it is whole.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from typing import IO

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from ..mechanisms.errors import InputError, ParameterError

#: File systems whose rename is atomic, besides the local disk.
_RENAMING_SCHEMES = {"hdfs"}
#: Files up to this size are made up in memory before an object is created.
_SPOOL_BYTES = 32 * 2**20

#: Local prefixes that this process writes to; see :func:`remove_leftovers`.
_prefixes: set[str] = set()
#: Folders that live as long as a run of this process.
_folders: set[str] = set()


def is_local(path: str) -> bool:
    """Whether a path is one of the local disk: it has no scheme such as ``gs://``."""
    return FileSystems.get_scheme(path) is None


def check_prefix(prefix: str | os.PathLike[str]) -> str:
    """Returns an output prefix as a text, or says why file names cannot begin with it.

    Raises:
      ParameterError: if it is no text or path, empty, ends in a slash or is a folder.
    """
    prefix = os.fspath(prefix) if isinstance(prefix, os.PathLike) else prefix
    if not isinstance(prefix, str) or not prefix:
        raise ParameterError("the output prefix must be a path such as out/pages")
    if prefix.endswith(("/", os.sep)):
        raise ParameterError(
            f"the output prefix {prefix!r} names a folder; add what file names begin with, "
            f"e.g. {prefix}pages"
        )
    if is_local(prefix):
        if os.path.isdir(prefix):
            raise ParameterError(
                f"the output prefix {prefix!r} is a folder; add what file names begin with, "
                f"e.g. {prefix}/pages"
            )
        _prefixes.add(prefix)
    return prefix


def temporary_name(path: str) -> str:
    """A fresh hidden name beside ``path``."""
    folder, name = FileSystems.split(path)
    return str(FileSystems.join(folder, f".{name}.{uuid.uuid4().hex}.tmp"))


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Turns what the file system says on writing to ``path`` into an :class:`InputError`."""
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
    except BeamIOError as error:
        why = str(error)
    else:
        return
    raise InputError(f"cannot write {path}: {why}; check the folder and its permissions")


def exists(path: str) -> bool:
    """Whether there is a file of that name."""
    return os.path.exists(path) if is_local(path) else bool(FileSystems.exists(path))


def make_parent(path: str) -> None:
    """Makes the folder that ``path`` lies in, where folders exist."""
    if is_local(path):
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        except FileExistsError as error:
            raise NotADirectoryError(
                errno.ENOTDIR, f"{error.filename} is a file, not a folder"
            ) from None
    elif FileSystems.get_scheme(path) in _RENAMING_SCHEMES:
        folder = FileSystems.split(path)[0]
        if not FileSystems.exists(folder):
            FileSystems.mkdirs(folder)


def create(path: str, *, private: bool = False) -> IO[bytes]:
    """Opens a new file on any of Beam's file systems, as it is, without compression.

    A private one only its owner may read; object stores go by the permissions of the bucket.
    """
    if is_local(path):
        return open(path, "wb", opener=_owners if private else None)
    handle: IO[bytes] = FileSystems.create(
        path,
        mime_type="application/octet-stream",
        compression_type=CompressionTypes.UNCOMPRESSED,
    )
    return handle


def _owners(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def check_writable(path: str) -> None:
    """Checks that a file can be made beside an output file, before hours of work are lost.

    Makes the folder. Does nothing on other file systems than the local one.

    Raises:
      InputError: if not.
    """
    if is_local(path):
        with explained(path):
            make_parent(path)
            probe = temporary_name(path)
            create(probe).close()
            remove([probe])


def write_file(path: str, write: Callable[[IO[bytes]], None], *, private: bool = False) -> None:
    """Writes a file whole or not at all, in place of an earlier one.

    Args:
      path: the file, on any of Beam's file systems.
      write: is called once with a binary file to write to.
      private: see :func:`create`.

    Raises:
      InputError: if the file system refuses. What ``write`` raises passes through.
    """
    renames = is_local(path) or FileSystems.get_scheme(path) in _RENAMING_SCHEMES
    with explained(path):
        if not renames:
            with tempfile.SpooledTemporaryFile(_SPOOL_BYTES) as spool:
                write(spool)
                spool.seek(0)
                with create(path) as file:
                    shutil.copyfileobj(spool, file, 2**20)
            return
        make_parent(path)
        temporary = temporary_name(path)
        try:
            with create(temporary, private=private) as file:
                write(file)
            move(temporary, path)
        except BaseException:
            remove([temporary])
            raise


def move(source: str, target: str) -> None:
    """Renames a file, in place of an earlier one; atomic except on object stores."""
    if is_local(target):
        os.replace(source, target)
        return
    if FileSystems.get_scheme(target) in _RENAMING_SCHEMES:
        remove([target])
    FileSystems.rename([source], [target])


def remove(paths: list[str]) -> None:
    """Removes those of the files that exist."""
    for path in paths:
        if is_local(path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        elif FileSystems.exists(path):
            FileSystems.delete([path])


def remove_folder(path: str) -> None:
    """Removes a folder of temporary files with all that is left in it."""
    if is_local(path):
        shutil.rmtree(path, ignore_errors=True)
        return
    matched = FileSystems.match([FileSystems.join(path, "*")])[0].metadata_list
    remove([metadata.path for metadata in matched])
    # Object stores have no folders to remove; elsewhere an empty one may be gone already.
    if FileSystems.get_scheme(path) in _RENAMING_SCHEMES:
        FileSystems.delete([path])


def names_after(prefix: str, pattern: str) -> list[str]:
    """The files named ``prefix`` and then what matches the regular expression, sorted."""
    if is_local(prefix):
        folder, base = os.path.split(prefix)
        if not os.path.isdir(folder or "."):
            return []
        found = [os.path.join(folder, name) for name in os.listdir(folder or ".")]
        start = os.path.join(folder, base)
    else:
        matched = FileSystems.match([prefix + "*"])[0].metadata_list
        found = [metadata.path for metadata in matched]
        start = prefix
    wanted = re.compile(re.escape(start) + pattern)
    return sorted(path for path in found if wanted.fullmatch(path))


@contextlib.contextmanager
def removed_at_the_end(folder: str) -> Iterator[None]:
    """Removes a folder when the block ends, or the run is interrupted."""
    _folders.add(folder)
    try:
        yield
    finally:
        remove_folder(folder)
        _folders.discard(folder)


def remove_leftovers() -> None:
    """Removes temporary files that an interrupted run of this process left on the disk.

    Worker processes that are killed cannot tidy up themselves. Two jobs that write to
    one prefix at once would overwrite each other's output anyway, so everything
    temporary that belongs to the prefix goes.
    """
    for folder in _folders:
        remove_folder(folder)
    for prefix in _prefixes:
        folder, base = os.path.split(prefix)
        hidden = os.path.join(folder, f".{base}")
        for path in names_after(hidden, r"-[a-z-]+.*\.tmp"):
            if os.path.isdir(path):
                remove_folder(path)
            else:
                remove([path])
