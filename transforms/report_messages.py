"""Messages that are ready-made reports, from ``hadabeam privatize`` or another sender."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import numpy as np

from ..schemas.avro import load_schema
from .avro_messages import AvroMessages, MessageSchema
from .json_messages import JsonMessages
from .report_form import PACKED, PLAIN
from .rows import Rows
from .single_object import fingerprint, unframe

#: Names of columns, and who reads them.
_Kind = tuple[tuple[str, ...], JsonMessages | AvroMessages]

_ID = "report_id"
_COLUMNS = re.compile(rb'[{,]\s*"columns"\s*:')


class ReportMessages:
    """Messages to rows of reports.

    A message is a report, or a pack of them, as JSON (a line of a file of reports: bytes are base64
    text) or in Avro's single-object encoding, by ``report.avsc`` or ``packed_reports.avsc``.

    Args:
      id_field: the field of a JSON report that has its id; None is ``report_id``. An Avro report
        has it in ``report_id``.
    """

    def __init__(self, id_field: str | None = None) -> None:
        given = tuple((id_field or _ID) if name == _ID else name for name in PLAIN)
        self._plain: _Kind = (PLAIN, JsonMessages(given))
        self._packed: _Kind = (PACKED, JsonMessages(PACKED))
        self._avro: dict[bytes, _Kind] = {
            fingerprint(load_schema(name)): (
                fields,
                AvroMessages([MessageSchema(name, json.dumps(load_schema(name)))], fields),
            )
            for name, fields in (("report", PLAIN), ("packed_reports", PACKED))
        }

    def __call__(self, messages: Sequence[bytes]) -> list[tuple[tuple[str, ...], Rows]]:
        """Names of columns as ``ReceiveReports`` knows them, and their rows.

        Positions are numbers of messages.
        """
        found = []
        for (names, parse), numbers in self._sorted(messages).items():
            at = np.array(numbers, np.int64)
            for rows in parse([messages[number] for number in numbers]):
                bad = at[rows.bad_positions]
                found.append((names, Rows(rows.columns, at[rows.positions], bad)))
        return found

    def _sorted(self, messages: Sequence[bytes]) -> dict[_Kind, list[int]]:
        """Which messages are of which kind; what is of none fails as JSON."""
        found: dict[_Kind, list[int]] = {}
        for number, message in enumerate(messages):
            framed = unframe(message)
            kind = None if framed is None else self._avro.get(framed[0])
            if kind is None:
                # As in a file, a key or a sender may be called anything.
                packed = b'"columns"' in message and _COLUMNS.search(message)
                kind = self._packed if packed else self._plain
            found.setdefault(kind, []).append(number)
        return found
