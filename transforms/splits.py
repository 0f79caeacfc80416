"""Which files there are, what they hold, and how they are divided among workers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from apache_beam.io.filesystems import FileSystems

from ..mechanisms.errors import InputError, ParameterError
from . import avro, combined, parquet
from .csv_format import Header, check_delimiter, guess_delimiter, read_header
from .csv_ranges import CsvCutter, plan_ranges
from .files import is_local
from .streams import (
    FileSource,
    check_compression,
    explained,
    open_file,
    open_source,
    read_head,
    sniff_compression,
    strip_compression,
)
from .texts import is_utf8

#: The formats that are read.
FORMATS = ("auto", "jsonl", "csv", "parquet", "avro", "combined")
SPLIT_BYTES = 128 << 20

_ENDINGS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".parquet": "parquet",
    ".avro": "avro",
}


class Split(NamedTuple):
    """A part of a file that one worker reads.

    Attributes:
      path: the file.
      format: one of :data:`FORMATS`, never ``auto``.
      compression: of the whole file; only plain files have several splits.
      start: the first byte (text, Avro) or row group (Parquet).
      end: where the next split starts; None is the end of the file.
      first_row: the number of the first row (Avro, Parquet).
      header: of a CSV file.
    """

    path: str
    format: str
    compression: str = "none"
    start: int = 0
    end: int | None = None
    first_row: int = 0
    header: Header | None = None


def check_format(format: str) -> str:
    """Returns ``format``, or says which there are.

    Raises:
      ParameterError: if it is none of :data:`FORMATS`.
    """
    if format not in FORMATS:
        raise ParameterError(f"input_format must be one of {', '.join(FORMATS)}")
    return format


def match_files(patterns: str | Iterable[str]) -> list[tuple[str, int]]:
    """The files that one or more patterns match, in the order of their names.

    Args:
      patterns: paths on any of Beam's filesystems; ``*``, ``?`` and ``[...]`` match within
        a folder (``*`` no hidden file), ``**`` across folders.

    Returns:
      Path and size in bytes, each file once, however often and by whatever path it is matched.

    Raises:
      InputError: if a pattern matches nothing, is a directory or a pipe, or its filesystem
        cannot be reached.
    """
    found: dict[str, tuple[str, int]] = {}
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        if is_local(pattern) and os.path.isdir(pattern):
            raise InputError(
                f"{pattern} is a directory; to read the files in it, give "
                f"'{os.path.join(pattern, '*')}'"
            )
        if is_local(pattern) and os.path.exists(pattern):  # even with a bracket in its name
            if not os.path.isfile(pattern):
                raise InputError(f"{pattern} is no regular file; write the log to a file first")
            found.setdefault(_identity(pattern), (pattern, os.path.getsize(pattern)))
            continue
        matches = list_files(pattern)
        if not matches:
            raise InputError(
                f"no file matches {pattern}; check the pattern and quote it in a shell"
            )
        for path, size in matches:
            found.setdefault(_identity(path), (path, size))
    return sorted(found.values())


def _identity(path: str) -> str:
    """By what a file is known: ``a``, ``./a`` and a link to it are one."""
    return os.path.realpath(path) if is_local(path) else path


def list_files(pattern: str) -> list[tuple[str, int]]:
    """Path and size of the files that a pattern matches now; there may be none.

    Raises:
      InputError: if the filesystem cannot be reached.
    """
    # Beam matches nothing without a folder.
    here = "" if "/" in pattern or os.sep in pattern else os.path.join(os.curdir, "")
    with explained(pattern):
        listed = FileSystems.match([here + pattern])[0].metadata_list
    # As in a shell, a star matches no hidden file (other programs' checksums, our own
    # unfinished output). Object stores list the markers of folders as empty files.
    hidden = os.path.basename(pattern).startswith(".")
    return [
        (match.path.removeprefix(here), match.size_in_bytes)
        for match in listed
        if not match.path.endswith("/")
        and (hidden or not os.path.basename(match.path).startswith("."))
    ]


def detect(path: str, format: str = "auto", compression: str = "auto") -> tuple[str, str]:
    """The format and compression of a file.

    The compression is told by the first bytes, the format by the name's ending and else by
    the content. An empty file of unknown format is ``jsonl``, in which it has no records.

    Raises:
      ParameterError: if a format or compression is unknown.
      InputError: if the file cannot be opened, is not of the given compression, or its
        format cannot be told.
    """
    check_format(format)
    check_compression(compression)
    with open_file(path) as handle:
        magic = handle.read(16) or b""
    if compression == "auto":
        compression = sniff_compression(magic)
    elif compression != "none" and magic and sniff_compression(magic) != compression:
        raise InputError(f"{path} is not compressed with {compression}; leave compression on auto")
    if format == "auto":
        name = strip_compression(path)[0]
        format = _ENDINGS.get(os.path.splitext(name)[1].lower()) or _sniff(path, compression)
    if format == "parquet" and compression != "none":
        raise InputError(
            f"{path} is a compressed Parquet file, which has to be read as a whole; decompress "
            "it (Parquet compresses its columns itself)"
        )
    return format, compression


def _sniff(path: str, compression: str) -> str:
    text = read_head(path, compression)
    if text.startswith(avro.MAGIC):
        return "avro"
    if text.startswith(parquet.MAGIC):
        return "parquet"
    text = text.removeprefix(b"\xef\xbb\xbf")
    lines = [line for line in text.split(b"\n") if line.strip()]
    if not lines or lines[0].lstrip().startswith(b"{"):
        return "jsonl"
    if combined.looks_like(lines[:20]):
        return "combined"
    if is_utf8(lines[0]) and b"\0" not in lines[0]:
        delimiter = guess_delimiter(lines[0], strip_compression(path)[0]).encode()
        if all(delimiter in line for line in lines[:2]):
            return "csv"
    raise InputError(
        f"the format of {path} cannot be told from its name or start; give the input format "
        f"({', '.join(FORMATS[1:])})"
    )


def plan_splits(
    path: str,
    size: int,
    *,
    format: str = "auto",
    compression: str = "auto",
    delimiter: str = "auto",
    split_bytes: int = SPLIT_BYTES,
) -> list[Split]:
    """Divides a file: plain text by bytes, Parquet by row groups, Avro by blocks.

    Args:
      path: the file.
      size: its size in bytes.
      format: one of :data:`FORMATS`.
      compression: one of :data:`.streams.COMPRESSIONS`.
      delimiter: of CSV, see :func:`.csv_format.read_header`.
      split_bytes: how large a part should be.

    Returns:
      Splits that together hold every record once; none for an empty file.

    Raises:
      ParameterError: if a parameter is none of the above.
      InputError: as :func:`detect`, or if what must precede the records is unusable.
    """
    check_delimiter(delimiter)
    if split_bytes < 1:
        raise ParameterError("split_bytes must be 1 or more")
    format, compression = detect(path, format, compression)
    if not size:
        return []
    if format == "parquet":
        groups = parquet.plan_groups(path, split_bytes)
        return [Split(path, format, "none", *group) for group in groups]
    if format == "avro":
        if compression != "none":
            return [Split(path, format, compression)]
        return [Split(path, format, "none", *part) for part in avro.plan_blocks(path, split_bytes)]
    if format == "csv":
        return _plan_csv(path, size, compression, delimiter, split_bytes)
    if compression != "none":
        return [Split(path, format, compression)]
    return [
        Split(path, format, "none", start, min(start + split_bytes, size))
        for start in range(0, size, split_bytes)
    ]


def _plan_csv(
    path: str, size: int, compression: str, delimiter: str, split_bytes: int
) -> list[Split]:
    source = open_source(path, compression)
    try:
        header = read_header(source, strip_compression(path)[0], delimiter)
        damaged = source.damaged
    finally:
        source.close()
    if header is None and damaged:
        raise InputError(
            f"{path} is truncated or damaged before its header ends; write it again, or "
            "leave it out"
        )
    if header is None:
        return []
    if compression != "none":
        return [Split(path, "csv", compression, header=header)]
    if size - header.end <= split_bytes:
        return [Split(path, "csv", "none", header.end, size, header=header)]
    with open_file(path) as handle:
        ranges = plan_ranges(
            FileSource(handle, header.end),
            header.end,
            size,
            split_bytes,
            CsvCutter(header.delimiter),
        )
    return [Split(path, "csv", "none", start, end, header=header) for start, end in ranges]
