import math

import numpy as np
import pytest
import scipy.stats

from hadabeam.mechanisms.tails import (
    BinomialTails,
    binomial_probability,
    binomial_tail,
    critical_count,
    exact_tails,
    upper_quantile,
)

CASES = [
    (n, p)
    for n in (1, 2, 15, 16, 17, 100, 1999, 10**6, 10**9)
    for p in (1e-12, 1e-6, 0.001, 0.018, 0.3, 0.5, 0.9)
    if n * p < 3e6
]


@pytest.mark.parametrize("alpha", [0.5, 0.05, 1e-5, 0.05 / 2**30, 1e-300])
def test_upper_quantile(alpha):
    assert upper_quantile(alpha) == pytest.approx(scipy.stats.norm.isf(alpha), rel=1e-12, abs=1e-15)


def counts_around(n, p):
    mean, deviation = n * p, math.sqrt(n * p * (1 - p))
    steps = [-6.0, -3.0, -1.0, -0.1, 0.0, 0.1, 1.0, 3.0, 5.0, 8.0]
    counts = {round(mean + step * deviation) for step in steps} | {0, 1, 2, 5, n - 1, n}
    return sorted(count for count in counts if 0 <= count <= n)


@pytest.mark.parametrize(("n", "p"), CASES)
def test_probabilities_and_tails_agree_with_scipy(n, p):
    for count in counts_around(n, p):
        expected = scipy.stats.binom.pmf(count, n, p)
        if expected > 1e-250:
            assert binomial_probability(count, n, p) == pytest.approx(expected, rel=1e-9)
        expected = scipy.stats.binom.sf(count - 1, n, p)
        if expected > 1e-250:
            assert binomial_tail(count, n, p) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("n", "p"), [(10, 0.25), (40, 0.5), (200, 0.125), (1500, 0.5)])
def test_tails_agree_with_exact_sums(n, p):
    numerator = int(p * 8)
    weights = [math.comb(n, i) * numerator**i * (8 - numerator) ** (n - i) for i in range(n + 1)]
    for count in range(0, n + 1, max(1, n // 50)):
        exact = sum(weights[count:]) / 8**n
        if exact > 1e-290:
            assert binomial_tail(count, n, p) == pytest.approx(exact, rel=1e-12)


def test_tails_at_the_ends():
    assert binomial_tail(0, 10, 0.3) == binomial_tail(-5, 10, 0.3) == 1.0
    assert binomial_tail(11, 10, 0.3) == 0.0
    assert binomial_probability(11, 10, 0.3) == binomial_probability(-1, 10, 0.3) == 0.0
    assert binomial_tail(10, 10, 0.25) == pytest.approx(0.25**10)


@pytest.mark.parametrize(("n", "p"), [(1, 0.3), (50, 0.02), (1000, 0.02), (10**6, 1e-4)])
@pytest.mark.parametrize("alpha", [0.05, 5e-5, 5e-9])
def test_critical_count_is_the_least(n, p, alpha):
    count = critical_count(alpha, n, p)
    assert binomial_tail(count, n, p) <= alpha
    assert count == 0 or binomial_tail(count - 1, n, p) > alpha
    assert count == scipy.stats.binom.isf(alpha, n, p) + 1


def test_threshold_lies_between_two_counts():
    tails = BinomialTails(n=1000, null=0.02, gain=0.9)
    count = critical_count(5e-5, 1000, 0.02)
    raw = (np.arange(1001) / 1000 - 0.02) / 0.9
    assert np.flatnonzero(raw > tails.threshold(5e-5))[0] == count


def test_nothing_can_be_detected_with_one_report():
    tails = BinomialTails(n=1, null=0.3, gain=0.4)
    assert tails.threshold(0.01) > (1 - 0.3) / 0.4


@pytest.mark.parametrize("z", [1.0, 1.96, 4.0])
def test_score_interval_solves_its_equation(z):
    tails = BinomialTails(n=200, null=0.1, gain=0.5)
    raw = (np.array([0, 1, 20, 100, 200]) / 200 - 0.1) / 0.5
    for bound in tails.interval(raw, z):
        share = 0.1 + 0.5 * bound
        distance = np.abs(0.1 + 0.5 * raw - share)
        np.testing.assert_allclose(distance, z * np.sqrt(share * (1 - share) / 200), atol=1e-12)
    low, high = tails.interval(raw, z)
    assert (low <= raw + 1e-12).all()
    assert (raw <= high + 1e-12).all()
    assert (low[1:] < raw[1:]).all()
    assert (raw[:-1] < high[:-1]).all()


def test_exact_tails_where_counts_are_small():
    assert exact_tails(999, 1.0 - 1e-9, 1e-10) is not None
    assert exact_tails(2000, 0.5, 0.1) is None
    assert exact_tails(10**6, 9e-4, 0.1) == BinomialTails(10**6, 9e-4, 0.1)
    assert exact_tails(0, 0.5, 0.1) is None
