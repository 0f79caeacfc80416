"""Normal and binomial tails: thresholds and intervals for a value's raw frequency.

Where a value's supporting reports are few, a normal threshold at level .05/k finds
several values that nobody has. Then the count is taken for what it is, binomial.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]

#: From this many expected reports of an absent value on, the normal law serves.
SMALL_COUNT = 1000.0
_STEP = 4096


def upper_quantile(alpha: float) -> float:
    """The z that a standard normal variable exceeds with probability ``alpha``."""
    return -NormalDist().inv_cdf(alpha)


def _stirling_error(n: int) -> float:
    """``log(n!)`` less Stirling's formula (C. Loader, Fast and accurate binomials, 2000)."""
    if n <= 15:
        exact = math.log(math.factorial(n))
        return exact - ((n + 0.5) * math.log(n) - n + 0.5 * math.log(2 * math.pi) if n else 0.0)
    square = float(n) * n
    series = 1 / 1260 - (1 / 1680 - (1 / 1188) / square) / square
    return (1 / 12 - (1 / 360 - series / square) / square) / n


def _deviance(x: float, mean: float) -> float:
    """``x log(x / mean) + mean - x`` without cancellation where x is near the mean."""
    gap = (x - mean) / (x + mean)
    if abs(gap) >= 0.1:
        return x * math.log(x / mean) + mean - x
    # log(x / mean) = 2 atanh(gap), and the first term of its series is taken out exactly.
    total, term, power = (x - mean) * gap, 2 * x * gap, gap * gap
    for order in range(3, 100, 2):
        term *= power
        larger = total + term / order
        if larger == total:
            break
        total = larger
    return total


def binomial_probability(count: int, n: int, p: float) -> float:
    """``P(X = count)`` of X binomial(n, p), by Loader's saddle-point expansion."""
    if count < 0 or count > n:
        return 0.0
    if count == 0:
        return math.exp(n * math.log1p(-p))
    if count == n:
        return math.exp(n * math.log(p))
    exponent = (
        _stirling_error(n)
        - _stirling_error(count)
        - _stirling_error(n - count)
        - _deviance(count, n * p)
        - _deviance(n - count, n * (1 - p))
    )
    return math.exp(exponent) * math.sqrt(n / (2 * math.pi * count * (n - count)))


def _run(first: float, numerator: int, denominator: int, odds: float) -> float:
    """``first * (1 + r0 + r0 r1 + ...)``, ``r_j = (numerator - j)/(denominator + j) * odds``."""
    total, term, start = 0.0, first, 0
    while True:
        steps = np.arange(start, min(start + _STEP, numerator), dtype=np.float64)
        terms = term * np.cumprod((numerator - steps) / (denominator + steps) * odds)
        total += term if start == 0 else 0.0
        total += float(terms.sum())
        start += _STEP
        if start >= numerator or terms[-1] <= total * 1e-20:
            return total
        term = float(terms[-1])


def binomial_tail(count: int, n: int, p: float) -> float:
    """``P(X >= count)`` of X binomial(n, p), exact to some 13 digits for 0 < p < 1.

    The side of the mean that ``count`` lies on is summed, so that a small tail keeps
    its digits.
    """
    if count <= 0:
        return 1.0
    if count > n:
        return 0.0
    if count > n * p:
        first = binomial_probability(count, n, p)
        return _run(first, n - count, count + 1, p / (1 - p)) if count < n else first
    below = count - 1
    first = binomial_probability(below, n, p)
    lower = _run(first, below, n - below + 1, (1 - p) / p) if below > 0 else first
    return 1.0 - lower


def critical_count(alpha: float, n: int, p: float) -> int:
    """The least count whose upper tail is at most ``alpha``; n + 1 if there is none."""
    low, high = 0, n + 1  # The tail at n + 1 is 0.
    while low < high:
        middle = (low + high) // 2
        if binomial_tail(middle, n, p) <= alpha:
            high = middle
        else:
            low = middle + 1
    return low


class Tails(Protocol):
    """What an oracle knows about its raw values beyond a normal law."""

    def threshold(self, alpha: float) -> float | Array:
        """The raw value that one absent value exceeds with probability at most ``alpha``."""
        ...

    def interval(self, raw: Array, z: float) -> tuple[Array, Array]:
        """Bounds on the frequency for a two-sided level given as a normal quantile."""
        ...


@dataclass(frozen=True)
class BinomialTails:
    """A raw value that is a linear function of a binomial count.

    A value of frequency f is supported by a report with probability
    ``null + gain * f``, and ``raw = (count / n - null) / gain``.

    Attributes:
      n: reports.
      null: a report's probability to support a value that its user does not have.
      gain: how much larger it is for the user's own value, above 0.
    """

    n: int
    null: float
    gain: float

    def threshold(self, alpha: float) -> float:
        """Half a count below the least count with an upper tail of at most ``alpha``.

        Counts are whole, so a raw value exceeds it exactly when its count is critical.
        """
        count = critical_count(alpha, self.n, self.null) - 0.5
        return (count / self.n - self.null) / self.gain

    def interval(self, raw: Array, z: float) -> tuple[Array, Array]:
        """The score interval (E. B. Wilson, 1927) of the probability, as frequencies."""
        share = np.clip(self.null + self.gain * raw, 0.0, 1.0)
        weight = z * z / self.n
        centre = (share + weight / 2) / (1 + weight)
        half = np.sqrt(weight * (share * (1 - share) + weight / 4)) / (1 + weight)
        low = (centre - half - self.null) / self.gain
        high = (centre + half - self.null) / self.gain
        return low, high


def exact_tails(n: int, null: float, gain: float) -> BinomialTails | None:
    """:class:`BinomialTails` where an absent value expects 0 < n null < 1,000, else None."""
    if 0 < n * null < SMALL_COUNT:
        return BinomialTails(n, null, gain)
    return None
