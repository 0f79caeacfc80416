"""What decoded Avro records become: columns of the fields that are asked for.

Files and messages share this, so that a record gives the same in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..mechanisms.errors import InputError
from .fields import Path, format_path, missing_field, parse_path
from .records import canonical

_ARROW = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
}
_INSTANTS = {
    "date": pa.date32(),
    **{
        f"{prefix}timestamp-{name}": pa.timestamp(unit, None if prefix else "UTC")
        for prefix in ("", "local-")
        for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
    },
}
_MAX_DAYS = 2**31 - 1


class AvroFields:
    """The fields of one schema's records.

    Args:
      name: the file of the schema, for messages of errors.
      schema: as the file has it.
      fields: names or paths.

    Attributes:
      paths: the fields as paths.
      schema: what records are to be decoded with: instants at the top are plain numbers there,
        because Python has no datetime for some of them.

    Raises:
      InputError: if the schema is of no record, or lacks a field.
    """

    def __init__(self, name: str, schema: Any, fields: Sequence[str]) -> None:
        self.paths = [_resolve(name, schema, field) for field in fields]
        self.schema, self._instants = _without_instants(schema)

    def columns(self, records: list[Any]) -> list[pa.Array]:
        """One column for each field, of the type that its values have.

        Args:
          records: decoded with :attr:`schema`, or with a projection of it.
        """
        return [self._column(records, names) for names in self.paths]

    def _column(self, records: list[Any], names: Path) -> pa.Array:
        values = _values(records, names)
        kind = self._instants.get(names[0]) if len(names) == 1 else None
        if kind is None:
            return _to_arrow(values)
        numbers = pa.array(values, pa.int64())
        if pa.types.is_date32(kind):
            # Damage may be any number of days.
            fits = pc.and_(pc.less_equal(numbers, _MAX_DAYS), pc.greater_equal(numbers, -_MAX_DAYS))
            numbers = pc.if_else(fits, numbers, pa.scalar(None, pa.int64())).cast(pa.int32())
        return numbers.cast(kind)


def _without_instants(schema: Any) -> tuple[Any, dict[str, pa.DataType]]:
    """The schema with plain numbers for top-level timestamps and dates, and their types."""
    instants = {}
    fields = []
    for field in schema["fields"]:
        branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
        values = [branch for branch in branches if branch != "null"]
        only = values[0] if len(values) == 1 and isinstance(values[0], dict) else {}
        kind = _INSTANTS.get(only.get("logicalType", ""))
        if kind is not None and only.get("type") in ("int", "long"):
            instants[field["name"]] = kind
            plain = ["null" if branch == "null" else only["type"] for branch in branches]
            # A union is encoded with the number of its branch, also a union of one.
            union = isinstance(field["type"], list)
            field = {"name": field["name"], "type": plain if union else plain[0]}
        fields.append(field)
    return {**schema, "fields": fields}, instants


def _values(records: list[Any], names: Path) -> list[Any]:
    values = [record[names[0]] for record in records]
    for name in names[1:]:
        values = [value.get(name) if isinstance(value, dict) else None for value in values]
    return values


def _to_arrow(values: list[Any]) -> pa.Array:
    kinds = set(map(type, values)) - {type(None)}
    kind = _ARROW.get(next(iter(kinds))) if len(kinds) == 1 else None
    if kind is not None:
        return pa.array(values, kind)
    return pa.array([canonical(value) for value in values], pa.string())


def _resolve(path: str, schema: Any, field: str) -> Path:
    """The names of a field. Only the first is checked: below it may be a union."""
    if not isinstance(schema, dict) or not isinstance(schema.get("fields"), list):
        raise InputError(f"{path} holds no records with fields; write records to it")
    existing = [item["name"] for item in schema["fields"]]
    names = parse_path(field)
    if names[0] not in existing:
        raise missing_field(path, field, (format_path([name]) for name in existing))
    return names
