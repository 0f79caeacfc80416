"""Bounding what one user contributes: which of a user's records is kept.

The record kept has the least keyed hash, so that it does not depend on the order of
the records, on how they were split among workers, or on the run. Over the secret of
the key the choice is uniform among the user's *distinct* records.

In per-key estimates the key that a user reports for is public. So it is chosen first, uniformly
among the user's distinct keys, and the record then among those of the key. Were the choice
uniform among all records, a key under which a user has many values would be likelier than one
with few, and the public key would tell of the private values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .errors import ParameterError
from .prf import Prf

Array = np.ndarray[Any, Any]

#: Used for the choice where there is no coin key. The choice is then public, which
#: is no loss of privacy (it is made before the coin), only of unpredictability.
PUBLIC_KEY = bytes(32)


def priorities(
    prf: Prf, users: Array, values: Array, times: Array | None, keys: Array | None
) -> Array:
    """The keyed hashes by which a user's records are ordered.

    The message is of fixed-length fields: the pseudonym (16 bytes), the value index
    and the time in microseconds (8 bytes each, little-endian, 0 without times), and
    for per-key estimates the pseudonym of the key (16 bytes). Of those the first word is a
    hash of the user's and the key's pseudonyms alone.

    Args:
      prf: of the coin key, or of :data:`PUBLIC_KEY`.
      users: uint8[n, 16].
      values: integers[n].
      times: int64[n] in microseconds, or None.
      keys: uint8[n, 16], or None.

    Returns:
      uint64[n, 2]; records are ordered by the first word, then the second. Without keys both
      are of one hash, with keys one of each.
    """
    n = len(users)
    rows = np.zeros((n, 32 if keys is None else 48), np.uint8)
    rows[:, :16] = users
    rows[:, 16:24] = values.astype("<i8").view(np.uint8).reshape(n, 8)
    if times is not None:
        rows[:, 24:32] = times.astype("<i8").view(np.uint8).reshape(n, 8)
    if keys is not None:
        rows[:, 32:] = keys
    ranks = prf.words(prf.context("limit"), rows)
    if keys is None:
        return ranks
    first = prf.words(prf.context("limit key"), np.hstack([users, keys]))
    return np.stack([first[:, 0], ranks[:, 0]], axis=1)


def keep_one_per_user(
    prf: Prf,
    users: Array,
    values: Array,
    times: Array | None = None,
    keys: Array | None = None,
) -> Array:
    """Chooses one record of each user.

    Args:
      prf: of the coin key, or of :data:`PUBLIC_KEY`.
      users: uint8[n, 16], C-contiguous: the pseudonyms.
      values: integers[n]: the value indexes.
      times: int64[n] in microseconds, or None where records have no time.
      keys: uint8[n, 16]: the pseudonyms of the records' keys, or None.

    Returns:
      int64[m]: the positions kept, one for each distinct user.

    Raises:
      ParameterError: if the arrays differ in length.
    """
    n = len(users)
    for other in (values, times, keys):
        if other is not None and len(other) != n:
            raise ParameterError("users, values, times and keys must have one row per record")

    def rank(rows: Array) -> Array:
        return priorities(
            prf,
            users[rows],
            values[rows],
            None if times is None else times[rows],
            None if keys is None else keys[rows],
        )

    return least_per_user(users, rank)


def least_per_user(users: Array, rank: Callable[[Array], Array]) -> Array:
    """Chooses of each user the row that ranks first.

    Args:
      users: uint8[n, 16], C-contiguous.
      rank: gives uint64[m, 2] for m positions; rows are ordered by the first word, then the
        second. It is asked only about rows of users who may have several.

    Returns:
      int64[m]: the positions kept, one for each distinct user.
    """
    n = len(users)
    if n == 0:
        return np.zeros(0, np.int64)
    words = users.view(np.uint64)
    # One machine word decides nearly always; only rows that share it are looked at further,
    # so that the hash is paid for by users who have several records.
    first = np.ascontiguousarray(words[:, 0])
    order = np.argsort(first)
    ranked = first[order]
    equal = ranked[1:] == ranked[:-1]
    if not equal.any():
        return order
    shared = np.zeros(n, bool)
    shared[1:] |= equal
    shared[:-1] |= equal
    rivals = order[shared]
    ranks = rank(rivals)
    who = words[rivals]
    best = np.lexsort((ranks[:, 1], ranks[:, 0], who[:, 1], who[:, 0]))
    who = who[best]
    leads = np.ones(len(best), bool)
    leads[1:] = (who[1:] != who[:-1]).any(axis=1)
    return np.concatenate([order[~shared], rivals[best[leads]]])
