"""The bounds of Acharya and Sun (2019) as numbers, and exact expected errors to hold against.

All take ``k`` (the size of the domain), ``n`` (users) and ``epsilon``; ``c`` stands for
``(e**epsilon + 1) / (e**epsilon - 1)``. Equations are those of the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from .errors import ParameterError
from .hadamard import fwht
from .one_bit import OneBitHadamard
from .oracle import check_epsilon

Array = np.ndarray[Any, Any]


class HasVariance(Protocol):
    """An oracle that states the variance of a raw value at a frequency."""

    def variance(self, n: int, frequency: float = 0.0) -> float:
        """See :meth:`~hadabeam.mechanisms.support.SupportOracle.variance`."""
        ...


def noise_factor(epsilon: float) -> float:
    """``c = (e**epsilon + 1) / (e**epsilon - 1)``."""
    return 1.0 / math.tanh(check_epsilon(epsilon) / 2.0)


def _check(k: int, n: int) -> None:
    if k < 2 or n < 1:
        raise ParameterError("the bounds are for k >= 2 values and n >= 1 users")


def theorem_1_branches(k: int, n: int, epsilon: float) -> tuple[float, float]:
    """Both bounds of Theorem 1 on ``E ||p_hat - p||_2**2``.

    ``2 k c**2 / n`` and ``8 c sqrt(log k / n)``.

    The first holds for the raw estimate too, the second for its projection only. The
    proof of the second has ``log k`` where the maximum of 2k sub-Gaussian variables gives
    ``log 2k``; with the proxy that the scheme really has, ``c**2 / n``, the stated
    constant holds.
    """
    _check(k, n)
    c = noise_factor(epsilon)
    return 2.0 * k * c * c / n, 8.0 * c * math.sqrt(math.log(k) / n)


def theorem_1(k: int, n: int, epsilon: float) -> float:
    """Theorem 1: ``E ||p_hat - p||_2**2 <= min(2 k c**2 / n, 8 c sqrt(log k / n))``, n >= K."""
    return min(theorem_1_branches(k, n, epsilon))


def corollary_1(k: int, n: int, epsilon: float) -> float:
    """Corollary 1: ``E ||p_hat - p||_1 <= sqrt(2 k**2 c**2 / n)``, n >= K."""
    _check(k, n)
    return math.sqrt(2.0 / n) * k * noise_factor(epsilon)


def theorem_3(k: int, n: int, epsilon: float) -> float:
    """Theorem 3, equation 21: ``E max_x |p_hat(x) - N_x / n| <= 4 c sqrt(log k / n)``.

    For Hadamard response and any data set. It holds for columns assigned by a key as
    well, if the data set was chosen without knowing the key.
    """
    _check(k, n)
    return 4.0 * noise_factor(epsilon) * math.sqrt(math.log(k) / n)


def theorem_4(bits: int) -> float:
    """Theorem 4: ``1 / (2**(l + 2) + 4)``.

    For every private-coin scheme of l bits, ``l < log2 k - 2``, a data set of
    ``n > 12 (2**l + 1)**2`` users exists on which the expected l-infinity error is at
    least this, whatever n.
    """
    if bits < 1:
        raise ParameterError("messages have at least one bit")
    return 1.0 / (4 * (1 << bits) + 4)


def expected_squared_l2(oracle: HasVariance, n: int, frequencies: Array) -> float:
    """``E ||raw - p||_2**2`` of n users drawn from p: the sum of the exact variances.

    Exact for the linear estimates: all oracles but the ratio forms, where it is the
    large-sample value.

    Args:
      oracle: an oracle that states its variance.
      n: users.
      frequencies: float64[k], p.
    """
    if isinstance(oracle, OneBitHadamard) and oracle.published:
        return published_squared_l2(oracle, n, frequencies)
    variance = np.vectorize(lambda f: oracle.variance(n, f), otypes=[np.float64])
    distinct, times = np.unique(frequencies, return_counts=True)
    return float(np.sum(variance(distinct) * times))


def published_squared_l2(oracle: OneBitHadamard, n: int, frequencies: Array) -> float:
    """``E ||raw - p||_2**2`` of the published scheme, users in columns j mod K, n >= K.

    ``k / K**2 * sum_y (c**2 - T[y]**2) / n_y``, T the transform of p and n_y the users in
    column y. With K dividing n this is ``k (c**2 - sum p**2) / n``, by Parseval.
    """
    order, size = oracle.order, oracle.domain.size
    if n < order:
        raise ParameterError(f"the published scheme needs at least {order} users")
    padded = np.zeros(order)
    padded[:size] = frequencies
    reports = np.bincount(np.arange(order), minlength=order) * (n // order)
    reports[: n % order] += 1
    gaps = oracle.factor**2 - fwht(padded) ** 2
    return float(size / order**2 * np.sum(gaps / reports))


def expected_largest(count: int) -> float:
    """``E max |Z_i|`` of so many independent standard normal variables.

    ``integral of 1 - erf(t / sqrt 2)**count``, by the trapezoidal rule.
    """
    if count < 1:
        raise ParameterError("the largest of how many?")
    points = np.linspace(0.0, 12.0, 4801)
    erf: Callable[[float], float] = math.erf
    below = np.array([erf(t / math.sqrt(2.0)) for t in points.tolist()])
    # log1p of the tail keeps its digits where below is nearly one.
    tail = np.array([math.erfc(t / math.sqrt(2.0)) for t in points.tolist()])
    with np.errstate(divide="ignore"):
        log = np.where(below < 0.5, np.log(below), np.log1p(-np.minimum(tail, 1.0)))
    heights = -np.expm1(count * log)
    return float(np.sum((heights[1:] + heights[:-1]) / 2.0) * (points[1] - points[0]))
