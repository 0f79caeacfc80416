"""Basic one-time RAPPOR (U. Erlingsson, V. Pihur and A. Korolova, 2014): k noisy bits.

The user's value is written as k bits, a single one among them, and each bit is flipped
with a coin of epsilon / 2. Two values differ in two bits, so that a report costs epsilon.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import numpy as np

from .coins import Coins, epsilon_of, odds, truth_probability
from .domain import Domain
from .errors import ParameterError
from .packing import checked_rows, pack_bits, spare_bits_clear, sum_bits
from .support import (
    NoColumns,
    SupportOracle,
    check_channel_size,
    checked_counts,
    checked_values,
    chunks,
)
from .weights import share_threshold

Array = np.ndarray[Any, Any]

#: A report has k bits; beyond this many another oracle is meant.
MAX_DOMAIN = 1 << 20
#: 2**k outputs are written out for domains up to this size.
CHANNEL_LIMIT = 12
#: Bytes in a PRF block: a block holds the first byte of the coins of so many bits.
_LANES = 16
_REST = (1 << 56) - 1
#: For what a user's words are: the bits that are 0, the one that is 1, and ties.
_ZEROS, _ONE, _TIES = 0, 1, 2


class Rappor(NoColumns, SupportOracle):
    """Basic one-time RAPPOR: ``q`` of ``epsilon / 2``, null ``1 - q``, gain ``2 q - 1``.

    Variance ``e**(epsilon/2) / (e**(epsilon/2) - 1)**2 / n`` at frequency 0: 3.918 / n at
    epsilon 1. Messages are uint8[n, ceil(k / 8)], bit x of a row in byte ``x // 8``, least
    significant first; the state is int64[k + 1]: ones of each value, and the reports.

    Args:
      domain: the k values, at most 2**20 (public).
      epsilon: the privacy parameter (public).
      collection: the name of the collection (public).
      version: its version, from 1 up (public).

    Raises:
      ParameterError: if a parameter is wrong, or the domain is larger.
    """

    name: ClassVar[str] = "rappor"

    def __init__(
        self,
        domain: Domain,
        epsilon: float,
        *,
        collection: str = "default",
        version: int = 1,
    ) -> None:
        super().__init__(domain, epsilon, collection=collection, version=version)
        if domain.size > MAX_DOMAIN:
            raise ParameterError(
                f"a report of rappor has one bit for each of the {domain.size} values; more than "
                f"{MAX_DOMAIN} are not supported: use one_bit_hadamard or hadamard_response"
            )
        self.threshold = share_threshold(self.epsilon / 2)
        truth = truth_probability(self.threshold)
        self.null = 1 - truth
        self.gain = 2 * truth - 1

    @property
    def epsilon_effective(self) -> float:
        """Twice the log of a bit's odds, rounded down; never above epsilon."""
        return epsilon_of(odds(self.threshold) ** 2)

    @property
    def bits_per_report(self) -> int:
        """k."""
        return self.domain.size

    @property
    def state_shape(self) -> tuple[int, ...]:
        """(k + 1,)."""
        return (self.domain.size + 1,)

    @property
    def payload_bytes(self) -> int:
        """``ceil(k / 8)``."""
        return (self.domain.size + 7) // 8

    def randomize(self, values: Array, columns: Array, coins: Coins) -> Array:
        """uint8[n, ceil(k / 8)]: the bits. See :meth:`FrequencyOracle.randomize`.

        Each bit has a 64-bit coin that depends on its position and its true value. Of
        the bits that are 0 only the coin's first byte is drawn, 16 to a PRF block, and
        the other 7 bytes in the one case of 256 where the first does not decide.
        """
        values = checked_values(values, columns, self.domain.size)
        rows = np.empty((values.size, self.payload_bytes), dtype=np.uint8)
        groups = -(-self.domain.size // _LANES)
        for part in chunks(values.size, _LANES * groups):
            rows[part] = pack_bits(self._bits(values[part], coins.take(part), groups))
        return rows

    def _bits(self, values: Array, coins: Coins, groups: int) -> Array:
        n, size = values.size, self.domain.size
        own = coins.words(n, inputs=values, block=_ONE)[:, 0]
        users = np.repeat(np.arange(n), groups)
        words = coins.take(users).words(
            users.size, inputs=np.tile(np.arange(groups), n), block=_ZEROS
        )
        lanes = words.astype("<u8", copy=False).view(np.uint8).reshape(n, -1)[:, :size]
        first = self.threshold >> 56
        bits = (lanes < first).view(np.uint8)
        tied, position = np.divmod(np.flatnonzero(lanes == first), size)
        rest = coins.take(tied).words(tied.size, inputs=position, block=_TIES)[:, 0]
        bits[tied, position] = (rest >> np.uint64(8)) < np.uint64(self.threshold & _REST)
        bits[np.arange(n), values] = own >= np.uint64(self.threshold)
        return bits

    def count(self, columns: Array, messages: Array) -> Array:
        """int64[k + 1]: ones of each value, and the reports.

        Raises:
          ParameterError: if messages have another width, or a bit beyond the k-th.
        """
        del columns
        rows = checked_rows(messages, self.payload_bytes)
        if not spare_bits_clear(rows, self.domain.size).all():
            raise ParameterError(
                f"messages must have {self.domain.size} bits; are they of another collection?"
            )
        return np.append(sum_bits(rows, self.domain.size), len(rows))

    def _supports(self, counts: Array) -> tuple[Array, int]:
        counts = checked_counts(counts, self.state_shape)
        if (counts[:-1] > counts[-1]).any():
            raise ParameterError("counts must have at most as many ones as reports")
        return counts[:-1], int(counts[-1])

    def _to_payload(self, messages: Array) -> Array:
        return checked_rows(messages, self.payload_bytes)

    def _from_payload(self, payload: Array) -> Array:
        return payload

    def _valid_payload(self, payload: Array) -> Array:
        return spare_bits_clear(payload, self.domain.size)

    def channel(self) -> tuple[list[tuple[int, ...]], list[list[Fraction]]]:
        """The exact probabilities of every output, for domains of at most 12 values.

        Returns:
          The outputs, each k bits, and a row for each value.

        Raises:
          ParameterError: if the domain is larger.
        """
        size = self.domain.size
        check_channel_size(size, CHANNEL_LIMIT)
        truth = truth_probability(self.threshold)
        outputs = list(product((0, 1), repeat=size))
        rows = []
        for x in range(size):
            row = []
            for output in outputs:
                kept = sum(bit == (place == x) for place, bit in enumerate(output))
                row.append(truth**kept * (1 - truth) ** (size - kept))
            rows.append(row)
        return outputs, rows
