"""Sinks of messages: Kafka and Pub/Sub topics, one message a row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindows

from ..mechanisms.errors import InputError, ParameterError
from .encodings import conform
from .format_messages import FormatMessages, Message
from .kafka_topics import FORM, KafkaTopic, check_options, java_part, kafka_topic
from .records import DEAD_LETTERS, DeadLetter
from .report_ids import AddReportIds
from .split_packed import MESSAGE_BYTES, SplitPacked

#: What Google calls a project and a topic.
_PUBSUB = re.compile(
    r"pubsub:(projects/[a-z][-a-z0-9:.]{4,61}[a-z0-9]/topics/[A-Za-z][-A-Za-z0-9._~+%]{2,254})"
)
#: KafkaIO's own three tries are used up while a new topic finds its leader: a batch of the
#: idempotent producer is then missing, and the broker refuses all that follow it. As many as
#: Kafka's default end with ``delivery.timeout.ms``, two minutes.
_PRODUCER = {"acks": "all", "retries": str(2**31 - 1)}
#: The producer's option for the size of what it sends, its default, and what of a message's
#: size is neither key nor value, at most.
_SIZE_OPTION = "max.request.size"
_KAFKA_BYTES = 1 << 20
_KAFKA_HEADER = 256
#: Pub/Sub takes messages of 10 MB.
_PUBSUB_BYTES = 9_900_000
#: The reason of dead letters that are rows without room in a message.
TOO_LARGE = "too_large_to_send"


def check_topic(sink: str) -> tuple[KafkaTopic | None, str | None]:
    """A topic of Kafka, or else the full name of one of Pub/Sub.

    Raises:
      ParameterError: if the text names neither; says how they are written.
    """
    kafka, pubsub = kafka_topic(sink), _PUBSUB.fullmatch(sink)
    if kafka is None and pubsub is None:
        raise ParameterError(
            f"{sink!r} is no topic; one is written {FORM} or pubsub:projects/PROJECT/topics/NAME"
        )
    return kafka, None if pubsub is None else pubsub[1]


@dataclass
class WriteMessages(beam.PTransform):
    """Sends rows to a topic, one message a row; see :class:`FormatMessages` for what is in it.

    Takes a PCollection of ``pyarrow.Table`` or ``RecordBatch`` with the columns of the schema, in
    any order and any windows. Gives a PCollection of
    :class:`~hadabeam.transforms.records.DeadLetter`: of a stream, the rows that are too large for
    a message (``raw`` is the message), which would end the job again and again otherwise; of a
    batch job none, as there such a row is an error.

    Each row is sent at least once: a bundle that is tried again sends its rows again. Reports get
    an id, by which a collector can tell them then (see :class:`AddReportIds`); a row of packed
    reports is split so that its message fits.

    Attributes:
      sink: ``kafka:HOST:PORT[,HOST:PORT]/TOPIC`` or ``pubsub:projects/PROJECT/topics/NAME``.
      schema: name of the schema, as ``published_estimate`` or ``report``.
      format: "json" or "avro".
      producer_options: of Kafka's producer, as ``{"compression.type": "zstd"}``; over the
        defaults of ``acks=all`` and of trying again for two minutes (``delivery.timeout.ms``).
      expansion_service: of Kafka, ``HOST:PORT`` of a running expansion service that has Beam's
        KafkaIO; None has Beam start its own.
      streaming: whether rows that are too large become dead letters.

    Raises:
      ParameterError: if the sink has another form, the format is unknown, or options do not
        belong to the sink.
    """

    sink: str
    schema: str
    format: str = "json"
    # Options may hold passwords, which a repr must not show.
    producer_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    expansion_service: str | None = None
    streaming: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        self._format = FormatMessages(self.schema, self.format)
        self._kafka, self._pubsub = check_topic(self.sink)
        if self._kafka is None and (self.producer_options or self.expansion_service):
            raise ParameterError("options of a Kafka producer are for kafka: outputs")
        check_options(self.producer_options, "serializer")
        self._most = _PUBSUB_BYTES
        if self._kafka is not None:
            most = self.producer_options.get(_SIZE_OPTION, str(_KAFKA_BYTES))
            if not re.fullmatch("[0-9]{1,10}", most):
                raise ParameterError(f"{_SIZE_OPTION} is a number of bytes, not {most!r}")
            self._most = int(most) - _KAFKA_HEADER

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        rows |= "Conform" >> ConformRows(self.schema)
        if self.schema == "report":
            rows |= "AddIds" >> AddReportIds()
        elif self.schema == "packed_reports":
            rows |= "Split" >> SplitPacked(min(self._most, MESSAGE_BYTES))
        fit = beam.ParDo(Fit(self.sink, self._most, self.streaming))
        found = rows | self._format | "Fit" >> fit.with_outputs(DEAD_LETTERS, main="messages")
        found.messages.element_type = Message
        found[DEAD_LETTERS].element_type = DeadLetter
        if self._kafka is not None:
            self._write_kafka(found.messages, *self._kafka)
        else:
            self._write_pubsub(found.messages)
        letters: beam.PCollection = found[DEAD_LETTERS]
        return letters

    def _write_pubsub(self, messages: beam.PCollection) -> None:
        from apache_beam.io.gcp.pubsub import PubsubMessage

        (
            messages
            | "ToPubSub" >> beam.Map(_pubsub_message).with_output_types(PubsubMessage)
            | "Write" >> beam.io.WriteToPubSub(self._pubsub, with_attributes=True)
        )

    def _write_kafka(self, messages: beam.PCollection, servers: str, topic: str) -> None:
        from apache_beam.io.kafka import WriteToKafka

        options = {"bootstrap.servers": servers, **_PRODUCER, **self.producer_options}
        # Java knows neither the tuple's name nor its attributes, but a pair of bytes.
        pairs = messages | "ToKafka" >> beam.Map(_pair).with_output_types(
            tuple[bytes | None, bytes]
        )
        with java_part():
            pairs | "Write" >> WriteToKafka(
                options, topic, expansion_service=self.expansion_service
            )


class ConformRows(beam.PTransform):
    """Tables to batches of exactly the columns of a schema, in the global window.

    Java knows no windows of our own, such as calendar days; a row says itself which is its.

    Input: PCollection of ``pyarrow.Table`` or ``RecordBatch``. Output: PCollection of
    ``RecordBatch``.

    Args:
      schema: its name.
    """

    def __init__(self, schema: str) -> None:
        super().__init__()
        self._schema = schema

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        return (
            rows
            | "Rewindow" >> beam.WindowInto(GlobalWindows())
            | "Columns" >> beam.FlatMap(_batches, self._schema).with_output_types(pa.RecordBatch)
        )


class Fit(beam.DoFn):
    """Gives messages that a topic takes.

    Others go to ``DEAD_LETTERS``, as :data:`TOO_LARGE`, if a stream makes them.

    Args:
      sink: its name.
      most: bytes of a message.
      streaming: whether a stream makes them.

    Raises:
      InputError: if a batch job makes one that is larger.
    """

    def __init__(self, sink: str, most: int, streaming: bool) -> None:
        self._sink = sink
        self._most = most
        self._streaming = streaming

    def process(self, message: Message) -> Iterator[Any]:
        size = _size(message)
        if size <= self._most:
            yield message
        elif self._streaming:
            Metrics.counter("hadabeam", TOO_LARGE).inc()
            letter = DeadLetter(TOO_LARGE, self._sink, -1, message.value)
            yield TaggedOutput(DEAD_LETTERS, letter)
        else:
            raise InputError(
                f"a row makes a message of {size} bytes, and {self._sink} takes {self._most}: its "
                "key or value is too long; shorten it, or of Kafka raise --producer_option "
                f"{_SIZE_OPTION}=BYTES and the topic's max.message.bytes"
            )


def _size(message: Message) -> int:
    """Bytes of a message, at most: Kafka has its key besides, Pub/Sub its attributes."""
    attributes = sum(len(name) + len(text.encode()) for name, text in message.attributes.items())
    return len(message.value) + max(len(message.key or b""), attributes)


def _batches(table: pa.Table | pa.RecordBatch, schema: str) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = conform(table, schema).combine_chunks().to_batches()
    return found


def _pair(message: Message) -> tuple[bytes | None, bytes]:
    return message.key, message.value


def _pubsub_message(message: Message) -> Any:
    from apache_beam.io.gcp.pubsub import PubsubMessage

    return PubsubMessage(message.value, message.attributes)
