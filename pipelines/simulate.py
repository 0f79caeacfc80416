"""``hadabeam simulate``: the schemes compared on made-up data."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING

from ..mechanisms.distributions import FIGURE_1, distribution
from ..mechanisms.errors import ParameterError
from ..mechanisms.estimate import POST_PROCESSINGS
from . import flag_types
from .flags import DONE, CommandParser, checked, parse
from .guard import guarded

if TYPE_CHECKING:
    from .simulation import Row

_DESCRIPTION = """\
Draws users from a distribution, privatizes, counts and estimates, again and again, and
says how far the estimates are from the distribution.

Nothing private is read: the data are made up. Hadamard schemes are run as they are. For
randomized response, RAPPOR and subset selection the counts of a whole collection are drawn
from their exact law, which is the same distribution as adding up n reports."""

_EXAMPLES = """\
  One table on the screen:
    hadabeam simulate --users 100_000 --epsilon 1 --domain_size 1000

  How much does a larger epsilon help, for three schemes?
    hadabeam simulate --users 100000 --epsilon 0.5 1 2 4 --distribution zipf:1 \\
        --oracle one_bit_hadamard hadamard_response subset_selection \\
        --output out/epsilons --plot

  Figure 1 of Acharya and Sun (2019), in figure1.png and figure1.csv:
    hadabeam simulate --figure 1 --processes 2
"""

#: The five schemes of Figure 1.
FIGURE_1_ORACLES = (
    "one_bit_hadamard",
    "hadamard_response",
    "randomized_response",
    "rappor",
    "subset_selection",
)
_FIGURE_1_USERS = (50_000, 70_000, 100_000, 150_000, 200_000, 300_000, 500_000, 700_000, 1_000_000)
_QUICK_USERS = (2_000, 10_000, 50_000)


def parser() -> CommandParser:
    """The parser of the command's flags."""
    from .simulation import SIMULATED

    found = CommandParser("simulate", _DESCRIPTION, _EXAMPLES, takes_beam_flags=False)
    group = found.add_argument_group("what is simulated (several values: every combination)")
    group.add_argument(
        "--distribution",
        nargs="+",
        type=checked(_distribution),
        metavar="NAME",
        help="uniform, geo:RATIO, zipf:EXPONENT, two_steps; default zipf:1",
    )
    group.add_argument(
        "--users",
        nargs="+",
        type=flag_types.positive_int,
        metavar="N",
        help="users of a collection; default 100000",
    )
    group.add_argument(
        "--oracle",
        nargs="+",
        choices=SIMULATED,
        metavar="NAME",
        help=f"default: {', '.join(FIGURE_1_ORACLES)}; there are also "
        f"{', '.join(name for name in SIMULATED if name not in FIGURE_1_ORACLES)} (the last is "
        "not private, and is here to compare)",
    )
    group.add_argument(
        "--epsilon", nargs="+", type=flag_types.epsilon, metavar="E", help="default 1"
    )
    group.add_argument(
        "--domain_size", type=flag_types.positive_int, metavar="K", help="default 1000"
    )
    group.add_argument(
        "--post",
        nargs="+",
        choices=POST_PROCESSINGS,
        default=["simplex"],
        metavar="NAME",
        help=f"{', '.join(POST_PROCESSINGS)}; default simplex",
    )
    group.add_argument(
        "--repeats",
        type=flag_types.positive_int,
        metavar="R",
        help="collections of each combination; default 10 (--figure 1: 30)",
    )
    group.add_argument(
        "--figure",
        choices=("1",),
        help="1: the paper's Figure 1, six distributions and five schemes, domain of 1000, "
        "epsilon 1, 30 repeats, 50,000 to 1,000,000 users; some minutes on two processes",
    )
    group.add_argument(
        "--quick",
        action="store_true",
        help="a small form in seconds: domain of 100, 3 repeats, at most 50,000 users",
    )
    group = found.add_argument_group("what is written")
    group.add_argument(
        "--output",
        type=flag_types.prefix,
        metavar="PREFIX",
        help="writes PREFIX.csv, and PREFIX.png if drawn; default none (--figure 1: figure1)",
    )
    group.add_argument("--plot", action="store_true", help="draw PREFIX.png; --figure implies it")
    group = found.add_argument_group("how it runs")
    group.add_argument(
        "--seed",
        type=flag_types.non_negative_int,
        default=0,
        metavar="S",
        help="the same seed gives the same numbers, on any number of processes; default 0",
    )
    group.add_argument(
        "--processes",
        type=flag_types.positive_int,
        default=os.cpu_count() or 1,
        metavar="P",
        help="how many work at the same time; default: one for each core",
    )
    group.add_argument(
        "--debug", action="store_true", help="show where in the program a failure came from"
    )
    return found


def _distribution(name: str) -> str:
    distribution(name, 2)
    return name


def fill_in(args: argparse.Namespace) -> None:
    """Puts the defaults of ``--figure`` and ``--quick`` where nothing was given.

    Raises:
      ParameterError: if there is to be a picture but no file for it.
    """
    figure = args.figure is not None
    args.distribution = args.distribution or (list(FIGURE_1) if figure else ["zipf:1"])
    default_users = list(_FIGURE_1_USERS) if figure else [100_000]
    args.users = args.users or (list(_QUICK_USERS) if args.quick else default_users)
    args.oracle = args.oracle or list(FIGURE_1_ORACLES)
    args.epsilon = args.epsilon or [1.0]
    args.domain_size = args.domain_size or (100 if args.quick else 1000)
    args.repeats = args.repeats or (3 if args.quick else 30 if figure else 10)
    if figure:
        args.output = args.output or "figure1"
        args.plot = True
    if args.plot and args.output is None:
        raise ParameterError("--plot needs --output PREFIX, e.g. --output out/epsilons")
    if args.plot and len(args.post) > 1:
        raise ParameterError("--plot draws one post-processing; give one --post")


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    args, _ = parse(sys.argv[1:] if argv is None else argv, parser())
    return guarded("hadabeam simulate", lambda: _run(args), debug=args.debug)


def _run(args: argparse.Namespace) -> int:
    from . import figures, simulation

    fill_in(args)
    if args.plot:
        figures.check_matplotlib()
    cases = [
        simulation.Case(name, oracle, epsilon, args.domain_size, users)
        for name, epsilon, oracle, users in product(
            *map(dict.fromkeys, (args.distribution, args.epsilon, args.oracle, args.users))
        )
    ]
    rows = simulation.simulate(
        cases,
        list(dict.fromkeys(args.post)),
        args.repeats,
        seed=args.seed,
        processes=args.processes,
        progress=reporter(),
    )
    if args.figure is None:
        print(table(rows))
    if args.output is not None:
        simulation.write_whole(f"{args.output}.csv", simulation.to_csv(rows).encode())
        print(f"Wrote {args.output}.csv", file=sys.stderr)
    if args.plot:
        picture = figures.draw(rows, title(args))
        simulation.write_whole(f"{args.output}.png", picture)
        print(f"Wrote {args.output}.png", file=sys.stderr)
    return DONE


def title(args: argparse.Namespace) -> str:
    """What stands above the panels."""
    parts = [f"$k$ = {args.domain_size}"]
    if len(args.epsilon) == 1:
        parts.append(f"$\\epsilon$ = {args.epsilon[0]:g}")
    if len(args.users) == 1:
        parts.append(f"{args.users[0]:,} users")
    post = args.post[0].replace("_", " ")
    parts.append("raw estimate" if post == "none" else f"post-processing {post}")
    parts.append(f"mean of {args.repeats}, bars of two standard errors")
    return ", ".join(parts)


def table(rows: Sequence[Row]) -> str:
    """Rows for the screen."""
    header: tuple[str, ...] = (
        "distribution", "oracle", "epsilon", "users", "post", "l1", "squared l2", "l-infinity",
    )  # fmt: skip
    lines = [header]
    for row in rows:
        numbers = (f"{x:.4g}" for x in (row.l1, row.squared_l2, row.l_infinity))
        users = f"{row.users:,}"
        lines.append((row.distribution, row.oracle, f"{row.epsilon:g}", users, row.post, *numbers))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = {0, 1, 4}
    return "\n".join(
        "  ".join(
            text.ljust(width) if place in left else text.rjust(width)
            for place, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def reporter(every: float = 5.0) -> Callable[[int, int], None]:
    """Tells how far it is on standard error: in place on a terminal, else every few seconds."""
    start = last = time.monotonic()
    live = sys.stderr.isatty()

    def tell(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if done < total and now - last < (0.2 if live else every):
            return
        last = now
        text = f"{done} of {total} collections, {now - start:.0f} s"
        if done < total:
            text += f", about {(now - start) / done * (total - done):.0f} s to go"
        if live:
            print(f"\r{text:<70}", end="\n" if done == total else "", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    return tell


if __name__ == "__main__":
    sys.exit(main())
