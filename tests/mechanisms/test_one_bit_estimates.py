"""The one-bit oracle: both forms of the estimate, and its exact laws."""

import itertools
import math
import pickle

import numpy as np
import pytest
import scipy.linalg

from hadabeam.mechanisms import (
    Domain,
    InputError,
    OneBitHadamard,
    ParameterError,
)


def make(size, epsilon=1.0, published=False, **kwargs):
    domain = Domain([f"v{i}" for i in range(size)])
    maker = OneBitHadamard.as_published if published else OneBitHadamard
    return maker(domain, epsilon, **kwargs)


def exact(oracle):
    """q, c, d, M and K, straight from the definitions."""
    q = 1 - oracle.threshold / 2**64
    return q, 1 / (2 * q - 1), oracle.known, oracle.usable, oracle.order


def random_counts(oracle, n, seed=5):
    generator = np.random.default_rng(seed)
    columns = generator.integers(oracle.known, oracle.order, n)
    return oracle.count(columns, generator.integers(0, 2, n))


@pytest.mark.parametrize(("size", "n"), [(3, 1), (3, 50), (3, 95), (5, 200), (1000, 5000)])
def test_sum_form_is_its_formula(size, n):
    oracle = make(size)
    _, c, d, M, K = exact(oracle)
    counts = random_counts(oracle, n)
    T = c * (2 * counts[0] - counts[1]) * M / n
    T[0] = 1
    raw = (scipy.linalg.hadamard(K) @ T)[:size] / K
    estimate = oracle.estimate(counts)
    np.testing.assert_allclose(estimate.raw, raw, rtol=1e-12, atol=1e-12)
    variance = ((c * M / K) ** 2 - (np.clip(raw, 0, 1) - d / K) ** 2) / n
    np.testing.assert_allclose(estimate.standard_error, np.sqrt(variance), rtol=1e-9)
    assert estimate.null_standard_error**2 == pytest.approx(((c * M / K) ** 2 - K**-2.0) / n)
    assert estimate.n == n
    assert estimate.epsilon_effective == oracle.epsilon_effective
    # The tails tell the same story: raw is linear in the count of agreeing reports.
    agreeing = (n + (scipy.linalg.hadamard(K) @ (2 * counts[0] - counts[1]))[:size]) / 2
    tails = estimate.tails
    assert (tails is None) == (n >= 2000)  # From about 2,000 reports on, the normal law serves.
    if tails is not None:
        np.testing.assert_allclose((agreeing / n - tails.null) / tails.gain, raw, atol=1e-12)


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize(("size", "n"), [(3, 200), (5, 256), (2, 500), (100, 9000)])
def test_ratio_form_is_its_formula(size, n, published):
    oracle = make(size, published=published)
    _, c, d, _, K = exact(oracle)
    counts = random_counts(oracle, n)
    reports = counts[1, d:]
    T = np.ones(K)
    T[d:] = c * (2 * counts[0, d:] / reports - 1)
    raw = (scipy.linalg.hadamard(K) @ T)[:size] / K
    estimate = oracle.estimate(counts)
    np.testing.assert_allclose(estimate.raw, raw, rtol=1e-12, atol=1e-12)
    S = np.clip((T[d:] ** 2 - c**2 / reports).sum() / (1 - 1 / reports).sum(), 0, 1)
    variance = (c**2 - S) * (1 / reports).sum() / K**2
    np.testing.assert_allclose(estimate.standard_error, math.sqrt(variance), rtol=1e-9)
    if size > 2 or published:
        assert estimate.tails is None


def test_the_form_depends_on_n_and_m_only():
    oracle = make(3)  # M = 3: the ratio form from 96 reports on.
    lopsided = np.array([[0, 5, 1, 20], [0, 9, 2, 84]])
    for reports, ratio in ((84, False), (85, True)):
        counts = lopsided.copy()
        counts[1, 3] = reports
        n = counts[1].sum()
        _, c, _, M, _ = exact(oracle)
        signs = (2 * counts[0] - counts[1])[1:]
        T = c * signs / counts[1, 1:] if ratio else c * signs * M / n
        assert oracle.estimate(counts).raw[0] == pytest.approx((1 + T.sum()) / 4)


def test_an_empty_column_forces_the_sum_form():
    oracle = make(3)
    counts = np.array([[0, 500, 0, 300], [0, 1000, 0, 1000]])
    _, c, _, M, _ = exact(oracle)
    signs = (2 * counts[0] - counts[1])[1:]
    expected = (1 + (c * signs * M / 2000).sum()) / 4
    assert oracle.estimate(counts).raw[0] == pytest.approx(expected)
    assert oracle.empty_columns(counts) == 1


@pytest.mark.parametrize("n", [1, 31, 32, 1000])
def test_with_two_values_both_forms_are_randomized_response(n):
    oracle = make(2)
    q = exact(oracle)[0]
    ones = n // 3
    estimate = oracle.estimate(np.array([[0, ones], [0, n]]))
    share = (ones / n - (1 - q)) / (2 * q - 1)
    np.testing.assert_allclose(estimate.raw, [share, 1 - share], atol=1e-12)
    assert (estimate.tails is None) == (n * (1 - q) >= 1000)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("frequency", [0.0, 0.3, 1.0])
def test_variance_with_two_values_is_that_of_randomized_response(epsilon, frequency):
    oracle = make(2, epsilon)
    q = exact(oracle)[0]
    agree = frequency * q + (1 - frequency) * (1 - q)
    expected = agree * (1 - agree) / (2 * q - 1) ** 2 / 50
    assert oracle.variance(50, frequency) == pytest.approx(expected, rel=1e-9)
    # The published choice has K = 4 and pays more.
    assert make(2, epsilon, published=True).variance(50, frequency) >= expected


def test_default_gains_up_to_a_factor_of_four_at_two_values():
    for frequency in (0.0, 1.0):
        ratio = make(2, published=True).variance(9, frequency) / make(2).variance(9, frequency)
        assert 3.6 < ratio < 5.1
    low = make(2, 0.01)
    assert make(2, 0.01, published=True).variance(9) / low.variance(9) == pytest.approx(4, rel=0.01)


def test_no_reports():
    oracle = make(4)
    estimate = oracle.estimate(oracle.zero())
    assert estimate.n == 0
    assert estimate.raw.tolist() == [0] * 4
    assert np.isinf(estimate.standard_error).all()
    assert estimate.frequencies.tolist() == [0.25] * 4
    assert oracle.variance(0) == math.inf


@pytest.mark.parametrize(
    "counts",
    [
        np.zeros((2, 8), np.int64),
        np.zeros((4,), np.int64),
        np.zeros((2, 4)),
        np.zeros((2, 4), bool),
        [[0, 0, 0, 0], [0, 0, 0, 0]],
        np.array([[0, -1, 0, 0], [0, 1, 1, 1]]),
        np.array([[0, 2, 0, 0], [0, 1, 1, 1]]),
        np.array([[0, 0, 0, 0], [0, -1, 1, 1]]),
        np.array([[0, 0, 0, 0], [1, 1, 1, 1]]),
    ],
)
def test_wrong_counts_are_refused(counts):
    oracle = make(3)
    with pytest.raises(ParameterError, match="counts"):
        oracle.estimate(counts)
    with pytest.raises(ParameterError, match="counts"):
        oracle.reports(counts)


def test_unknown_post_processing_is_refused():
    oracle = make(3)
    with pytest.raises(ParameterError, match="did you mean simplex"):
        oracle.estimate(oracle.zero(), post="simplx")


@pytest.mark.parametrize("reports", [[0, 0, 0, 0], [1, 1, 1, 0], [1, 1, 0, 9]])
def test_published_scheme_refuses_empty_columns_and_n_below_k(reports):
    counts = np.array([[0] * 4, reports])
    with pytest.raises(InputError, match="each of its 4 columns"):
        make(3, published=True).estimate(counts)


@pytest.mark.parametrize(("size", "n"), [(1000, 3000), (1000, 100_000), (5, 40), (2, 10)])
def test_equal_counts_give_equal_bits(size, n):
    oracle = make(size)
    counts = random_counts(oracle, n)
    first = oracle.estimate(counts)
    for same in (counts.copy(), np.asfortranarray(counts), counts.astype(np.int32)):
        again = pickle.loads(pickle.dumps(oracle)).estimate(same)
        assert again.raw.tobytes() == first.raw.tobytes()
        assert again.standard_error.tobytes() == first.standard_error.tobytes()
        for post in ("simplex", "clip", "none", "empirical_bayes"):
            assert again.post_process(post).tobytes() == first.post_process(post).tobytes()


def test_estimating_leaves_the_counts_alone():
    oracle = make(1000)
    for n in (3000, 100_000):
        counts = random_counts(oracle, n)
        before = counts.copy()
        oracle.estimate(counts)
        np.testing.assert_array_equal(counts, before)


# Exact laws, by enumeration


def counts_of(oracle, columns, bits):
    return oracle.count(np.array(columns), np.array(bits, dtype=np.uint8))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("values", [(0,), (1,), (0, 1), (2, 2), (1, 2), (0, 1, 1)])
def test_sum_form_is_unbiased_for_every_data_set(values, epsilon):
    """Over all columns and all bits, each with its probability, for fixed values."""
    oracle = make(3, epsilon)
    q = exact(oracle)[0]
    matrix = scipy.linalg.hadamard(4)
    mean, total = np.zeros(3), 0.0
    for columns in itertools.product((1, 2, 3), repeat=len(values)):
        for bits in itertools.product((0, 1), repeat=len(values)):
            probability = 1.0
            for value, column, bit in zip(values, columns, bits, strict=True):
                likely = (matrix[value, column] == 1) == (bit == 1)
                probability *= (q if likely else 1 - q) / 3
            mean += probability * oracle.estimate(counts_of(oracle, columns, bits)).raw
            total += probability
    assert total == pytest.approx(1.0)
    shares = np.bincount(values, minlength=3) / len(values)
    np.testing.assert_allclose(mean, shares, atol=1e-9)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("n", [1, 2])
def test_variance_is_exact_over_a_population(size, n):
    oracle = make(size)
    q = exact(oracle)[0]
    matrix = scipy.linalg.hadamard(oracle.order)
    shares = np.array([0.6, 0.1, 0.3, 0.0])[:size]
    shares /= shares.sum()
    mean, square = np.zeros(size), np.zeros(size)
    reports = list(itertools.product(range(size), range(1, oracle.order), (0, 1)))
    for rows in itertools.product(reports, repeat=n):
        probability = 1.0
        for value, column, bit in rows:
            likely = (matrix[value, column] == 1) == (bit == 1)
            probability *= shares[value] * (q if likely else 1 - q) / oracle.usable
        raw = oracle.estimate(
            counts_of(oracle, [row[1] for row in rows], [row[2] for row in rows])
        ).raw
        mean += probability * raw
        square += probability * raw**2
    np.testing.assert_allclose(mean, shares, atol=1e-12)
    expected = [oracle.variance(n, share) for share in shares]
    np.testing.assert_allclose(square - mean**2, expected, rtol=1e-9)


@pytest.mark.parametrize("n", [4, 5])
def test_published_scheme_is_exactly_unbiased(n):
    """Users j mod K in order, values drawn from a population, all bits enumerated."""
    oracle = make(3, published=True)
    q = exact(oracle)[0]
    matrix = scipy.linalg.hadamard(4)
    shares = (0.5, 0.125, 0.375)
    columns = oracle.assign_sequential(0, n)
    mean = np.zeros(3)
    for values in itertools.product(range(3), repeat=n):
        weight = math.prod(shares[value] for value in values)
        truths = matrix[list(values), columns] == 1
        # Bits are independent, and the ratio form is linear in them: their means suffice to
        # enumerate values; the bits themselves are enumerated for one data set below.
        chance = np.where(truths, q, 1 - q)
        base = oracle.estimate(counts_of(oracle, columns, np.zeros(n))).raw
        expected = base.copy()
        for user in range(n):
            single = np.zeros(n)
            single[user] = 1
            raised = oracle.estimate(counts_of(oracle, columns, single)).raw
            expected += chance[user] * (raised - base)
        mean += weight * expected
        if values == (0, 1, 2, 0, 1)[:n]:
            whole = np.zeros(3)
            for bits in itertools.product((0, 1), repeat=n):
                probability = np.where(np.array(bits) == 1, chance, 1 - chance).prod()
                whole += probability * oracle.estimate(counts_of(oracle, columns, bits)).raw
            np.testing.assert_allclose(whole, expected, atol=1e-12)
    np.testing.assert_allclose(mean, shares, atol=1e-12)
