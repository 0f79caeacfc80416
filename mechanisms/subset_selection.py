"""Subset selection (M. Ye and A. Barg, 2018): d of the k values, more likely with one's own."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from .coins import WORD, Coins, epsilon_of
from .domain import Domain
from .errors import ParameterError
from .packing import (
    checked_rows,
    index_bytes,
    pack_bits,
    pack_indices,
    spare_bits_clear,
    sum_bits,
    unpack_indices,
)
from .support import (
    NoColumns,
    SupportOracle,
    check_channel_size,
    checked_counts,
    checked_values,
    chunks,
)
from .weights import share_threshold, subset_size

Array = np.ndarray[Any, Any]

#: Subsets hold a share of the values; beyond this many values another oracle is meant.
MAX_DOMAIN = 1 << 20
#: All subsets are written out for domains up to this size.
CHANNEL_LIMIT = 16
#: Up to this many values 16 bits draw one of them with few rejections, beyond it 32 bits.
_SHORT_LANES = 1 << 13


class SubsetSelection(NoColumns, SupportOracle):
    """Subset selection with ``d = max(1, round(k / (e**epsilon + 1)))``.

    A subset with the user's value has ``e**epsilon`` times the probability of one without.
    Variance 3.673 / n at epsilon 1 and frequency 0: the least of all oracles, for the
    most work. The state is int64[k]: how many subsets hold each value.

    Messages are uint8[n, payload_bytes]: the sorted indices of the subset, little-endian,
    or a bitmap of k bits where that is shorter.

    Args:
      domain: the k values, at most 2**20 (public).
      epsilon: the privacy parameter (public).
      collection: the name of the collection (public).
      version: its version, from 1 up (public).

    Raises:
      ParameterError: if a parameter is wrong, or the domain is larger.
    """

    name: ClassVar[str] = "subset_selection"

    def __init__(
        self,
        domain: Domain,
        epsilon: float,
        *,
        collection: str = "default",
        version: int = 1,
    ) -> None:
        super().__init__(domain, epsilon, collection=collection, version=version)
        size = domain.size
        if size > MAX_DOMAIN:
            raise ParameterError(
                f"subset_selection is for at most {MAX_DOMAIN} values, not {size}; "
                "use one_bit_hadamard or hadamard_response"
            )
        #: d, the size of the subsets.
        self.subset = subset_size(size, self.epsilon)
        #: A word below it leaves the user's own value out.
        self.threshold = share_threshold(self.epsilon, self.subset, size - self.subset)
        own = Fraction(WORD - self.threshold, WORD)
        self.null = (own * (self.subset - 1) + (1 - own) * self.subset) / (size - 1)
        self.gain = own - self.null
        self._width = index_bytes(size)
        #: Whether a message is a bitmap.
        self.bitmap = (size + 7) // 8 <= self.subset * self._width

    @property
    def epsilon_effective(self) -> float:
        """Log of the odds of a subset with the value to one without; never above epsilon."""
        odds = Fraction(WORD - self.threshold, self.threshold)
        return epsilon_of(odds * (self.domain.size - self.subset) / self.subset)

    @property
    def bits_per_report(self) -> int:
        """``ceil(log2 (k choose d))``: the least that tells all subsets apart."""
        size, rest = self.domain.size, self.domain.size - self.subset
        if size <= 1 << 12:
            return (math.comb(size, self.subset) - 1).bit_length()
        log = math.lgamma(size + 1) - math.lgamma(self.subset + 1) - math.lgamma(rest + 1)
        return math.ceil(log / math.log(2))

    @property
    def state_shape(self) -> tuple[int, ...]:
        """(k,)."""
        return (self.domain.size,)

    @property
    def payload_bytes(self) -> int:
        """Bytes of a message."""
        return (self.domain.size + 7) // 8 if self.bitmap else self.subset * self._width

    def randomize(self, values: Array, columns: Array, coins: Coins) -> Array:
        """uint8[n, payload_bytes]: the subsets. See :meth:`FrequencyOracle.randomize`.

        Word 0 decides whether the own value is in. The others are the first distinct
        values of a sequence that is uniform over the k - 1 other values, which is a
        uniform subset, exactly.
        """
        values = checked_values(values, columns, self.domain.size)
        rows = np.empty((values.size, self.payload_bytes), dtype=np.uint8)
        cost = 16 * self.subset + (self.domain.size if self.bitmap else 0)
        for part in chunks(values.size, cost):
            some, their = values[part], coins.take(part)
            words = their.words(some.size, inputs=some)[:, 0]
            rows[part] = self._pack(self._subsets(some, words < self.threshold, their))
        return rows

    def _subsets(self, values: Array, left_out: Array, coins: Coins) -> Array:
        """int64[n, d]: sorted subsets."""
        chosen = np.empty((values.size, self.subset), dtype=np.int64)
        for out, wanted in ((True, self.subset), (False, self.subset - 1)):
            rows = np.flatnonzero(left_out == out)
            if not rows.size:
                continue
            own = values[rows, None]
            found = self._distinct(wanted, values[rows], coins.take(rows))
            found += found >= own
            if not out:
                found = np.sort(np.concatenate([found, own], axis=1), axis=1)
            chosen[rows] = found
        return chosen

    def _distinct(self, wanted: int, values: Array, coins: Coins) -> Array:
        """int64[n, wanted]: for each user that many different numbers below k - 1, sorted."""
        others = self.domain.size - 1
        found = np.empty((values.size, wanted), dtype=np.int64)
        if not wanted:
            return found
        lane: Any = np.uint16 if others <= _SHORT_LANES else np.uint32
        span = 1 << (8 * np.dtype(lane).itemsize)
        # Draws until so many are different, collecting coupons: the mean and 5 deviations.
        rest = 1 - (wanted - 0.5) / others
        mean, variance = -others * math.log(rest), others * (1 / rest - 1 + math.log(rest))
        share = (span - span % others) / span
        lanes = 8 + math.ceil(mean / share + 5 * math.sqrt(variance + mean * (1 - share)))
        lanes = max(lanes, wanted)
        rows = np.arange(values.size)
        while rows.size:
            drawn = _lanes(coins.take(rows), values[rows], lanes, lane)
            done, subsets = _first_distinct(drawn, others, wanted)
            found[rows[done]] = subsets
            # Starting over with more draws keeps the subset uniform: whether there were
            # enough does not depend on which values they were. A keyed sequence goes on.
            rows, lanes = rows[~done], 2 * lanes
        return found

    def _pack(self, subsets: Array) -> Array:
        if not self.bitmap:
            return pack_indices(subsets, self._width).reshape(len(subsets), -1)
        members = np.zeros((len(subsets), self.domain.size), dtype=np.uint8)
        np.put_along_axis(members, subsets, 1, axis=1)
        return pack_bits(members)

    def count(self, columns: Array, messages: Array) -> Array:
        """int64[k]: subsets that hold each value.

        Raises:
          ParameterError: if a message is no set of d values.
        """
        del columns
        rows = checked_rows(messages, self.payload_bytes)
        total = self.zero()
        for part in chunks(len(rows), 8 * self.payload_bytes):
            some = rows[part]
            if not self._valid_payload(some).all():
                raise ParameterError(
                    f"messages must be sets of {self.subset} values; "
                    "are they of another collection?"
                )
            if self.bitmap:
                total += sum_bits(some, self.domain.size)
            else:
                total += np.bincount(self._indices(some).ravel(), minlength=total.size)
        return total

    def _indices(self, rows: Array) -> Array:
        return unpack_indices(rows.reshape(len(rows), self.subset, self._width))

    def _supports(self, counts: Array) -> tuple[Array, int]:
        counts = checked_counts(counts, self.state_shape)
        n, rest = divmod(int(counts.sum()), self.subset)
        if rest or (counts > n).any():
            raise ParameterError(f"counts must be of sets of {self.subset} different values")
        return counts, n

    def _to_payload(self, messages: Array) -> Array:
        return checked_rows(messages, self.payload_bytes)

    def _from_payload(self, payload: Array) -> Array:
        return payload

    def _valid_payload(self, payload: Array) -> Array:
        if self.bitmap:
            held = np.bitwise_count(payload).sum(axis=1, dtype=np.int64)
            return np.asarray(spare_bits_clear(payload, self.domain.size) & (held == self.subset))
        indices = self._indices(payload)
        rising = (np.diff(indices, axis=1) > 0).all(axis=1)
        return np.asarray(rising & (indices[:, -1] < self.domain.size))

    def channel(self) -> tuple[list[tuple[int, ...]], list[list[Fraction]]]:
        """The exact probabilities of every subset, for domains of at most 16 values.

        Returns:
          The subsets, each sorted, and a row for each value.

        Raises:
          ParameterError: if the domain is larger.
        """
        size = self.domain.size
        check_channel_size(size, CHANNEL_LIMIT)
        out = Fraction(self.threshold, WORD)
        with_own = (1 - out) / math.comb(size - 1, self.subset - 1)
        without = out / math.comb(size - 1, self.subset)
        subsets = list(combinations(range(size), self.subset))
        rows = [[with_own if x in subset else without for subset in subsets] for x in range(size)]
        return subsets, rows


def _lanes(coins: Coins, values: Array, lanes: int, lane: Any) -> Array:
    """lane[n, >= lanes]: the users' sequences of draws, from PRF blocks 1, 2, 3, ..."""
    size = np.dtype(lane).itemsize
    blocks = -(-lanes * size // 16)
    n = values.size
    words = coins.take(np.repeat(np.arange(n), blocks)).words(
        n * blocks, inputs=np.repeat(values, blocks), block=np.tile(np.arange(1, blocks + 1), n)
    )
    return words.astype("<u8", copy=False).reshape(n, -1).view(lane)


def _first_distinct(drawn: Array, others: int, wanted: int) -> tuple[Array, Array]:
    """The first ``wanted`` different numbers below ``others`` of each sequence.

    Args:
      drawn: uint16[n, m] or uint32[n, m], uniform; each gives one number, or is rejected.
      others: at most 2**13, or 2**31.
      wanted: how many, at most m.

    Returns:
      bool[n], whether there were enough, and int64[enough, wanted], sorted.
    """
    n, m = drawn.shape
    shift = m.bit_length()
    bits = 8 * drawn.itemsize
    wide = np.uint32 if bits == 16 and others.bit_length() + shift <= 32 else np.uint64
    # The number is the high half of a product. Its low half is rejected where it is one of
    # the few that would give some numbers one draw more than others (D. Lemire, 2019).
    keys = drawn.astype(wide)
    keys *= wide(others)
    rejected = keys.astype(drawn.dtype) < (1 << bits) % others
    keys >>= wide(bits)
    np.copyto(keys, wide(others), where=rejected)
    # Number and place in one word: sorted, the first of each number is its first draw.
    keys <<= wide(shift)
    keys |= np.arange(m, dtype=wide)
    keys.sort(axis=1)
    numbers = keys >> wide(shift)
    first = np.empty((n, m), dtype=np.bool_)
    first[:, 0] = True
    np.not_equal(numbers[:, 1:], numbers[:, :-1], out=first[:, 1:])
    first &= numbers < others
    # Where each new number is drawn; repeated ones are put last.
    keys &= wide((1 << shift) - 1)
    np.copyto(keys, wide(m), where=~first)
    places = keys.astype(np.uint16 if m < 1 << 16 else np.uint32)
    last = np.partition(places, wanted - 1, axis=1)[:, wanted - 1]
    done = last < m
    if m > wanted:
        first &= places <= last[:, None]
        first &= done[:, None]
    return done, numbers[first].reshape(-1, wanted).astype(np.int64)
