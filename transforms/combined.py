r"""Reads the access logs of Apache and nginx, in common or combined format.

A line is ``host ident user [time] "request" status size "referrer" "user agent"``; the common
format ends after the size. Further fields, bare or quoted, may follow the user agent. A line
that is cut within a bracket or quotes is unparseable. The request need not make
sense (``"-"``, ``"\x16\x03"``): then the method and the path are missing, and the line is a
record. ``-`` is a missing value. Escapes (``\"``, ``\x22``) stay as the server wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .blocks import Block
from .fields import missing_field
from .lines import find_lines, join_lines
from .rows import Rows
from .texts import is_utf8

Array = np.ndarray[Any, Any]

#: The fields of a line, as they are asked for.
FIELDS = (
    "host",
    "user",
    "time",
    "method",
    "path",
    "status",
    "size",
    "referrer",
    "user_agent",
)

_QUOTED = r'(?:[^"\\]|\\.)*'
# Each part and what stands around it, so that a group is made only of what is asked for.
_PARTS = (
    ("", "host", r"\S+", ""),
    (r" \S+ ", "user", r"\S.*?", ""),  # a user's name may have a blank in it
    (r" \[", "time", r"[^\[\]]*", r"\]"),
    (' "', "request", _QUOTED, '"'),
    (" ", "status", r"\d{3}|-", ""),
    (" ", "size", r"\d+|-", ""),
    ('(?: "', "referrer", _QUOTED, '"'),
    (' "', "user_agent", _QUOTED, '"'),
)
_END = rf'(?: (?:"{_QUOTED}"|[^"\s]\S*))*)?\s*$'
# The protocol is left away by the oldest clients; blanks in a path are their mistake.
_REQUEST = r"^(?P<method>[A-Za-z][A-Za-z_-]*) (?P<path>\S.*?)(?: HTTP/[\d.]+)?$"
_WHOLE_LINE = re.compile(
    rb'\S+ \S+ \S[^"]* \[[^\[\]]*\] "(?:[^"\\]|\\.)*" (?:\d{3}|-) (?:\d+|-)(?:\s|$)'
)


def looks_like(lines: Sequence[bytes]) -> bool:
    """Whether most of some lines are of this format."""
    return 2 * sum(bool(_WHOLE_LINE.match(line)) for line in lines) > len(lines)


class CombinedParser:
    """Turns blocks of lines into columns. One parser may serve several threads.

    Args:
      name: the file's name, for errors.
      fields: some of :data:`FIELDS`.

    Raises:
      InputError: if a field is none of them.
    """

    def __init__(self, name: str, fields: Sequence[str]) -> None:
        for field in fields:
            if field not in FIELDS:
                raise missing_field(name, field, FIELDS)
        self.fields = tuple(fields)
        self._in_request = bool({"method", "path"} & set(fields))
        wanted = set(fields) | ({"request"} if self._in_request else set())
        # The host tells, where nothing else is asked for, whether a line matched.
        wanted.add("host")
        self._pattern = (
            "^"
            + "".join(
                before + (f"(?P<{part}>{text})" if part in wanted else f"(?:{text})") + after
                for before, part, text, after in _PARTS
            )
            + _END
        )

    def parse(self, block: Block) -> Rows:
        """The columns of a block: string[n] each, null where the log has ``-``."""
        starts, stops, uniform = find_lines(block.data)
        if not len(starts):
            return Rows.of([pa.array([], pa.string()) for _ in self.fields], block, starts, stops)
        lines = _line_array(block.data if uniform else join_lines(block.data, starts, stops))
        matched = pc.extract_regex(lines, self._pattern)
        good = matched.is_valid().to_numpy(zero_copy_only=False)
        if not is_utf8(block.data):
            view = memoryview(block.data)
            for row in np.flatnonzero(good).tolist():
                good[row] = is_utf8(bytes(view[starts[row] : stops[row]]))
        if not good.all():
            matched = matched.filter(pa.array(good))
        parts = dict(zip((field.name for field in matched.type), matched.flatten(), strict=True))
        if self._in_request:
            request = pc.extract_regex(parts["request"], _REQUEST)
            parts.update((name, pc.struct_field(request, [name])) for name in ("method", "path"))
        columns = [_without_dashes(parts[field]) for field in self.fields]
        return Rows.of(columns, block, starts, stops, np.flatnonzero(~good))


def _line_array(data: bytearray) -> pa.Array:
    """The lines of a block with their line ends, without a copy."""
    stops = np.flatnonzero(np.frombuffer(data, np.uint8) == 10) + 1
    if data[-1] != 10:
        stops = np.append(stops, len(data))
    offsets = np.concatenate([np.zeros(1, np.int64), stops])
    # Binary, because a line that is not UTF-8 must not fail the others.
    return pa.Array.from_buffers(
        pa.large_binary(), len(stops), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _without_dashes(column: pa.Array) -> pa.Array:
    dash = pc.equal(column, pa.scalar(b"-", column.type))
    return pc.if_else(dash, pa.scalar(None, column.type), column).cast(pa.string())
