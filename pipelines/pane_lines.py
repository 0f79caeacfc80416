"""One line of a terminal for each pane of a stream."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np

from ..transforms.encodings import iso_time
from .cells import cut, safe

if TYPE_CHECKING:
    from ..transforms.stream import Pane
    from ..transforms.tables import EstimateTable

_DAY = 86_400_000_000
#: Values that are shown of a table, and tables of a pane.
_VALUES, _TABLES = 3, 2


def pane_line(pane: Pane, width: int | None = None, encoding: str = "utf-8") -> str:
    """The window, the timing, the number of reports, and the top values with their shares.

    Args:
      pane: the pane.
      width: columns of the terminal; default: as many as it has.
      encoding: of the terminal.
    """
    info = pane.info
    parts = [
        _span(info.window_start, info.window_end),
        f"{info.timing:<7}",
        f"{info.reports:>9,} reports",
    ]
    if not pane.tables:
        parts.append("withheld: too few")
    tops = [_top(table, encoding) for table in pane.tables[:_TABLES]]
    if len(pane.tables) > _TABLES:
        tops.append(f"and {len(pane.tables) - _TABLES} more keys")
    parts.append("; ".join(tops))
    return cut(
        "  ".join(parts).rstrip(), width or shutil.get_terminal_size((120, 24)).columns, ".."
    )


def _span(start: int, end: int) -> str:
    """The window; days without times of day, and the end without what it shares with the start."""
    if start % _DAY == 0 and end % _DAY == 0:
        first, last = iso_time(start)[:10], iso_time(end)[:10]
        return first if end - start == _DAY else f"{first} to {last}"
    first, last = (iso_time(time).replace("T", " ") for time in (start, end))
    return f"{first[:-1]} to {last[11:] if first[:10] == last[:10] else last}"


def _top(table: EstimateTable, encoding: str) -> str:
    estimate = table.estimate
    domain = estimate.domain
    order = np.argsort(-estimate.raw, kind="stable")[:_VALUES].tolist()
    values = [
        f"{safe(domain.values[row], encoding)} {100 * estimate.frequencies[row]:.1f} %"
        for row in order
        if domain is not None
    ]
    name = "" if table.key is None else f"{safe(table.key, encoding)}: "
    return name + ", ".join(values)
