"""``hadabeam stream``: estimates window by window, as logs or reports come."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

from ..mechanisms.errors import InputError, ParameterError
from . import guard, job_flags, runner, sinks
from .broker_source import check_messages, check_runner, from_broker, read_messages
from .brokers import check_brokers
from .stream_flags import parser

if TYPE_CHECKING:
    import apache_beam as beam

    from ..mechanisms.oracle import FrequencyOracle
    from ..transforms.randomness import ReportKeys, UserKeys
    from ..transforms.windows import Windowing

#: The runner where none is named.
_PRISM = "PrismRunner"
#: How long after its event a line may be written, and how often files are looked at, in
#: microseconds, where no flag says otherwise.
_MAX_DELAY, _POLL = 30_000_000, 500_000
#: Milliseconds between two checkpoints on Flink, where no other number is given.
_CHECKPOINT_MS = 10_000
#: Milliseconds after which a source on Flink that has nothing left ends, if the job is to end.
_IDLE_MS = 1_000


def build(
    pipeline: beam.Pipeline,
    args: argparse.Namespace,
    oracle: FrequencyOracle,
    keys: UserKeys | ReportKeys,
    windowing: Windowing,
) -> None:
    """Puts the job on a pipeline.

    Args:
      pipeline: the pipeline.
      args: what :func:`parser` gave.
      oracle: what the flags describe.
      keys: likewise.
      windowing: likewise.
    """
    from ..transforms.watch import WatchRecords

    reports = args.input_format == "reports"
    keyed = args.per_key if reports else args.key_field is not None
    if from_broker(args):
        messages = read_messages(pipeline, args)
        publish(messages, args, oracle, keys, windowing, keyed=keyed, from_reports=reports)
        return
    source = pipeline | "Watch" >> WatchRecords(
        args.input,
        None if reports else job_flags.fields_of(args),
        format="auto" if reports else args.input_format,
        time_unit=args.time_unit,
        max_delay=_MAX_DELAY if args.max_delay is None else args.max_delay,
        poll=(args.poll or _POLL) / 1_000_000,
        stop_after=None if args.stop_after is None else args.stop_after / 1_000_000,
        raw_dead_letters=args.dead_letter_content,
        id_field=args.id_field,
    )
    publish(source, args, oracle, keys, windowing, keyed=keyed, from_reports=reports)


def publish(
    source: dict[str | None, beam.PCollection],
    args: argparse.Namespace,
    oracle: FrequencyOracle,
    keys: UserKeys | ReportKeys,
    windowing: Windowing,
    *,
    keyed: bool,
    from_reports: bool,
) -> None:
    """Estimates what any source gives, and writes it.

    Args:
      source: ``None``: batches, as ``WatchRecords`` gives them; ``TALLIES`` and
        ``DEAD_LETTERS`` where the source has them.
      args: what :func:`parser` gave.
      oracle: the mechanism.
      keys: the keys by reference.
      windowing: the windows.
      keyed: whether there is a table for each key.
      from_reports: whether batches are of reports.
    """
    import apache_beam as beam

    from ..transforms.records import DEAD_LETTERS, TALLIES
    from ..transforms.stream import StreamEstimates
    from ..transforms.write_panes import (
        SumTallies,
        WritePanes,
        WriteRunSummary,
        WriteStreamDeadLetters,
    )

    transform = StreamEstimates.PerKey if keyed else StreamEstimates.Globally
    estimates = transform(
        oracle,
        windowing,
        keys,
        unknown=args.unknown,
        post=args.post,
        memo=args.memo,
        early=None if args.early is None else args.early / 1_000_000,
        allowed_lateness=args.allowed_lateness,
        min_reports=args.min_reports,
        from_reports=from_reports,
        shards=args.shards,
    )
    found = source[None] | "Estimate" >> estimates
    panes = found[None] | "WritePanes" >> WritePanes(
        args.output, args.output_format, keep_early=not args.drop_early
    )
    panes | "Announce" >> beam.Map(announce)
    refused = sinks.send_panes(panes, args, oracle.collection_id)
    tallies = [part[TALLIES] for part in (source, found) if TALLIES in part]
    (
        tallies
        | "AllTallies" >> beam.Flatten()
        | "SumTallies" >> SumTallies()
        | "WriteRunSummary"
        >> WriteRunSummary(args.output, oracle, estimates.epsilon_effective, args.memo)
    )
    letters = [part[DEAD_LETTERS] for part in (source, found) if DEAD_LETTERS in part] + refused
    (
        letters
        | "AllDeadLetters" >> beam.Flatten()
        | "WriteDeadLetters" >> WriteStreamDeadLetters(args.output)
    )


def announce(pane: Any) -> None:
    """Prints a line for a pane; seen where workers are in the terminal's own process."""
    from .pane_lines import pane_line

    # Its reader may have seen enough (``| head``); what is published is in the files.
    with contextlib.suppress(BrokenPipeError):
        print(pane_line(pane), flush=True)


def streaming_args(beam_args: list[str], *, ends: bool = False) -> list[str]:
    """Beam's flags for a runner that streams.

    Args:
      beam_args: as they were given.
      ends: whether the job ends by itself.

    Raises:
      ParameterError: if the runner that is named reads all input before it gives anything out.
    """
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

    options = PipelineOptions(beam_args)
    named = options.view_as(StandardOptions).runner
    if named is not None and runner.is_local(beam_args):
        raise ParameterError(
            f"{named} reads all input before it gives anything out, and a stream has no end; "
            "leave --runner out, or pass --runner=PrismRunner (on this machine, with "
            "--prism_location=FILE if Beam is not to download it) or --runner=FlinkRunner"
        )
    found = []
    if named is None:
        found.append(f"--runner={_PRISM}")
    if not options.view_as(StandardOptions).streaming:
        found.append("--streaming")
    if runner.runner_name([*found, *beam_args]) == _PRISM:
        # Prism of Beam 2.77 splits bundles of stateful steps when a machine is busy, and may then
        # work on one key twice at a time: updates are lost.
        found.append("--experiments=prism_disable_sdf_split")
    if runner.is_flink(beam_args):
        # What a stage has given out and not yet sent is otherwise kept in its checkpoint by the
        # number of the output. Each submission numbers outputs anew: restored from a
        # savepoint, the elements of one would come out of another.
        found.append("--finish_bundle_before_checkpointing")
        if not any(arg.startswith("--checkpointing_interval") for arg in beam_args):
            # Without checkpoints a job neither restarts nor gives out windows of a Kafka topic.
            found.append(f"--checkpointing_interval={_CHECKPOINT_MS}")
        if ends and not any(arg.startswith("--shutdown_sources_after_idle") for arg in beam_args):
            # Where there are checkpoints, what starts the sources otherwise never ends.
            found.append(f"--shutdown_sources_after_idle_ms={_IDLE_MS}")
    # In front, since flags may end in a bare -- and what follows it.
    return runner.patient([*found, *beam_args])


def _note_download(beam_args: list[str]) -> None:
    """Says that Beam is about to download Prism, which may take a while."""
    from apache_beam.options.pipeline_options import PipelineOptions, PrismRunnerOptions
    from apache_beam.runners.portability.prism_runner import PrismJobServer

    if runner.runner_name(beam_args) != _PRISM:
        return
    location = PipelineOptions(beam_args).view_as(PrismRunnerOptions).prism_location
    if location is None and not os.path.isdir(PrismJobServer.BIN_CACHE):
        print(
            "Beam downloads its runner Prism from github.com now, once; "
            "--prism_location=FILE takes one that is there.",
            file=sys.stderr,
        )


def _check(args: argparse.Namespace) -> tuple[UserKeys | ReportKeys, Windowing]:
    """The keys and windows, if the flags fit together.

    Raises:
      ParameterError: if they do not.
    """
    from ..transforms.randomness import ReportKeys

    if args.window is None:
        raise ParameterError("a stream needs --window: e.g. --window 1h")
    reports = args.input_format == "reports"
    fields = ("user_field", "value_field", "time_field")
    if reports:
        given = [name for name in (*fields, "key_field", "coin_key") if getattr(args, name)]
        if given:
            raise ParameterError(f"--{given[0]} is for logs; reports need none")
        return ReportKeys(args.assignment_key), _windowing(args)
    missing = [name for name in fields if not getattr(args, name)]
    if missing == ["time_field"] and from_broker(args):
        # Messages have times of their own.
        missing = []
    if missing:
        raise ParameterError(f"--{missing[0]} is needed (unless --input_format is reports)")
    for name in ("id_field", "per_key"):
        if getattr(args, name):
            raise ParameterError(
                f"--{name} is for --input_format reports; of a log, a user's repeated records "
                "count once as they are, and --key_field makes one table for each key"
            )
    if not (args.assignment_key and args.coin_key):
        raise ParameterError(
            "a stream needs --assignment_key and --coin_key (made by hadabeam keygen FILE): a "
            "restart reads the logs again, and without keys would spend epsilon again"
        )
    return job_flags.keys_of(args), _windowing(args)


def _windowing(args: argparse.Namespace) -> Windowing:
    if args.input_format == "reports" or (args.time_field is None and from_broker(args)):
        args.time_field = ""
    windowing = job_flags.windowing_of(args)
    if windowing is None:
        raise ParameterError("a stream needs --window: e.g. --window 1h")
    return windowing


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    args, beam_args = job_flags.parse_args(parser(), argv)
    return guard.guarded("hadabeam stream", lambda: _run(args, beam_args), debug=args.debug)


def _run(args: argparse.Namespace, beam_args: list[str]) -> int:
    from ..transforms import files
    from ..transforms.splits import match_files
    from .field_check import warn_of_fields
    from .log_jobs import check_keys, judge, read_summary
    from .stream_definition import claim_folder

    beam_args = streaming_args(beam_args, ends=args.stop_after is not None)
    check_runner(args, beam_args)
    keys, windowing = _check(args)
    check_messages(args)
    oracle = job_flags.oracle_of(args)
    check_brokers(args, beam_args)
    if runner.runner_name(beam_args) == _PRISM:
        check_keys(args, keys)
    keyed = args.per_key if args.input_format == "reports" else args.key_field is not None
    if not runner.is_dry_run(beam_args):
        claim_folder(args, oracle, keyed)
    if runner.is_here(beam_args) and args.input_format != "reports" and not from_broker(args):
        # There may be no files yet.
        with contextlib.suppress(InputError):
            first, _ = match_files(args.input)[0]
            warn_of_fields(first, args.input_format, job_flags.fields_of(args))
    _note_download(beam_args)
    runner.run(
        lambda pipeline: build(pipeline, args, oracle, keys, windowing),
        beam_args,
        from_kafka=args.input[0].startswith("kafka:"),
    )
    summary = f"{args.output}/summary.json"
    if runner.is_here(beam_args) and files.exists(summary):
        judge(read_summary(summary), args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
