"""What a reader makes of one block: columns, and where each row came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from .blocks import Block

Array = np.ndarray[Any, Any]


@dataclass
class Rows:
    """The columns of a block.

    Attributes:
      columns: one array for each field that was asked for, in that order.
      positions: int64[n], where each row is (byte offset, or row number).
      bad_positions: int64, where the records are that could not be parsed.
      block: the text that they were read from, or None in Parquet and Avro.
      ends: int64[n] and ``bad_ends``: where in the file the rows end, for text.
    """

    columns: list[pa.Array]
    positions: Array
    bad_positions: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    block: Block | None = None
    ends: Array | None = None
    bad_ends: Array | None = None

    @staticmethod
    def of(
        columns: list[pa.Array],
        block: Block,
        starts: Array,
        stops: Array,
        bad: Sequence[int] | Array = (),
    ) -> Rows:
        """Rows of a text block.

        Args:
          columns: without the bad records.
          block: the block.
          starts: where in it the records start, the bad ones too.
          stops: where they stop.
          bad: the numbers of the records that could not be parsed.
        """
        starts = starts.astype(np.int64, copy=False) + block.offset
        stops = stops.astype(np.int64, copy=False) + block.offset
        good = np.ones(len(starts), bool)
        good[np.asarray(bad, np.int64)] = False
        if good.all():
            return Rows(columns, starts, block=block, ends=stops)
        return Rows(columns, starts[good], starts[~good], block, stops[good], stops[~good])

    def __len__(self) -> int:
        return len(self.positions)

    def raw(self, row: int, bad: bool = False) -> bytes | None:
        """The text of a row, or of a record that could not be parsed."""
        ends = self.bad_ends if bad else self.ends
        if self.block is None or ends is None:
            return None
        start = int((self.bad_positions if bad else self.positions)[row]) - self.block.offset
        return bytes(self.block.data[start : int(ends[row]) - self.block.offset])
