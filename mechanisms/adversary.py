"""What the lower bounds of Acharya and Sun (2019) are about, built: Theorems 2 and 4.

A channel with fewer outputs than values maps two disjoint distributions to the same
law of reports. If all users share the channel, the distributions cannot be told apart
(Theorem 2); if users have channels of their own, fixed and known beforehand, two data sets
can be told apart by nobody (Theorem 4). Columns assigned by a key are not known
beforehand, and Hadamard response has more outputs than values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .coins import Coins, flip_threshold, truth_probability
from .domain import Domain
from .errors import ParameterError
from .hadamard import hadamard_bits
from .oracle import check_epsilon

Array = np.ndarray[Any, Any]

#: The value that nobody has in the first of the two data sets of :func:`against_places`.
TARGET = 0


class SymmetricOneBit:
    """One private bit about one column for everybody: the scheme that Theorem 2 is about.

    Not an oracle: no estimate can be made of its reports, as :func:`confused_pair` shows.

    Args:
      domain: the k values.
      epsilon: the privacy parameter.
      column: the column of the Hadamard matrix that all users are in.
    """

    def __init__(self, domain: Domain, epsilon: float, column: int = 1) -> None:
        self.threshold = flip_threshold(check_epsilon(epsilon))
        self._sides = hadamard_bits(np.arange(domain.size), np.int64(column))

    def randomize(self, values: Array, coins: Coins) -> Array:
        """uint8[n]: the bits of values int64[n]."""
        words = coins.words(len(values))[:, 0]
        flips = (words < np.uint64(self.threshold)).view(np.uint8)
        return np.asarray(self._sides[values] ^ flips)

    def channel_matrix(self) -> Array:
        """float64[k, 2]: the probabilities of bit 0 and bit 1 under each value."""
        q = float(truth_probability(self.threshold))
        ones = np.where(self._sides == 1, q, 1.0 - q)
        return np.stack([1.0 - ones, ones], axis=1)


def confused_pair(channel: Array) -> tuple[Array, Array]:
    """Two disjoint distributions that a symmetric channel maps to one law (Theorem 2).

    The proof's vector e with ``W.T e = 0`` and ``||e||_1 = 2``, as its positive and its
    negative part.

    Args:
      channel: float64[k, outputs], rows adding up to one, fewer outputs than values.

    Returns:
      Two rows float64[k], at l1 distance 2.

    Raises:
      ParameterError: if there are not fewer outputs than values.
    """
    size, outputs = channel.shape
    if outputs >= size:
        raise ParameterError(
            "distributions are confused by channels with fewer outputs than values"
        )
    # The last right singular vector of W.T lies in its null space.
    vector = np.linalg.svd(channel.T, full_matrices=True)[2][-1]
    vector = np.where(np.abs(vector) < 1e-12, 0.0, vector)
    left, right = np.maximum(vector, 0.0), np.maximum(-vector, 0.0)
    return left / left.sum(), right / right.sum()


def against_places(n: int) -> tuple[Array, Array]:
    """Two data sets that the published one-bit scheme cannot tell apart (Theorem 4).

    User j is in column ``j mod K``. In each column two of the values 0, 1, 2 have the same
    sign, and one user may have either without a change in the law of the bit. In the first
    data set nobody has :data:`TARGET`; in the second three users of four have it. Every
    estimate is off by 3/8 at least in one of them, however many users there are.

    Args:
      n: users.

    Returns:
      Two rows of values, int64[n], by place.
    """
    places = np.arange(n, dtype=np.int64)
    return 1 + places % 2, np.array([0, 0, 0, 1], dtype=np.int64)[places % 4]


def data_sets(n: int, size: int) -> dict[str, Array]:
    """Fixed data sets that are hard for one scheme or another, by name.

    Args:
      n: users.
      size: k, at least 3.

    Returns:
      Values int64[n] by place: all users at one value; values in turn; all users of a
      value side by side, fewer and fewer; and the two of :func:`against_places`.
    """
    places = np.arange(n, dtype=np.int64)
    weights = 1.0 / np.arange(1, size + 1)
    edges = np.floor(n * np.cumsum(weights) / weights.sum()).astype(np.int64)
    first, second = against_places(n)
    return {
        "one value": np.full(n, size - 1, dtype=np.int64),
        "in turn": places % size,
        "side by side": np.minimum(np.searchsorted(edges, places, side="right"), size - 1),
        "against places": first,
        "their twin": second,
    }
