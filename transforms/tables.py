"""Estimates as tables: arrays until they are written, rows only where asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import apache_beam as beam
import numpy as np
import pyarrow as pa

from ..mechanisms.errors import ParameterError
from ..schemas.avro import arrow_schema
from ..schemas.rows import EstimateRow

if TYPE_CHECKING:
    from ..mechanisms.estimate import FrequencyEstimate

#: The level of the interval from ``low`` to ``high``.
LEVEL = 0.95


@dataclass(frozen=True)
class EstimateTable:
    """The estimate of one window, pane and key.

    Attributes:
      window_start: start of the window (inclusive), microseconds since 1970 UTC; None
        for a batch without windows.
      window_end: its end (exclusive), likewise.
      pane: when the numbers were given out, as ``on_time-0``; None in batch jobs.
      key: the key of a per-key estimate; None where there is one estimate for all.
      estimate: raw and post-processed frequencies over a domain of k values.
      empty_columns: how many columns nobody reported in (for the summary).
    """

    window_start: int | None
    window_end: int | None
    pane: str | None
    key: str | None
    estimate: FrequencyEstimate
    empty_columns: int = 0

    @property
    def order(self) -> tuple[bool, int, int, bool, str, str]:
        """Sorts tables by window, key and pane; what has none comes first."""
        return (
            self.window_start is not None,
            self.window_start or 0,
            self.window_end or 0,
            self.key is not None,
            self.key or "",
            self.pane or "",
        )

    def to_arrow(self) -> pa.Table:
        """The table with k rows in domain order and the columns of ``estimate.avsc``.

        Raises:
          ParameterError: if the estimate has no domain, whose values name the rows.
        """
        estimate = self.estimate
        if estimate.domain is None:
            raise ParameterError("an estimate needs its domain to be written as a table")
        low, high = estimate.interval(LEVEL)
        k = len(estimate.raw)
        columns = {
            "window_start": self.window_start,
            "window_end": self.window_end,
            "pane": self.pane,
            "key": self.key,
            "value": pa.array(estimate.domain.values, pa.string()),
            "raw": estimate.raw,
            "standard_error": np.broadcast_to(estimate.standard_error, k),
            "low": low,
            "high": high,
            "frequency": estimate.frequencies,
            "count": estimate.count,
            "detected": estimate.detected,
        }
        schema = arrow_schema("estimate")
        arrays = [
            column
            if isinstance(column, pa.Array)
            else pa.array(np.ascontiguousarray(column), field.type)
            if isinstance(column, np.ndarray)
            else pa.repeat(pa.scalar(column, field.type), k)
            for field, column in zip(schema, columns.values(), strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=schema)

    @beam.typehints.with_output_types(Iterable[EstimateRow])
    def rows(self) -> Iterator[EstimateRow]:
        """The k rows, as Beam's row coder takes them: times in microseconds."""
        table = self.to_arrow()
        columns = [[time] * table.num_rows for time in (self.window_start, self.window_end)] + [
            column.to_pylist() for column in table.columns[2:]
        ]
        # A generator: Beam's check of types at run time uses any other iterator up.
        yield from map(EstimateRow._make, zip(*columns, strict=True))
