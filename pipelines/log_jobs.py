"""What the jobs that read logs have in common: records in, summary and dead letters out."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems

from ..mechanisms.errors import InputError, ParameterError
from ..mechanisms.oracle import FrequencyOracle
from ..transforms import files
from ..transforms.limit import LimitContributions
from ..transforms.randomness import ReportKeys, UserKeys
from ..transforms.read import ReadRecords
from ..transforms.records import TALLIES
from ..transforms.spill import private_folder
from ..transforms.splits import match_files
from ..transforms.summary import Summarize
from ..transforms.write import WriteDeadLetters, WriteSummary
from . import job_flags, runner
from .brokers import check_brokers
from .field_check import warn_of_fields

if TYPE_CHECKING:
    from ..transforms.windows import Windowing


#: The share of reports that are refused for one reason from which on it is told what to do.
_MANY = 0.1
#: What to do where so many reports cannot be counted, by the reason.
HINTS = {
    "wrong_collection": "give --domain, --unknown, --oracle, --epsilon and --collection as they "
    "were given to hadabeam privatize",
    "wrong_window": "give --window, --period and --time_zone as they were given to hadabeam "
    "privatize, or none of them if it was given none",
    "bad_time": "check --time_field, and --time_unit if it holds numbers",
    "missing_sender": "with --assignment_key reports need a sender; leave the key out if nobody "
    "can tell who sent them",
}


class Logs(NamedTuple):
    """What was read.

    Attributes:
      records: one record of each user and window, as ``LimitContributions`` gives them.
      tallies: ``(window_start, window_end, tally)`` of reading and limiting.
      dead_letters: records that could not be used.
    """

    records: beam.PCollection
    tallies: beam.PCollection
    dead_letters: beam.PCollection


def limited_records(
    pipeline: beam.Pipeline,
    args: argparse.Namespace,
    oracle: FrequencyOracle,
    keys: UserKeys,
    windowing: Windowing | None,
    spill_folder: str | None,
) -> Logs:
    """Reads the logs that the flags name, and keeps one record of each user and window."""
    read = pipeline | "Read" >> ReadRecords(
        args.input,
        job_flags.fields_of(args),
        format=args.input_format,
        time_unit=args.time_unit,
        raw_dead_letters=args.dead_letter_content,
    )
    limited = read.records | "Limit" >> LimitContributions(
        oracle.domain, keys, args.unknown, windowing, args.shards, spill_folder
    )
    reading = read.tallies | "TallyRun" >> beam.Map(lambda tally: (None, None, tally))
    tallies = (reading, limited[TALLIES]) | "Tallies" >> beam.Flatten()
    return Logs(limited[None], tallies, read.dead_letters)


def write_run(
    args: argparse.Namespace,
    oracle: FrequencyOracle,
    logs: Logs,
    counted: beam.PCollection,
    epsilon_effective: float,
    windowed: bool,
) -> None:
    """Writes the summary and the dead letters; ``counted`` holds tallies of reports."""
    (
        (logs.tallies, counted)
        | "AllTallies" >> beam.Flatten()
        | "Summarize" >> Summarize(oracle, epsilon_effective, windowed, args.memo)
        | "WriteSummary" >> WriteSummary(args.output)
    )
    logs.dead_letters | "WriteDeadLetters" >> WriteDeadLetters(args.output)


def check_run(args: argparse.Namespace, beam_args: list[str]) -> None:
    """Refuses before anything runs what would fail on a worker of this machine.

    Raises:
      InputError: if a key file cannot be read or a broker not be reached here, and workers run
        here.
      ParameterError: if flags do not fit together.
    """
    job_flags.windowing_of(args)
    keys = job_flags.keys_of(args)
    sent = [sink.name for sink in args.sinks if sink.kind in ("kafka", "pubsub")]
    if sent and not keys.keyed and not runner.is_here(beam_args):
        raise ParameterError(
            f"--output {sent[0]} needs --assignment_key and --coin_key on this runner (made by "
            "hadabeam keygen FILE): what was sent cannot be taken back, and a part of the job that "
            "is tried again would send other reports of the same users, and spend epsilon again"
        )
    check_brokers(args, beam_args)
    if runner.is_local(beam_args):
        check_keys(args, keys)
    if runner.is_here(beam_args):
        # That there is something to read, before anything is made.
        first, _ = match_files(args.input)[0]
        warn_of_fields(first, args.input_format, job_flags.fields_of(args))
    check_output(args, beam_args)


def check_output(args: argparse.Namespace, beam_args: list[str]) -> None:
    """Checks that workers on this machine can write where they are to.

    Raises:
      InputError: if not.
    """
    if runner.is_here(beam_args):
        files.check_writable(f"{args.output}-summary.json")


def check_keys(args: argparse.Namespace, keys: UserKeys | ReportKeys) -> None:
    """Reads the keys, as workers on this machine will, and warns of loose permissions.

    Raises:
      InputError: if a key file cannot be read here.
    """
    if args.assignment_key is not None:
        keys.load()
    for key in (args.assignment_key, args.coin_key):
        if key is not None and key.loose_permissions:
            print(
                f"warning: others than its owner can read or change {key.path}; "
                f"run: chmod 600 {key.path}",
                file=sys.stderr,
            )


@contextlib.contextmanager
def spill_folder(args: argparse.Namespace, beam_args: list[str]) -> Iterator[str | None]:
    """A private folder for the shuffle of runners whose workers share this machine's disk.

    Raises:
      InputError: if ``--temp_dir`` cannot be written to.
    """
    if not runner.is_here(beam_args):
        yield None
        return
    with private_folder(args.temp_dir) as folder:
        yield folder


def finish(args: argparse.Namespace) -> dict[str, Any]:
    """Reads the summary of a run that ended, and says if it counted little or nothing.

    Raises:
      InputError: if records were read and none was counted.
    """
    found = read_summary(f"{args.output}-summary.json")
    judge(found, args)
    if not found["records_read"]:
        print("warning: the input has no records; the table is empty", file=sys.stderr)
    return found


def read_summary(path: str) -> dict[str, Any]:
    """The summary of a run."""
    with FileSystems.open(path) as file:
        found: dict[str, Any] = json.loads(file.read())
    return found


def judge(found: dict[str, Any], args: argparse.Namespace) -> None:
    """Says what to do if much of what was read could not be used for one reason.

    Args:
      found: the summary of a run that ended.
      args: what the parser gave.

    Raises:
      InputError: if records were read and none was counted.
    """
    read, dropped = found["records_read"], found["dropped"]
    if read and not found["reports"]:
        most = max(dropped, key=lambda reason: dropped[reason], default="")
        hint = HINTS.get(most, "check the field names and --input_format")
        if not getattr(args, "user_field", None) and most == "unparseable":
            hint = "are they reports? Logs are turned into reports by hadabeam privatize"
        numbers = ", ".join(f"{number} {reason}" for reason, number in dropped.items())
        raise InputError(f"of {read} records none could be counted ({numbers}); {hint}")
    for reason, hint in HINTS.items():
        refused = dropped.get(reason, 0)
        if read and refused >= _MANY * read:
            print(
                f"warning: {refused:,} of {read:,} records could not be used ({reason}); {hint}",
                file=sys.stderr,
            )
