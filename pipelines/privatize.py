"""``hadabeam privatize``: from log files to reports, the edge's half of a job."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from . import guard, job_flags, runner, sinks
from .flags import CommandParser

if TYPE_CHECKING:
    import apache_beam as beam

    from ..mechanisms.oracle import FrequencyOracle

_DESCRIPTION = """\
Turns logs into reports: of each user one record is kept (in each window), and its value
becomes one noisy bit. The reports can leave; the logs and the coin key cannot.
'hadabeam estimate' makes frequencies of them, elsewhere."""

_EXAMPLES = """\
  On the edge, with keys of its own:
    hadabeam keygen assignment.key
    hadabeam keygen coin.key
    hadabeam privatize --input 'logs/*.jsonl' --user_field user --value_field page \\
        --domain pages.txt --epsilon 1 --output edge/pages \\
        --assignment_key assignment.key --coin_key coin.key

  At the collector, with the same domain and epsilon:
    hadabeam estimate --input 'edge/pages-reports-*' --domain pages.txt --epsilon 1 \\
        --output out/pages
"""


def parser() -> CommandParser:
    """The parser of the command's own flags."""
    found = CommandParser("privatize", _DESCRIPTION, _EXAMPLES)
    job_flags.add_log_flags(found)
    job_flags.add_oracle_flags(found)
    job_flags.add_key_flags(found)
    job_flags.add_window_flags(found)
    job_flags.add_output_flags(found, "PREFIX-reports-*.FORMAT", "kafka", "pubsub")
    sinks.add_sink_flags(found, reports=True)
    found.add_argument(
        "--packed",
        action="store_true",
        help="write thousands of reports in a row: smaller, and read much faster",
    )
    job_flags.add_run_flags(found)
    return found


def build(
    pipeline: beam.Pipeline,
    args: argparse.Namespace,
    oracle: FrequencyOracle,
    spill_folder: str | None = None,
) -> None:
    """Puts the job on a pipeline; see :func:`hadabeam.pipelines.batch.build`."""
    import apache_beam as beam

    from ..transforms.privatize import Privatize
    from ..transforms.records import TALLIES
    from ..transforms.reports import FormatReports
    from ..transforms.write_reports import WriteReports
    from .log_jobs import limited_records, write_run

    windowing = job_flags.windowing_of(args)
    keys = job_flags.keys_of(args)
    logs = limited_records(pipeline, args, oracle, keys, windowing, spill_folder)
    reports = logs.records | "Privatize" >> Privatize(oracle, keys, args.memo)
    rows = reports | "Format" >> FormatReports(oracle, args.packed)
    rows[None] | "WriteReports" >> WriteReports(args.output, args.output_format, packed=args.packed)
    sinks.send(rows[None], args, "packed_reports" if args.packed else "report")
    counted = rows[TALLIES] | "ToGlobal" >> beam.WindowInto(beam.window.GlobalWindows())
    write_run(
        args,
        oracle,
        logs,
        counted,
        job_flags.epsilon_total(oracle, windowing, args.memo),
        windowing is not None,
    )


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    args, beam_args = job_flags.parse_args(parser(), argv)
    return guard.guarded("hadabeam privatize", lambda: _run(args, beam_args), debug=args.debug)


def _run(args: argparse.Namespace, beam_args: list[str]) -> int:
    from .log_jobs import check_run, finish, spill_folder

    oracle = job_flags.oracle_of(args)
    check_run(args, beam_args)
    with spill_folder(args, beam_args) as folder:
        runner.run(lambda pipeline: build(pipeline, args, oracle, folder), beam_args)
    if not runner.waits(beam_args):
        return 0
    summary = finish(args)
    if sys.stdout.isatty():
        print(
            f"{summary['reports']:,} reports of {summary['records_read']:,} records in "
            f"{args.output}-reports-*.{args.output_format}; collection {summary['collection']}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
