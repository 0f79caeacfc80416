"""``--output`` given several times: one place for files, and sinks that get the rows as well."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..mechanisms.errors import ParameterError
from . import extras, flag_types
from .flags import CommandParser

if TYPE_CHECKING:
    import apache_beam as beam

#: What a sink's name begins with, and how it is written.
FORMS = {
    "kafka": "kafka:HOST:PORT[,HOST:PORT]/TOPIC",
    "pubsub": "pubsub:projects/PROJECT/topics/NAME",
    "bigquery": "bigquery:PROJECT.DATASET.TABLE",
}
#: Other names for them that people try.
_ALIASES = {"bq": "bigquery"}
_BEGINNING = re.compile(r"([A-Za-z_-]+):(.*)", re.DOTALL)
#: How alike a name's beginning must be to be taken for a misspelt sink.
_LIKENESS = 0.75


@dataclass(frozen=True)
class Sink:
    """Where rows go besides the files.

    Attributes:
      kind: one of :data:`FORMS`.
      name: as it was given, ``kafka:HOST:PORT/TOPIC``.
    """

    kind: str
    name: str

    @property
    def target(self) -> str:
        """The name without its kind."""
        return self.name.partition(":")[2]


def output_type(place: Callable[[str], str]) -> Callable[[str], str | Sink]:
    """The type of ``--output``: a sink, or what ``place`` makes of the name of a place for files.

    What looks like a sink and is none never becomes a file.
    """

    def convert(text: str) -> str | Sink:
        kind = kind_of(text)
        if kind is None:
            return place(text)
        if not text.startswith(f"{kind}:"):
            raise argparse.ArgumentTypeError(f"{text!r} is no sink; one is written {FORMS[kind]}")
        sink = Sink(kind, text)
        try:
            _check(sink)
        except ParameterError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return sink

    return convert


def kind_of(text: str) -> str | None:
    """Which of :data:`FORMS` a name is meant to be of, also if that is misspelt; None of files."""
    found = _BEGINNING.fullmatch(text)
    if found is None:
        return None
    near = difflib.get_close_matches(found[1].lower(), [*FORMS, *_ALIASES], n=1, cutoff=_LIKENESS)
    return _ALIASES.get(near[0], near[0]) if near else None


def _check(sink: Sink) -> None:
    """Refuses a name of another form.

    Raises:
      ParameterError: says which form it has.
    """
    if sink.kind == "bigquery":
        from ..transforms.write_bigquery import parse_table

        parse_table(sink.name)
    else:
        from ..transforms.write_messages import check_topic

        check_topic(sink.name)


def add_output(
    group: Any, place: Callable[[str], str], metavar: str, text: str, *kinds: str
) -> None:
    """Adds ``--output`` to a group of flags.

    Args:
      group: of a parser.
      place: the type of the place for files.
      metavar: what the place is called.
      text: what is written there.
      kinds: of sinks that are offered; default: all of :data:`FORMS`.
    """
    forms = [FORMS[kind] for kind in kinds or FORMS]
    group.add_argument(
        "--output",
        required=True,
        action="append",
        type=output_type(place),
        metavar=metavar,
        help=f"{text}. May be given again, for sinks that get the rows as well: {', '.join(forms)}",
    )


def add_kafka_expansion(group: Any) -> None:
    """Adds ``--kafka_expansion``, for reading as for sending, to a group of flags."""
    group.add_argument(
        "--kafka_expansion",
        metavar="HOST:PORT",
        help="a running expansion service with Beam's KafkaIO; default: Beam starts its own",
    )


def add_sink_flags(
    parser: CommandParser, *, streaming: bool = False, reports: bool = False
) -> None:
    """The flags of sinks.

    Args:
      parser: gets the flags.
      streaming: whether the command is that of a stream, which has ``--kafka_expansion`` already.
      reports: whether it sends reports, which do not go to a database.
    """
    parser.set_defaults(streams=streaming)
    group = parser.add_argument_group("sending rows to a topic or a table")
    group.add_argument(
        "--message_format",
        choices=("json", "avro"),
        help="of messages: json (default), a row as in jsonl files; avro, Avro's single-object "
        "encoding",
    )
    group.add_argument(
        "--producer_option",
        action="append",
        type=flag_types.option,
        default=[],
        metavar="NAME=VALUE",
        help="for Kafka's producer, as compression.type=zstd; may be given several times",
    )
    if not streaming:
        add_kafka_expansion(group)
    if not reports:
        group.add_argument(
            "--bigquery_write",
            choices=("append", "truncate"),
            help="append (default) to the rows that a table has, or truncate: replace them, in one "
            "step, by those of a batch job",
        )
        group.add_argument(
            "--bigquery_partition",
            choices=("day", "month", "none"),
            help="of the windows' starts in a partition of a table (default day)",
        )


def settle(args: argparse.Namespace) -> None:
    """Makes ``args.output`` the place for files, and ``args.sinks`` the sinks.

    Does nothing for commands whose ``--output`` is given once.

    Raises:
      ParameterError: if there is not exactly one place, a sink is given twice, a library is
        missing, or flags of sinks stand without theirs.
    """
    given = getattr(args, "output", None)
    if not isinstance(given, list):
        return
    places = [output for output in given if not isinstance(output, Sink)]
    sinks = [output for output in given if isinstance(output, Sink)]
    if not places:
        raise ParameterError(
            "add --output and a place for files, e.g. --output out/pages, beside "
            f"{sinks[0].name}: a sink gets the rows, and the summary, the dead letters and "
            "the table itself are files"
        )
    if len(places) > 1:
        raise ParameterError(
            f"files have one place, and {places[0]} and {places[1]} are two; give one --output "
            f"for files, and others as {', '.join(FORMS.values())}"
        )
    for number, sink in enumerate(sinks):
        if sink in sinks[:number]:
            raise ParameterError(f"--output {sink.name} is given twice")
    args.output, args.sinks = places[0], sinks
    _check_flags(args)


def _check_flags(args: argparse.Namespace) -> None:
    kinds = {sink.kind for sink in args.sinks}
    if args.message_format and not kinds & {"kafka", "pubsub"}:
        raise ParameterError("--message_format is for --output kafka:... or pubsub:...")
    if args.producer_option and "kafka" not in kinds:
        raise ParameterError("--producer_option is for --output kafka:...")
    reads_kafka = any(name.startswith("kafka:") for name in args.input)
    if args.kafka_expansion and "kafka" not in kinds and not reads_kafka:
        raise ParameterError("--kafka_expansion is for kafka: inputs and outputs")
    if "bigquery" in kinds and not hasattr(args, "bigquery_write"):
        raise ParameterError("reports go to files and topics; estimates can go to BigQuery")
    for name in ("bigquery_write", "bigquery_partition"):
        if getattr(args, name, None) and "bigquery" not in kinds:
            raise ParameterError(f"--{name} is for --output bigquery:...")
    if "pubsub" in kinds:
        extras.need("pubsub: outputs", "google.cloud.pubsub", "gcp")
    if "bigquery" in kinds:
        extras.need("bigquery: outputs", "google.cloud.bigquery", "gcp")
    for sink in args.sinks:
        # What a transform refuses is refused before anything runs.
        _transform(sink, args, "estimate")


def send(rows: beam.PCollection, args: argparse.Namespace, schema: str) -> list[beam.PCollection]:
    """Gives rows to every sink that the flags name.

    Args:
      rows: a PCollection of ``pyarrow.Table`` or ``RecordBatch`` with the columns of the schema.
      args: what the parser gave, settled.
      schema: the schema's name.

    Returns:
      PCollections of dead letters: rows of a stream that a database did not take, or that are too
      large for a message. Of a batch job such a row is an error.
    """
    letters = []
    counts: dict[str, int] = {}
    for sink in args.sinks:
        counts[sink.kind] = number = counts.get(sink.kind, 0) + 1
        label = f"SendTo{sink.kind.capitalize()}" + (str(number) if number > 1 else "")
        found = rows | label >> _transform(sink, args, schema)
        if args.streams:
            letters.append(found)
    return letters


def _transform(sink: Sink, args: argparse.Namespace, schema: str) -> Any:
    if sink.kind == "bigquery":
        from ..transforms.write_bigquery import WriteBigQuery

        return WriteBigQuery(
            sink.target,
            args.streams,
            args.bigquery_write or "append",
            schema,
            args.bigquery_partition or "day",
        )
    from ..transforms.write_messages import WriteMessages

    kafka = sink.kind == "kafka"
    return WriteMessages(
        sink.name,
        schema,
        args.message_format or "json",
        dict(args.producer_option) if kafka else {},
        args.kafka_expansion if kafka else None,
        args.streams,
    )


def send_tables(
    tables: beam.PCollection, args: argparse.Namespace, collection: str, *, keyed: bool
) -> None:
    """Gives the estimates of a batch job to every sink that the flags name.

    Args:
      tables: a PCollection of ``EstimateTable`` in the global window.
      args: what the parser gave, settled.
      collection: id of the collection.
      keyed: whether a window may have several tables.
    """
    if not args.sinks:
        return
    from ..transforms.published import SCHEMA, PublishTables, run_name

    rows = tables | "Publish" >> PublishTables(collection, run_name(), keyed)
    send(rows, args, SCHEMA)


def send_panes(
    panes: beam.PCollection, args: argparse.Namespace, collection: str
) -> list[beam.PCollection]:
    """Gives a stream's panes, once their files are there, to every sink that the flags name.

    Args:
      panes: a PCollection of ``Pane``.
      args: what the parser gave, settled.
      collection: id of the collection.

    Returns:
      PCollections of dead letters, see :func:`send`.
    """
    if not args.sinks:
        return []
    import apache_beam as beam
    import pyarrow as pa

    from ..transforms.published import SCHEMA, published_pane

    rows = panes | "Publish" >> beam.Map(published_pane, collection).with_output_types(pa.Table)
    return send(rows, args, SCHEMA)
