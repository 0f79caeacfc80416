"""Warns of fields that the records of a log do not seem to have.

In the other formats a field that is missing is an error. Lines of JSON may each lack any field,
and a misspelt value field would make every record one of the other values, without a word, and
spend epsilon on it.
"""

from __future__ import annotations

import difflib
import sys
from typing import Any

import orjson

from ..mechanisms.errors import InputError
from ..transforms.fields import RecordFields, format_path
from ..transforms.json_messages import JsonMessages
from ..transforms.splits import detect
from ..transforms.streams import HEAD_BYTES, read_head

#: How deep names are looked for in objects.
_DEPTH = 4


def warn_of_fields(path: str, format: str, fields: RecordFields) -> None:
    """Warns on the terminal of fields that no record at the start of a file has.

    Says nothing of a file that cannot be read, which the job itself will refuse.

    Args:
      path: the file.
      format: its format, or ``auto``.
      fields: the fields of records.
    """
    try:
        format, compression = detect(path, format)
        if format != "jsonl":
            return
        head = read_head(path, compression)
    except InputError:
        return
    lines = [line for line in head.splitlines() if line.strip()]
    if len(head) == HEAD_BYTES and len(lines) > 1:
        # The last one may be cut.
        del lines[-1]
    for field in absent(lines, fields.columns):
        names = _names(lines)
        if field in names:
            what = f"has a text or a number in the field {field!r}"
        else:
            near = difflib.get_close_matches(field, names, n=1, cutoff=0.6)
            what = f"has the field {field!r}" + (f"; did you mean {near[0]!r}?" if near else "")
        print(f"warning: no record at the start of {path} {what}", file=sys.stderr)


def absent(lines: list[bytes], fields: tuple[str, ...]) -> list[str]:
    """Those of the fields that none of the lines has."""
    parsed = [rows for rows in JsonMessages(fields)(lines) if len(rows)]
    if not parsed:
        return []
    return [
        field
        for place, field in enumerate(fields)
        if all(rows.columns[place].null_count == len(rows) for rows in parsed)
    ]


def _names(lines: list[bytes]) -> list[str]:
    """The fields that the objects have, as they are given: ``a.b`` is field b inside field a."""
    found: dict[str, None] = {}

    def visit(value: dict[str, Any], above: tuple[str, ...]) -> None:
        for name, inner in value.items():
            path = (*above, name)
            found[format_path(path)] = None
            if isinstance(inner, dict) and len(path) < _DEPTH:
                visit(inner, path)

    for line in lines:
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(row, dict):
            visit(row, ())
    return list(found)
