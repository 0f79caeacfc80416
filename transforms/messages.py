"""Sources of messages: Kafka topics and Pub/Sub subscriptions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from ..mechanisms.errors import ParameterError
from .avro_messages import AvroMessages, MessageSchema
from .element_types import typed
from .extract import Extractor
from .fields import RecordFields
from .json_messages import JsonMessages
from .kafka_topics import check_options, java_part, kafka_topic
from .limit import WindowTally
from .records import DEAD_LETTERS, TALLIES, DeadLetter, Tally, add_tallies
from .report_messages import ReportMessages
from .rows import Rows
from .times import check_time_unit
from .watch_text import report_rows_batch
from .windows import timestamp

#: Messages in a batch, and their bytes, at most (but for the last message).
BATCH_MESSAGES = 20_000
BATCH_BYTES = 32 << 20
#: The column of a message's own time, where no field tells it. No field has this name: it is
#: never looked up in a message.
_OWN_TIME = "message time"

_PUBSUB = re.compile(r"pubsub:(projects/[^/\s]+/subscriptions/[^/\s]+)")


def is_message_source(text: str) -> bool:
    """Whether an input is one of messages, as ``kafka:HOST:PORT/TOPIC``."""
    return text.startswith(("kafka:", "pubsub:"))


@dataclass
class ReadMessages(beam.PTransform):
    """Reads messages from a broker as records, for as long as the job runs.

    Takes a pipeline; gives what ``WatchRecords`` gives: ``None``: a PCollection of record
    batches with ``event_time`` (or, where ``fields`` is None, of batches of reports), ``TALLIES``
    and ``DEAD_LETTERS``. A message that cannot be parsed, has no user or no valid time goes to
    the dead letters, without its content unless that is asked for, and is not read again.

    The watermark is the broker's: of Kafka, the time of the record read last in the partition
    that is farthest behind (the time now, where a partition is idle); of Pub/Sub, what the
    runner makes of it. What an event is behind that is for ``allowed_lateness``.

    Attributes:
      source: ``kafka:HOST:PORT[,HOST:PORT...]/TOPIC`` or
        ``pubsub:projects/PROJECT/subscriptions/NAME``.
      fields: which fields make up a record; None reads reports (:mod:`.report_messages`).
        Without a time field, a record's time is its message's: in Kafka the record's
        timestamp, in Pub/Sub that of ``timestamp_attribute``, or of publication.
      schemas: of records in Avro (:mod:`.avro_messages`); without, messages are JSON objects.
      time_unit: of numbers in the time field.
      consumer_options: of Kafka's consumer, as ``{"group.id": "hadabeam"}``; over the defaults
        of reading from the earliest record on.
      expansion_service: of Kafka, ``HOST:PORT`` of a running expansion service that has Beam's
        KafkaIO; None has Beam start its own.
      timestamp_attribute: of Pub/Sub, the attribute with a message's time.
      id_attribute: of Pub/Sub, the attribute by which a redelivered message is told (on
        Dataflow).
      raw_dead_letters: whether dead letters carry the message itself; of reports, only those
        that cannot be parsed do.
      id_field: of reports as JSON, the field with their id; None is ``report_id``.

    Raises:
      ParameterError: if the source has another form, or options do not belong to it.
      InputError: if a schema lacks a field.
    """

    source: str
    fields: RecordFields | None
    schemas: Sequence[MessageSchema] = ()
    time_unit: str = "auto"
    # Options may hold passwords, which a repr must not show.
    consumer_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    expansion_service: str | None = None
    timestamp_attribute: str | None = None
    id_attribute: str | None = None
    raw_dead_letters: bool = False
    id_field: str | None = None

    def __post_init__(self) -> None:
        super().__init__()
        self._parsing = ParseMessages(
            self.fields,
            self.source,
            self.schemas,
            self.time_unit,
            self.raw_dead_letters,
            self.id_field,
        )
        self._kafka = kafka_topic(self.source)
        self._pubsub = _PUBSUB.fullmatch(self.source)
        if self._kafka is None and self._pubsub is None:
            raise ParameterError(
                "messages are read from kafka:HOST:PORT/TOPIC or "
                "pubsub:projects/PROJECT/subscriptions/NAME"
            )
        check_options(self.consumer_options, "deserializer")
        if self._kafka is None and (self.consumer_options or self.expansion_service):
            raise ParameterError("options of a Kafka consumer are for kafka: inputs")
        if self._pubsub is None and (self.timestamp_attribute or self.id_attribute):
            raise ParameterError("attributes are for pubsub: inputs")

    def expand(self, pipeline: Any) -> dict[str | None, beam.PCollection]:
        if self._kafka is not None:
            messages = self._read_kafka(pipeline, *self._kafka)
        else:
            assert self._pubsub is not None
            messages = pipeline | "Read" >> beam.io.ReadFromPubSub(
                subscription=self._pubsub[1],
                id_label=self.id_attribute,
                timestamp_attribute=self.timestamp_attribute,
            )
        found: dict[str | None, beam.PCollection] = messages | "Parse" >> self._parsing
        return found

    def _read_kafka(self, pipeline: Any, servers: str, topic: str) -> beam.PCollection:
        from apache_beam.io.kafka import ReadFromKafka

        options = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
        options.update(self.consumer_options)
        with java_part():
            records = pipeline | "Read" >> ReadFromKafka(
                consumer_config=options,
                topics=[topic],
                timestamp_policy="CreateTime",
                expansion_service=self.expansion_service,
            )
        return records | "Values" >> beam.Map(_value).with_output_types(bytes)


def _value(record: tuple[bytes, bytes]) -> bytes:
    # A tombstone has no value.
    return record[1] or b""


@dataclass
class ParseMessages(beam.PTransform):
    """Messages to batches, dead letters and tallies; see :class:`ReadMessages`.

    Takes a PCollection of ``bytes``. What arrives in one bundle makes one batch (of each schema),
    with the timestamp of its earliest message, so that the watermark waits for it.

    Attributes:
      fields: which fields make up a record; None reads reports.
      source: the name by which dead letters tell where they are from.
      schemas: of records in Avro.
      time_unit: of numbers in the time field.
      raw: whether dead letters carry the message itself.
      id_field: of reports as JSON.
    """

    fields: RecordFields | None
    source: str
    schemas: Sequence[MessageSchema] = ()
    time_unit: str = "auto"
    raw: bool = False
    id_field: str | None = None

    def __post_init__(self) -> None:
        super().__init__()
        check_time_unit(self.time_unit)
        self.schemas = tuple(self.schemas)
        if self.fields is None and self.schemas:
            raise ParameterError("schemas are for records; those of reports are known")
        if self.fields is not None and self.id_field is not None:
            raise ParameterError("an id field is for reports")
        self._parser()

    def _parser(self) -> _RecordParser | _ReportParser:
        if self.fields is None:
            return _ReportParser(self.source, self.id_field)
        return _RecordParser(self.fields, self.source, self.schemas, self.time_unit)

    def expand(self, messages: beam.PCollection) -> dict[str | None, beam.PCollection]:
        parse = _Parse(self._parser, self.source, self.raw)
        found = messages | "Parse" >> beam.ParDo(parse).with_outputs(
            TALLIES, DEAD_LETTERS, main="batches"
        )
        return {
            None: typed(found.batches, pa.RecordBatch),
            TALLIES: typed(found[TALLIES], WindowTally),
            DEAD_LETTERS: typed(found[DEAD_LETTERS], DeadLetter),
        }


class _Parsed(NamedTuple):
    """A batch; letters whose positions are numbers of messages; what was read and dropped."""

    batch: pa.RecordBatch
    letters: list[DeadLetter]
    tally: Tally


class _RecordParser:
    """Messages to records."""

    def __init__(
        self, fields: RecordFields, source: str, schemas: Sequence[MessageSchema], unit: str
    ) -> None:
        given = fields.columns
        self._own_time = fields.time is None
        if self._own_time:
            fields = RecordFields(fields.user, fields.value, _OWN_TIME, fields.key)
            unit = "us"
        self._columns = fields.columns
        self._parse = AvroMessages(schemas, given) if schemas else JsonMessages(given)
        self._extract = Extractor(fields, source, unit)

    def __call__(self, messages: list[bytes], times: list[int]) -> Iterator[_Parsed]:
        for rows in self._parse(messages):
            if self._own_time and rows.columns:
                own = pa.array(np.array(times, np.int64)[rows.positions])
                rows.columns.insert(self._columns.index(_OWN_TIME), own)
            found = self._extract(rows)
            yield _Parsed(found.records, found.dead_letters, found.tally)


class _ReportParser:
    """Messages to reports. Which of them count is decided later, as of those from files."""

    def __init__(self, source: str, id_field: str | None) -> None:
        self._source = source
        self._parse = ReportMessages(id_field)

    def __call__(self, messages: list[bytes], times: list[int]) -> Iterator[_Parsed]:
        for names, rows in self._parse(messages):
            # A message's place in its bundle says nothing to anybody.
            placeless = Rows(rows.columns, np.full(len(rows), -1), rows.bad_positions)
            yield _Parsed(*report_rows_batch(self._source, placeless, names))


class _Parse(beam.DoFn):
    def __init__(
        self, make: Callable[[], _RecordParser | _ReportParser], source: str, raw: bool
    ) -> None:
        self._make = make
        self._source = source
        self._raw = raw

    def setup(self) -> None:
        self._parser = self._make()

    def start_bundle(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._messages: list[bytes] = []
        self._times: list[int] = []
        self._bytes = 0

    def process(self, message: bytes, time: Any = beam.DoFn.TimestampParam) -> Any:
        # No generator: that would be made for every message.
        self._messages.append(message)
        self._times.append(time.micros)
        self._bytes += len(message)
        if len(self._messages) >= BATCH_MESSAGES or self._bytes >= BATCH_BYTES:
            return self._flush()
        return None

    def finish_bundle(self) -> Iterator[Any]:
        yield from self._flush()

    def _flush(self) -> Iterator[Any]:
        messages, times = self._messages, self._times
        self._clear()
        if not messages:
            return
        earliest = timestamp(min(times))

        def at(value: Any) -> WindowedValue:
            return WindowedValue(value, earliest, [GlobalWindow()])

        tallies = []
        for found in self._parser(messages, times):
            tallies.append(found.tally)
            for letter in found.letters:
                raw = messages[letter.position] if self._raw else None
                letter = DeadLetter(letter.reason, self._source, -1, raw)
                yield TaggedOutput(DEAD_LETTERS, at(letter))
            if found.batch.num_rows:
                yield at(found.batch)
        tally = add_tallies(tallies)
        for name, number in tally.items():
            Metrics.counter("hadabeam", name).inc(number)
        if tally:
            yield TaggedOutput(TALLIES, at((None, None, tally)))
