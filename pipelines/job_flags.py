"""The flags that several jobs share, and what is made of them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ..mechanisms.domain import Domain
from ..mechanisms.errors import InputError, ParameterError
from ..mechanisms.oracle import FrequencyOracle
from ..mechanisms.registry import ORACLES, make_oracle
from . import flag_types, sinks
from .flags import CommandParser

if TYPE_CHECKING:
    from ..transforms.fields import RecordFields
    from ..transforms.randomness import UserKeys
    from ..transforms.windows import Windowing

FORMATS = ("auto", "jsonl", "csv", "parquet", "avro", "combined")
REPORT_FORMATS = ("auto", "jsonl", "csv", "parquet", "avro")
OUTPUT_FORMATS = ("avro", "parquet", "csv", "jsonl")
#: A day in microseconds.
_DAY = 86_400_000_000
TIME_UNITS = ("auto", "s", "ms", "us", "ns", "iso")
POST_PROCESSING = ("simplex", "clip", "none", "empirical_bayes")


def add_log_flags(parser: CommandParser, reports: bool = False) -> None:
    """The flags of a job that reads logs: what is read, and which fields.

    Args:
      parser: gets the flags.
      reports: whether ready-made reports can be read as well, which have no such fields.
    """
    group = parser.add_argument_group("what is read")
    group.add_argument(
        "--input",
        required=True,
        action="append",
        type=str if reports else flag_types.files,
        metavar="PATTERN",
        help="files of logs, e.g. 'logs/*.jsonl.gz' (quote the pattern); on any filesystem that "
        "Beam knows; may be given several times",
    )
    group.add_argument(
        "--input_format",
        choices=(*FORMATS, "reports") if reports else FORMATS,
        default="auto",
        help="default auto: from the file's name, else from its first bytes; combined is the "
        "access log of Apache and nginx"
        + ("; reports are what hadabeam privatize writes, in any format" if reports else ""),
    )
    group.add_argument(
        "--user_field",
        required=not reports,
        metavar="FIELD",
        help="the field that tells users apart; a.b is field b inside field a",
    )
    group.add_argument(
        "--value_field",
        required=not reports,
        metavar="FIELD",
        help="the private field to count",
    )
    group.add_argument(
        "--key_field",
        metavar="FIELD",
        help="one table for each value of this field (a country, a metric); it is public, "
        "and a user still sends one report over all keys",
    )
    group.add_argument(
        "--time_field",
        metavar="FIELD",
        help="when it happened: seconds, milliseconds, microseconds or nanoseconds since 1970 "
        "UTC, or ISO 8601",
    )
    group.add_argument(
        "--time_unit",
        choices=TIME_UNITS,
        default="auto",
        help="what numbers in the time field are; default auto: by their size",
    )
    group.add_argument(
        "--dead_letter_content",
        action="store_true",
        help="keep the content of records that cannot be used in the dead letters, which otherwise "
        "hold reason, file and position; the content is private data",
    )


def add_oracle_flags(parser: CommandParser) -> None:
    """The flags that define a collection: domain, oracle, epsilon, name."""
    group = parser.add_argument_group("what is collected")
    group.add_argument(
        "--domain",
        required=True,
        metavar="FILE",
        help="the values that can be reported, one a line",
    )
    group.add_argument(
        "--epsilon",
        required=True,
        type=flag_types.epsilon,
        metavar="E",
        help="the privacy parameter: a report is at most e^E times likelier under one value "
        "than under another; 0.5 is strict, 4 is weak",
    )
    group.add_argument(
        "--oracle",
        choices=tuple(ORACLES),
        default="one_bit_hadamard",
        help="the mechanism; default one_bit_hadamard",
    )
    group.add_argument(
        "--unknown",
        choices=("other", "drop", "fail"),
        default="other",
        help="what becomes of a value that is missing or not in the domain: counted as "
        "'other' (default; one more value), dropped, or an error. Dropping tells whoever sees "
        "the reports that the user's value was not in the domain, and no epsilon covers that: "
        "only for domains known to be closed",
    )
    group.add_argument(
        "--collection",
        default="default",
        metavar="NAME",
        help="the name of the collection; reports of one collection are refused by another",
    )
    group.add_argument(
        "--collection_version",
        type=flag_types.positive_int,
        default=1,
        metavar="N",
        help="raise it to start a collection anew: users draw new columns and coins",
    )
    group.add_argument(
        "--instant_epsilon",
        type=flag_types.epsilon,
        metavar="E",
        help="with --memo forever: flip the memoised bit again in each window, so that a single "
        "report spends only E, which must be below --epsilon",
    )


def add_key_flags(parser: CommandParser) -> None:
    """The two keys of a job that makes reports."""
    group = parser.add_argument_group("keys (made by: hadabeam keygen FILE)")
    group.add_argument(
        "--assignment_key",
        type=flag_types.key_file,
        metavar="FILE",
        help="gives users their columns; the collector may know it. A file on every worker, or "
        "gcpsecret:projects/PROJECT/secrets/NAME/versions/N",
    )
    group.add_argument(
        "--coin_key",
        type=flag_types.key_file,
        metavar="FILE",
        help="gives users their coins; must never leave the edge. With both keys the same "
        "records give the same reports in every run; without, each run spends epsilon again",
    )


def add_window_flags(parser: CommandParser, needs: str = "; needs --time_field") -> None:
    """Event-time windows; ``needs`` says what else has to be given."""
    group = parser.add_argument_group("windows of event time")
    group.add_argument(
        "--window",
        type=flag_types.duration,
        metavar="TIME",
        help=f"one table for each window of this length, e.g. 7d, 1h, day{needs}",
    )
    group.add_argument(
        "--period",
        type=flag_types.duration,
        metavar="TIME",
        help="from the start of one window to that of the next, e.g. --window 7d --period 1d; "
        "a record then lies in several windows and costs epsilon in each",
    )
    group.add_argument(
        "--time_zone",
        metavar="NAME",
        help="with --window day: from midnight to midnight there, e.g. Europe/Berlin; without, "
        "days are those of UTC",
    )
    group.add_argument(
        "--memo",
        choices=("window", "forever"),
        default="window",
        help="window (default): fresh coins in each window, epsilon per window. forever: the "
        "same coins for as long as the key lives, so that a constant value costs epsilon "
        "once; a change of value can then be seen; needs both keys",
    )


def add_output_flags(parser: CommandParser, what: str, *kinds: str) -> None:
    """Where the result goes.

    Args:
      parser: gets the flags.
      what: the files that are written.
      kinds: of sinks that can get the rows as well; default: all.
    """
    group = parser.add_argument_group("what is written")
    sinks.add_output(
        group,
        flag_types.prefix,
        "PREFIX",
        f"writes {what}, PREFIX-summary.json, and PREFIX-dead-letters.jsonl if records could not "
        "be used",
        *kinds,
    )
    group.add_argument(
        "--output_format", choices=OUTPUT_FORMATS, default="avro", help="default avro"
    )


def add_post_flag(parser: CommandParser) -> None:
    """The post-processing of a job that estimates."""
    parser.add_argument(
        "--post",
        choices=POST_PROCESSING,
        default="simplex",
        help="how 'frequency' is made of the unbiased 'raw': simplex (default: at least 0, "
        "adding up to 1), clip, none or empirical_bayes; raw and its interval stay as they are",
    )


def add_run_flags(parser: CommandParser) -> None:
    """How a job runs on this machine."""
    group = parser.add_argument_group("how it runs")
    group.add_argument(
        "--shards",
        type=flag_types.positive_int,
        metavar="N",
        help="into how many groups the users of a window are split; a group's records must fit "
        "in memory, at about 60 bytes each (default 64, or 16 with --window)",
    )
    group.add_argument(
        "--temp_dir",
        metavar="FOLDER",
        help="where runners on this machine keep private data while they run, in a folder "
        "of mode 0700 that is removed at the end; default: the system's",
    )
    group.add_argument(
        "--debug", action="store_true", help="show where in the program a failure came from"
    )


def read_domain(path: str, unknown: str) -> Domain:
    """The domain of a file on any filesystem, with a place for the others if they are counted.

    Raises:
      InputError: if the file cannot be read or holds no domain.
    """
    from apache_beam.io.filesystems import FileSystems

    other = "other" if unknown == "other" else None
    if FileSystems.get_scheme(path) is None:
        return Domain.from_file(path, other=other)
    try:
        with FileSystems.open(path) as file:
            data = file.read()
    except Exception as error:
        # Each filesystem has exceptions of its own; the reason is the first line of any.
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise InputError(f"cannot read the domain file {path}: {reason}") from None
    return Domain.from_bytes(data, path, other=other)


def oracle_of(args: argparse.Namespace) -> FrequencyOracle:
    """The oracle that the flags describe.

    Raises:
      InputError: if the domain cannot be read.
      ParameterError: if the oracle refuses the parameters.
    """
    return make_oracle(
        args.oracle,
        read_domain(args.domain, args.unknown),
        args.epsilon,
        instant_epsilon=getattr(args, "instant_epsilon", None),
        collection=args.collection,
        version=args.collection_version,
    )


def keys_of(args: argparse.Namespace) -> UserKeys:
    """The keys that the flags name, for the question that the flags ask.

    Without windows times only part a user's records, but that makes another choice among them; in
    windows records always have times.

    Raises:
      ParameterError: if only one is given, or both are one file.
    """
    from ..transforms.randomness import UserKeys, question_of

    time = args.time_field if args.window is None else None
    return UserKeys(args.assignment_key, args.coin_key, question_of(args.value_field, time))


def fields_of(args: argparse.Namespace) -> RecordFields:
    """The fields that the flags name."""
    from ..transforms.fields import RecordFields

    return RecordFields(args.user_field, args.value_field, args.time_field, args.key_field)


def windowing_of(args: argparse.Namespace) -> Windowing | None:
    """The windows that the flags describe, or None.

    Raises:
      ParameterError: if flags about windows do not fit together.
    """
    from ..transforms.windows import CalendarDays, WindowSpec

    if args.window is None:
        if args.period is not None:
            raise ParameterError("--period needs --window: e.g. --window 7d --period 1d")
        if getattr(args, "time_zone", None) is not None:
            raise ParameterError("--time_zone needs --window day")
        return None
    if getattr(args, "time_field", "") is None:
        raise ParameterError("--window needs --time_field: which field says when it happened?")
    if getattr(args, "time_zone", None) is not None:
        if args.window != _DAY or args.period not in (None, _DAY):
            raise ParameterError("--time_zone is for --window day, without --period")
        return CalendarDays(args.time_zone)
    return WindowSpec(args.window, args.period)


def epsilon_total(
    oracle: FrequencyOracle, windowing: Windowing | None, memo: str = "window"
) -> float:
    """What a record costs its user: epsilon for each window it lies in, once if memoised."""
    times = 1 if windowing is None or memo == "forever" else windowing.windows_per_record
    return oracle.epsilon_effective * times


def parse_args(parser: CommandParser, argv: list[str] | None) -> tuple[Any, list[str]]:
    """The command's own flags, and Beam's; see :func:`hadabeam.pipelines.flags.parse`."""
    import sys

    from . import extras, logs, paths
    from .flags import parse

    # Beam may be imported for its flags, and would warn of what is nobody's concern.
    logs.set_up(debug=False)
    given = sys.argv[1:] if argv is None else argv
    args, beam_args = parse(given, parser)
    try:
        extras.check_paths(given)
        sinks.settle(args)
        paths.settle(args, beam_args)
    except ParameterError as error:
        parser.error(str(error))
    if beam_args or any("://" in word for word in given):
        # The domain and the summary are read here, outside any pipeline; how an object store
        # is reached (--s3_endpoint_url, --no_auth) is told by Beam's flags.
        from apache_beam.io.filesystems import FileSystems
        from apache_beam.options.pipeline_options import PipelineOptions

        FileSystems.set_options(PipelineOptions(beam_args))
    return args, beam_args
