"""The Avro schemas, and the Arrow schemas that follow from them.

The ``.avsc`` files are the one definition of every table that hadabeam writes. Record
names are fixed (``hadabeam.Report``, ``hadabeam.PackedReports``, ``hadabeam.Estimate``,
``hadabeam.PublishedEstimate``, ``hadabeam.Summary``), so that readers can resolve one version
against another.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import pyarrow as pa

#: The schemas there are.
NAMES = ("report", "packed_reports", "estimate", "published_estimate", "summary")

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}


@cache
def _text(name: str) -> str:
    if name not in NAMES:
        raise ValueError(f"no schema named {name!r}; there are {', '.join(NAMES)}")
    return files(__package__).joinpath(f"{name}.avsc").read_text(encoding="utf-8")


def load_schema(name: str) -> dict[str, Any]:
    """The Avro schema ``name`` (one of :data:`NAMES`), freshly parsed: it may be changed.

    Raises:
      ValueError: if there is no such schema.
    """
    schema: dict[str, Any] = json.loads(_text(name))
    return schema


@cache
def arrow_schema(name: str) -> pa.Schema:
    """The Arrow schema of the same fields in the same order.

    ``timestamp-micros`` becomes ``timestamp[us, tz=UTC]``, a union with null a nullable
    field. Docs are left to the ``.avsc``.

    Raises:
      ValueError: if there is no such schema.
    """
    return pa.schema([_field(field) for field in load_schema(name)["fields"]])


def _field(field: dict[str, Any]) -> pa.Field:
    kind = field["type"]
    nullable = isinstance(kind, list)
    if nullable:
        (kind,) = (branch for branch in kind if branch != "null")
    return pa.field(field["name"], _type(kind), nullable=nullable)


def _type(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        return _PRIMITIVES[kind]
    if kind.get("logicalType") == "timestamp-micros":
        return pa.timestamp("us", tz="UTC")
    if kind["type"] == "record":
        return pa.struct([_field(field) for field in kind["fields"]])
    if kind["type"] == "array":
        return pa.list_(pa.field("item", _type(kind["items"]), nullable=False))
    if kind["type"] == "map":
        return pa.map_(pa.string(), pa.field("value", _type(kind["values"]), nullable=False))
    return _PRIMITIVES[kind["type"]]
