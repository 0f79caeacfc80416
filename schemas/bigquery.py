"""BigQuery's table schemas, as they follow from the Avro schemas.

A column is what BigQuery itself makes of the field when it loads an Avro file with logical
types: the same table can take a file of the batch job and rows of this schema.
"""

from __future__ import annotations

from typing import Any

from .avro import load_schema

#: Avro type to BigQuery's, by the names that its REST interface answers with.
_TYPES = {
    "boolean": "BOOLEAN",
    "int": "INTEGER",
    "long": "INTEGER",
    "float": "FLOAT",
    "double": "FLOAT",
    "string": "STRING",
    "bytes": "BYTES",
}


def bigquery_fields(name: str) -> list[dict[str, str]]:
    """The columns of a table for the rows of a schema, in the order of its fields.

    Args:
      name: of the schema, as ``estimate``.

    Returns:
      For each field its ``name``, ``type``, ``mode`` (``NULLABLE`` for a union with null, else
      ``REQUIRED``) and, where the field has a doc, its ``description``.

    Raises:
      ValueError: if there is no such schema, or a field of it is a map, an array or a record.
    """
    return [_column(name, field) for field in load_schema(name)["fields"]]


def _column(schema: str, field: dict[str, Any]) -> dict[str, str]:
    kind = field["type"]
    mode = "REQUIRED"
    if isinstance(kind, list):
        (kind,) = (branch for branch in kind if branch != "null")
        mode = "NULLABLE"
    column = {"name": field["name"], "type": _type(schema, field["name"], kind), "mode": mode}
    if "doc" in field:
        column["description"] = field["doc"]
    return column


def _type(schema: str, field: str, kind: Any) -> str:
    if isinstance(kind, dict):
        if kind.get("logicalType") == "timestamp-micros":
            return "TIMESTAMP"
        # A logical type that is not known here is read as what it is made of.
        kind = kind["type"]
    if kind not in _TYPES:
        raise ValueError(
            f"field {field} of {schema} is of type {kind}, which has no plain column in BigQuery"
        )
    return _TYPES[kind]
