"""The table at the end of a run: what it shows, how wide it is, and what it never lets through."""

from __future__ import annotations

import io
import pathlib
import sys
import unicodedata
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadabeam.mechanisms.domain import Domain
from hadabeam.mechanisms.estimate import FrequencyEstimate
from hadabeam.pipelines import cells
from hadabeam.pipelines.table import print_estimates, read_estimates, render
from hadabeam.transforms.tables import EstimateTable
from hadabeam.transforms.write import write_table

DAY = 86_400_000_000
SUMMARY: dict[str, Any] = {
    "records_read": 61_234,
    "reports": 50_000,
    "dropped": {"unparseable": 12, "over_limit": 11_222},
    "empty_columns": 0,
    "epsilon": 1.0,
    "epsilon_effective": 1.0,
}


def table(values: list[str], raw: list[float], se: float = 0.006, **place: Any) -> pa.Table:
    parts: dict[str, Any] = dict.fromkeys(["window_start", "window_end", "pane", "key"])
    estimate = FrequencyEstimate(
        np.array(raw), np.full(len(raw), se), se, 50_000, 1.0, domain=Domain(values)
    )
    return EstimateTable(**{**parts, **place}, estimate=estimate).to_arrow()


PAGES = table(["cart", "home", "search", "rare"], [0.1, 0.5, 0.3, -0.001])


def test_what_it_looks_like() -> None:
    assert render(PAGES, SUMMARY, 60) == (
        "value    share   95 % interval\n"
        "home    50.0 %  48.8 to 51.2 %  ███████████████████████████▒\n"
        "search  30.0 %  28.8 to 31.2 %  ████████████████▒\n"
        "cart    10.0 %   8.8 to 11.2 %  █████▒\n"
        "rare    -0.1 %   -1.3 to 1.1 %? ▒\n"
        "\n"
        "? may be chance: such a share is expected of some value that\n"
        "nobody has\n"
        "\n"
        "50,000 reports of 61,234 records\n"
        "    12 could not be parsed\n"
        "11,222 further records of users already counted\n"
        "epsilon 1 per user\n"
    )


def test_only_the_top_rows_are_shown() -> None:
    text = render(PAGES, SUMMARY, 80, rows=2)
    assert "and 2 more\n" in text
    assert "cart" not in text


def test_a_terminal_without_blocks_gets_ascii() -> None:
    text = render(table(["é", "b"], [0.6, 0.4]), SUMMARY, 80, encoding="ascii")
    assert text.isascii()
    assert "\\xe9" in text
    assert "###" in text


def test_several_tables_are_short() -> None:
    tables = [
        table(
            ["a", "b", "c", "d"],
            [0.4, 0.3, 0.2, 0.1],
            window_start=week * 7 * DAY,
            window_end=(week + 1) * 7 * DAY,
            key=key,
        )
        for week in range(3)
        for key in ("NL", "DE")
    ]
    text = render(pa.concat_tables(tables), {**SUMMARY, "epsilon_effective": 7.0}, 80)
    assert text.startswith("The last 4 of 6 tables\n\n1970-01-08 to 1970-01-15, NL\n")
    assert text.count("and 1 more") == 4
    assert "epsilon 7 per record, 1 per report\n" in text
    keys = [table(["a", "b"], [0.5, 0.5], key=key) for key in (None, "", "x")]
    text = render(pa.concat_tables(keys), SUMMARY, 80)
    assert text.startswith("3 tables\n\n\nvalue")
    assert '\n""\nvalue' in text


def test_nothing_was_counted() -> None:
    text = render(PAGES.slice(0, 0), {**SUMMARY, "reports": 0, "dropped": {}}, 80)
    assert text.startswith("No estimates: nothing was counted.\n\n0 reports of 61,234 records\n")
    nothing = FrequencyEstimate(
        np.zeros(2), np.full(2, np.inf), np.inf, 0, 1.0, domain=Domain(["a", "b"])
    )
    empty = EstimateTable(None, None, None, None, nothing).to_arrow()
    assert "a      0.0 %       ? to ? %?\n" in render(empty, SUMMARY, 80)


def test_reasons_have_words() -> None:
    from hadabeam.pipelines.table import _WORDS
    from hadabeam.transforms.records import READING_REASONS, REPORT_REASONS, WINDOW_REASONS

    assert set(_WORDS) == {*READING_REASONS, *WINDOW_REASONS, *REPORT_REASONS}


HOSTILE = [
    "\x1b[2J\x1b[31mred",
    "line\nbreak\rreturn\ttab",
    "\u202eright-to-left override",
    "\u2066isolate without end",
    "\u0007bell\u0000nul\u009bcsi",
    "e" + "\u0301" * 40,
    "日本語" * 30,
    "עברית 123",
    "العربية",
    "👩\u200d👩\u200d👧 family",
    "\u2028separator\u2029",
    "x" * 500,
    " leading",
    "\ufeffmark",
    "\ue000private\U000e0041tag",
]


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "cp437"])
def test_odd_values_stay_in_their_line(columns: int, encoding: str) -> None:
    raw = np.linspace(0.3, 0.01, len(HOSTILE)).tolist()
    text = render(table(HOSTILE, raw), SUMMARY, columns, rows=99, encoding=encoding)
    text.encode(encoding)
    lines = text.splitlines()
    # The note about chance takes a second line on a narrow terminal.
    assert text.count("\n") == len(lines) == len(HOSTILE) + (9 if columns < 72 else 8)
    for line in lines[: len(HOSTILE) + 1]:
        assert cells.width(line) <= columns
    assert not any(
        unicodedata.category(letter) in ("Cc", "Zl", "Zp", "Co", "Cs")
        for letter in text
        if letter != "\n"
    )
    assert not set(text) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u200e\u200f")
    assert text.count("\u2068") == text.count("\u2069")


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30), st.integers(5, 40), st.sampled_from(["utf-8", "ascii"]))
def test_cells_have_their_width(text: str, columns: int, encoding: str) -> None:
    made = cells.cell(text, columns, encoding)
    assert cells.width(made) == columns
    made.encode(encoding)
    assert not any(unicodedata.category(letter) in ("Cc", "Cs", "Co", "Cn") for letter in made)


@pytest.mark.parametrize("format", ["avro", "parquet", "csv", "jsonl"])
def test_tables_are_read_back(format: str, tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / f"x-estimates.{format}")
    whole = pa.concat_tables(
        [
            table(["a", "b"], [0.5, 1 / 3], key=key, window_start=0, window_end=DAY)
            for key in (None, "", "x")
        ]
    )
    for content in (whole, whole.slice(0, 0)):
        write_table(content, path, format)
        read = read_estimates(path, format)
        assert read is not None
        assert read.equals(content)
    nothing = FrequencyEstimate(
        np.zeros(2), np.full(2, np.inf), np.inf, 0, 1.0, domain=Domain(["a", "b"])
    )
    empty = EstimateTable(None, None, None, None, nothing).to_arrow()
    write_table(empty, path, format)
    read = read_estimates(path, format)
    assert read is not None
    assert read.equals(empty)


def test_a_terminal_gets_the_table_and_a_log_its_last_lines(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = str(tmp_path / "pages")
    write_table(PAGES, f"{prefix}-estimates.csv", "csv")
    print_estimates(prefix, "csv", SUMMARY)
    wrote = f"Wrote {prefix}-estimates.csv and {prefix}-summary.json\n"
    printed = capsys.readouterr().out
    assert printed.endswith("\n" + wrote)
    facts = printed.removesuffix(wrote)
    assert facts.startswith(f"{SUMMARY['reports']:,} reports of {SUMMARY['records_read']:,} ")
    assert set(facts.splitlines()) < set(render(PAGES, SUMMARY, 120).splitlines())

    class Terminal(io.StringIO):
        encoding = "ascii"

        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    print_estimates(prefix, "csv", SUMMARY)
    assert terminal.getvalue() == (
        "\n" + render(PAGES, SUMMARY, 80, encoding="ascii") + "\n" + wrote
    )
