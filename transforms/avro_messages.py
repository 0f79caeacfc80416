"""Avro messages: which schema a message is of, and its fields.

A message is one of

* Avro's single-object encoding (:mod:`.single_object`), which names its schema by a fingerprint;
* the framing of Confluent's serializers: a byte 0 and the schema's id in a registry, 4 bytes,
  big-endian; only where schemas are given with ids;
* the bare datum, only where one schema is given, and without an id.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import fastavro.read
import numpy as np

from ..mechanisms.errors import InputError, ParameterError
from .avro_fields import AvroFields
from .rows import Rows
from .single_object import fingerprint, unframe

_ID_BYTES = 5  # a byte 0 and the id
_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
# Python needs minutes for a decimal of a megabyte; no number that anybody means has so many bytes.
_DECIMAL = "hadabeam-decimal"
_DECIMAL_BYTES = 1024


@dataclass(frozen=True)
class MessageSchema:
    """A schema that messages are written with (public).

    Attributes:
      name: the file that it is from, for messages of errors.
      text: the schema, as JSON.
      id: its id in a schema registry, from 0 to 2**32 - 1, or None.

    Raises:
      InputError: if the text is no schema of a record. So is one whose messages could be small and
        yet take any memory: nested without end, or arrays of items that have no bytes.
      ParameterError: if the id is out of range.
    """

    name: str
    text: str
    id: int | None = None

    def __post_init__(self) -> None:
        if self.id is not None and not 0 <= self.id < 2**32:
            raise ParameterError(f"the schema id {self.id} does not fit in 4 bytes")
        try:
            parsed = fastavro.parse_schema(json.loads(self.text))
        except Exception as error:
            # Many kinds, also TypeError; what is wrong is in the first line.
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise InputError(f"{self.name} is no Avro schema: {reason}") from None
        if not isinstance(parsed, dict) or parsed.get("type") != "record":
            raise InputError(f"{self.name} is a schema of no record; messages must be records")
        _check_bounded(self.name, parsed, {})

    @property
    def schema(self) -> Any:
        """The schema, freshly parsed."""
        return json.loads(self.text)


class AvroMessages:
    """Messages to rows.

    Args:
      schemas: those that messages may be of. Of two with one fingerprint (they differ in docs,
        defaults or logical types alone) the first one reads single objects.
      fields: names or paths; each schema must have them.

    Raises:
      InputError: if a schema lacks a field.
      ParameterError: if there is no schema, or an id is given twice.
    """

    def __init__(self, schemas: Sequence[MessageSchema], fields: Sequence[str]) -> None:
        if not schemas:
            raise ParameterError("Avro messages need a schema")
        self._decoders: list[_Decoder] = []
        self._by_fingerprint: dict[bytes, _Decoder] = {}
        self._by_id: dict[int, _Decoder] = {}
        for schema in schemas:
            decoder = _Decoder(schema, fields)
            self._decoders.append(decoder)
            self._by_fingerprint.setdefault(fingerprint(schema.schema), decoder)
            if schema.id is not None and self._by_id.setdefault(schema.id, decoder) != decoder:
                raise ParameterError(f"the schema id {schema.id} is given twice")
        alone = len(schemas) == 1 and schemas[0].id is None
        self._bare = self._decoders[0] if alone else None

    def __call__(self, messages: Sequence[bytes]) -> list[Rows]:
        """The rows of each schema; positions are numbers of messages."""
        bad: list[int] = []
        found: dict[_Decoder, tuple[list[Any], list[int]]] = {
            decoder: ([], []) for decoder in self._decoders
        }
        for number, message in enumerate(messages):
            decoder, start = self._framing(message)
            record = None if decoder is None else decoder.decode(message, start)
            if decoder is None or record is None:
                bad.append(number)
            else:
                records, numbers = found[decoder]
                records.append(record)
                numbers.append(number)
        rows = [
            Rows(decoder.fields.columns(records), np.array(numbers, np.int64))
            for decoder, (records, numbers) in found.items()
            if records
        ]
        if bad:
            rows.append(Rows([], np.zeros(0, np.int64), np.array(bad, np.int64)))
        return rows

    def _framing(self, message: bytes) -> tuple[_Decoder | None, int]:
        """Who decodes a message, and where its datum starts."""
        framed = unframe(message)
        if framed is not None and (known := self._by_fingerprint.get(framed[0])):
            return known, len(message) - len(framed[1])
        if self._by_id and message[:1] == b"\0" and len(message) >= _ID_BYTES:
            return self._by_id.get(int.from_bytes(message[1:_ID_BYTES], "big")), _ID_BYTES
        # A bare datum may begin with any bytes, also with those of a framing.
        return self._bare, 0


class _Decoder:
    """Decodes data of one schema."""

    def __init__(self, schema: MessageSchema, fields: Sequence[str]) -> None:
        self.fields = AvroFields(schema.name, schema.schema, fields)
        read = {names[0] for names in self.fields.paths}
        self._schema = fastavro.parse_schema(_bounded(_plain_unread(self.fields.schema, read)))

    def decode(self, message: bytes, start: int) -> Any:
        """The record, or None if the bytes from ``start`` to the end are not one."""
        file = io.BytesIO(message)
        file.seek(start)
        try:
            # Of all fields: of those that a projection skips fastavro does not check the length.
            record = fastavro.schemaless_reader(file, self._schema, None)
        except Exception:
            # Damaged bytes end in any error: of lengths, branches, texts, times.
            return None
        return record if file.tell() == len(message) else None


def _check_bounded(name: str, schema: Any, known: dict[str, bool | None]) -> bool:
    """Whether a value of the schema always has bytes; refuses what has no bound.

    Args:
      name: of the file.
      schema: as ``fastavro.parse_schema`` gives it: names are full.
      known: the answers by name; None while a type is being looked at.
    """
    if isinstance(schema, list):
        for branch in schema:
            _check_bounded(name, branch, known)
        return True  # the number of the branch
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return schema != "null"
        answer = known.get(schema)
        if answer is None:
            raise InputError(
                f"{name} nests {schema} in itself: a message could be nested so deeply that no "
                "stack holds it; give a schema without that"
            )
        return answer
    kind = schema["type"]
    if kind in ("record", "error"):
        known[schema["name"]] = None
        answers = [_check_bounded(name, field["type"], known) for field in schema["fields"]]
        known[schema["name"]] = any(answers)
        return any(answers)
    if kind == "array":
        if not _check_bounded(name, schema["items"], known):
            raise InputError(
                f"{name} has an array of items that take no bytes: a message of few bytes could "
                "fill the memory; give a schema without that"
            )
        return True
    if kind == "map":
        _check_bounded(name, schema["values"], known)
        return True
    if kind == "enum":
        known[schema["name"]] = True
        return True
    if kind == "fixed":
        size = schema["size"]
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise InputError(f"{name} has a fixed type whose size is no whole number")
        known[schema["name"]] = size > 0
        return size > 0
    return _check_bounded(name, kind, known)


def _plain_unread(schema: Any, read: set[str]) -> Any:
    """The schema without logical types where they are not read: converting them takes time."""
    fields = [
        field if field["name"] in read else {**field, "type": _plain(field["type"])}
        for field in schema["fields"]
    ]
    return {**schema, "fields": fields}


def _plain(kind: Any) -> Any:
    if isinstance(kind, list):
        return [_plain(branch) for branch in kind]
    if isinstance(kind, dict) and kind.get("type") in _PRIMITIVES:
        return kind["type"]
    return kind


def _bounded(schema: Any) -> Any:
    """The schema with decimals that are converted only if they are not huge."""
    if isinstance(schema, list):
        return [_bounded(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        name: _bounded(value) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
    }
    if found.get("type") == "bytes" and found.get("logicalType") == "decimal":
        found["logicalType"] = _DECIMAL
    return found


def _read_decimal(data: bytes, writer_schema: Any = None, reader_schema: Any = None) -> Any:
    if len(data) > _DECIMAL_BYTES:
        raise ValueError("a decimal of too many bytes")
    return fastavro.read.LOGICAL_READERS["bytes-decimal"](data, writer_schema, reader_schema)


# A name of our own: what others read with fastavro in this process stays as it is.
fastavro.read.LOGICAL_READERS[f"bytes-{_DECIMAL}"] = _read_decimal
