"""One bit with public randomness: Lemma 2 of Acharya and Sun (2019), by Bassily and Smith (2015).

Each user has a public output y of a scheme, uniform over all of them, and sends one bit:
1 with probability q where the scheme gives y its larger probability under the user's
value, and with 1 - q elsewhere. The public outputs are the users' columns, assigned by
key or by the operating system. The textbook conversion, ``Pr[1] = W(x, y) / (2 r(y))``, is
no probability for randomized response over many values, and leaks through its zeros.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from .coins import Coins, debias_factor, epsilon_of, flip_threshold, odds, truth_probability
from .columns import RATIO_LOAD, assign_columns, check_columns, count_bits
from .domain import Domain
from .errors import ParameterError
from .estimate import FrequencyEstimate, check_post
from .hadamard import fwht, hadamard_bits, least_power_of_two
from .oracle import FrequencyOracle
from .prf import Prf
from .support import SupportOracle, check_channel_size, checked_counts, checked_values, chunks
from .tails import SMALL_COUNT, critical_count

Array = np.ndarray[Any, Any]

_SCRATCH = 64


class _PublicCoin(FrequencyOracle):
    """Columns, coins and counts of both conversions. The state is int64[2, outputs]."""

    #: Outputs of the scheme.
    order: int

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

    @abstractmethod
    def _likely(self, values: Array, columns: Array) -> Array:
        """uint8[n]: 1 where the column is one of the value's likelier outputs."""

    @property
    def epsilon_effective(self) -> float:
        """``log((2**64 - t) / t)``, rounded down; never above epsilon."""
        return epsilon_of(odds(self.threshold))

    @property
    def bits_per_report(self) -> int:
        """1: the receiver knows the column."""
        return 1

    @property
    def state_shape(self) -> tuple[int, ...]:
        """(2, outputs): ones, and reports."""
        return (2, self.order)

    @property
    def columns(self) -> int:
        """The number of outputs."""
        return self.order

    def assign(self, users: Array, key: Prf | None) -> Array:
        """``PRF(key; "column", collection; user) mod outputs``, int64[n].

        The first 64 bits of the PRF are used. With key None columns come from the operating
        system. See :meth:`FrequencyOracle.assign`.
        """
        return assign_columns(users, key, self.collection_id, 0, self.order)

    def randomize(self, values: Array, columns: Array, coins: Coins) -> Array:
        """uint8[n]: the bits. See :meth:`FrequencyOracle.randomize`."""
        values = checked_values(values, columns, self.domain.size)
        columns = check_columns(columns, 0, self.order)
        bits = np.empty(values.size, dtype=np.uint8)
        for part in chunks(values.size, _SCRATCH):
            truth = self._likely(values[part], columns[part])
            words = coins.take(part).words(truth.size)
            word = np.where(truth.view(np.bool_), words[:, 1], words[:, 0])
            bits[part] = truth ^ (word < np.uint64(self.threshold)).view(np.uint8)
        return bits

    def count(self, columns: Array, messages: Array) -> Array:
        """Ones and reports of each column, int64[2, outputs]. See :func:`.columns.count_bits`.

        Raises:
          ParameterError: if a column or a bit is out of range.
        """
        return count_bits(columns, messages, 0, self.order)

    def _checked(self, counts: Array) -> Array:
        counts = checked_counts(counts, self.state_shape)
        if (counts[0] > counts[1]).any():
            raise ParameterError("counts must have 0 <= ones <= reports in every column")
        return counts

    def empty_columns(self, counts: Array) -> int:
        """How many columns nobody reported in. See :meth:`FrequencyOracle.empty_columns`."""
        return int(np.count_nonzero(self._checked(counts)[1] == 0))

    def channel(self) -> tuple[list[tuple[int, int]], list[list[Fraction]]]:
        """The exact probabilities of every report, for domains of at most 64 values.

        Returns:
          The outputs (column, bit), and a row for each value, the column being uniform.

        Raises:
          ParameterError: if the domain is larger.
        """
        check_channel_size(self.domain.size)
        q = truth_probability(self.threshold)
        share = Fraction(1, self.order)
        outputs = [(y, bit) for y in range(self.order) for bit in (0, 1)]
        rows = []
        for x in range(self.domain.size):
            likely = self._likely(np.full(self.order, x), np.arange(self.order))
            rows.append([share * (q if bit == likely[y] else 1 - q) for y, bit in outputs])
        return outputs, rows


class PublicCoinHadamardResponse(_PublicCoin, SupportOracle):
    """``public_coin``: the one-bit conversion of Hadamard response.

    The scheme of :class:`~hadabeam.mechanisms.one_bit.OneBitHadamard` with value x on row
    ``x + 1`` and columns uniform on ``0..K-1``, K the least power of two above k. A report
    supports a value if its bit agrees with the value's row. Variance ``(c**2 - f**2) / n``.

    Args:
      domain: the k values (public).
      epsilon: the privacy parameter (public).
      collection: the name of the collection (public).
      version: its version, from 1 up (public).

    Raises:
      ParameterError: if a parameter is wrong.
    """

    name: ClassVar[str] = "public_coin"

    def __init__(
        self,
        domain: Domain,
        epsilon: float,
        *,
        collection: str = "default",
        version: int = 1,
    ) -> None:
        super().__init__(domain, epsilon, collection=collection, version=version)
        self.order = least_power_of_two(domain.size + 1)
        self.null = Fraction(1, 2)
        self.gain = truth_probability(self.threshold) - self.null

    def _likely(self, values: Array, columns: Array) -> Array:
        return hadamard_bits(values + 1, columns)

    def _supports(self, counts: Array) -> tuple[Array, int]:
        ones, reports = self._checked(counts)
        n = int(reports.sum())
        return (fwht(2 * ones - reports, overwrite=True)[1 : self.domain.size + 1] + n) // 2, n


class PublicCoinRandomizedResponse(_PublicCoin):
    """``public_coin_randomized_response``: the conversion of k-ary randomized response.

    A user has one of the k values as column, and answers "is mine y?" with a coin of
    epsilon. With n < 32 k reports, or an empty column, the sum form estimates,
    ``raw[y] = c k / n * (ones[y] - (1 - q) reports[y])``, unbiased since columns are
    random; from there on the ratio form, ``raw[y] = c (ones[y] / reports[y] - (1 - q))``.
    Only one report of k is about a value: variance near ``k c**2 q (1 - q) / n``. It is
    here to compare; prefer ``public_coin``.

    Args:
      domain: the k values (public).
      epsilon: the privacy parameter (public).
      collection: the name of the collection (public).
      version: its version, from 1 up (public).

    Raises:
      ParameterError: if a parameter is wrong.
    """

    name: ClassVar[str] = "public_coin_randomized_response"

    def __init__(
        self,
        domain: Domain,
        epsilon: float,
        *,
        collection: str = "default",
        version: int = 1,
    ) -> None:
        super().__init__(domain, epsilon, collection=collection, version=version)
        self.order = domain.size
        self._flip = float(1 - truth_probability(self.threshold))
        self._gain = float(2 * truth_probability(self.threshold) - 1)
        self._factor = debias_factor(self.threshold)

    def _likely(self, values: Array, columns: Array) -> Array:
        return np.asarray(values == columns).view(np.uint8)

    def reports(self, counts: Array) -> int:
        """n, the sum of the second row."""
        return int(self._checked(counts)[1].sum())

    def answer_probability(self, frequency: Array) -> Array:
        """``m = 1 - q + f (2 q - 1)``: how likely a report on a value of frequency f is 1."""
        return np.asarray(self._flip + self._gain * frequency)

    def variance(self, n: int, frequency: float = 0.0) -> float:
        """The variance of a raw value of the sum form at a frequency, with n reports (exact).

        ``(c**2 k (m (2 q - 1) + (1 - q)**2) - f**2) / n``, ``m = 1 - q + f (2 q - 1)``.
        """
        if n < 1:
            return float("inf")
        return float(self._spread(np.float64(frequency))) / n

    def _spread(self, frequency: Any) -> Any:
        """The variance of one report, of a frequency or an array of them."""
        mean = self._flip + self._gain * frequency
        square = mean * self._gain + self._flip**2
        return self._factor**2 * self.domain.size * square - frequency**2

    def estimate(self, counts: Array, post: str = "simplex") -> FrequencyEstimate:
        """Frequencies, in the sum form or the ratio form. See :meth:`FrequencyOracle.estimate`."""
        check_post(post)
        ones, reports = self._checked(counts)
        n, size = int(reports.sum()), self.domain.size
        null_error: float | Array = float("inf")
        tails: _ColumnTails | None = None
        if n == 0:
            raw, error = np.zeros(size), np.full(size, np.inf)
        elif n >= RATIO_LOAD * size and reports.all():
            raw = (ones / reports - self._flip) / self._gain
            mean = self._flip + self._gain * np.clip(raw, 0.0, 1.0)
            error = np.sqrt(mean * (1.0 - mean) / reports) / self._gain
            null_error = np.sqrt(self._flip * (1.0 - self._flip) / reports) / self._gain
            tails = _ColumnTails(reports, self._flip, self._gain, np.ones(size))
        else:
            raw = (ones - self._flip * reports) * (size / n / self._gain)
            error = np.sqrt(self._spread(np.clip(raw, 0.0, 1.0)) / n)
            null_error = float(np.sqrt(self.variance(n)))
            tails = _ColumnTails(reports, self._flip, self._gain, reports * (size / n))
        if tails is not None and self._flip * int(reports.min()) >= SMALL_COUNT:
            tails = None
        return FrequencyEstimate(
            raw=raw,
            standard_error=error,
            null_standard_error=null_error,
            n=n,
            epsilon_effective=self.epsilon_effective,
            post=post,
            domain=self.domain,
            tails=tails,
        )


@dataclass(frozen=True, eq=False)
class _ColumnTails:
    """Given the reports of each column, their ones are binomial.

    Attributes:
      reports: int64[k].
      null: a report's probability of 1 if its user has another value.
      gain: how much larger it is otherwise.
      scale: float64[k], raw over the ratio form's raw value.
    """

    reports: Array
    null: float
    gain: float
    scale: Array

    def threshold(self, alpha: float) -> Array:
        """float64[k]: half a count below each column's critical number of ones."""
        different, where = np.unique(self.reports, return_inverse=True)
        critical = [critical_count(alpha, int(n), self.null) - 0.5 if n else 0.5 for n in different]
        return self._raw(np.array(critical)[where])

    def _raw(self, ones: Array) -> Array:
        excess = ones - self.null * self.reports
        return np.asarray(excess / self.gain * self._per_report)

    @cached_property
    def _per_report(self) -> Array:
        """What one report more adds to ``gain * raw``."""
        return np.where(self.reports > 0, self.scale / np.maximum(self.reports, 1), 1.0)

    def interval(self, raw: Array, z: float) -> tuple[Array, Array]:
        """Score intervals (E. B. Wilson, 1927), as frequencies; widest for an empty column."""
        n = self.reports
        ones = np.clip(raw * self.gain / self._per_report + self.null * n, 0.0, n)
        spread = ones * (n - ones) / np.maximum(n, 1)
        half = z * np.sqrt(spread + z * z / 4) / (n + z * z)
        centre = (ones + z * z / 2) / (n + z * z)
        return (centre - half - self.null) / self.gain, (centre + half - self.null) / self.gain
