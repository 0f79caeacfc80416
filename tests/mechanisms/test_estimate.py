import math
import pickle
from dataclasses import FrozenInstanceError, dataclass

import numpy as np
import pytest
import scipy.stats

from hadabeam.mechanisms import Domain, FrequencyEstimate, ParameterError, project_simplex
from hadabeam.mechanisms.tails import BinomialTails

RAW = np.array([0.5, -0.02, 0.3, 0.12, 0.3])


def make(raw=RAW, error=0.05, **kwargs):
    fields = {
        "raw": np.array(raw),
        "standard_error": np.full(len(raw), error),
        "null_standard_error": error,
        "n": 1000,
        "epsilon_effective": 1.0,
    }
    return FrequencyEstimate(**{**fields, **kwargs})


def test_interval_is_normal():
    low, high = make().interval(0.9)
    z = scipy.stats.norm.isf(0.05)
    np.testing.assert_allclose(low, RAW - z * 0.05)
    np.testing.assert_allclose(high, RAW + z * 0.05)
    np.testing.assert_allclose(make().interval()[1] - RAW, 1.959964 * 0.05, rtol=1e-6)


def test_simultaneous_interval_shares_the_level_out():
    low, high = make().simultaneous_interval(0.95)
    z = scipy.stats.norm.isf(0.05 / 5 / 2)
    np.testing.assert_allclose(high - low, 2 * z * 0.05)


@pytest.mark.parametrize("level", [0, 1, -0.5, 95, math.nan, "0.95", True, None])
def test_bad_levels(level):
    with pytest.raises(ParameterError, match="level"):
        make().interval(level)
    with pytest.raises(ParameterError, match="level"):
        make().simultaneous_interval(level)


def test_detected_is_one_sided_at_frequency_zero():
    estimate = make(null_standard_error=0.04)
    threshold = scipy.stats.norm.isf(0.05 / 5) * 0.04
    assert estimate.detection_threshold == pytest.approx(threshold)
    assert estimate.detected.tolist() == [True, False, True, True, True]
    assert make(null_standard_error=0.06).detected.tolist() == [True, False, True, False, True]


def test_a_null_error_for_each_value():
    estimate = make(null_standard_error=np.array([0.05, 0.05, 0.5, 0.05, 0.05]))
    assert estimate.detected.tolist() == [True, False, False, True, True]
    assert estimate.detection_threshold.shape == (5,)


def test_exact_tails_take_the_place_of_the_normal_law():
    tails = BinomialTails(n=100, null=0.02, gain=0.9)
    counts = np.array([2, 6, 8, 9, 50])
    estimate = make(raw=(counts / 100 - 0.02) / 0.9, n=100, tails=tails)
    # The least count with P(X >= count) <= .05 / 5 of a binomial (100, .02) is 7.
    assert scipy.stats.binom.isf(0.01, 100, 0.02) + 1 == 7
    assert estimate.detected.tolist() == [False, False, True, True, True]
    low, high = estimate.interval()
    expected = tails.interval(estimate.raw, scipy.stats.norm.isf(0.025))
    np.testing.assert_allclose(low, expected[0])
    np.testing.assert_allclose(high, expected[1])


@dataclass(frozen=True)
class OwnTails:
    """What another oracle may bring along."""

    def threshold(self, alpha):
        return 0.4

    def interval(self, raw, z):
        return raw - 1, raw + 2


def test_an_oracle_brings_its_own_tails():
    estimate = make(tails=OwnTails())
    assert estimate.detected.tolist() == [True, False, False, False, False]
    np.testing.assert_array_equal(estimate.interval()[1], RAW + 2)


def test_heavy_hitters_are_sorted_with_simultaneous_bounds():
    estimate = make()
    hitters = estimate.heavy_hitters()
    assert [row.value_index for row in hitters] == [0, 2, 4, 3]
    assert [row[0] for row in estimate.heavy_hitters(0.3)] == [0, 2, 4]
    assert estimate.heavy_hitters(0.9) == []
    assert len(estimate.heavy_hitters(-1.0)) == 5
    low, high = estimate.simultaneous_interval()
    assert hitters[0] == (0, 0.5, low[0], high[0])
    with pytest.raises(ParameterError, match="threshold"):
        estimate.heavy_hitters(math.nan)


def test_post_processings():
    raw = np.array([0.9, -0.2, 0.4])
    np.testing.assert_allclose(make(raw, post="simplex").frequencies, [0.75, 0, 0.25])
    np.testing.assert_allclose(make(raw, post="clip").frequencies, [0.9, 0, 0.4])
    np.testing.assert_allclose(make(raw, post="none").frequencies, raw)
    bayes = make(raw, post="empirical_bayes").frequencies
    assert bayes.sum() == pytest.approx(1)
    assert bayes.min() >= 0
    np.testing.assert_allclose(make(raw).post_process("clip"), [0.9, 0, 0.4])
    assert make(raw).post == "simplex"
    np.testing.assert_allclose(make(raw).count, [750, 0, 250])


def test_empirical_bayes_without_errors_is_the_projection():
    raw = np.array([0.9, -0.2, 0.4])
    np.testing.assert_array_equal(
        make(raw, error=0.0).post_process("empirical_bayes"), project_simplex(raw)
    )


def test_frequencies_are_computed_once():
    estimate = make()
    assert estimate.frequencies is estimate.frequencies
    assert estimate.detected is estimate.detected


@pytest.mark.parametrize("post", ["Simplex", "", None, 3])
def test_unknown_post_processing(post):
    with pytest.raises(ParameterError, match="post must be one of"):
        make(post=post)
    with pytest.raises(ParameterError, match="post must be one of"):
        make().post_process(post)


def test_without_reports_nothing_is_known():
    for post, expected in (
        ("simplex", 0.25),
        ("empirical_bayes", 0.25),
        ("clip", 0.0),
        ("none", 0.0),
    ):
        estimate = make(np.zeros(4), error=math.inf, n=0, post=post)
        assert estimate.frequencies.tolist() == [expected] * 4
        assert estimate.count.tolist() == [0] * 4
        assert not estimate.detected.any()
        assert estimate.detection_threshold == math.inf
        assert estimate.heavy_hitters() == []
        for low, high in (estimate.interval(), estimate.simultaneous_interval()):
            assert (low == -math.inf).all()
            assert (high == math.inf).all()


def test_is_frozen_down_to_its_arrays():
    estimate = make()
    with pytest.raises(FrozenInstanceError):
        estimate.n = 5
    for array in (estimate.raw, estimate.standard_error):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_pickling():
    estimate = make(domain=Domain(list("abcde")), tails=BinomialTails(10, 0.1, 0.5))
    copied = pickle.loads(pickle.dumps(estimate))
    np.testing.assert_array_equal(copied.raw, RAW)
    assert copied.domain == estimate.domain
    assert copied.tails == estimate.tails


def test_parts_must_fit():
    with pytest.raises(ParameterError, match="one length"):
        make(standard_error=np.ones(4))
    with pytest.raises(ParameterError, match="each value"):
        make(domain=Domain(["a", "b"]))
