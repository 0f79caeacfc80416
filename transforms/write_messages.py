"""Sinks of messages: Kafka and Pub/Sub topics, one message a row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam

from ..mechanisms.errors import ParameterError
from .format_messages import FormatMessages, Message
from .report_ids import AddReportIds
from .split_packed import SplitPacked

_KAFKA = re.compile(r"kafka:([^/\s,]+:[0-9]+(?:,[^/\s,]+:[0-9]+)*)/([A-Za-z0-9._-]{1,249})")
#: What Google calls a project and a topic.
_PUBSUB = re.compile(
    r"pubsub:(projects/[a-z][-a-z0-9:.]{4,61}[a-z0-9]/topics/[A-Za-z][-A-Za-z0-9._~+%]{2,254})"
)
#: KafkaIO's own three tries are used up while a new topic finds its leader: a batch of the
#: idempotent producer is then missing, and the broker refuses all that follow it. As many as
#: Kafka's default end with ``delivery.timeout.ms``, two minutes.
_PRODUCER = {"acks": "all", "retries": str(2**31 - 1)}


def check_topic(sink: str) -> tuple[re.Match[str] | None, re.Match[str] | None]:
    """The parts of a topic of Kafka, or else of Pub/Sub.

    Raises:
      ParameterError: if the text names neither; says how they are written.
    """
    kafka, pubsub = _KAFKA.fullmatch(sink), _PUBSUB.fullmatch(sink)
    if kafka is None and pubsub is None:
        raise ParameterError(
            f"{sink!r} is no topic; one is written kafka:HOST:PORT[,HOST:PORT]/TOPIC or "
            "pubsub:projects/PROJECT/topics/NAME"
        )
    if kafka is not None and kafka[2] in (".", ".."):
        raise ParameterError("a Kafka topic cannot be called . or ..")
    return kafka, pubsub


@dataclass
class WriteMessages(beam.PTransform):
    """Sends rows to a topic, one message a row; see :class:`FormatMessages` for what is in it.

    Takes a PCollection of ``pyarrow.Table`` or ``RecordBatch`` with the columns of the schema.
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

    Raises:
      ParameterError: if the sink has another form, the format is unknown, or options do not
        belong to the sink.
    """

    sink: str
    schema: str
    format: str = "json"
    producer_options: Mapping[str, str] = field(default_factory=dict)
    expansion_service: str | None = None

    def __post_init__(self) -> None:
        super().__init__()
        self._format = FormatMessages(self.schema, self.format)
        self._kafka, self._pubsub = check_topic(self.sink)
        if self._kafka is None and (self.producer_options or self.expansion_service):
            raise ParameterError("options of a Kafka producer are for kafka: outputs")

    def expand(self, rows: beam.PCollection) -> Any:
        if self.schema == "report":
            rows |= "AddIds" >> AddReportIds()
        elif self.schema == "packed_reports":
            rows |= "Split" >> SplitPacked()
        messages = rows | self._format
        if self._kafka is not None:
            return self._write_kafka(messages, *self._kafka.groups())
        assert self._pubsub is not None
        from apache_beam.io.gcp.pubsub import PubsubMessage

        return (
            messages
            | "ToPubSub" >> beam.Map(_pubsub_message).with_output_types(PubsubMessage)
            | "Write" >> beam.io.WriteToPubSub(self._pubsub[1], with_attributes=True)
        )

    def _write_kafka(self, messages: beam.PCollection, servers: str, topic: str) -> Any:
        from apache_beam.io.kafka import WriteToKafka

        options = {"bootstrap.servers": servers, **_PRODUCER, **self.producer_options}
        # Java knows neither the tuple's name nor its attributes, but a pair of bytes.
        pairs = messages | "ToKafka" >> beam.Map(_pair).with_output_types(
            tuple[bytes | None, bytes]
        )
        try:
            return pairs | "Write" >> WriteToKafka(
                options, topic, expansion_service=self.expansion_service
            )
        except RuntimeError as error:
            if not str(error).startswith("Unable to fetch"):
                raise
            raise ParameterError(
                "Beam cannot download the Java part of its KafkaIO; start an expansion service "
                "that has it, and name it with --kafka_expansion HOST:PORT"
            ) from error


def _pair(message: Message) -> tuple[bytes | None, bytes]:
    return message.key, message.value


def _pubsub_message(message: Message) -> Any:
    from apache_beam.io.gcp.pubsub import PubsubMessage

    return PubsubMessage(message.value, message.attributes)
