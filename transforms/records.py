"""What flows between the transforms: batches of records, tallies and dead letters.

Elements are batches, because one Beam element costs microseconds whatever it holds.
A *record batch* is a ``pyarrow.RecordBatch`` with the columns

* ``user``: string, the user's id as canonical text (:func:`canonical`),
* ``value``: string, the value as canonical text; null is a missing value,
* ``event_time``: int64, microseconds since 1970 UTC (only where times are read). Other types are
  converted; a null, what is no time and what :func:`~hadabeam.transforms.times.to_micros` has no
  place for count as ``bad_time``,
* ``key``: string (only for per-key estimates); null is the empty key.

Readers have already removed what :data:`READING_REASONS` counts.
"""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

#: Why a record is dropped before windows are looked at, in the order they are checked.
READING_REASONS = ("unparseable", "missing_user", "bad_time", "missing_value", "unknown_value")
#: Why a record is dropped within a window.
WINDOW_REASONS = ("late", "over_limit")
#: Why a received report is refused.
REPORT_REASONS = (
    "wrong_collection",
    "wrong_window",
    "missing_sender",
    "wrong_column",
    "duplicate",
)

#: Tags of the side outputs of transforms that read or filter.
DEAD_LETTERS = "dead_letters"
TALLIES = "tallies"

#: Name to number, as ``{"records_read": 100, "unparseable": 2}``. Tallies are added up.
Tally = dict[str, int]


class DeadLetter(NamedTuple):
    """A record that could not be used. Never its content, unless ``raw`` was asked for.

    Attributes:
      reason: one of :data:`READING_REASONS` or :data:`REPORT_REASONS`; of a row of a table (which
        ``raw`` holds always) why a sink did not take it.
      file: the file it came from, or "" where records did not come from files.
      position: the byte offset of the record in (decompressed) text, or its row number
        from 0 in Parquet and Avro; -1 where there is none.
      raw: the record as it was read, only when asked for.
    """

    reason: str
    file: str
    position: int
    raw: bytes | None = None


def canonical(value: object) -> str | None:
    """The one text by which an id or a value is known in every format.

    7 in JSON, ``7`` in CSV and the Parquet integer 7 are the same. Numbers with a
    whole value below 2**53 are written without a fraction (7.0 is ``7``), other floats as
    Python's ``repr``, booleans as ``true`` and ``false``. A date is ``2024-03-01``; a timestamp is
    ``2024-03-01T10:30:05.25`` with ``Z`` (in UTC) if it has a zone; a decimal has no trailing
    zeros (``7.50`` is ``7.5``); a time of day and a UUID are written as Python does. Bytes are
    UTF-8; those that are none are escaped. NumPy's scalars are those of Python. None, NaN and
    what is no scalar have no text, and are missing.
    """
    # By the methods of the types themselves: the members of an Enum of texts are those texts, and
    # its own say otherwise.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        if math.isnan(value):
            return None
        whole = value.is_integer() and abs(value) < 2**53
        return str(int(value)) if whole else float.__repr__(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, datetime.datetime):
        return _timestamp(value)
    if isinstance(value, (datetime.date, datetime.time, uuid.UUID)):
        return str(value)
    if isinstance(value, decimal.Decimal):
        return _decimal(value)
    if isinstance(value, np.datetime64):
        # Finer than microseconds NumPy gives a number.
        return canonical(value.astype("datetime64[us]").item())
    if isinstance(value, np.generic):
        plain = value.item()
        return None if isinstance(plain, np.generic) else canonical(plain)
    return None


def _timestamp(value: datetime.datetime) -> str:
    zone = ""
    if value.tzinfo is not None:
        value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        zone = "Z"
    text = value.isoformat()
    return (text.rstrip("0") if "." in text else text) + zone


def _decimal(value: decimal.Decimal) -> str | None:
    if not value.is_finite():
        return None
    text = format(value, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def record_batch(
    users: Iterable[object],
    values: Iterable[object],
    event_times: Iterable[int] | None = None,
    keys: Iterable[object] | None = None,
) -> pa.RecordBatch:
    """Makes a record batch of Python objects, each in its canonical text.

    Raises:
      ValueError: (from pyarrow) if the columns differ in length.
    """
    columns = {
        "user": pa.array([canonical(user) for user in users], pa.string()),
        "value": pa.array([canonical(value) for value in values], pa.string()),
    }
    if event_times is not None:
        columns["event_time"] = pa.array(event_times, pa.int64())
    if keys is not None:
        columns["key"] = pa.array([canonical(key) for key in keys], pa.string())
    return pa.RecordBatch.from_pydict(columns)


def add_tallies(tallies: Iterable[Tally]) -> Tally:
    """The sum of tallies, name by name, in the order of the names."""
    total: Tally = {}
    for tally in tallies:
        for name, number in tally.items():
            total[name] = total.get(name, 0) + number
    return dict(sorted(total.items()))
