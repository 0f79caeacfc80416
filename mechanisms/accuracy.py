"""What accuracy to expect of an oracle before anything is collected."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .errors import ParameterError
from .estimate import DETECTION_LEVEL, FrequencyEstimate
from .law import draw_counts
from .one_bit import OneBitHadamard
from .oracle import FrequencyOracle
from .public_coin import PublicCoinRandomizedResponse
from .randomized_response import RandomizedResponse
from .rappor import Rappor
from .support import SupportOracle
from .tails import binomial_tail, critical_count, exact_tails, upper_quantile

Array = np.ndarray[Any, Any]

#: Values that the draws of one expectation hold at least: more for a small domain.
_VALUES = 20_000
_MOST_USERS = 2**60


class ExpectedErrors(NamedTuple):
    """Expected distances of post-processed frequencies from the distribution.

    Attributes:
      l1: ``E sum |f - p|``.
      l2: ``sqrt(E sum (f - p)**2)``.
      l_infinity: ``E max |f - p|``.
    """

    l1: float
    l2: float
    l_infinity: float


#: What ``users_needed`` can be asked for.
MEASURES = ("l1", "l2", "l_infinity", "detectable")


def variance(oracle: FrequencyOracle, n: int, frequency: float = 0.0) -> float:
    """The variance of a raw value at a frequency; see the oracle's own method."""
    if not isinstance(oracle, (SupportOracle, OneBitHadamard, PublicCoinRandomizedResponse)):
        raise ParameterError(f"the variance of {oracle.name} is not known")
    return oracle.variance(n, frequency)


def expected_errors(
    oracle: FrequencyOracle, n: int, truth: Array, post: str = "simplex", seed: int = 0
) -> ExpectedErrors:
    """Errors to expect of n users drawn from a distribution.

    The mean over some seeded draws of the raw estimate. For randomized response and RAPPOR
    they follow the exact law of the counts; for the others raw values are drawn as
    independent normal variables with the oracle's exact variances, which leaves their slight
    correlations out (``simulate`` does not).

    Args:
      oracle: the mechanism.
      n: users, at least 1.
      truth: float64[k], the distribution.
      post: the post-processing.
      seed: of the draws; the same seed gives the same numbers.
    """
    if n < 1:
        raise ParameterError("errors are expected of at least one user")
    repeats = max(2, min(50, _VALUES // truth.size))
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    spread = _standard_errors(oracle, n, truth)
    found = []
    for _ in range(repeats):
        estimate = _draw(oracle, n, truth, spread, post, generator)
        gaps = np.abs(estimate.frequencies - truth)
        found.append((gaps.sum(), np.sum(gaps * gaps), gaps.max()))
    l1, squared, largest = np.mean(found, axis=0)
    return ExpectedErrors(float(l1), math.sqrt(float(squared)), float(largest))


def _standard_errors(oracle: FrequencyOracle, n: int, truth: Array) -> Array:
    distinct, where = np.unique(truth, return_inverse=True)
    if distinct.size > 4096:  # The variance is smooth in the frequency: interpolate.
        points = np.linspace(0.0, float(distinct[-1]), 513)
        errors = np.sqrt([variance(oracle, n, float(f)) for f in points])
        return np.asarray(np.interp(truth, points, errors))
    return np.sqrt([variance(oracle, n, float(f)) for f in distinct])[where]


def _draw(
    oracle: FrequencyOracle,
    n: int,
    truth: Array,
    spread: Array,
    post: str,
    generator: np.random.Generator,
) -> FrequencyEstimate:
    if isinstance(oracle, (RandomizedResponse, Rappor)):
        users = generator.multinomial(n, truth)
        return oracle.estimate(draw_counts(oracle, users, generator), post)
    if isinstance(oracle, PublicCoinRandomizedResponse):
        reports = generator.multinomial(n, np.full(truth.size, 1 / truth.size))
        ones = generator.binomial(reports, oracle.answer_probability(truth))
        return oracle.estimate(np.stack([ones, reports]), post)
    return FrequencyEstimate(
        raw=truth + spread * generator.standard_normal(truth.size),
        standard_error=spread.copy(),
        null_standard_error=float(np.sqrt(variance(oracle, n))),
        n=n,
        epsilon_effective=oracle.epsilon_effective,
        post=post,
    )


def detectable_frequency(oracle: FrequencyOracle, n: int, power: float = 0.9) -> float:
    """The least frequency that ``detected`` finds with probability ``power``.

    At the familywise level .05 of
    :attr:`~hadabeam.mechanisms.estimate.FrequencyEstimate.detected`, with exact binomial
    tails where the estimate has them.

    Returns:
      The frequency; infinity if even a value that everybody has is found less often.
    """
    if n < 1:
        return math.inf
    alpha = DETECTION_LEVEL / oracle.domain.size
    trials, null, gain = _support(oracle, n)
    if exact_tails(trials, null, gain) is not None:
        critical = critical_count(alpha, trials, null)

        def found(frequency: float) -> bool:
            mean = min(null + gain * frequency, 1.0)
            if mean >= 1.0:
                return critical <= trials
            return binomial_tail(critical, trials, mean) >= power
    else:
        threshold = upper_quantile(alpha) * math.sqrt(variance(oracle, n))
        margin = upper_quantile(1.0 - power)

        def found(frequency: float) -> bool:
            return frequency - margin * math.sqrt(variance(oracle, n, frequency)) >= threshold

    if not found(1.0):
        return math.inf
    low, high = 0.0, 1.0
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high


def _support(oracle: FrequencyOracle, n: int) -> tuple[int, float, float]:
    """Of an absent value: reports that can support it, their probability, and the gain."""
    if isinstance(oracle, SupportOracle):
        return n, float(oracle.null), float(oracle.gain)
    if isinstance(oracle, PublicCoinRandomizedResponse):
        null, own = oracle.answer_probability(np.array([0.0, 1.0])).tolist()
        return n // oracle.order, null, own - null
    if isinstance(oracle, OneBitHadamard):
        null, gain = oracle._support()
        return n, float(null), float(gain)
    raise ParameterError(f"the supports of {oracle.name} are not known")


def users_needed(
    oracle: FrequencyOracle,
    truth: Array,
    measure: str,
    error: float,
    post: str = "simplex",
) -> int:
    """The users from which on an error is at most what is wanted, to three digits.

    Expected errors are means of some draws, so that the number is good to a few per cent.

    Args:
      oracle: the mechanism.
      truth: float64[k], the distribution to expect.
      measure: ``l1``, ``l2`` or ``l_infinity`` of :func:`expected_errors`, or ``detectable``,
        the frequency of :func:`detectable_frequency`.
      error: what is wanted of it, above 0.
      post: the post-processing.

    Raises:
      ParameterError: if the measure is unknown, or the error is not positive, or so
        small that 2**60 users would not do.
    """
    if measure not in MEASURES:
        raise ParameterError(f"measure must be one of {', '.join(MEASURES)}")
    if not (math.isfinite(error) and error > 0):
        raise ParameterError("the wanted error must be a number above 0, such as 0.01")

    def good(n: int) -> bool:
        if measure == "detectable":
            return detectable_frequency(oracle, n) <= error
        return float(getattr(expected_errors(oracle, n, truth, post), measure)) <= error

    high = 1
    while not good(high):
        high *= 8
        if high > _MOST_USERS:
            raise ParameterError(f"no number of users gives so small an error with {oracle.name}")
    low = high // 8
    while high - low > max(1, high // 100):
        # The geometric mean, but never an end again.
        middle = max(low + 1, math.isqrt(low * high))
        low, high = (low, middle) if good(middle) else (middle, high)
    unit = int("1" + "0" * max(0, len(str(high)) - 3))
    return -(-high // unit) * unit
