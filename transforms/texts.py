"""Arrow columns of any type as canonical text (:func:`.records.canonical`)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .records import canonical


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
        return pa.array([canonical(value) for value in column.to_pylist()], pa.string())
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
    texts = pa.array([canonical(value) for value in _python_values(coded.dictionary)], pa.string())
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
