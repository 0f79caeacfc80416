"""The sources of ``hadabeam stream`` that are brokers: which flags go together, what is read."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..mechanisms.errors import InputError, ParameterError
from . import extras, runner, sinks

if TYPE_CHECKING:
    import apache_beam as beam

    from ..transforms.avro_messages import MessageSchema
    from ..transforms.fields import RecordFields
    from ..transforms.messages import ReadMessages

#: Flags that files have no use for.
_FLAGS = ("consumer_option", "timestamp_attribute", "id_attribute", "message_schema")
#: How sources are written.
_FORMS = {
    "kafka": sinks.FORMS["kafka"],
    "pubsub": "pubsub:projects/PROJECT/subscriptions/NAME",
}
#: Flags that messages have no use for, and what holds for them.
_FOR_FILES = {
    "stop_after": "a job that reads from a broker ends when it is cancelled",
    "max_delay": "the broker tells up to what time its messages have been read, and "
    "--allowed_lateness is for later ones",
    "poll": "a broker is asked all the time",
}
_FORMATS = ("auto", "jsonl", "avro", "reports")


def from_broker(args: argparse.Namespace) -> bool:
    """Whether the job reads messages.

    Raises:
      ParameterError: if the flags do not fit together.
    """
    from ..transforms.messages import is_message_source

    if not any(map(is_message_source, args.input)):
        for text in args.input:
            # A stream waits for files that are not there yet; for these it would wait forever.
            if sinks.kind_of(text) in _FORMS:
                raise ParameterError(
                    f"{text!r} is no topic or subscription; one is written "
                    f"{' or '.join(_FORMS.values())}"
                )
        for name in _FLAGS:
            if getattr(args, name):
                raise ParameterError(f"--{name} is for --input kafka:... or pubsub:...")
        return False
    if len(args.input) > 1:
        raise ParameterError("a broker is the only input of its job; give --input once")
    if args.input_format not in _FORMATS:
        raise ParameterError(
            f"messages are not {args.input_format}: leave --input_format out for JSON objects, or "
            "give --input_format avro or reports"
        )
    if args.input_format == "avro" and not args.message_schema:
        raise ParameterError(
            "--input_format avro needs --message_schema FILE: the schema of the messages, which "
            "do not hold it"
        )
    if args.message_schema and args.input_format != "avro":
        raise ParameterError("--message_schema is for --input_format avro")
    for name, instead in _FOR_FILES.items():
        if getattr(args, name) is not None:
            raise ParameterError(f"--{name} is for files; {instead}")
    if args.input[0].startswith("pubsub:"):
        extras.need("pubsub: inputs", "google.cloud.pubsub", "gcp")
    return True


def _check_loop(args: argparse.Namespace) -> None:
    from ..transforms.kafka_topics import kafka_topic

    source = kafka_topic(args.input[0])
    for sink in args.sinks:
        target = kafka_topic(sink.name)
        if source is not None and target is not None and source.same_as(target):
            raise ParameterError(
                f"{sink.name} is the topic that is read: the job would read its own rows; send "
                "them to another one"
            )


def check_runner(args: argparse.Namespace, beam_args: Sequence[str]) -> None:
    """Refuses a runner that does not have the source.

    Raises:
      ParameterError: names runners that do.
    """
    reads_pubsub = any(name.startswith("pubsub:") for name in args.input)
    if reads_pubsub and runner.runner_name(beam_args).lower() == "prismrunner":
        raise ParameterError(
            "Prism, the default, does not read Pub/Sub; pass --runner=DataflowRunner, or for a "
            "first look on this machine --runner=BundleBasedDirectRunner, which is slow and may "
            "lose messages"
        )


def check_messages(args: argparse.Namespace) -> None:
    """Refuses before anything runs what messages cannot be read with.

    Raises:
      ParameterError: if flags do not fit together.
      InputError: if a schema cannot be read, is none, or lacks a field.
    """
    if from_broker(args):
        _check_loop(args)
        _reading(args)


def read_messages(
    pipeline: beam.Pipeline, args: argparse.Namespace
) -> dict[str | None, beam.PCollection]:
    """Puts the reading on a pipeline; gives what ``WatchRecords`` gives.

    Raises:
      As :func:`check_messages`.
    """
    found: dict[str | None, beam.PCollection] = pipeline | "Receive" >> _reading(args)
    return found


def _reading(args: argparse.Namespace) -> ReadMessages:
    from ..transforms.messages import ReadMessages

    kafka = args.input[0].startswith("kafka:")
    return ReadMessages(
        args.input[0],
        _fields(args),
        schemas=read_schemas(args),
        time_unit=args.time_unit,
        consumer_options=dict(args.consumer_option),
        # It may be there for an output.
        expansion_service=args.kafka_expansion if kafka else None,
        timestamp_attribute=args.timestamp_attribute,
        id_attribute=args.id_attribute,
        raw_dead_letters=args.dead_letter_content,
        id_field=args.id_field,
    )


def _fields(args: argparse.Namespace) -> RecordFields | None:
    from ..transforms.fields import RecordFields

    if args.input_format == "reports":
        return None
    return RecordFields(args.user_field, args.value_field, args.time_field or None, args.key_field)


def read_schemas(args: argparse.Namespace) -> tuple[MessageSchema, ...]:
    """The schemas that the flags name, read here: they travel in the job.

    Raises:
      InputError: if a file cannot be read, or holds no schema of records.
      ParameterError: if an id is out of range.
    """
    from ..transforms.avro_messages import MessageSchema
    from ..transforms.streams import open_file

    found = []
    for id, path in args.message_schema:
        with open_file(path) as file:
            data = file.read()
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise InputError(f"{path} is no Avro schema: it is not UTF-8 text") from None
        found.append(MessageSchema(path, text, id))
    return tuple(found)
