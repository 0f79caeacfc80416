"""Arrow columns of any type as canonical text (:func:`.records.canonical`)."""

from __future__ import annotations

import datetime
import decimal
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .records import canonical


def canonical_scalar(value: object) -> str | None:
    """The canonical text of a value that a Parquet or Avro reader hands out.

    As :func:`.records.canonical`, and: a date is ``2024-03-01``; a timestamp is
    ``2024-03-01T10:30:05.25`` with ``Z`` (in UTC) if it has a zone; a decimal has no
    trailing zeros (``7.50`` is ``7.5``); a time of day and a UUID are written as Python does.
    """
    if isinstance(value, datetime.datetime):
        zone = ""
        if value.tzinfo is not None:
            value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
            zone = "Z"
        text = value.isoformat()
        return (text.rstrip("0") if "." in text else text) + zone
    if isinstance(value, (datetime.date, datetime.time, uuid.UUID)):
        return str(value)
    if isinstance(value, decimal.Decimal):
        if not value.is_finite():
            return None
        text = format(value, "f")
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return "0" if text in ("-0", "") else text
    if isinstance(value, (bytearray, memoryview)):
        value = bytes(value)
    return canonical(value)


def is_utf8(data: bytes | bytearray) -> bool:
    """Whether text is valid UTF-8. Unlike decoding, this makes no copy."""
    if data.isascii():
        return True
    offsets = pa.py_buffer(np.array([0, len(data)], np.int64))
    try:
        pa.LargeStringArray.from_buffers(1, offsets, pa.py_buffer(data)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def to_text(column: pa.Array) -> pa.Array:
    """Turns a column into its canonical texts.

    Args:
      column: of any arrow type. Lists, structs and maps have no text.

    Returns:
      string[n]; null is a missing value. The empty text is missing too: CSV has no other
      way to leave a field out, and every format has to give the same answer.
    """
    return _without_empty(_to_text(column))


def _to_text(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_dictionary(kind):
        return _to_text(column.dictionary).take(column.indices)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.string())
    if _is_text(kind):
        return column.cast(pa.string())
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        return pa.nulls(len(column), pa.string())
    if _is_binary(kind):
        texts = column.cast(pa.binary())
        try:
            return texts.cast(pa.string())  # checks that it is UTF-8
        except pa.ArrowInvalid:
            return _each_distinct(texts)
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        # Python has no nanoseconds; neither has any of our other formats.
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    if isinstance(column, pa.ExtensionArray):
        return pa.array([canonical_scalar(value) for value in column.to_pylist()], pa.string())
    return _each_distinct(column)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _each_distinct(column: pa.Array) -> pa.Array:
    """Python's texts, made once for each distinct value."""
    if pa.types.is_float16(column.type) or pa.types.is_float32(column.type):
        column = column.cast(pa.float64())
    coded = pc.dictionary_encode(column)
    texts = pa.array(
        [canonical_scalar(value) for value in _python_values(coded.dictionary)], pa.string()
    )
    return texts.take(coded.indices)


def _python_values(column: pa.Array) -> list[object]:
    """The values; None for a date or timestamp beyond the years that Python knows."""
    try:
        values: list[object] = column.to_pylist()
    except (ValueError, OverflowError):
        return [_python_value(value) for value in column]
    return values


def _python_value(value: pa.Scalar) -> object:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return None


def _without_empty(texts: pa.Array) -> pa.Array:
    empty = pc.equal(pc.binary_length(texts), 0)
    if not pc.any(empty).as_py():
        return texts
    return pc.if_else(empty, pa.scalar(None, pa.string()), texts)
