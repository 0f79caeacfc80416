"""Rows as messages: what a topic's consumer gets to see of a table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
import orjson
import pyarrow as pa

from ..mechanisms.errors import ParameterError
from ..schemas.avro import arrow_schema, load_schema
from .avro_blocks import encode_rows
from .encodings import as_text, conform, json_rows, row_dicts
from .single_object import fingerprint, frame

#: Formats of messages.
MESSAGE_FORMATS = ("json", "avro")

#: The columns that tell an estimate from others, and of what its successors replace.
_KEY = ("window_start", "window_end", "key", "value")
#: The columns that go along as attributes, by which a subscriber can filter.
_ATTRIBUTES = ("window_start", "window_end", "key", "pane_order", "collection")
#: Pub/Sub takes no longer attributes.
_ATTRIBUTE_BYTES = 1024
#: Rows that are encoded at a time.
_CHUNK_ROWS = 1 << 14


class Message(NamedTuple):
    """One row.

    Attributes:
      key: of an estimate, a JSON array ``[window_start, window_end, key, value]``, times in ISO
        8601; None of a report, which replaces no other.
      value: the row.
      attributes: those of ``window_start``, ``window_end``, ``key``, ``pane_order`` and
        ``collection`` that the row has and that are no longer than 1,024 bytes.
    """

    key: bytes | None
    value: bytes
    attributes: dict[str, str]


@dataclass
class FormatMessages(beam.PTransform):
    """Rows to messages.

    Takes a PCollection of ``pyarrow.Table`` or ``RecordBatch`` with the columns of the schema;
    gives a PCollection of :class:`Message`, one for each row.

    Attributes:
      schema: name of the schema, as ``published_estimate`` or ``report``.
      format: "json": the row as a line of a ``jsonl`` file has it; "avro": Avro's single-object
        encoding, which names the schema by its fingerprint.

    Raises:
      ParameterError: if the format is unknown.
    """

    schema: str
    format: str = "json"

    def __post_init__(self) -> None:
        super().__init__()
        if self.format not in MESSAGE_FORMATS:
            raise ParameterError(f"messages are one of {', '.join(MESSAGE_FORMATS)}")
        arrow_schema(self.schema)

    def expand(self, tables: beam.PCollection) -> beam.PCollection:
        return tables | "Format" >> beam.FlatMap(
            messages, self.schema, self.format
        ).with_output_types(Message)


def messages(
    table: pa.Table | pa.RecordBatch, schema: str, format: str = "json"
) -> Iterator[Message]:
    """The rows of a table as messages; see :class:`FormatMessages`.

    Raises:
      KeyError: if a column is missing.
      pyarrow.ArrowInvalid: if a value does not fit its column's type.
    """
    table = conform(table, schema)
    for start in range(0, table.num_rows, _CHUNK_ROWS):
        piece = table.slice(start, _CHUNK_ROWS).combine_chunks()
        values = json_rows(piece) if format == "json" else _avro_rows(piece, schema)
        yield from map(Message, _keys(piece), values, _attributes(piece))


def _avro_rows(table: pa.Table, schema: str) -> Iterator[bytes]:
    avro = load_schema(schema)
    name = fingerprint(avro)
    data, ends = encode_rows(table, avro)
    content = data.tobytes()
    bounds = itertools.pairwise([0, *ends.tolist()])
    return (frame(name, content[start:end]) for start, end in bounds)


def _keys(table: pa.Table) -> Iterator[bytes | None]:
    if not set(_KEY) <= set(table.column_names):
        return itertools.repeat(None, table.num_rows)
    columns = [column.to_pylist() for column in as_text(table.select(_KEY)).columns]
    return (orjson.dumps(row) for row in zip(*columns, strict=True))


def _attributes(table: pa.Table) -> Iterator[dict[str, str]]:
    names = [name for name in _ATTRIBUTES if name in table.column_names]
    for row in row_dicts(as_text(table.select(names))):
        yield {name: text for name, text in row.items() if _is_attribute(text)}


def _is_attribute(text: Any) -> bool:
    return text is not None and len(text.encode()) <= _ATTRIBUTE_BYTES
