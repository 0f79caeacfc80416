"""How a file holds reports: one a row, or many.

Reports are read as ``hadabeam privatize`` writes them (``schemas/report.avsc`` and, packed,
``schemas/packed_reports.avsc``), and with the same fields as another sender writes them:
``payload``, ``key``, ``sender`` and ``report_id`` may be missing, bytes are base64 text in CSV
and JSON.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pyarrow.parquet as pq

from ..mechanisms.errors import InputError
from .avro_container import Stream, read_header
from .splits import Split
from .streams import open_file, open_source, read_head

PLAIN = ("collection", "epoch", "column", "bit", "payload", "key", "sender", "report_id")
PACKED = ("collection", "epoch", "reports", "columns", "bits", "payload", "key")
_OPTIONAL = ("payload", "key", "sender", "report_id")


class ReportForm(NamedTuple):
    """How a file holds reports.

    Attributes:
      packed: whether a row holds many.
      fields: the fields to read, all of which the file has.
    """

    packed: bool
    fields: tuple[str, ...]


def report_form(split: Split) -> ReportForm:
    """Finds out how a file holds reports.

    Raises:
      InputError: if it holds none.
    """
    names = _field_names(split)
    if names is None:
        # Lines of JSON may lack any field; the first one tells.
        packed, names = _first_line_is_packed(split), {*PLAIN, *PACKED}
    else:
        packed = "columns" in names
    wanted = PACKED if packed else PLAIN
    missing = [name for name in wanted if name not in names and name not in _OPTIONAL]
    if missing:
        raise InputError(
            f"{split.path} holds no reports: it has no field {missing[0]!r}; logs are turned into "
            "reports by hadabeam privatize"
        )
    return ReportForm(packed, tuple(name for name in wanted if name in names))


def _field_names(split: Split) -> set[str] | None:
    if split.format == "csv":
        return set(split.header.names) if split.header else set()
    if split.format == "parquet":
        with open_file(split.path) as file:
            return set(pq.read_schema(file).names)
    if split.format == "avro":
        source = open_source(split.path, split.compression)
        try:
            schema = read_header(Stream(source), split.path).schema
        finally:
            source.close()
        fields = schema.get("fields", []) if isinstance(schema, dict) else []
        return {found["name"] for found in fields}
    if split.format == "jsonl":
        return None
    raise InputError(f"{split.path} is an access log; reports are jsonl, csv, parquet or avro")


def _first_line_is_packed(split: Split) -> bool:
    for line in read_head(split.path, split.compression).splitlines():
        if line.strip():
            # A row of many reports is longer than what was read; its names are matched as names,
            # because a key or a sender may be called anything.
            return re.search(rb'[{,]\s*"columns"\s*:', line) is not None
    return False
