"""``hadabeam estimate``: from reports to a table of frequencies, the collector's half."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from . import flag_types, guard, job_flags, runner, sinks
from .flags import CommandParser

if TYPE_CHECKING:
    import apache_beam as beam

    from ..mechanisms.oracle import FrequencyOracle
    from ..transforms.tables import EstimateTable
    from ..transforms.windows import Windowing

_DESCRIPTION = """\
Turns reports into frequencies with error bars. Give the domain, oracle, epsilon, --unknown,
collection and windows as they were given to 'hadabeam privatize'. Reports of another collection,
and those whose epoch is no start of a window, are refused."""

_EXAMPLES = """\
  One table of all reports:
    hadabeam estimate --input 'in/pages-reports-*' --domain pages.txt --epsilon 1 \\
        --output out/pages

  Reports that were made with --window 7d, one table for each week:
    hadabeam estimate --input 'in/pages-reports-*' --domain pages.txt --epsilon 1 \\
        --window 7d --output out/pages

  Reports that name their authenticated sender: only in the sender's own column, only once
    hadabeam estimate ... --assignment_key assignment.key
"""


def parser() -> CommandParser:
    """The parser of the command's own flags."""
    found = CommandParser("estimate", _DESCRIPTION, _EXAMPLES)
    group = found.add_argument_group("what is read")
    group.add_argument(
        "--input",
        required=True,
        action="append",
        type=flag_types.files,
        metavar="PATTERN",
        help="files of reports, e.g. 'in/pages-reports-*'; may be given several times",
    )
    group.add_argument(
        "--input_format",
        choices=job_flags.REPORT_FORMATS,
        default="auto",
        help="default auto: from the file's name, else from its first bytes",
    )
    group.add_argument(
        "--per_key", action="store_true", help="one table for each key that reports have"
    )
    group.add_argument(
        "--assignment_key",
        type=flag_types.key_file,
        metavar="FILE",
        help="refuses a report whose column is not its sender's; needs reports with a sender",
    )
    group.add_argument(
        "--dead_letter_content",
        action="store_true",
        help="keep the text of rows that are refused in PREFIX-dead-letters.jsonl",
    )
    job_flags.add_oracle_flags(found)
    job_flags.add_window_flags(found, ", as the reports were made with")
    job_flags.add_output_flags(found, "PREFIX-estimates.FORMAT")
    sinks.add_sink_flags(found)
    job_flags.add_post_flag(found)
    found.add_argument(
        "--debug", action="store_true", help="show where in the program a failure came from"
    )
    return found


def build(pipeline: beam.Pipeline, args: argparse.Namespace, oracle: FrequencyOracle) -> None:
    """Puts the job on a pipeline.

    Args:
      pipeline: the pipeline.
      args: what :func:`parser` gave.
      oracle: what the flags describe.
    """
    import apache_beam as beam

    from ..transforms.count import CountFn
    from ..transforms.randomness import ReportKeys
    from ..transforms.read_reports import ReadReports
    from ..transforms.tables import EstimateTable
    from ..transforms.write import WriteEstimates
    from .batch import tally_table
    from .log_jobs import Logs, write_run

    windowing = job_flags.windowing_of(args)
    read = pipeline | "Read" >> ReadReports(
        args.input,
        oracle,
        format=args.input_format,
        keys=ReportKeys(args.assignment_key),
        raw_dead_letters=args.dead_letter_content,
        windowing=windowing,
    )
    # A report without a key belongs to the empty key, as a record does.
    per_key = args.per_key
    reports = read.reports | "Keys" >> beam.MapTuple(
        lambda place, batch: ((place[0], (place[1] or "") if per_key else None), batch)
    )
    tables = (
        reports
        | "Count" >> beam.CombinePerKey(CountFn(oracle))
        | "Estimate"
        >> beam.Map(_table, oracle, args.post, windowing).with_output_types(EstimateTable)
    )
    tables | "WriteEstimates" >> WriteEstimates(args.output, args.output_format)
    sinks.send_tables(tables, args, oracle.collection_id, keyed=per_key)
    tallies = read.tallies | "TallyRun" >> beam.Map(lambda tally: (None, None, tally))
    write_run(
        args,
        oracle,
        Logs(reports, tallies, read.dead_letters),
        tables | "TallyTables" >> beam.Map(tally_table),
        job_flags.epsilon_total(oracle, windowing, args.memo),
        windowing is not None,
    )


def _table(
    counted: tuple[tuple[int, str | None], Any],
    oracle: FrequencyOracle,
    post: str,
    windowing: Windowing | None,
) -> EstimateTable:
    from ..transforms.estimate import estimate_table
    from ..transforms.windows import window_of_epoch

    (epoch, key), counts = counted
    window = (None, None) if windowing is None else window_of_epoch(windowing, epoch)
    return estimate_table(oracle, counts, post, window, key)


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    args, beam_args = job_flags.parse_args(parser(), argv)
    return guard.guarded("hadabeam estimate", lambda: _run(args, beam_args), debug=args.debug)


def _run(args: argparse.Namespace, beam_args: list[str]) -> int:
    from .brokers import check_brokers
    from .log_jobs import check_output, finish
    from .report_check import check_windows
    from .table import print_estimates

    oracle = job_flags.oracle_of(args)
    if args.assignment_key is not None and runner.is_local(beam_args):
        args.assignment_key.read()
    check_brokers(args, beam_args)
    check_windows(args, beam_args, oracle)
    check_output(args, beam_args)
    runner.run(lambda pipeline: build(pipeline, args, oracle), beam_args)
    if not runner.waits(beam_args):
        return 0
    summary = finish(args)
    print_estimates(args.output, args.output_format, summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
