"""Refuses reports of other windows before anything is written, where that can be seen at once.

A flag about windows that was forgotten would else refuse every report, and put an empty table in
the place of the last one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..mechanisms.errors import InputError
from ..mechanisms.oracle import FrequencyOracle
from ..transforms.randomness import ReportKeys
from ..transforms.reading import read_split
from ..transforms.report_files import ReportParser
from ..transforms.report_form import report_form
from ..transforms.splits import match_files, plan_splits
from . import job_flags, runner
from .log_jobs import HINTS

_REASON = "wrong_window"


def check_windows(
    args: argparse.Namespace, beam_args: Sequence[str], oracle: FrequencyOracle
) -> None:
    """Looks at the start of the first file, on runners of this machine.

    Args:
      args: what the parser gave.
      beam_args: Beam's flags.
      oracle: what the flags describe.

    Raises:
      InputError: if nothing matches, the file cannot be read or holds no reports, or all reports
        that it begins with are of other windows.
    """
    if not runner.is_here(beam_args):
        return
    path, size = match_files(args.input)[0]
    splits = plan_splits(path, size, format=args.input_format)
    if not splits or not size:
        return
    form = report_form(splits[0])
    windowing = job_flags.windowing_of(args)
    parser = ReportParser(oracle, path, form, ReportKeys().load(), windowing=windowing)
    blocks = read_split(splits[0], form.fields, parser, threads=0)
    try:
        first = next(blocks, None)
    finally:
        blocks.close()
    if first is None or first.reports or first.identified is not None:
        return
    if first.tally.get(_REASON) == first.tally.get("records_read"):
        raise InputError(f"the reports in {path} are of other windows; {HINTS[_REASON]}")
