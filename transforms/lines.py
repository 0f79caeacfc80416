"""Finds the lines of a block."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: What may stand around a record in its line.
BLANK = b" \t\r\n"


def find_lines(data: bytearray) -> tuple[Array, Array, bool]:
    """Where the non-blank lines start and stop, without blanks around them.

    Returns:
      ``(starts, stops, uniform)``; uniform says that nothing had to be left out.
    """
    characters = np.frombuffer(data, np.uint8)
    stops = np.flatnonzero(characters == 10)
    if len(data) and data[-1] != 10:
        stops = np.append(stops, len(data))
    starts = np.empty_like(stops)
    starts[:1] = 0
    starts[1:] = stops[:-1] + 1
    if not len(starts):
        return starts, stops, True
    before = characters[np.maximum(stops - 1, 0)]
    carriage = (before == 13) & (stops > starts)
    if carriage.any():
        stops = stops - carriage
    filled = stops > starts
    first = characters[np.minimum(starts, len(data) - 1)]
    last = characters[np.maximum(stops - 1, 0)]
    blank = (first <= 32) | (last <= 32)
    if filled.all() and not blank.any():
        return starts, stops, True
    starts, stops = starts.copy(), stops.copy()
    for row in np.flatnonzero(filled & blank).tolist():
        line = bytes(data[starts[row] : stops[row]])
        starts[row] += len(line) - len(line.lstrip(BLANK))
        stops[row] = max(starts[row], stops[row] - (len(line) - len(line.rstrip(BLANK))))
    filled = stops > starts
    return starts[filled], stops[filled], False


def join_lines(data: bytearray, starts: Array, stops: Array) -> bytearray:
    """A copy of the given lines alone, each with a line feed."""
    view = memoryview(data)
    parts = [view[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    return bytearray(b"\n".join([*parts, b""]))
