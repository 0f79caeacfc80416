"""JSON messages: one object each, over as many lines as it likes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from .blocks import Block
from .fields import parse_path
from .jsonl import JsonlParser
from .lines import BLANK
from .rows import Array, Rows

#: Fewer messages than these are quicker one by one than as a block.
_FEW = 16


class JsonMessages:
    """Messages to rows. What a message yields never depends on the others.

    Args:
      fields: names or paths.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self._parser = JsonlParser([parse_path(name) for name in fields])

    def __call__(self, messages: Sequence[bytes]) -> list[Rows]:
        """The rows; positions are numbers of messages."""
        lines: list[bytes] = []
        numbers: list[int] = []
        single: list[int] = []
        bad: list[int] = []
        for number, message in enumerate(messages):
            line = message.strip(BLANK)
            if not (line.startswith(b"{") and line.endswith(b"}")):
                # Before the block is tried, which fails as a whole.
                bad.append(number)
            elif b"\n" in line:
                single.append(number)
            else:
                lines.append(line)
                numbers.append(number)
        if len(lines) < _FEW:
            lines, numbers, single = [], [], sorted(numbers + single)
        found = [self._block(lines, np.array(numbers, np.int64))] if lines else []
        if single or bad:
            found.append(self._one_by_one(messages, single, bad))
        return found

    def _block(self, lines: list[bytes], numbers: Array) -> Rows:
        rows = self._parser.parse(Block(0, bytearray(b"\n".join(lines))))
        # Lines stand one behind the other: where they start says which they are.
        starts = np.cumsum([0] + [len(line) + 1 for line in lines[:-1]])
        places = np.searchsorted(starts, rows.positions)
        bad = np.searchsorted(starts, rows.bad_positions)
        return Rows(rows.columns, numbers[places], numbers[bad])

    def _one_by_one(self, messages: Sequence[bytes], numbers: list[int], bad: list[int]) -> Rows:
        rows, positions = [], []
        for number in numbers:
            row = self._parser.read_line(messages[number])
            if row is None:
                bad.append(number)
            else:
                rows.append(row)
                positions.append(number)
        columns = [
            pa.array([row[place] for row in rows], pa.string())
            for place in range(len(self._parser.paths))
        ]
        return Rows(columns, np.array(positions, np.int64), np.array(sorted(bad), np.int64))
