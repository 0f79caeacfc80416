"""Sources of messages: Kafka topics and Pub/Sub subscriptions, one JSON object a message."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from ..mechanisms.errors import ParameterError
from .extract import Extractor
from .fields import RecordFields, parse_path
from .jsonl import JsonlParser
from .records import DEAD_LETTERS, TALLIES, DeadLetter
from .rows import Rows
from .times import check_time_unit
from .windows import timestamp

#: Messages in a batch, at most.
BATCH_MESSAGES = 20_000
#: The column of a message's own time, where no field tells it. No field has this name: it is
#: never looked up in a message.
_OWN_TIME = "message time"

_KAFKA = re.compile(r"kafka:([^/\s]+:[0-9]+(?:,[^/\s,]+:[0-9]+)*)/([A-Za-z0-9._-]{1,249})")
_PUBSUB = re.compile(r"pubsub:(projects/[^/\s]+/subscriptions/[^/\s]+)")


def is_message_source(text: str) -> bool:
    """Whether an input is one of messages, as ``kafka:HOST:PORT/TOPIC``."""
    return text.startswith(("kafka:", "pubsub:"))


@dataclass
class ReadMessages(beam.PTransform):
    """Reads messages from a broker as records, for as long as the job runs.

    Takes a pipeline; gives what ``WatchRecords`` gives: ``None``: a PCollection of record
    batches with ``event_time``, ``TALLIES`` and ``DEAD_LETTERS``. A message that is no JSON
    object, has no user or no valid time goes to the dead letters, without its content
    unless that is asked for, and is not read again.

    The watermark is the broker's: of Kafka, the time of the record read last in the partition
    that is farthest behind (the time now, where a partition is idle); of Pub/Sub, what the
    runner makes of it. What an event is behind that is for ``allowed_lateness``.

    Attributes:
      source: ``kafka:HOST:PORT[,HOST:PORT...]/TOPIC`` or
        ``pubsub:projects/PROJECT/subscriptions/NAME``.
      fields: which fields make up a record. Without a time field, a record's time is its
        message's: in Kafka the record's timestamp, in Pub/Sub that of ``timestamp_attribute``,
        or of publication.
      time_unit: of numbers in the time field.
      consumer_options: of Kafka's consumer, as ``{"group.id": "hadabeam"}``; over the defaults
        of reading from the earliest record on.
      expansion_service: of Kafka, ``HOST:PORT`` of a running expansion service that has Beam's
        KafkaIO; None has Beam start its own.
      timestamp_attribute: of Pub/Sub, the attribute with a message's time.
      id_attribute: of Pub/Sub, the attribute by which a redelivered message is told (on
        Dataflow).
      raw_dead_letters: whether dead letters carry the message itself.

    Raises:
      ParameterError: if the source has another form, or options do not belong to it.
    """

    source: str
    fields: RecordFields
    time_unit: str = "auto"
    consumer_options: Mapping[str, str] = field(default_factory=dict)
    expansion_service: str | None = None
    timestamp_attribute: str | None = None
    id_attribute: str | None = None
    raw_dead_letters: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        check_time_unit(self.time_unit)
        self._kafka = _KAFKA.fullmatch(self.source)
        self._pubsub = _PUBSUB.fullmatch(self.source)
        if self._kafka is None and self._pubsub is None:
            raise ParameterError(
                "messages are read from kafka:HOST:PORT/TOPIC or "
                "pubsub:projects/PROJECT/subscriptions/NAME"
            )
        if self._kafka is None and (self.consumer_options or self.expansion_service):
            raise ParameterError("options of a Kafka consumer are for kafka: inputs")
        if self._pubsub is None and (self.timestamp_attribute or self.id_attribute):
            raise ParameterError("attributes are for pubsub: inputs")

    def expand(self, pipeline: Any) -> dict[str | None, beam.PCollection]:
        if self._kafka is not None:
            messages = self._read_kafka(pipeline, *self._kafka.groups())
        else:
            assert self._pubsub is not None
            messages = pipeline | "Read" >> beam.io.ReadFromPubSub(
                subscription=self._pubsub[1],
                id_label=self.id_attribute,
                timestamp_attribute=self.timestamp_attribute,
            )
        parsed = messages | "Parse" >> ParseMessages(
            self.fields, self.source, self.time_unit, self.raw_dead_letters
        )
        found: dict[str | None, beam.PCollection] = parsed
        return found

    def _read_kafka(self, pipeline: Any, servers: str, topic: str) -> beam.PCollection:
        from apache_beam.io.kafka import ReadFromKafka

        options = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
        options.update(self.consumer_options)
        return (
            pipeline
            | "Read"
            >> ReadFromKafka(
                consumer_config=options,
                topics=[topic],
                timestamp_policy="CreateTime",
                expansion_service=self.expansion_service,
            )
            | "Values" >> beam.Map(_value).with_output_types(bytes)
        )


def _value(record: tuple[bytes, bytes]) -> bytes:
    # A tombstone has no value.
    return record[1] or b""


@dataclass
class ParseMessages(beam.PTransform):
    """Messages to record batches, dead letters and tallies; see :class:`ReadMessages`.

    Takes a PCollection of ``bytes``. What arrives in one bundle makes one batch, with the
    timestamp of its earliest message, so that the watermark waits for it.

    Attributes:
      fields: which fields make up a record.
      source: the name by which dead letters tell where they are from.
      time_unit: of numbers in the time field.
      raw: whether dead letters carry the message itself.
    """

    fields: RecordFields
    source: str
    time_unit: str = "auto"
    raw: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, messages: beam.PCollection) -> dict[str | None, beam.PCollection]:
        parse = _Parse(self.fields, self.source, self.time_unit, self.raw)
        found = messages | "Parse" >> beam.ParDo(parse).with_outputs(
            TALLIES, DEAD_LETTERS, main="batches"
        )
        found.batches.element_type = pa.RecordBatch
        return {
            None: found.batches,
            TALLIES: found[TALLIES],
            DEAD_LETTERS: found[DEAD_LETTERS],
        }


class _Parse(beam.DoFn):
    def __init__(self, fields: RecordFields, source: str, time_unit: str, raw: bool) -> None:
        self._given = fields
        self._own_time = fields.time is None
        if self._own_time:
            fields = RecordFields(fields.user, fields.value, _OWN_TIME, fields.key)
        self._fields = fields
        self._source = source
        self._unit = "us" if self._own_time else time_unit
        self._raw = raw

    def setup(self) -> None:
        self._parser = JsonlParser([parse_path(name) for name in self._given.columns])
        self._extract = Extractor(self._fields, self._source, self._unit)

    def start_bundle(self) -> None:
        self._messages: list[tuple[int, bytes]] = []

    def process(self, message: bytes, time: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        self._messages.append((int(time.micros), message))
        if len(self._messages) >= BATCH_MESSAGES:
            yield from self._flush()

    def finish_bundle(self) -> Iterator[Any]:
        yield from self._flush()

    def _flush(self) -> Iterator[Any]:
        messages, self._messages = self._messages, []
        if not messages:
            return
        earliest = timestamp(min(time for time, _ in messages))

        def at(value: Any) -> WindowedValue:
            return WindowedValue(value, earliest, [GlobalWindow()])

        rows, positions, bad = [], [], []
        for number, (_, message) in enumerate(messages):
            row = self._parser.read_line(message)
            if row is None:
                bad.append(number)
            else:
                rows.append(row)
                positions.append(number)
        columns = [
            pa.array([row[place] for row in rows], pa.string())
            for place in range(len(self._given.columns))
        ]
        if self._own_time:
            own = pa.array([messages[number][0] for number in positions], pa.int64())
            place = self._fields.columns.index(_OWN_TIME)
            columns.insert(place, own)
        found = self._extract(Rows(columns, np.array(positions, np.int64), np.array(bad, np.int64)))
        for name, number in found.tally.items():
            Metrics.counter("hadabeam", name).inc(number)
        yield TaggedOutput(TALLIES, at((None, None, found.tally)))
        for letter in found.dead_letters:
            # A message's place in its bundle says nothing to anybody.
            raw = messages[letter.position][1] if self._raw else None
            yield TaggedOutput(DEAD_LETTERS, at(DeadLetter(letter.reason, self._source, -1, raw)))
        if found.records.num_rows:
            yield at(found.records)
