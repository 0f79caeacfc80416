"""Reads one split of a file, without Beam: blocks are parsed ahead by a few threads."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from . import parquet
from .avro import AvroReader
from .blocks import BLOCK_BYTES, Block, LineCutter, read_blocks, skip_partial_line
from .combined import CombinedParser
from .csv_format import CsvParser
from .fields import parse_path
from .jsonl import JsonlParser
from .rows import Rows
from .splits import Split
from .streams import open_source

_logger = logging.getLogger(__name__)

T = TypeVar("T")
S = TypeVar("S")

#: Two threads parse while what is downstream works on what was parsed before.
THREADS = 2


def read_split(
    split: Split,
    fields: Sequence[str],
    finish: Callable[[Rows], T],
    *,
    block_bytes: int = BLOCK_BYTES,
    threads: int = THREADS,
) -> Generator[T, None, None]:
    """Reads the fields of a split's records, block by block, in order.

    Args:
      split: from :func:`.splits.plan_splits`.
      fields: names or paths (:func:`.fields.parse_path`).
      finish: what to make of each block's :class:`.rows.Rows`. It is called in the
        parsing threads, several at a time.
      block_bytes: how much text is parsed at a time.
      threads: how many blocks are parsed at a time. With 0 all is done by the caller's
        thread.

    Yields:
      The results of ``finish``. Closing the generator ends the threads.

    Raises:
      InputError: if the file cannot be opened or used, or lacks a field.
    """
    if split.format in ("jsonl", "csv", "combined"):
        yield from _read_text(split, fields, finish, block_bytes, threads)
        return
    if split.format == "parquet":
        tables = parquet.read_groups(split.path, split.start, split.end, split.first_row, fields)
        yield from ahead(tables, finish, threads)
        return
    reader = AvroReader(split.path, split.compression, fields)
    groups = reader.groups(split.start, split.end, split.first_row)
    yield from ordered_map(lambda group: finish(reader.parse(group)), groups, threads)


def _read_text(
    split: Split,
    fields: Sequence[str],
    finish: Callable[[Rows], T],
    block_bytes: int,
    threads: int,
) -> Generator[T, None, None]:
    parse, cutter = text_parser(split, fields)
    blocks = _text_blocks(split, cutter, block_bytes)

    def work(block: Block | Rows) -> T:
        return finish(block if isinstance(block, Rows) else parse(block))

    yield from ordered_map(work, blocks, threads)


def text_parser(split: Split, fields: Sequence[str]) -> tuple[Callable[[Block], Rows], Any]:
    if split.format == "csv":
        assert split.header is not None
        csv = CsvParser(split.path, split.header, fields)
        return csv.parse, csv.cutter
    if split.format == "combined":
        return CombinedParser(split.path, fields).parse, LineCutter()
    return JsonlParser([parse_path(field) for field in fields]).parse, LineCutter()


def _text_blocks(split: Split, cutter: Any, block_bytes: int) -> Iterator[Block | Rows]:
    """The blocks, and at the end of damaged compressed text one record that is unparseable.

    It stands for what is missing, at the place where it would start.
    """
    compressed = split.compression != "none"
    lines = isinstance(cutter, LineCutter) and not compressed
    start, end = split.start, split.end
    # CSV splits end where records end; the other ranges end anywhere, and their last
    # record goes on beyond them.
    source = open_source(
        split.path,
        split.compression,
        max(start - 1, 0) if lines else start,
        None if lines else end,
    )
    try:
        if lines and start:
            source, start = skip_partial_line(source, start)
        if split.header is not None and compressed:
            start = skip_bytes(source, split.header.end)
        position = start
        blocks = read_blocks(
            source,
            cutter,
            name=split.path,
            offset=start,
            end=None if compressed else end,
            block_bytes=block_bytes,
        )
        # Through a list, so that no name here keeps a block alive that was parsed.
        while hand := list(itertools.islice(blocks, 1)):
            position = hand[0].offset + len(hand[0].data)
            yield hand.pop()
        if source.damaged:
            _logger.warning(
                "%s is truncated or damaged: %d bytes of text were read", split.path, position
            )
            yield Rows([], np.zeros(0, np.int64), np.array([position], np.int64))
    finally:
        source.close()


def skip_bytes(source: Any, size: int) -> int:
    """Reads past so many bytes; returns how many there were."""
    buffer = bytearray(min(size, 1 << 16))
    skipped = 0
    with memoryview(buffer) as view:
        while skipped < size and (got := source.readinto(view[: size - skipped])):
            skipped += got
    return skipped


def ordered_map(
    function: Callable[[S], T], items: Iterator[S], threads: int
) -> Generator[T, None, None]:
    """``map(function, items)`` with threads that work a bounded number of items ahead.

    Errors of items and of the function reach the caller in their place. When the generator
    is closed or fails, no thread is left.
    """
    if not threads:
        try:
            for item in items:
                yield function(item)
        finally:
            _close(items)
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="hadabeam-read")
    pending: deque[Future[T]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            del item  # its memory is the thread's to free
            if len(pending) > threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        _close(items)


def _close(items: Iterator[Any]) -> None:
    if isinstance(items, Generator):
        items.close()


def ahead(items: Iterator[S], function: Callable[[S], T], threads: int) -> Generator[T, None, None]:
    """``map(function, items)`` with one thread that does both, two items ahead."""
    if not threads:
        yield from ordered_map(function, items, 0)
        return
    end: list[T] = []

    def step() -> list[T]:
        for item in items:
            return [function(item)]
        return end

    pool = ThreadPoolExecutor(1, thread_name_prefix="hadabeam-read")
    pending = deque(pool.submit(step) for _ in range(2))
    try:
        while (result := pending.popleft().result()) is not end:
            pending.append(pool.submit(step))
            yield result.pop()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        _close(items)
