"""k-ary randomized response: the value itself, or now and then any other."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from .coins import WORD, Coins, epsilon_of, exact_threshold
from .domain import Domain
from .errors import ParameterError
from .packing import checked_indices, index_bytes, pack_indices, unpack_indices
from .support import (
    NoColumns,
    SupportOracle,
    check_channel_size,
    checked_counts,
    checked_values,
    chunks,
)

Array = np.ndarray[Any, Any]

_SCRATCH = 64


class RandomizedResponse(NoColumns, SupportOracle):
    """k-ary randomized response (S. L. Warner, 1965; P. Kairouz, K. Bonawitz and D. Ramage, 2016).

    Each other value is sent with probability ``w / 2**64``,
    ``w = ceil(2**64 / (e**epsilon + k - 1))``, and the true one with the rest. Best for a
    large epsilon, ``e**epsilon > k`` or so. Messages are int64[n], the values sent; the
    state is int64[k].

    Args:
      domain: the k values (public).
      epsilon: the privacy parameter (public).
      collection: the name of the collection (public).
      version: its version, from 1 up (public).

    Raises:
      ParameterError: if a parameter is wrong, or the domain is so large and epsilon so
        small that 64-bit coins cannot tell the true value from another.
    """

    name: ClassVar[str] = "randomized_response"

    def __init__(
        self,
        domain: Domain,
        epsilon: float,
        *,
        collection: str = "default",
        version: int = 1,
    ) -> None:
        super().__init__(domain, epsilon, collection=collection, version=version)
        others = domain.size - 1
        #: w, the weight out of 2**64 of each other value.
        self.weight = exact_threshold(self.epsilon, others)
        self.null = Fraction(self.weight, WORD)
        self.gain = 1 - domain.size * self.null
        if self._odds - 1 < min(math.expm1(self.epsilon), 1.0) / 2:
            raise ParameterError(
                "the domain is too large for randomized response with so small an epsilon; "
                "use one_bit_hadamard"
            )

    @property
    def _odds(self) -> Fraction:
        return (self.null + self.gain) / self.null

    @property
    def epsilon_effective(self) -> float:
        """Log of the true value's weight over another's, rounded down; never above epsilon."""
        return epsilon_of(self._odds)

    @property
    def bits_per_report(self) -> int:
        """``ceil(log2 k)``."""
        return (self.domain.size - 1).bit_length()

    @property
    def state_shape(self) -> tuple[int, ...]:
        """(k,)."""
        return (self.domain.size,)

    @property
    def payload_bytes(self) -> int:
        """Bytes of a value's index."""
        return index_bytes(self.domain.size)

    def randomize(self, values: Array, columns: Array, coins: Coins) -> Array:
        """int64[n]: the values sent. See :meth:`FrequencyOracle.randomize`.

        A word below ``(k - 1) w`` lies in one of k - 1 stretches of w words, one for each
        other value; from there on it is the truth.
        """
        values = checked_values(values, columns, self.domain.size)
        size = self.domain.size
        sent = np.empty(values.size, dtype=np.int64)
        for part in chunks(values.size, _SCRATCH):
            some = values[part]
            words = coins.take(part).words(some.size, inputs=some)[:, 0]
            step = (words // np.uint64(self.weight)).clip(max=size - 1).view(np.int64)
            step += 1  # 1 to k - 1 leads to another value, k back to the true one.
            step += some
            step %= size
            sent[part] = step
        return sent

    def count(self, columns: Array, messages: Array) -> Array:
        """int64[k]: reports of each value. See :meth:`FrequencyOracle.count`.

        Raises:
          ParameterError: if a message is out of range.
        """
        del columns
        found = checked_indices(messages, self.domain.size)
        return np.bincount(found, minlength=self.domain.size).astype(np.int64, copy=False)

    def _supports(self, counts: Array) -> tuple[Array, int]:
        counts = checked_counts(counts, self.state_shape)
        return counts, int(counts.sum())

    def _to_payload(self, messages: Array) -> Array:
        return pack_indices(messages, self.payload_bytes)

    def _from_payload(self, payload: Array) -> Array:
        return unpack_indices(payload)

    def _valid_payload(self, payload: Array) -> Array:
        return unpack_indices(payload) < self.domain.size

    def channel(self) -> tuple[list[int], list[list[Fraction]]]:
        """The exact probabilities of every output, for domains of at most 64 values.

        Returns:
          The outputs (value indices), and a row for each value.

        Raises:
          ParameterError: if the domain is larger.
        """
        size = self.domain.size
        check_channel_size(size)
        rows = [
            [self.null + self.gain if y == x else self.null for y in range(size)]
            for x in range(size)
        ]
        return list(range(size)), rows
