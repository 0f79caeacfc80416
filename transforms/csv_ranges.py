"""Where the records of a CSV file end, when quoted fields may hold line breaks.

RFC 4180: a field that starts with a quote goes on to the next single quote; within it a
doubled quote stands for one, and delimiters and line breaks for themselves. While quotes
open only at the start of fields, a line break ends a record exactly if the number of
quotes before it is even, which numpy finds for megabytes at a time. A quote anywhere else
(``5" pipe``) is an ordinary character that breaks this; text that has one is walked
record by record instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from .streams import Source

Array = np.ndarray[Any, Any]

_QUOTE = 34
_NEWLINE = 10
_SCAN_BYTES = 8 << 20


class CsvCutter:
    """Finds the ends of records (a :class:`.blocks.Cutter`).

    Attributes:
      delimiter: the character between fields.
    """

    def __init__(self, delimiter: str) -> None:
        self.delimiter = delimiter
        mark = re.escape(delimiter.encode())
        #: One field, up to its delimiter or line end.
        self.field = re.compile(
            rb'"[^"]*(?:""[^"]*)*"(?!")[^%b\n]*|[^%b\n"][^%b\n]*|' % (mark, mark, mark)
        )
        self._record = re.compile(
            rb"(?:%b)(?:%b(?:%b))*(?:\n|\Z)" % (self.field.pattern, mark, self.field.pattern)
        )

    def cut(self, data: bytearray) -> int:
        quotes, regular = self.quotes(data)
        if not len(quotes):
            return data.rfind(b"\n") + 1
        if not regular:
            stop = 0
            for _, end, closed in self.walk(data):
                stop = end if closed and data[end - 1] == _NEWLINE else stop
            return stop
        end = len(data)
        while (newline := data.rfind(b"\n", 0, end)) >= 0:
            before = int(np.searchsorted(quotes, newline))
            if before % 2 == 0:
                return newline + 1
            end = int(quotes[before - 1])  # within quotes: look before they open
        return 0

    def quotes(
        self, data: bytes | bytearray, inside: bool = False, before: int = _NEWLINE
    ) -> tuple[Array, bool]:
        """The places of quotes, and whether they open at the start of fields only.

        Args:
          data: text that starts at a record, or anywhere:
          inside: whether it starts within quotes,
          before: the character before it.
        """
        if data.find(b'"') < 0:
            return np.zeros(0, np.int64), True
        characters = np.frombuffer(data, np.uint8)
        quotes = np.flatnonzero(characters == _QUOTE)
        opening = quotes[int(inside) :: 2]
        previous = characters[np.maximum(opening - 1, 0)]
        if len(opening) and opening[0] == 0:
            previous = previous.copy()
            previous[0] = before
        regular = (previous == ord(self.delimiter)) | (previous == _NEWLINE) | (previous == _QUOTE)
        return quotes, bool(regular.all())

    def records(self, data: bytearray) -> tuple[Array, Array, bool]:
        """Where the records of a block start and stop, line ends and blank lines left out.

        Returns:
          ``(starts, stops, regular)``. Unless regular, an irregular quote is in the block or
          its last quote does not close, and arrow is not to be asked.
        """
        quotes, regular = self.quotes(data)
        regular = regular and len(quotes) % 2 == 0
        characters = np.frombuffer(data, np.uint8)
        if regular:
            stops = np.flatnonzero(characters == _NEWLINE)
            if len(quotes):
                stops = stops[np.searchsorted(quotes, stops) % 2 == 0]
            if len(data) and data[-1] != _NEWLINE:
                stops = np.append(stops, len(data))
            starts = np.empty_like(stops)
            starts[:1] = 0
            starts[1:] = stops[:-1] + 1
        else:
            pairs = np.array(list(self.walk(data)), np.int64).reshape(-1, 3)
            starts, stops = pairs[:, 0], pairs[:, 1]
            ended = characters[np.maximum(stops - 1, 0)] == _NEWLINE
            stops = stops - (ended & (stops > starts))
        if len(stops):
            carriage = (characters[np.maximum(stops - 1, 0)] == 13) & (stops > starts)
            stops = stops - carriage
        filled = stops > starts
        return starts[filled], stops[filled], regular

    def walk(self, data: bytes | bytearray) -> Iterator[tuple[int, int, bool]]:
        """Start and end of each record, its line end included, and whether its quotes close.

        A quote that never closes makes all that follows one record.
        """
        position = 0
        while position < len(data):
            match = self._record.match(data, position)
            end = match.end() if match else len(data)
            yield position, end, match is not None
            position = end


def plan_ranges(
    source: Source, start: int, size: int, split_bytes: int, cutter: CsvCutter
) -> list[tuple[int, int]]:
    """Divides a plain CSV file into ranges that start and end with records.

    The file is read once, in order, which takes a fraction of the time of parsing it.
    From an irregular quote on, the rest is one range.

    Args:
      source: the file's bytes from ``start`` on.
      start: where the first record after the header starts.
      size: the size of the file.
      split_bytes: how large a range should be.
      cutter: knows the delimiter.
    """
    ranges: list[tuple[int, int]] = []
    first = position = start
    inside, before = False, _NEWLINE
    buffer = bytearray(min(_SCAN_BYTES, max(size - start, 1)))
    while size - first > split_bytes:
        with memoryview(buffer) as view:
            got = source.readinto(view)
        if not got:
            break
        data = buffer if got == len(buffer) else buffer[:got]
        quotes, regular = cutter.quotes(data, inside, before)
        if not regular:
            break
        while (cut := _boundary(data, first + split_bytes - position, quotes, inside)) > 0:
            ranges.append((first, position + cut))
            first = position + cut
        inside ^= len(quotes) % 2 == 1
        before = data[-1]
        position += got
    if first < size:
        ranges.append((first, size))
    return ranges


def _boundary(data: bytes | bytearray, least: int, quotes: Array, inside: bool) -> int:
    """The end of the first record that ends at ``least`` or later in data, or 0."""
    newline = data.find(b"\n", max(least - 1, 0))
    while newline >= 0:
        before = int(np.searchsorted(quotes, newline))
        if (before + inside) % 2 == 0:
            return newline + 1
        if before == len(quotes):
            return 0
        newline = data.find(b"\n", int(quotes[before]))
    return 0
