"""Event times in every notation, as microseconds since 1970 UTC.

A time is read from its own text or number alone: the unit never depends on the
neighbours, so that byte ranges and block sizes cannot change it. Texts are read many at
a time: those of one *layout* (the text with every digit written ``0``) have their
digits in the same places, which makes them a matrix.

What is read:

* numbers, and texts of a number: seconds, milliseconds, microseconds or nanoseconds
  since 1970 UTC. With the unit ``auto`` the magnitude decides: below 1e11 seconds, below
  1e14 milliseconds, below 1e17 microseconds, else nanoseconds (1e11 seconds is the year
  5138, 1e11 milliseconds is 1973). Whole numbers are exact, fractions are rounded to
  the nearest microsecond from their double.
* ISO 8601: ``2024-03-01``, ``2024-03-01T10:30``, ``2024-03-01 10:30:05.123456``, each
  time with ``Z`` or an offset (``+01:00``, ``+0100``, ``+01``); no offset is UTC. Digits beyond
  the microsecond are cut. Second 60 is the first of the next minute.
* the combined log's ``[10/Oct/2000:13:55:36 -0700]``, with or without brackets.
* Parquet and Avro timestamps and dates; without a zone they are UTC.

All else, and what lies before the year 3 or after November 9998, is null (``bad_time``): the
windows of such a time may have no date in the calendar.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..mechanisms.errors import ParameterError
from .windows import END_OF_TIME, START_OF_TIME

Array = np.ndarray[Any, Any]

#: How numbers are understood; ``iso`` reads ISO 8601 and the combined log's times only.
TIME_UNITS = ("auto", "s", "ms", "us", "ns", "iso")

_EXACT = 2.0**53
_MAX_UINT = pa.scalar(2**63 - 1, pa.uint64())
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_INTEGER = re.compile(rb"[+-]?(0{1,19})\Z")
_DECIMAL = re.compile(rb"[+-]?(?:0+(?:\.0*)?|\.0+)(?:[eE][+-]?0{1,3})?\Z")
_ISO = re.compile(
    rb"0000-00-00(?:[Tt ]00:00(?P<seconds>:00(?:[.,](?P<fraction>0+))?)?"
    rb"(?P<zone>[Zz]| ?[+-]00(?::?00)?)?)?\Z"
)
_COMBINED = re.compile(rb"(?P<open>\[?)00/(?P<month>[A-Z][a-z]{2})/0000:00:00:00 [+-]0000\]?\Z")
_LONGEST = 64  # characters; a longer text is no time
_SIMPLE_LAYOUTS = 8  # tried one by one before the rest is grouped in a dictionary


def check_time_unit(unit: str) -> str:
    """Returns ``unit``, or says which there are.

    Raises:
      ParameterError: if it is none of :data:`TIME_UNITS`.
    """
    if unit not in TIME_UNITS:
        raise ParameterError(f"time_unit must be one of {', '.join(TIME_UNITS)}")
    return unit


def to_micros(times: pa.Array, unit: str = "auto") -> pa.Array:
    """Turns times into microseconds since 1970 UTC.

    Args:
      times: texts, numbers, timestamps, dates or decimals (or a dictionary of them).
      unit: one of :data:`TIME_UNITS`. It concerns numbers and texts of numbers.

    Returns:
      int64[n]; null where there is no valid time.
    """
    kind = times.type
    if pa.types.is_dictionary(kind):
        return to_micros(times.dictionary, unit).take(times.indices)
    valid = times.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _masked(*_from_timestamps(times), valid)
    if pa.types.is_integer(kind):
        if pa.types.is_uint64(kind) and pc.any(pc.greater(times, _MAX_UINT)).as_py():
            return to_micros(times.cast(pa.string()), unit)
        numbers = pc.fill_null(times, 0).cast(pa.int64()).to_numpy()
        return _masked(*_from_integers(numbers, unit), valid)
    if pa.types.is_floating(kind):
        floats = pc.fill_null(times.cast(pa.float64()), np.nan).to_numpy()
        return _masked(*_from_floats(floats, unit), valid)
    if pa.types.is_decimal(kind):
        return to_micros(times.cast(pa.string()), unit)
    if pa.types.is_large_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return (
            to_micros(times.cast(pa.binary()), unit)
            if kind != pa.binary()
            else _texts(times, valid, unit)
        )
    if pa.types.is_string(kind):
        return _texts(times, valid, unit)
    return pa.nulls(len(times), pa.int64())


def _masked(micros: Array, known: Array, valid: Array) -> pa.Array:
    known = known & valid & (micros >= START_OF_TIME) & (micros < END_OF_TIME)
    return pa.array(micros, pa.int64(), mask=None if known.all() else ~known)


def _from_timestamps(times: pa.Array) -> tuple[Array, Array]:
    kind = times.type
    if pa.types.is_date(kind):
        width = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        scale = 86_400_000_000 if pa.types.is_date32(kind) else 1000
    else:
        width = pa.int64()
        scale = {"s": 1_000_000, "ms": 1000, "us": 1, "ns": 0}[kind.unit]
    numbers = pc.fill_null(times.cast(width), 0).to_numpy().astype(np.int64)
    return _scaled(numbers, scale)


def _scaled(numbers: Array, scale: int) -> tuple[Array, Array]:
    """``numbers * scale`` (scale 0: ``// 1000``), and whether it fits in int64."""
    if scale == 0:
        return numbers // 1000, np.ones(len(numbers), bool)
    limit = (2**63 - 1) // scale
    fits = (numbers <= limit) & (numbers >= -limit)
    return np.where(fits, numbers, 0) * scale, fits


def _from_integers(numbers: Array, unit: str) -> tuple[Array, Array]:
    scales = {"s": 1_000_000, "ms": 1000, "us": 1, "ns": 0}
    if unit in scales:
        return _scaled(numbers, scales[unit])
    if unit != "auto":
        return numbers, np.zeros(len(numbers), bool)
    micros = np.zeros(len(numbers), np.int64)
    rest = np.ones(len(numbers), bool)
    for limit, scale in ((10**11, 1_000_000), (10**14, 1000), (10**17, 1)):
        here = rest & (numbers < limit) & (numbers > -limit)
        if here.any():
            micros[here] = numbers[here] * scale
            rest &= ~here
    micros[rest] = numbers[rest] // 1000
    return micros, np.ones(len(numbers), bool)


def _from_floats(numbers: Array, unit: str) -> tuple[Array, Array]:
    """Whole doubles below 2**53 are integers, so that ``7`` and ``7.0`` are one time."""
    if unit == "iso":
        return np.zeros(len(numbers), np.int64), np.zeros(len(numbers), bool)
    micros = np.zeros(len(numbers), np.int64)
    known = np.isfinite(numbers)
    numbers = np.where(known, numbers, 0.0)
    whole = (np.abs(numbers) < _EXACT) & (np.floor(numbers) == numbers)
    micros[whole], fits = _from_integers(numbers[whole].astype(np.int64), unit)
    known[whole] &= fits
    fraction = numbers[~whole]
    if len(fraction):
        size = np.abs(fraction)
        factors = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
        factor = factors.get(unit) or np.select(
            [size < 1e11, size < 1e14, size < 1e17], [1e6, 1e3, 1.0], 1e-3
        )
        scaled = np.rint(fraction * factor)
        fits = np.abs(scaled) < 2.0**62
        micros[~whole] = np.where(fits, scaled, 0.0).astype(np.int64)
        known[~whole] &= fits
    return micros, known


def _texts(times: pa.Array, valid: Array, unit: str) -> pa.Array:
    """Reads texts: those of one length are a matrix, those of one layout one computation."""
    n = len(times)
    micros = np.zeros(n, np.int64)
    known = np.zeros(n, bool)
    offsets, data = _buffers(times)
    lengths = np.diff(offsets)
    for length in np.unique(lengths[valid]) if n else ():
        if not 0 < length <= _LONGEST:
            continue
        rows = np.flatnonzero(valid & (lengths == length))
        if len(rows) == n:
            text = data[offsets[0] : offsets[-1]].reshape(n, length)
        else:
            text = data[offsets[rows][:, None] + np.arange(length)]
        # One row for each place, one column for each text: what follows goes place by place.
        text = np.ascontiguousarray(text.T)
        layouts = np.where((text >= 48) & (text <= 57), np.uint8(48), text)
        for group in _groups(layouts):
            layout = layouts[:, group[0]].tobytes()
            part = text if len(group) == text.shape[1] else text[:, group]
            micros[rows[group]], known[rows[group]] = _read_layout(layout, part, unit)
    return _masked(micros, known, valid)


def _buffers(times: pa.Array) -> tuple[Array, Array]:
    _, offsets, data = times.buffers()
    first = np.frombuffer(offsets, np.int32)[times.offset : times.offset + len(times) + 1]
    return first.astype(np.int64), np.frombuffer(data or b"", np.uint8)


def _groups(layouts: Array) -> list[Array]:
    """Numbers of equal columns. A log has one or two layouts, garbage has thousands."""
    groups: list[Array] = []
    rest = np.arange(layouts.shape[1])
    for _ in range(_SIMPLE_LAYOUTS):
        if not len(rest):
            return groups
        left = layouts if len(rest) == layouts.shape[1] else layouts[:, rest]
        equal = (left == left[:, :1]).all(axis=0)
        groups.append(rest[equal])
        rest = rest[~equal]
    by_layout: dict[bytes, list[int]] = {}
    for row in rest.tolist():
        by_layout.setdefault(layouts[:, row].tobytes(), []).append(row)
    return groups + [np.array(rows) for rows in by_layout.values()]


def _number(text: Array, start: int, stop: int) -> Array:
    number: Array = text[start].astype(np.int64) - 48
    for place in range(start + 1, stop):
        number = number * 10 + (text[place] - np.uint8(48))
    return number


def _read_layout(layout: bytes, text: Array, unit: str) -> tuple[Array, Array]:
    nothing = np.zeros(text.shape[1], np.int64), np.zeros(text.shape[1], bool)
    if unit in ("auto", "iso"):
        match = _ISO.match(layout)
        if match:
            return _read_iso(match, text)
        match = _COMBINED.match(layout)
        if match and match["month"].decode() in _MONTHS:
            return _read_combined(match, text)
    if unit == "iso" or not _DECIMAL.match(layout):
        return nothing
    match = _INTEGER.match(layout)
    if match and match.end(1) - match.start(1) <= 18:  # below 10**18: fits in int64
        numbers = _number(text, match.start(1), match.end(1))
        return _from_integers(-numbers if layout[:1] == b"-" else numbers, unit)
    if match:
        whole = [int(bytes(row)) for row in text.T]
        fits = np.array([-(2**63) <= number < 2**63 for number in whole])
        if fits.all():
            return _from_integers(np.array(whole, np.int64), unit)
        if fits.any():
            micros, known = np.zeros(text.shape[1], np.int64), np.zeros(text.shape[1], bool)
            for group in (fits, ~fits):
                micros[group], known[group] = _read_layout(layout, text[:, group], unit)
            return micros, known
    return _from_floats(np.array([float(bytes(row)) for row in text.T]), unit)


def _read_iso(match: re.Match[bytes], text: Array) -> tuple[Array, Array]:
    days, known = _days(_number(text, 0, 4), _number(text, 5, 7), _number(text, 8, 10))
    if len(match.string) == 10:
        return days * 86_400_000_000, known
    hour, minute = _number(text, 11, 13), _number(text, 14, 16)
    second = _number(text, 17, 19) if match["seconds"] else np.zeros(text.shape[1], np.int64)
    micros, valid = _clock(days, hour, minute, second)
    known &= valid
    if match["fraction"]:
        start = match.start("fraction")
        stop = min(match.end("fraction"), start + 6)
        micros += _number(text, start, stop) * 10 ** (6 - (stop - start))
    zone = (match["zone"] or b"Z").strip()
    if zone not in (b"Z", b"z"):
        start = match.end("zone") - len(zone) + 1
        offset, valid = _offset(text, start, match.end("zone"))
        known &= valid
        micros -= offset if zone[:1] == b"+" else -offset
    return micros, known


def _read_combined(match: re.Match[bytes], text: Array) -> tuple[Array, Array]:
    layout = match.string
    first = match.end("open")
    if bool(first) != layout.endswith(b"]"):
        return np.zeros(text.shape[1], np.int64), np.zeros(text.shape[1], bool)
    month = np.full(text.shape[1], _MONTHS.index(match["month"].decode()) + 1)
    days, known = _days(
        _number(text, first + 7, first + 11), month, _number(text, first, first + 2)
    )
    clock = [_number(text, first + at, first + at + 2) for at in (12, 15, 18)]
    micros, valid = _clock(days, *clock)
    offset, zone_valid = _offset(text, first + 22, first + 26)
    sign = 1 if layout[first + 21 : first + 22] == b"+" else -1
    return micros - sign * offset, known & valid & zone_valid


def _clock(days: Array, hour: Array, minute: Array, second: Array) -> tuple[Array, Array]:
    valid = (hour < 24) & (minute < 60) & (second <= 60)
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000, valid


def _offset(text: Array, start: int, stop: int) -> tuple[Array, Array]:
    """Microseconds of ``hh``, ``hhmm`` or ``hh:mm``, and whether it is an offset."""
    hour = _number(text, start, start + 2)
    minute = (
        _number(text, stop - 2, stop) if stop - start > 2 else np.zeros(text.shape[1], np.int64)
    )
    return (hour * 60 + minute) * 60_000_000, (hour < 24) & (minute < 60)


def _days(year: Array, month: Array, day: Array) -> tuple[Array, Array]:
    """Days since 1970-01-01 in the Gregorian calendar, and whether there is such a day.

    Years are counted from March, so that the leap day is the last of a year.
    """
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    lengths = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
    valid = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1)
    valid &= day <= lengths[np.where(month <= 12, month, 0)] + ((month == 2) & leap)
    shifted = year - (month <= 2)
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    days = 365 * shifted + shifted // 4 - shifted // 100 + shifted // 400 + of_year - 719_468
    return days, valid
