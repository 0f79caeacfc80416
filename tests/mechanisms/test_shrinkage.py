import numpy as np
import pytest

from hadabeam.mechanisms import project_simplex
from hadabeam.mechanisms.shrinkage import posterior_means


def zipf(k):
    shares = 1 / np.arange(1, k + 1)
    return shares / shares.sum()


TABLES = {
    "uniform": np.full(1000, 1e-3),
    "geometric": 0.2 * 0.8 ** np.arange(1000),
    "zipf": zipf(1000),
    "one": np.eye(1000)[0],
}


@pytest.mark.parametrize("name", TABLES)
def test_errors_are_below_those_of_the_projection(name):
    shares = TABLES[name]
    error = 0.004
    generator = np.random.default_rng(1)
    ours, simplex = 0.0, 0.0
    for _ in range(10):
        raw = shares + error * generator.standard_normal(shares.size)
        ours += np.abs(posterior_means(raw, error) - shares).sum()
        simplex += np.abs(project_simplex(raw) - shares).sum()
    assert ours < 0.95 * simplex


@pytest.mark.parametrize("k", [2, 16, 1000, 50_000])
def test_is_a_distribution_and_monotone(k):
    raw = zipf(k) + 0.003 * np.random.default_rng(k).standard_normal(k)
    result = posterior_means(raw, 0.003)
    assert result.min() >= 0
    assert result.sum() == pytest.approx(1.0)
    # A larger raw value never gets a frequency that is smaller by more than a grid's width.
    ordered = result[np.argsort(raw)]
    assert np.diff(ordered).min() > -0.003


def test_lonely_large_values_keep_their_frequency():
    raw = np.concatenate([[0.5, 0.3, 0.2], 0.001 * np.random.default_rng(2).standard_normal(997)])
    result = posterior_means(raw, 0.001)
    np.testing.assert_allclose(result[:3], [0.5, 0.3, 0.2], atol=0.002)
    assert result[3:].max() < 0.0005


def test_is_deterministic_and_leaves_its_argument():
    raw = zipf(500) + 0.01 * np.random.default_rng(3).standard_normal(500)
    before = raw.copy()
    assert posterior_means(raw, 0.01).tobytes() == posterior_means(raw, 0.01).tobytes()
    np.testing.assert_array_equal(raw, before)


@pytest.mark.parametrize("raw", [np.full(4, -5.0), np.array([-1.0, -0.5, -8.0]), np.zeros(3)])
def test_nothing_above_zero(raw):
    result = posterior_means(raw, 0.1)
    assert result.sum() == pytest.approx(1.0)
    assert result.min() >= 0


def test_a_wide_range_in_units_of_the_error():
    raw = np.linspace(0, 1, 20_001) / 10_000.5
    result = posterior_means(raw, 1e-8)
    np.testing.assert_allclose(result, raw, atol=2e-7)
