"""Columns of one-bit oracles: how users are assigned theirs, and how bits are counted in them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from .errors import ParameterError
from .prf import Prf

Array = np.ndarray[Any, Any]

#: With at least this many reports per usable column the ratio form estimates.
RATIO_LOAD = 32
_CHUNK = 1 << 16


def assign_columns(
    users: Array, key: Prf | None, collection_id: str, first: int, number: int
) -> Array:
    """``first + PRF(key; "column", collection; user) mod number``, int64[n].

    The first 64 bits of the PRF are used, so that the bias of the remainder is below
    ``number / 2**64``.

    Args:
      users: uint8[n, 16], the pseudonyms.
      key: the assignment key's PRF, or None for columns from the operating system.
      collection_id: the identity of the collection.
      first: the first usable column.
      number: how many usable columns there are.
    """
    if key is None:
        words = np.frombuffer(os.urandom(8 * len(users)), dtype="<u8")
    else:
        words = key.words(key.context("column", collection_id), users)[:, 0]
    columns = words % np.uint64(number)
    columns += np.uint64(first)
    return np.asarray(columns.view(np.int64))


def check_columns(columns: Array, first: int, order: int) -> Array:
    """The columns as a one-dimensional array of whole numbers.

    Raises:
      ParameterError: if they are none, or lie outside ``range(first, order)``.
    """
    found = whole_numbers(columns, "columns")
    if found.size and (found.min() < first or found.max() >= order):
        raise ParameterError(
            f"columns must lie between {first} and {order - 1}; "
            "are the reports from another collection?"
        )
    return found


def count_bits(columns: Array, messages: Array, first: int, order: int) -> Array:
    """Ones and reports of each column, int64[2, order].

    Args:
      columns: integers[n]; int32 needs no copy of the whole.
      messages: uint8[n] or bool[n], the bits.
      first: the first usable column.
      order: how many columns there are, the unusable ones included.

    Raises:
      ParameterError: if a column or a bit is out of range.
    """
    columns = whole_numbers(columns, "columns")
    bits = np.asarray(messages)
    if bits.dtype == np.bool_:
        bits = bits.view(np.uint8)
    bits = whole_numbers(bits, "bits")
    if bits.shape != columns.shape:
        raise ParameterError("count needs one bit for each column")
    pairs = np.zeros(2 * order, dtype=np.int64)
    # At least as many reports at a time as there are counters: each piece adds all of them.
    chunk = max(_CHUNK, 4 * order)
    for low in range(0, columns.size, chunk):
        some = check_columns(columns[low : low + chunk], first, order)
        their = bits[low : low + chunk]
        if their.min() < 0 or their.max() > 1:
            raise ParameterError("bits must be 0 or 1")
        index = some.astype(np.int64)
        index <<= 1
        index |= their.astype(np.uint8, copy=False)
        pairs += np.bincount(index, minlength=pairs.size)
    ones = pairs[1::2]
    return np.stack([ones, pairs[0::2] + ones])


def whole_numbers(x: Array, name: str) -> Array:
    """The array, if it is one-dimensional and of whole numbers.

    Raises:
      ParameterError: if it is not; the message calls it ``name``.
    """
    x = np.asarray(x)
    if x.ndim != 1 or x.dtype.kind not in "iu":
        raise ParameterError(f"{name} must be whole numbers in one dimension")
    return x
