"""``hadabeam plan``: how large an error to expect, before anything is collected."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from ..mechanisms.accuracy import MEASURES
from ..mechanisms.distributions import distribution
from ..mechanisms.estimate import POST_PROCESSINGS
from . import flag_types
from .flags import DONE, CommandParser, checked, parse
from .guard import guarded

if TYPE_CHECKING:
    from .planning import OraclePlan, Plan

_DESCRIPTION = """\
Says what to expect of each oracle for a domain and an epsilon: errors, the smallest
frequency that is detected, bits, memory and time, and which oracle fits best.

Errors depend on what the frequencies are; --distribution is a guess at them. Times are
measured while the command runs, on one core of this machine."""

_EXAMPLES = """\
  What will a million users tell about a thousand pages?
    hadabeam plan --domain_size 1000 --epsilon 1 --users 1_000_000

  How many users until no frequency is off by more than 0.01 (in expectation)?
    hadabeam plan --domain_size 1000 --epsilon 1 --wanted_error 0.01

  ... until a value that 0.1 % of them have is detected with probability .9?
    hadabeam plan --domain_size 1000 --epsilon 1 --wanted_error 0.001 --measure detectable
"""


def parser() -> CommandParser:
    """The parser of the command's flags."""
    found = CommandParser("plan", _DESCRIPTION, _EXAMPLES, takes_beam_flags=False)
    found.add_argument(
        "--domain_size",
        required=True,
        type=flag_types.positive_int,
        metavar="K",
        help="number of values, with the one for all others",
    )
    found.add_argument(
        "--epsilon", required=True, type=flag_types.epsilon, metavar="E", help="privacy parameter"
    )
    number = found.add_mutually_exclusive_group(required=True)
    number.add_argument(
        "--users", type=flag_types.positive_int, metavar="N", help="users who will report"
    )
    number.add_argument(
        "--wanted_error",
        type=checked(_error),
        metavar="X",
        help="instead of the users: an error, to learn how many users it takes",
    )
    found.add_argument(
        "--measure",
        choices=MEASURES,
        default="l_infinity",
        help="what --wanted_error is: the expected sum of absolute errors (l1), the root of the "
        "expected sum of squared errors (l2), the expected largest error (l_infinity, default), "
        "or the frequency that is detected with probability .9 (detectable)",
    )
    found.add_argument(
        "--distribution",
        type=checked(_distribution),
        default="zipf:1",
        metavar="NAME",
        help="what the frequencies may be like: uniform, geo:RATIO, zipf:EXPONENT, two_steps; "
        "default zipf:1",
    )
    found.add_argument(
        "--post",
        choices=POST_PROCESSINGS,
        default="simplex",
        help="the post-processing that the errors are of; default simplex",
    )
    found.add_argument("--json", action="store_true", help="print JSON instead of a table")
    found.add_argument(
        "--no_timing", action="store_true", help="measure no times: the same output in every run"
    )
    found.add_argument(
        "--debug", action="store_true", help="show where in the program a failure came from"
    )
    return found


def _distribution(name: str) -> str:
    distribution(name, 2)
    return name


def _error(text: str) -> float:
    value = float(text) if text.replace(".", "", 1).replace("e-", "", 1).isdigit() else 0.0
    if not 0 < value <= 2:
        raise ValueError(f"{text!r} is no error between 0 and 2, such as 0.01")
    return value


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    args, _ = parse(sys.argv[1:] if argv is None else argv, parser())
    return guarded("hadabeam plan", lambda: _run(args), debug=args.debug)


def _run(args: argparse.Namespace) -> int:
    from .planning import make_plan

    wanted = None if args.wanted_error is None else (args.measure, args.wanted_error)
    plan = make_plan(
        args.domain_size,
        args.epsilon,
        users=args.users,
        wanted=wanted,
        assumed=args.distribution,
        post=args.post,
        timing=not args.no_timing,
    )
    print(as_json(plan) if args.json else as_text(plan))
    return DONE


def as_json(plan: Plan) -> str:
    """The plan as JSON, with the field names of :class:`~.planning.OraclePlan`."""
    content = asdict(plan)
    if plan.wanted is not None:
        content["wanted"] = dict(zip(("measure", "error"), plan.wanted, strict=True))
    return json.dumps(content, indent=2)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "none" if value is None else f"{100 * value:.3g} %"


def _bytes(value: int | None) -> str:
    if value is None:
        return "-"
    size = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.3g} {unit}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g} s"


#: Title and text of each column; those of times are left out if none was measured.
_COLUMNS: tuple[tuple[str, Callable[[OraclePlan], str]], ...] = (
    ("oracle", lambda row: row.oracle),
    ("users", lambda row: f"{row.users:,}"),
    ("l1", lambda row: _number(row.l1)),
    ("l2", lambda row: _number(row.l2)),
    ("l-inf", lambda row: _number(row.l_infinity)),
    ("detects", lambda row: _share(row.detectable)),
    ("variance", lambda row: f"{_number(row.variance)}/n"),
    ("x best", lambda row: _number(row.variance_ratio)),
    ("bits", lambda row: f"{row.bits_per_report:,}"),
    ("memory", lambda row: _bytes(row.server_bytes)),
)
_TIMES: tuple[tuple[str, Callable[[OraclePlan], str]], ...] = (
    ("edge/1M", lambda row: _seconds(row.privatize_seconds)),
    ("server", lambda row: _seconds(row.server_seconds)),
)


def as_text(plan: Plan) -> str:
    """The plan as a table with an explanation and advice."""
    from .planning import users_text

    usable = [row for row in plan.oracles if row.problem is None]
    timed = any(row.server_seconds is not None for row in usable)
    columns = _COLUMNS + (_TIMES if timed else ())
    lines = [[title for title, _ in columns]]
    lines += [[text(row) for _, text in columns] for row in usable]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    drawn = []
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        drawn.append("  ".join(cells).rstrip())
    what = (
        users_text(plan.oracles[0].users or usable[0].users or 0)
        if plan.wanted is None
        else f"users needed for {plan.wanted[0]} {plan.wanted[1]:g}"
    )
    parts = [
        f"{plan.domain_size:,} values, epsilon {plan.epsilon:g}, {what}, "
        f"frequencies like {plan.distribution}, post-processing {plan.post}",
        "",
        *drawn,
        "",
        *(f"{row.oracle}: {row.problem}" for row in plan.oracles if row.problem is not None),
        "l1, l2, l-inf: expected errors of all frequencies. detects: the smallest frequency found",
        "with probability .9. variance: of a rare value's raw frequency. x best: users it takes",
        "for the raw error of the best oracle. memory: the server's, for each window and key.",
    ]
    if timed:
        parts.append(
            "edge/1M, server: processor time measured now, one core; a million reports, and all."
        )
    return "\n".join([*parts, "", *plan.advice])


if __name__ == "__main__":
    sys.exit(main())
