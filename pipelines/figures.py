"""Pictures of simulations. matplotlib is an extra: ``pip install 'hadabeam[plot]'``."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from ..mechanisms.distributions import label
from ..mechanisms.errors import ParameterError
from .simulation import Row, oracle_of

#: Name, colour and mark of each oracle's line. The colours differ in lightness too.
_LINES = {
    "one_bit_hadamard": ("one-bit", "#d62728", "o"),
    "one_bit_as_published": ("one-bit as published", "#ff9896", "*"),
    "hadamard_response": ("Hadamard response", "#1f4e9c", "s"),
    "randomized_response": ("randomized response", "#7f7f7f", "^"),
    "rappor": ("RAPPOR", "#2ca02c", "D"),
    "subset_selection": ("subset selection", "#9467bd", "v"),
    "public_coin": ("public coin", "#17becf", "P"),
    "public_coin_randomized_response": ("public coin (RR)", "#bcbd22", "X"),
    "unperturbed_one_bit": ("one true bit, not private", "#000000", "+"),
}


def check_matplotlib() -> None:
    """Imports matplotlib, before a long simulation rather than after it.

    Raises:
      ParameterError: naming the extra, if it is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ParameterError(
            "drawing needs matplotlib: pip install 'hadabeam[plot]', or leave --plot and --figure "
            "out"
        ) from None


def draw(rows: Sequence[Row], title: str) -> bytes:
    """The l1 error as a PNG: a panel for each distribution, a line for each oracle.

    Across are the users on a log scale, or epsilon where there is one number of users.
    Bars are two standard errors of the mean.

    Args:
      rows: of one post-processing.
      title: stands above the panels.
    """
    check_matplotlib()
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    names = list(dict.fromkeys(row.distribution for row in rows))
    across = "users" if len({row.users for row in rows}) > 1 else "epsilon"
    columns = min(3, len(names))
    lines = -(-len(names) // columns)
    # Inches; one panel alone still has to hold the legend.
    figure = Figure(figsize=(max(4.2 * columns, 7.0), 3.3 * lines + 1.5), layout="constrained")
    panels: Any = figure.subplots(lines, columns, squeeze=False, sharex=True)
    series: dict[str, Any] = {}
    for place, name in enumerate(names):
        panel = panels[place // columns][place % columns]
        own = [row for row in rows if row.distribution == name]
        for key, line in _lines(own, across).items():
            text, colour, mark, dashes = _style(line[0], key, own, across)
            series[text] = panel.errorbar(
                [getattr(row, across) for row in line],
                [row.l1 for row in line],
                yerr=[2 * row.l1_error for row in line],
                label=text,
                color=colour,
                marker=mark,
                markersize=4.5,
                markerfacecolor="white",
                linestyle=dashes,
                linewidth=1.4,
                elinewidth=0.8,
                # One-bit and Hadamard response nearly coincide: the one bit stays visible.
                zorder=3.0 if _is_one_bit(line[0]) else 2.0,
            )
        panel.set_title(label(name), fontsize=11)
        panel.set_ylim(0, max(row.l1 for row in own) * 1.08)
        panel.grid(True, color="#dddddd", linewidth=0.6)
        panel.set_axisbelow(True)
        if place % columns == 0:
            panel.set_ylabel("$\\ell_1$ error")
        if across == "users":
            panel.set_xscale("log")
            ticks = sorted({row.users for row in own})
            panel.xaxis.set_major_locator(FixedLocator(_spaced(ticks)))
            panel.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _short(x)))
            panel.xaxis.set_minor_formatter(NullFormatter())
        panel.set_xlabel("users $n$" if across == "users" else "$\\epsilon$")
        panel.tick_params(labelbottom=True)
    for place in range(len(names), lines * columns):
        panels[place // columns][place % columns].set_axis_off()
    figure.suptitle(title, fontsize=12)
    figure.legend(
        series.values(), series.keys(), loc="outside lower center", ncols=3, frameon=False
    )
    file = io.BytesIO()
    # No date and no version in the file: the same rows give the same bytes.
    figure.savefig(file, format="png", dpi=110, metadata={"Software": None})
    return file.getvalue()


def _is_one_bit(row: Row) -> bool:
    """Whether a row is of the scheme that this package is about."""
    return row.oracle == "one_bit_hadamard"


def _lines(rows: Sequence[Row], across: str) -> dict[tuple[str, float], list[Row]]:
    """Rows of one panel by what makes a line: the oracle, and epsilon if not across."""
    lines: dict[tuple[str, float], list[Row]] = {}
    for row in rows:
        lines.setdefault((row.oracle, row.epsilon if across == "users" else 0.0), []).append(row)
    for line in lines.values():
        line.sort(key=lambda row: (row.users, row.epsilon))
    return lines


def _style(
    row: Row, key: tuple[str, float], rows: Sequence[Row], across: str
) -> tuple[str, str, str, str]:
    text, colour, mark = _LINES[row.oracle]
    epsilons = sorted({other.epsilon for other in rows})
    if across == "users" and len(epsilons) == 1:
        bits = oracle_of(row.oracle, row.epsilon, row.domain_size).bits_per_report
        return f"{text} ({bits} bit{'s' if bits > 1 else ''})", colour, mark, "-"
    if across == "epsilon":
        return text, colour, mark, "-"
    dashes = ("-", "--", ":", "-.")[epsilons.index(key[1]) % 4]
    return f"{text}, $\\epsilon$ = {key[1]:g}", colour, mark, dashes


def _spaced(ticks: list[int]) -> list[int]:
    """Of sorted numbers the round ones (1, 2, 5), else those a factor 1.6 apart, and the last."""
    round_ones = [tick for tick in ticks if str(tick).rstrip("0") in ("1", "2", "5")]
    if len(round_ones) >= 3:
        return round_ones
    kept = [ticks[-1]]
    for tick in reversed(ticks[:-1]):
        if tick * 1.6 <= kept[-1]:
            kept.append(tick)
    return kept[::-1]


def _short(number: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"
