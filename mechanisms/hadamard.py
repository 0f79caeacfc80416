"""The Hadamard matrix ``H[x, y] = (-1) ** popcount(x & y)`` and its fast transform."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import ParameterError

Array = np.ndarray[Any, Any]


def least_power_of_two(n: int) -> int:
    """The least power of two that is at least ``n``.

    Raises:
      ParameterError: if ``n`` is below 1.
    """
    if n < 1:
        raise ParameterError(f"a power of two is sought for n >= 1, not {n}")
    return 1 << (n - 1).bit_length()


def _butterflies(source: Array, target: Array) -> tuple[Array, Array]:
    """Transforms along the first axis, and returns (result, other buffer).

    Each pass reads the two halves and interleaves sums and differences, so that all
    passes have the same geometry; after log2(rows) of them the rows are in natural
    order again.
    """
    rows = source.shape[0]
    half = rows // 2
    passes = rows.bit_length() - 1
    for _ in range(passes):
        np.add(source[:half], source[half:], out=target[0::2])
        np.subtract(source[:half], source[half:], out=target[1::2])
        source, target = target, source
    return source, target


def fwht(x: Array, *, overwrite: bool = False) -> Array:
    """The unnormalised Walsh-Hadamard transform ``H @ x``.

    Args:
      x: int64[n] or float64[n], n a power of two. Other integers and floats are
        converted.
      overwrite: whether ``x`` may be used as a buffer (its contents are then lost).

    Returns:
      An array of the same length: int64 for integers (exact as long as the sum of
      ``abs(x)`` is below 2**63), else float64.

    Raises:
      ParameterError: if ``x`` is not one-dimensional, numeric, and a power of two long.
    """
    x = np.asarray(x)
    if x.ndim != 1 or x.size < 1 or x.size & (x.size - 1):
        raise ParameterError("the transform needs one dimension and a power of two as length")
    if x.dtype.kind not in "iuf":
        raise ParameterError("the transform needs integers or floats")
    dtype = np.float64 if x.dtype.kind == "f" else np.int64
    if x.dtype != dtype or not overwrite or not x.flags.c_contiguous or not x.flags.writeable:
        x = x.astype(dtype, order="C")
    return _butterflies(x, np.empty_like(x))[0]


def hadamard_bits(rows: Array, columns: Array) -> Array:
    """uint8: 1 where ``H[row, column]`` is +1, else 0.

    Args:
      rows: non-negative integers.
      columns: non-negative integers, broadcast against ``rows``.
    """
    common = np.bitwise_and(rows, columns)
    return np.asarray((np.bitwise_count(common) & 1) ^ np.uint8(1))
