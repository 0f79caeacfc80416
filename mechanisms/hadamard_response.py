"""Hadamard response: Acharya, Sun and Zhang (2019); Acharya and Sun (2019), Section 4.

A user sends the number of a column of the Hadamard matrix, more likely one in which the
row of their value is +1. About ``log2 k`` bits, no columns to assign.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from .coins import Coins, epsilon_of, flip_threshold, odds, truth_probability
from .domain import Domain
from .hadamard import fwht, hadamard_bits, least_power_of_two
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

#: Bytes of temporary arrays for each user.
_SCRATCH = 64


class HadamardResponse(NoColumns, SupportOracle):
    """Hadamard response. K is the least power of two above k; value x has row ``x + 1``.

    Output y has probability ``2 q / K`` where ``H[x + 1, y] = +1`` and ``2 (1 - q) / K``
    elsewhere (equation 18). A value's supports are the outputs in its +1 columns;
    ``raw = c (2 supports / n - 1)`` (equation 20), ``c = 1 / (2 q - 1)``, variance
    ``(c**2 - f**2) / n``. Messages are int64[n], the state is int64[K]: reports of each
    output.

    Args:
      domain: the k values (public).
      epsilon: the privacy parameter (public).
      collection: the name of the collection (public).
      version: its version, from 1 up (public).

    Raises:
      ParameterError: if a parameter is wrong.
    """

    name: ClassVar[str] = "hadamard_response"

    def __init__(
        self,
        domain: Domain,
        epsilon: float,
        *,
        collection: str = "default",
        version: int = 1,
    ) -> None:
        super().__init__(domain, epsilon, collection=collection, version=version)
        self.threshold = flip_threshold(self.epsilon)
        #: K, the order of the Hadamard matrix.
        self.order = least_power_of_two(domain.size + 1)
        self.null = Fraction(1, 2)
        self.gain = truth_probability(self.threshold) - self.null

    @property
    def epsilon_effective(self) -> float:
        """``log((2**64 - t) / t)``, rounded down; never above epsilon."""
        return epsilon_of(odds(self.threshold))

    @property
    def bits_per_report(self) -> int:
        """``log2 K``."""
        return self.order.bit_length() - 1

    @property
    def state_shape(self) -> tuple[int, ...]:
        """(K,)."""
        return (self.order,)

    @property
    def payload_bytes(self) -> int:
        """Bytes of the output's number."""
        return index_bytes(self.order)

    def randomize(self, values: Array, columns: Array, coins: Coins) -> Array:
        """int64[n]: the outputs. See :meth:`FrequencyOracle.randomize`.

        Word 0 is the coin. The low bits of word 1 are an output, uniform over all K;
        toggling the lowest bit of the row in it changes its sign in the row, and moves
        it to the side that the coin asks for, uniformly.
        """
        values = checked_values(values, columns, self.domain.size)
        outputs = np.empty(values.size, dtype=np.int64)
        for part in chunks(values.size, _SCRATCH):
            some = values[part]
            words = coins.take(part).words(some.size, inputs=some)
            rows = some + 1
            found = (words[:, 1] & np.uint64(self.order - 1)).view(np.int64)
            truth = words[:, 0] >= np.uint64(self.threshold)
            wrong = hadamard_bits(rows, found).view(np.bool_) != truth
            found ^= np.where(wrong, rows & -rows, 0)
            outputs[part] = found
        return outputs

    def count(self, columns: Array, messages: Array) -> Array:
        """int64[K]: reports of each output. See :meth:`FrequencyOracle.count`.

        Raises:
          ParameterError: if a message is out of range.
        """
        del columns
        found = checked_indices(messages, self.order)
        return np.bincount(found, minlength=self.order).astype(np.int64, copy=False)

    def _supports(self, counts: Array) -> tuple[Array, int]:
        counts = checked_counts(counts, self.state_shape)
        n = int(counts.sum())
        # Of integers, so exact: each entry of the transform has the parity of n.
        return (fwht(counts)[1 : self.domain.size + 1] + n) // 2, n

    def _to_payload(self, messages: Array) -> Array:
        return pack_indices(messages, self.payload_bytes)

    def _from_payload(self, payload: Array) -> Array:
        return unpack_indices(payload)

    def _valid_payload(self, payload: Array) -> Array:
        return unpack_indices(payload) < self.order

    def channel(self) -> tuple[list[int], list[list[Fraction]]]:
        """The exact probabilities of every output, for domains of at most 64 values.

        Returns:
          The outputs, and a row for each value: the probability of each output.

        Raises:
          ParameterError: if the domain is larger.
        """
        check_channel_size(self.domain.size)
        likely = truth_probability(self.threshold) * Fraction(2, self.order)
        unlikely = Fraction(2, self.order) - likely
        outputs = list(range(self.order))
        rows = [
            [likely if hadamard_bits(np.int64(x + 1), np.int64(y)) else unlikely for y in outputs]
            for x in range(self.domain.size)
        ]
        return outputs, rows
