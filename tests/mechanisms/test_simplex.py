import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hadabeam.mechanisms import ParameterError, clip_frequencies, project_simplex


def by_sorting(x):
    """The textbook projection: sort, and find the last entry that stays positive."""
    ordered = np.sort(x)[::-1]
    sums = np.cumsum(ordered)
    places = np.arange(1, x.size + 1)
    last = np.flatnonzero(ordered * places > sums - 1)[-1]
    return np.maximum(x - (sums[last] - 1) / (last + 1), 0)


@pytest.mark.parametrize("k", [1, 2, 3, 10, 1000, 100_000])
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 100.0])
def test_agrees_with_sorting(k, scale):
    x = scale * np.random.default_rng(k).standard_normal(k)
    result = project_simplex(x)
    np.testing.assert_allclose(result, by_sorting(x), atol=1e-12 * max(1.0, scale))
    assert result.min() >= 0
    assert result.sum() == pytest.approx(1.0, abs=1e-9)


def test_a_geometric_table_needs_many_passes_and_is_right():
    x = 2.0 ** -np.arange(1000.0)
    np.testing.assert_allclose(project_simplex(x), by_sorting(x), atol=1e-14)


@given(
    hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e6, 1e6, allow_subnormal=False))
)
def test_is_the_nearest_point(x):
    p = project_simplex(x)
    assert p.min() >= 0
    assert p.sum() == pytest.approx(1.0, abs=1e-8)
    # Optimality: the gradient x - p has one value where p > 0, and nothing larger elsewhere.
    multiplier = (x - p)[p > 0]
    slack = 1e-8 * max(1.0, np.abs(x).max())
    assert np.ptp(multiplier) <= slack
    assert ((x - p) <= multiplier.max() + slack).all()


def test_frequencies_stay_as_they_are():
    np.testing.assert_allclose(project_simplex(np.array([0.5, 0.25, 0.25])), [0.5, 0.25, 0.25])


def test_no_information_is_uniform():
    np.testing.assert_array_equal(project_simplex(np.zeros(4)), np.full(4, 0.25))


@pytest.mark.parametrize("x", [[1e308, -1e308], [1e17, 1e17], [5e-324, 0.0], [-1e308, -1e308, 0]])
def test_extreme_entries(x):
    result = project_simplex(np.array(x))
    assert result.sum() == pytest.approx(1.0)
    assert np.argmax(result) == np.argmax(x)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_refuses_entries_that_are_not_finite(bad):
    with pytest.raises(ParameterError, match="finite"):
        project_simplex(np.array([0.5, bad]))


@pytest.mark.parametrize("x", [np.zeros(0), np.zeros((2, 2))])
def test_refuses_other_shapes(x):
    with pytest.raises(ParameterError):
        project_simplex(x)


def test_the_argument_survives():
    x = np.array([3.0, -1.0])
    project_simplex(x)
    assert x.tolist() == [3.0, -1.0]


def test_clipping_takes_each_entry_alone():
    assert clip_frequencies(np.array([-0.5, 0.25, 0.5, 1.5])).tolist() == [0, 0.25, 0.5, 1]


def test_clipping_refuses_nan():
    with pytest.raises(ParameterError, match="NaN"):
        clip_frequencies(np.array([np.nan]))
