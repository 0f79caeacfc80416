"""The flags of ``hadabeam stream``."""

from __future__ import annotations

from . import flag_types, job_flags, sinks
from .flags import CommandParser

_DESCRIPTION = """\
Follows logs as they are written and publishes, for each window of event time, an estimate that
is right when early, on time and late, with one noisy bit per user and window.

Each result is a file of its own, PREFIX/<window>/<reports>-<timing>-<index>.FORMAT; of a window's
files the one with the greatest name holds."""

_EXAMPLES = """\
  Pages by the hour, with first results after ten seconds:
    hadabeam keygen assignment.key
    hadabeam keygen coin.key
    hadabeam stream --input 'logs/*.jsonl*' --user_field user --value_field page \\
        --time_field time --window 1h --domain pages.txt --epsilon 1 \\
        --assignment_key assignment.key --coin_key coin.key --output out/pages

  Calendar days of a time zone, each user's value memoised for as long as the keys live:
    hadabeam stream ... --window day --time_zone Europe/Berlin --memo forever

  Reports from elsewhere, each counted once by its id:
    hadabeam stream --input_format reports --input 'in/*.jsonl' --window 1h \\
        --domain pages.txt --epsilon 1 --output out/pages

  Avro messages of a Kafka topic, whose schema has the id 7 in a registry:
    hadabeam stream --input kafka:localhost:9092/visits --input_format avro \\
        --message_schema 7=visit.avsc --user_field user --value_field page --window 1h ...

  For half a minute only: what was read by then is published as it stands.
    hadabeam stream ... --stop_after 30s

  With a Prism binary that is there already: --prism_location FILE (see docs/streaming.md)
"""


def parser() -> CommandParser:
    """The parser of the command's own flags."""
    found = CommandParser("stream", _DESCRIPTION, _EXAMPLES)
    job_flags.add_log_flags(found, reports=True)
    found.add_argument(
        "--id_field",
        metavar="FIELD",
        help="of reports: the field with their id, by which a repeated one is told "
        "(default report_id, as always in Avro messages)",
    )
    found.add_argument(
        "--per_key", action="store_true", help="of reports: one table for each key that they have"
    )
    _add_broker_flags(found)
    job_flags.add_oracle_flags(found)
    job_flags.add_key_flags(found)
    job_flags.add_window_flags(found, "; needs --time_field if logs are files")
    _add_time_flags(found)
    _add_output_flags(found)
    sinks.add_sink_flags(found, streaming=True)
    job_flags.add_post_flag(found)
    _add_run_flags(found)
    return found


def _add_broker_flags(found: CommandParser) -> None:
    group = found.add_argument_group(
        "reading from a broker",
        # Descriptions of groups are shown as they stand.
        "--input kafka:HOST:PORT/TOPIC or pubsub:projects/PROJECT/subscriptions/NAME\n"
        "reads messages: JSON objects, with --input_format avro Avro records, with\n"
        "--input_format reports reports as JSON or Avro. Without --time_field a record's time is\n"
        "its message's. Prism, the default runner, reads Kafka but not Pub/Sub.",
    )
    group.add_argument(
        "--message_schema",
        action="append",
        type=flag_types.message_schema,
        default=[],
        metavar="[ID=]FILE",
        help="the schema (.avsc) of Avro messages; several times for several. Messages are told "
        "apart by its fingerprint (Avro's single-object encoding), by its ID in a registry "
        "(Confluent's framing), or, with one schema without ID, are bare data",
    )
    group.add_argument(
        "--consumer_option",
        action="append",
        type=flag_types.option,
        default=[],
        metavar="NAME=VALUE",
        help="for Kafka's consumer, as group.id=hadabeam; may be given several times",
    )
    sinks.add_kafka_expansion(group)
    group.add_argument(
        "--timestamp_attribute",
        metavar="NAME",
        help="of Pub/Sub: the attribute with a message's time",
    )
    group.add_argument(
        "--id_attribute",
        metavar="NAME",
        help="of Pub/Sub: the attribute by which a redelivered message is told (on Dataflow)",
    )


def _add_time_flags(found: CommandParser) -> None:
    group = found.add_argument_group("when results are given out")
    group.add_argument(
        "--early",
        type=flag_types.duration_or_none,
        default=flag_types.duration("10s"),
        metavar="TIME",
        help="real time between early results of a window, or none (default 10s)",
    )
    group.add_argument(
        "--allowed_lateness",
        type=flag_types.duration_or_zero,
        default=flag_types.duration("1h"),
        metavar="TIME",
        help="how long after its end a window still takes records (default 1h); what comes later "
        "is dropped and counted",
    )
    group.add_argument(
        "--max_delay",
        type=flag_types.duration_or_zero,
        metavar="TIME",
        help="how long after an event its line may be written (default 30s): a window is on time "
        "when an event so much later than its end has been read (not with a broker, which tells "
        "how far it is)",
    )
    group.add_argument(
        "--min_reports",
        type=flag_types.positive_int,
        default=1,
        metavar="N",
        help="withhold tables of fewer reports (default 1); a window that is withheld says so in "
        "its summary",
    )


def _add_output_flags(found: CommandParser) -> None:
    group = found.add_argument_group("what is written")
    sinks.add_output(
        group,
        flag_types.folder,
        "PREFIX",
        "the folder for the windows' folders, summary.json (of the run so far) and dead-letters/",
    )
    group.add_argument(
        "--output_format", choices=job_flags.OUTPUT_FORMATS, default="avro", help="default avro"
    )
    group.add_argument(
        "--drop_early",
        action="store_true",
        help="remove an early result once the next one of its window is there",
    )


def _add_run_flags(found: CommandParser) -> None:
    group = found.add_argument_group("how it runs")
    group.add_argument(
        "--poll",
        type=flag_types.duration,
        metavar="TIME",
        help="how often to look for something new in files (default 500ms)",
    )
    group.add_argument(
        "--stop_after",
        type=flag_types.duration_or_zero,
        metavar="TIME",
        help="end after so long; every window is then published as it stands (not with a broker)",
    )
    group.add_argument(
        "--shards",
        type=flag_types.positive_int,
        default=16,
        metavar="N",
        help="into how many groups the users of a window are split (default 16)",
    )
    group.add_argument(
        "--debug", action="store_true", help="show where in the program a failure came from"
    )
