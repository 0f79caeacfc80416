"""The Hadamard matrix ``H[x, y] = (-1) ** popcount(x & y)`` and its fast transform."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import ParameterError

Array = np.ndarray[Any, Any]

#: Entries of a tile: with its two buffers it stays in a core's second-level cache.
TILE = 1 << 15
#: Whole numbers up to here are floats without rounding.
EXACT = 2**53


def least_power_of_two(n: int) -> int:
    """The least power of two that is at least ``n``.

    Raises:
      ParameterError: if ``n`` is below 1.
    """
    if n < 1:
        raise ParameterError(f"a power of two is sought for n >= 1, not {n}")
    return 1 << (n - 1).bit_length()


def _rotating(source: Array, first: Array, second: Array, target: Array) -> None:
    """Transforms all of ``source`` into ``target``, with passes of constant geometry.

    A pass takes the neighbours 2i and 2i + 1, and writes their sum to i and their
    difference to i + n/2: it transforms the lowest bit of the index and makes it the
    highest. After log2(n) passes the order is natural again. ``target`` may be
    ``source`` if there are two passes or more.
    """
    half = source.size // 2
    for rest in range(source.size.bit_length() - 2, -1, -1):
        out = first if rest else target
        np.add(source[0::2], source[1::2], out=out[:half])
        np.subtract(source[0::2], source[1::2], out=out[half:])
        source, first, second = out, second, first


def _transform_tile(x: Array, first: Array, second: Array) -> None:
    """Transforms one tile in place."""
    if x.size < 4:
        if x.size == 2:
            x[:] = x[0] + x[1], x[0] - x[1]
        return
    if x.dtype == np.int64:
        _rotating(x, first, second, x)
        return
    # NumPy adds strided complex numbers with vector instructions, but not strided floats:
    # the lowest bit first, and then pairs of floats as if they were complex.
    np.add(x[0::2], x[1::2], out=first[0::2])
    np.subtract(x[0::2], x[1::2], out=first[1::2])
    pairs, spare = first.view(np.complex128), second.view(np.complex128)
    _rotating(pairs, spare, pairs, x.view(np.complex128))


def _combine(x: Array, done: int, scratch: Array) -> int:
    """Transforms one or two more bits of the index above bit ``done``, in place.

    Works on slabs of columns that fit in ``scratch``. Returns how many bits are done.
    """
    rows = 4 if x.size >> done >= 4 else 2
    block = 1 << done
    width = min(block, scratch.size // rows)
    buffer = scratch[: rows * width].reshape(rows, width)
    for group in x.reshape(-1, rows, block):
        for start in range(0, block, width):
            slab = group[:, start : start + width]
            half = rows // 2
            np.add(slab[:half], slab[half:], out=buffer[0::2])
            np.subtract(slab[:half], slab[half:], out=buffer[1::2])
            if rows == 2:
                slab[:] = buffer
            else:
                np.add(buffer[:2], buffer[2:], out=slab[0::2])
                np.subtract(buffer[:2], buffer[2:], out=slab[1::2])
    return done + rows // 2


def _aligned(size: int, dtype: Any) -> Array:
    """An empty array that starts at a cache line."""
    space = np.empty(size + 8, dtype=dtype)
    start = -(space.ctypes.data // 8) % 8
    return space[start : start + size]


def _transform(x: Array) -> None:
    """Transforms a contiguous int64 or float64 array in place, with two small buffers."""
    tile = min(x.size, TILE)
    first, second = _aligned(tile, x.dtype), _aligned(tile, x.dtype)
    for start in range(0, x.size, tile):
        _transform_tile(x[start : start + tile], first, second)
    done = tile.bit_length() - 1
    while 1 << done < x.size:
        done = _combine(x, done, first)


def fwht(x: Array, *, overwrite: bool = False) -> Array:
    """The unnormalised Walsh-Hadamard transform ``H @ x``.

    Tiles that fit in a core's cache are transformed with two buffers and no allocation
    per pass; the bits of the index above a tile are combined slab by slab.

    Args:
      x: int64[n] or float64[n], n a power of two. Other integers and floats are
        converted.
      overwrite: whether ``x`` may be used as a buffer (its contents are then lost).

    Returns:
      An array of the same length: int64 for integers (exact as long as the sum of
      ``abs(x)`` is below 2**63), else float64. Equal inputs give equal bits.

    Raises:
      ParameterError: if ``x`` is not one-dimensional, numeric, and a power of two long.
    """
    x = np.asarray(x)
    if x.ndim != 1 or x.size < 1 or x.size & (x.size - 1):
        raise ParameterError("the transform needs one dimension and a power of two as length")
    if x.dtype.kind not in "iuf":
        raise ParameterError("the transform needs integers or floats")
    dtype = np.float64 if x.dtype.kind == "f" else np.int64
    if x.dtype != dtype or not overwrite or not x.flags.carray:
        copy = _aligned(x.size, dtype)
        copy[:] = x
        x = copy
    if dtype == np.int64 and max(-int(x.min()), int(x.max())) * x.size <= EXACT:
        # Every partial sum is a whole number that a float holds exactly, and floats are faster.
        floats = _aligned(x.size, np.float64)
        floats[:] = x
        _transform(floats)
        x[:] = floats
    else:
        _transform(x)
    return x


def hadamard_bits(rows: Array, columns: Array) -> Array:
    """uint8: 1 where ``H[row, column]`` is +1, else 0.

    Args:
      rows: non-negative integers.
      columns: non-negative integers, broadcast against ``rows``.
    """
    common = np.bitwise_and(rows, columns)
    return np.asarray((np.bitwise_count(common) & 1) ^ np.uint8(1))
