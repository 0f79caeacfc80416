"""The short table at the end of a run: the top values with bars and intervals."""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from ..schemas.avro import arrow_schema
from ..transforms.encodings import iso_time
from ..transforms.splits import list_files
from .cells import can_show, cell, cut, safe
from .cells import width as columns_of

#: Rows and tables that are shown where there are several tables.
_ROWS_OF_SEVERAL, _TABLES = 3, 4
#: A larger table is not read back to be shown.
_MOST_BYTES = 64 * 2**20
_UNSURE = "? may be chance: such a share is expected of some value that nobody has"
_DAY = 86_400_000_000

_WORDS = {
    "unparseable": "could not be parsed",
    "missing_user": "without a user",
    "missing_value": "without a value",
    "unknown_value": "with a value outside the domain",
    "bad_time": "without a usable time",
    "late": "too late",
    "over_limit": "further records of users already counted",
    "wrong_collection": "of another collection",
    "wrong_window": "of windows that are none of the collection's",
    "missing_sender": "without a sender",
    "wrong_column": "with a wrong column",
    "duplicate": "received twice",
}


def render(
    table: pa.Table,
    summary: dict[str, Any],
    width: int,
    rows: int = 10,
    *,
    encoding: str = "utf-8",
) -> str:
    """Draws the end of a run.

    Each value has its raw share with the 95 % interval, and a bar that is solid up to the
    interval's low end and shaded up to its high end.

    Args:
      table: estimates, with the columns of ``estimate.avsc``.
      summary: the run's summary.
      width: columns of the terminal; lines are no longer, down to 40.
      rows: values that are shown, those with the greatest raw share.
      encoding: of the terminal; bars are ASCII where it has no blocks.

    Returns:
      Lines, each with its line end.
    """
    width = max(width, 40)
    lines: list[str] = []
    groups = _groups(table)
    shown = groups
    if len(groups) > 1:
        rows = min(rows, _ROWS_OF_SEVERAL)
        windowed = table["window_start"].null_count == 0
        shown = groups[-_TABLES:] if windowed else groups[:_TABLES]
        which = f"the {'last' if windowed else 'first'} {len(shown)} of " if shown != groups else ""
        lines += [f"{which}{len(groups)} tables".capitalize(), ""]
    if not table.num_rows:
        lines += ["No estimates: nothing was counted.", ""]
    unsure = False
    for group in shown:
        if len(groups) > 1:
            lines.append(_title(group, width, encoding))
        drawn, some = _draw(group, width, rows, encoding)
        lines += [*drawn, ""]
        unsure |= some
    if unsure:
        lines += [*textwrap.wrap(_UNSURE, width), ""]
    lines += _facts(summary, width)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _groups(table: pa.Table) -> list[pa.Table]:
    """The tables of single windows and keys, in their order."""
    if not table.num_rows:
        return []
    changes = pa.array([False] * (table.num_rows - 1), pa.bool_())
    for name in ("window_start", "window_end", "pane", "key"):
        # Null is a value of its own here, so each column becomes numbers first.
        codes = table[name].combine_chunks().dictionary_encode("encode").indices
        changes = pc.or_(changes, pc.not_equal(codes[1:], codes[:-1]))
    starts = [0, *(place + 1 for place in pc.indices_nonzero(changes).to_pylist())]
    ends = [*starts[1:], table.num_rows]
    return [table.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]


def _title(group: pa.Table, columns: int, encoding: str) -> str:
    parts = []
    start, end = (
        group[name].cast(pa.int64())[0].as_py() for name in ("window_start", "window_end")
    )
    if start is not None:
        parts.append(f"{_time(start)} to {_time(end)}")
    key = group["key"][0].as_py()
    if key is not None:
        parts.append(safe(key, encoding))
    return cut(", ".join(parts), columns, "..")


def _time(microseconds: int) -> str:
    text = iso_time(microseconds)
    return text[:10] if microseconds % _DAY == 0 else text.replace("T", " ")


def _draw(group: pa.Table, columns: int, rows: int, encoding: str) -> tuple[list[str], bool]:
    """Lines for the top values, and whether one of them may be chance."""
    order = np.argsort(-group["raw"].to_numpy(), kind="stable")
    top = group.take(order[:rows]).to_pylist()
    names = max(columns_of(safe(row["value"], encoding)) for row in top)
    names = max(min(names, columns // 3), 5)
    digits = _digits(top)
    shares = [_percent(row["raw"], digits) + " %" for row in top]
    intervals = [
        f"{_percent(row['low'], digits)} to {_percent(row['high'], digits)} %" for row in top
    ]
    first, second = max(5, *map(len, shares)), max(13, *map(len, intervals))
    space = columns - names - first - second - 6
    bar = min(space, 40) if space >= 8 else 0
    scale = max((row["high"] for row in top if math.isfinite(row["high"])), default=0.0)
    lines = [f"{'value':<{names}}  {'share':>{first}}  {'95 % interval':>{second}}"]
    for row, share, interval in zip(top, shares, intervals, strict=True):
        line = f"{cell(row['value'], names, encoding)}  {share:>{first}}  {interval:>{second}}"
        line += " " if row["detected"] else "?"
        lines.append(f"{line} {_bar(row['low'], row['high'], scale, bar, encoding)}")
    more = group.num_rows - len(top)
    if more:
        lines.append(f"and {more:,} more")
    return lines, not all(row["detected"] for row in top)


def _digits(rows: list[dict[str, Any]]) -> int:
    """Decimals of a percentage that show the first two digits of the narrowest interval."""
    widths = [100 * (row["high"] - row["low"]) / 2 for row in rows]
    narrow = min((width for width in widths if 0 < width < math.inf), default=1.0)
    return min(max(1 - math.floor(math.log10(narrow)), 1), 3)


def _percent(share: float, digits: int) -> str:
    if not math.isfinite(share):
        return "?"
    text = f"{100 * share:.{digits}f}"
    return text if float(text) else text.removeprefix("-")


def _bar(low: float, high: float, scale: float, columns: int, encoding: str) -> str:
    if scale <= 0 or not columns or not math.isfinite(high):
        return ""
    solid, shade = ("█", "▒") if can_show("█▒", encoding) else ("#", "-")
    ends = [min(max(round(columns * share / scale), 0), columns) for share in (low, high)]
    return solid * ends[0] + shade * (ends[1] - ends[0])


def _facts(summary: dict[str, Any], columns: int) -> list[str]:
    """How much was counted, what was not, and what it cost."""
    reports, read = summary.get("reports", 0), summary.get("records_read", 0)
    facts = [f"{reports:,} reports of {read:,} records"]
    for reason, number in summary.get("dropped", {}).items():
        if number:
            facts.append(f"{number:>{len(facts[0].split()[0])},} {_WORDS.get(reason, reason)}")
    asked, effective = summary.get("epsilon"), summary.get("epsilon_effective")
    if effective is not None:
        of_each = "per user and window" if "windows" in summary else "per user"
        if summary.get("memo") == "forever":
            of_each = "per user, whose value stays"
        cost = f"epsilon {effective:.4g} {of_each}"
        if asked is not None and f"{asked:.4g}" != f"{effective:.4g}":
            cost = f"epsilon {effective:.4g} per record, {asked:.4g} per report"
        facts.append(cost)
    if summary.get("empty_columns"):
        facts.append(f"{summary['empty_columns']:,} columns without a report")
    return [cut(fact, columns, "..") for fact in facts]


#: The width of a line in a log.
_LOG_COLUMNS = 120


def read_estimates(path: str, format: str) -> pa.Table | None:
    """Reads a table of estimates back; None if it is too large to be shown."""
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

    if any(size > _MOST_BYTES for _, size in list_files(path)):
        return None
    schema = arrow_schema("estimate")
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        if format == "avro":
            return pa.Table.from_pylist(list(fastavro.reader(file)), schema)
        content = pa.BufferReader(file.read())
    if format == "parquet":
        return pa.parquet.read_table(content).cast(schema)
    if format == "csv":
        options = pa.csv.ConvertOptions(
            column_types=schema, strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        return pa.csv.read_csv(content, convert_options=options).cast(schema)
    if not content.size():
        return schema.empty_table()
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    parsed = pa.json.ParseOptions(explicit_schema=nullable, newlines_in_values=False)
    table = pa.json.read_json(
        content, parse_options=parsed, read_options=pa.json.ReadOptions(block_size=_MOST_BYTES)
    )
    # JSON has null for an error that is infinite.
    for name, without in {"standard_error": "inf", "low": "-inf", "high": "inf"}.items():
        filled = pc.fill_null(table[name], pa.scalar(float(without)))
        table = table.set_column(table.schema.get_field_index(name), name, filled)
    return table.cast(schema)


def print_estimates(prefix: str, format: str, summary: dict[str, Any]) -> None:
    """Says what a run wrote, and on a terminal shows the top of it.

    Args:
      prefix: the ``--output`` of the run.
      format: its ``--output_format``.
      summary: its summary.
    """
    path = f"{prefix}-estimates.{format}"
    if not sys.stdout.isatty():
        # What a log of jobs is searched for; a terminal has it below the table.
        print("\n".join(_facts(summary, _LOG_COLUMNS)))
    else:
        table = read_estimates(path, format)
        if table is not None:
            columns = min(shutil.get_terminal_size().columns, 120)
            encoding = sys.stdout.encoding or "ascii"
            print()
            print(render(table, summary, columns, encoding=encoding))
    print(f"Wrote {path} and {prefix}-summary.json")
