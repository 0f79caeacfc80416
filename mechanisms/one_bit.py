"""One bit per user: the Hadamard scheme of Acharya and Sun (2019), Section 2.

Each user has one column y of the Hadamard matrix and sends one bit, which is 1 with
probability q where ``H[value, y] = +1`` and with probability 1 - q elsewhere. The
column's share of ones estimates one entry of the transform of the frequencies.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from .coins import Coins, debias_factor, epsilon_of, flip_threshold, odds, truth_probability
from .columns import RATIO_LOAD, assign_columns, check_columns, count_bits, whole_numbers
from .domain import Domain
from .errors import InputError, ParameterError
from .estimate import FrequencyEstimate, check_post
from .hadamard import fwht, hadamard_bits, least_power_of_two
from .oracle import FrequencyOracle
from .prf import Prf
from .tails import exact_tails

Array = np.ndarray[Any, Any]

#: The exact channel is written out for domains up to this size.
CHANNEL_LIMIT = 64


class OneBitHadamard(FrequencyOracle):
    """The one-bit oracle, with columns assigned at random (by key) from ``1..K-1``.

    K is the least power of two that is at least k. Column 0 is all +1, would tell
    nothing, and is not used: ``M = K - 1`` usable columns and one known entry of the
    transform. The state is int64[2, K]: ones and reports of each column.

    Args:
      domain: the k values (public).
      epsilon: the privacy parameter (public).
      collection: the name of the collection (public).
      version: its version, from 1 up (public).

    Raises:
      ParameterError: if a parameter is wrong.
    """

    name: ClassVar[str] = "one_bit_hadamard"

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
        self.published = False
        self._layout()

    @classmethod
    def as_published(
        cls,
        domain: Domain,
        epsilon: float,
        *,
        collection: str = "default",
        version: int = 1,
    ) -> OneBitHadamard:
        """The scheme exactly as in the paper, to reproduce its results.

        All K columns are used, ``K = 2**ceil(log2(k + 1))``, user j is in column j mod K
        (:meth:`assign_sequential`), and only the ratio form estimates. Who can place
        values by position defeats it (Theorem 4); prefer the default.
        """
        oracle = cls(domain, epsilon, collection=collection, version=version)
        oracle.published = True
        oracle._layout()
        return oracle

    def _layout(self) -> None:
        size = self.domain.size
        #: K, the order of the Hadamard matrix.
        self.order = least_power_of_two(size + 1 if self.published else size)
        #: The first usable column, and the number of known entries of the transform.
        self.known = 0 if self.published else 1
        #: M, the number of usable columns.
        self.usable = self.order - self.known
        #: c = 1 / (2 q - 1).
        self.factor = debias_factor(self.threshold)

    @property
    def truth(self) -> Fraction:
        """q, the exact probability that a bit is the true one."""
        return truth_probability(self.threshold)

    def parameters(self) -> dict[str, Any]:
        """See :meth:`FrequencyOracle.parameters`."""
        layout = "sequential" if self.published else "assigned"
        return {**super().parameters(), "columns": layout}

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
        """(2, K)."""
        return (2, self.order)

    @property
    def columns(self) -> int:
        """K."""
        return self.order

    def assign(self, users: Array, key: Prf | None) -> Array:
        """``1 + PRF(key; "column", collection; user) mod (K - 1)``, int64[n].

        The first 64 bits of the PRF are used. With key None columns come from the operating
        system. See :meth:`FrequencyOracle.assign`.

        Raises:
          ParameterError: for the published scheme, whose columns follow the users'
            positions.
        """
        if self.published:
            raise ParameterError(
                "the published scheme assigns columns by position; use assign_sequential(start, n)"
            )
        return assign_columns(users, key, self.collection_id, self.known, self.usable)

    def assign_sequential(self, start: int, n: int) -> Array:
        """Column j mod K for the users number ``start`` to ``start + n - 1``, int64[n].

        Raises:
          ParameterError: if the columns are assigned at random, or a number is negative.
        """
        if not self.published:
            raise ParameterError(
                "columns by position are for OneBitHadamard.as_published; use assign(users, key)"
            )
        if start < 0 or n < 0:
            raise ParameterError("start and n must not be negative")
        return np.arange(start, start + n, dtype=np.int64) & (self.order - 1)

    def randomize(self, values: Array, columns: Array, coins: Coins) -> Array:
        """uint8[n]: the bits. See :meth:`FrequencyOracle.randomize`."""
        values = whole_numbers(values, "values")
        columns = check_columns(columns, self.known, self.order)
        if values.shape != columns.shape:
            raise ParameterError("randomize needs one column for each value")
        if values.size == 0:
            return np.zeros(0, dtype=np.uint8)
        if values.min() < 0 or values.max() >= self.domain.size:
            raise ParameterError(
                f"values must be indices from 0 to {self.domain.size - 1}; replace unknown values "
                "by other, or drop them, first"
            )
        words = coins.words(values.size)
        truth = hadamard_bits(
            values.astype(np.int64, copy=False), columns.astype(np.int64, copy=False)
        )
        word = np.where(truth.view(np.bool_), words[:, 1], words[:, 0])
        return np.asarray(truth ^ (word < np.uint64(self.threshold)).view(np.uint8))

    def count(self, columns: Array, messages: Array) -> Array:
        """Ones and reports of each column, int64[2, K]. See :func:`.columns.count_bits`.

        Raises:
          ParameterError: if a column or a bit is out of range.
        """
        return count_bits(columns, messages, self.known, self.order)

    def reports(self, counts: Array) -> int:
        """n, the sum of the second row."""
        return int(self._checked(counts)[1].sum())

    def empty_columns(self, counts: Array) -> int:
        """How many of the M usable columns nobody reported in."""
        return int(np.count_nonzero(self._checked(counts)[1, self.known :] == 0))

    def valid(self, column: Array, bit: Array, payload: Array | None) -> Array:
        """bool[n]: usable columns and bits 0 or 1. See :meth:`FrequencyOracle.valid`."""
        del payload
        return (column >= self.known) & (column < self.order) & (bit <= 1)

    def _checked(self, counts: Array) -> Array:
        if not isinstance(counts, np.ndarray) or counts.dtype.kind not in "iu":
            raise ParameterError("counts must be an array of whole numbers")
        if counts.shape != self.state_shape:
            raise ParameterError(
                f"counts must have the shape {self.state_shape}, not {counts.shape}; "
                "are they of another collection?"
            )
        counts = counts.astype(np.int64, copy=False)
        ones, reports = counts
        if (ones < 0).any() or (ones > reports).any():
            raise ParameterError("counts must have 0 <= ones <= reports in every column")
        if self.known and reports[0]:
            raise ParameterError("counts must have no reports in column 0, which nobody is in")
        return counts

    def estimate(self, counts: Array, post: str = "simplex") -> FrequencyEstimate:
        """Frequencies, in the sum form or the ratio form.

        With ``n`` reports on M usable columns the sum form serves while ``n < 32 M``, or where a
        column is empty, and the ratio form from there on. See
        :meth:`FrequencyOracle.estimate`.

        Raises:
          ParameterError: if the counts or the post-processing are wrong.
          InputError: if the published scheme has fewer than K reports, or a column without any.
        """
        check_post(post)
        ones, reports = self._checked(counts)
        n = int(reports.sum())
        signs = 2 * ones - reports
        if self.published:
            if n < self.order or not reports.all():
                raise InputError(
                    f"the published scheme needs a report in each of its {self.order} columns, "
                    f"and has {n} in {np.count_nonzero(reports)}; collect more, or use the default"
                )
            return self._ratio_form(signs, reports, n, post)
        if n == 0:
            size = self.domain.size
            return self._result(np.zeros(size), np.full(size, np.inf), np.inf, 0, post)
        if n < RATIO_LOAD * self.usable or not reports[1:].all():
            return self._sum_form(signs, n, post)
        return self._ratio_form(signs, reports, n, post)

    def _sum_form(self, signs: Array, n: int, post: str) -> FrequencyEstimate:
        """``T[y] = c * signs[y] * M / n``: unbiased, since columns are assigned at random."""
        scale = self.factor * self.usable / self.order
        # The transform is taken of whole numbers: exact, whatever the order of additions.
        sums = fwht(signs, overwrite=True)[: self.domain.size]
        raw = sums * (scale / n) + self.known / self.order
        centred = np.clip(raw, 0.0, 1.0) - self.known / self.order
        error = np.sqrt(np.maximum(scale * scale - centred * centred, 0.0) / n)
        return self._result(raw, error, np.sqrt(self.variance(n)), n, post)

    def _ratio_form(self, signs: Array, reports: Array, n: int, post: str) -> FrequencyEstimate:
        """``T[y] = c * signs[y] / reports[y]``: each column by its own reports."""
        transform = np.zeros(self.order)
        transform[: self.known] = 1.0
        used = slice(self.known, None)
        inverse = 1.0 / reports[used]
        transform[used] = self.factor * signs[used] * inverse
        noise = self.factor**2
        weight = float(np.sum(1.0 - inverse))
        energy = float(np.sum(transform[used] ** 2 - noise * inverse))
        signal = min(max(energy / weight, 0.0), 1.0) if weight > 0 else 0.0
        error = float(np.sqrt(max(noise - signal, 0.0) * float(np.sum(inverse)))) / self.order
        raw = fwht(transform, overwrite=True)[: self.domain.size] / self.order
        return self._result(raw, np.full(raw.size, error), error, n, post)

    def _result(
        self, raw: Array, error: Array, null_error: float, n: int, post: str
    ) -> FrequencyEstimate:
        null, gain = self._support()
        # With one usable column both forms are the same linear function of a count.
        binomial = not self.published and (n < RATIO_LOAD * self.usable or self.usable == 1)
        return FrequencyEstimate(
            raw=raw,
            standard_error=error,
            null_standard_error=float(null_error),
            n=n,
            epsilon_effective=self.epsilon_effective,
            post=post,
            domain=self.domain,
            tails=exact_tails(n, float(null), float(gain)) if binomial else None,
        )

    def _support(self) -> tuple[Fraction, Fraction]:
        """Of a report's bit to agree with a value's row: the probability if the user has
        another value, and how much larger it is if they have this one."""
        q = self.truth
        same = Fraction(self.order // 2 - self.known, self.usable)
        null = q * same + (1 - q) * (1 - same)
        return null, q - null

    def variance(self, n: int, frequency: float = 0.0) -> float:
        """The variance of a raw value at a frequency, with n reports.

        Columns assigned at random, sum form:
        ``((c M / K)**2 - (frequency - d / K)**2) / n``. As published with n a
        multiple of K: ``(c**2 - frequency**2) / n``, where the other values are rare.
        """
        if n < 1:
            return float("inf")
        scale = self.factor * self.usable / self.order
        centred = frequency - self.known / self.order
        return max(scale * scale - centred * centred, 0.0) / n

    def channel(self) -> tuple[list[tuple[int, int]], list[list[Fraction]]]:
        """The exact probabilities of every report, for domains of at most 64 values.

        Returns:
          The outputs (column, bit), and a row for each value: the probability of each
          output, the column being uniform on the usable ones.

        Raises:
          ParameterError: if the domain is larger.
        """
        if self.domain.size > CHANNEL_LIMIT:
            raise ParameterError(f"the channel is written out for k <= {CHANNEL_LIMIT}")
        q = self.truth
        outputs = [(y, bit) for y in range(self.known, self.order) for bit in (0, 1)]
        share = Fraction(1, self.usable)
        rows = [
            [
                share * (q if bit == int(hadamard_bits(np.int64(x), np.int64(y))) else 1 - q)
                for y, bit in outputs
            ]
            for x in range(self.domain.size)
        ]
        return outputs, rows
