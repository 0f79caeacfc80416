"""Messages as fixed-size rows of bytes: indices, and sets of indices as bitmaps."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import ParameterError

Array = np.ndarray[Any, Any]

#: Rows whose sum of bits fits in uint8.
_ROWS = 255


def index_bytes(size: int) -> int:
    """Bytes that hold the indices ``0..size - 1``."""
    return max(1, ((size - 1).bit_length() + 7) // 8)


def pack_indices(indices: Array, width: int) -> Array:
    """Indices int64[...] as uint8[..., width], little-endian."""
    wide = np.ascontiguousarray(indices, dtype="<i8")[..., None].view(np.uint8)
    return np.ascontiguousarray(wide[..., :width])


def unpack_indices(rows: Array) -> Array:
    """The inverse of :func:`pack_indices`: uint8[..., width] as int64[...]."""
    wide = np.zeros((*rows.shape[:-1], 8), dtype=np.uint8)
    wide[..., : rows.shape[-1]] = rows
    return np.asarray(wide.view("<i8")[..., 0].astype(np.int64, copy=False))


def pack_bits(bits: Array) -> Array:
    """uint8[n, size] of 0 and 1 as uint8[n, ceil(size / 8)], least significant bit first."""
    return np.packbits(bits, axis=1, bitorder="little")


def unpack_bits(rows: Array, size: int) -> Array:
    """The inverse of :func:`pack_bits`."""
    return np.unpackbits(rows, axis=1, count=size, bitorder="little")


def spare_bits_clear(rows: Array, size: int) -> Array:
    """bool[n]: whether the bits from ``size`` on are 0 in each row."""
    spare = size % 8
    if not spare:
        return np.ones(len(rows), dtype=np.bool_)
    return np.asarray((rows[:, -1] >> spare) == 0)


def sum_bits(rows: Array, size: int) -> Array:
    """int64[size]: how many rows have each bit; unpacks some megabytes at a time.

    Args:
      rows: uint8[n, ceil(size / 8)].
      size: bits of a row.
    """
    total = np.zeros(size, dtype=np.int64)
    step = max(1, min(_ROWS, (1 << 22) // size))
    for low in range(0, len(rows), step):
        bits = unpack_bits(rows[low : low + step], size)
        total += np.add.reduce(bits, axis=0, dtype=np.uint8)
    return total


def checked_rows(messages: Array, width: int) -> Array:
    """Messages as uint8[n, width].

    Raises:
      ParameterError: if they have another shape or type.
    """
    rows = np.asarray(messages)
    if rows.ndim != 2 or rows.dtype != np.uint8 or rows.shape[1] != width:
        raise ParameterError(f"messages must be uint8 rows of {width} bytes")
    return rows


def checked_indices(messages: Array, size: int) -> Array:
    """Messages as integers[n] in ``range(size)``.

    Raises:
      ParameterError: if they have another shape or type, or are out of range.
    """
    found = np.asarray(messages)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ParameterError("messages must be whole numbers in one dimension")
    if found.size and (found.min() < 0 or found.max() >= size):
        raise ParameterError(
            f"messages must lie between 0 and {size - 1}; are they of another collection?"
        )
    return found
