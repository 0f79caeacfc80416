"""``hadabeam batch``: from log files to a table of frequencies, in one job."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from . import guard, job_flags, runner, sinks
from .flags import CommandParser

if TYPE_CHECKING:
    import apache_beam as beam

    from ..mechanisms.oracle import FrequencyOracle
    from ..transforms.limit import WindowTally
    from ..transforms.tables import EstimateTable

_DESCRIPTION = """\
Estimates how frequent values are, from logs, with one noisy bit per user.

Of each user one record is kept (in each window, if there are any); its value becomes one
noisy bit; the bits are added up and turned into frequencies with error bars."""

_EXAMPLES = """\
  Which pages do people visit? One table, in out/pages-estimates.csv:
    hadabeam batch --input 'logs/*.jsonl' --user_field user --value_field page \\
        --domain pages.txt --epsilon 1 --output out/pages --output_format csv

  The same answer in every run, and nothing spent twice:
    hadabeam keygen assignment.key
    hadabeam keygen coin.key
    hadabeam batch ... --assignment_key assignment.key --coin_key coin.key

  Status codes of a web server, one table a day:
    hadabeam batch --input access.log.gz --input_format combined --user_field host \\
        --value_field status --domain codes.txt --epsilon 1 \\
        --time_field time --window day --output out/status

  The same rows to a topic as well:
    hadabeam batch ... --output out/pages --output kafka:localhost:9092/pages

  On two processes: add  --direct_num_workers 2 --direct_running_mode multi_processing
"""


def parser() -> CommandParser:
    """The parser of the command's own flags."""
    found = CommandParser("batch", _DESCRIPTION, _EXAMPLES)
    job_flags.add_log_flags(found)
    job_flags.add_oracle_flags(found)
    job_flags.add_key_flags(found)
    job_flags.add_window_flags(found)
    job_flags.add_output_flags(found, "PREFIX-estimates.FORMAT")
    sinks.add_sink_flags(found)
    job_flags.add_post_flag(found)
    job_flags.add_run_flags(found)
    return found


def build(
    pipeline: beam.Pipeline,
    args: argparse.Namespace,
    oracle: FrequencyOracle,
    spill_folder: str | None = None,
) -> None:
    """Puts the job on a pipeline.

    Args:
      pipeline: the pipeline.
      args: what :func:`parser` gave.
      oracle: what the flags describe.
      spill_folder: see ``LimitContributions``.
    """
    import apache_beam as beam

    from ..transforms.count import CountReports
    from ..transforms.estimate import EstimateCounts
    from ..transforms.privatize import Privatize
    from ..transforms.write import WriteEstimates
    from .log_jobs import limited_records, write_run

    windowing = job_flags.windowing_of(args)
    keys = job_flags.keys_of(args)
    logs = limited_records(pipeline, args, oracle, keys, windowing, spill_folder)
    keyed = args.key_field is not None
    count: Any = CountReports.PerKey(oracle) if keyed else CountReports.Globally(oracle)
    tables = (
        logs.records
        | "Privatize" >> Privatize(oracle, keys, args.memo)
        | "Count" >> count
        | "Estimate" >> EstimateCounts(oracle, args.post, keyed)
        | "ToGlobal" >> beam.WindowInto(beam.window.GlobalWindows())
    )
    tables | "WriteEstimates" >> WriteEstimates(args.output, args.output_format)
    sinks.send_tables(tables, args, oracle.collection_id, keyed=keyed)
    write_run(
        args,
        oracle,
        logs,
        tables | "TallyTables" >> beam.Map(tally_table),
        job_flags.epsilon_total(oracle, windowing, args.memo),
        windowing is not None,
    )


def tally_table(table: EstimateTable) -> WindowTally:
    """What a table adds to the summary."""
    numbers = {"reports": table.estimate.n, "empty_columns": table.empty_columns}
    return table.window_start, table.window_end, numbers


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    args, beam_args = job_flags.parse_args(parser(), argv)
    return guard.guarded("hadabeam batch", lambda: _run(args, beam_args), debug=args.debug)


def _run(args: argparse.Namespace, beam_args: list[str]) -> int:
    from .log_jobs import check_run, finish, spill_folder
    from .table import print_estimates

    oracle = job_flags.oracle_of(args)
    check_run(args, beam_args)
    with spill_folder(args, beam_args) as folder:
        runner.run(lambda pipeline: build(pipeline, args, oracle, folder), beam_args)
    if not runner.waits(beam_args):
        return 0
    summary = finish(args)
    print_estimates(args.output, args.output_format, summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
