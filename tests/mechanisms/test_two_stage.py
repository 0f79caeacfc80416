"""Two stages: the exact channel, what it promises, and what averaging many reports gains."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from hadabeam.mechanisms import (
    Domain,
    KeyedCoins,
    OneBitHadamard,
    ParameterError,
    Prf,
    TwoStageCoins,
    TwoStageOneBit,
    hadamard_bits,
    make_oracle,
)

WORD = 2**64
PAIRS = [(1.0, 0.5), (1.0, 0.9), (4.0, 0.25), (50.0, 1.0), (2.0, 2.0**-20), (0.01, 0.00999)]


def oracle(epsilon: float = 1.0, instant: float = 0.5, size: int = 5) -> TwoStageOneBit:
    return TwoStageOneBit(Domain([f"v{i}" for i in range(size)]), epsilon, instant)


@pytest.mark.parametrize(("epsilon", "instant"), PAIRS)
def test_exact_thresholds_compose_to_at_most_both_epsilons(epsilon, instant):
    found = oracle(epsilon, instant)
    first = Fraction(found.threshold, WORD)
    second = Fraction(found.instant_threshold, WORD)
    # By enumeration of both coins: the report is flipped if exactly one of them is.
    flipped = sum(
        (first if a else 1 - first) * (second if b else 1 - second)
        for a, b in itertools.product((0, 1), repeat=2)
        if a != b
    )
    assert found.truth == 1 - flipped
    single = OneBitHadamard(found.domain, instant)
    # Never more than was asked for, and by less than one word's worth.
    assert Fraction(single.threshold, WORD) <= flipped < Fraction(single.threshold + 1, WORD)
    assert found.instant_epsilon_effective <= instant
    assert found.instant_epsilon_effective == pytest.approx(instant, rel=1e-9)
    assert found.epsilon_effective <= epsilon
    # c = c1 c2, and the factor is its nearest double.
    composed = 1 / ((1 - 2 * first) * (1 - 2 * second))
    assert found.factor == float(composed)
    assert found.change_epsilon == pytest.approx(float(math.log((1 - second) / second)))


def test_what_one_changed_window_costs():
    assert oracle(1.0, 0.5).change_epsilon == pytest.approx(1.18, abs=0.005)
    assert oracle(1.0, 0.9).change_epsilon == pytest.approx(3.09, abs=0.005)


def test_channel_is_that_of_the_composed_coin():
    found = oracle(1.0, 0.5, size=6)
    outputs, rows = found.channel()
    assert all(sum(row) == 1 for row in rows)
    for value, row in enumerate(rows):
        for (column, bit), probability in zip(outputs, row, strict=True):
            agrees = bit == int(hadamard_bits(np.int64(value), np.int64(column)))
            assert probability * found.usable == (found.truth if agrees else 1 - found.truth)
    ratio = max(a / b for a, b in itertools.product(*[[row[0] for row in rows]] * 2))
    assert math.log(ratio) <= 0.5


def test_variance_is_exact():
    """By enumeration over columns and bits, for one report of each value."""
    found = oracle(1.5, 0.7, size=5)
    outputs, rows = found.channel()
    for value, row in enumerate(rows):
        estimates = []
        for column, bit in outputs:
            counts = found.count(np.array([column]), np.array([bit], np.uint8))
            estimates.append(found.estimate(counts, "none").raw)
        weights = np.array([float(p) for p in row])
        mean = weights @ np.array(estimates)
        spread = weights @ (np.array(estimates) - mean) ** 2
        truth = np.eye(5)[value]
        np.testing.assert_allclose(mean, truth, atol=1e-12)
        np.testing.assert_allclose(
            spread, [found.variance(1, share) for share in truth], rtol=1e-12
        )


def reports_of(found: OneBitHadamard, users: int, windows: int, forever: bool) -> np.ndarray:
    """uint8[windows, users]: each user's report of value 0 in each window; and the true bits."""
    key, coin = Prf(bytes(range(32))), Prf(bytes(range(1, 33)))
    names = key.pseudonyms([f"user {number}" for number in range(users)])
    columns = found.assign(names, key)
    values = np.arange(users) % found.domain.size
    truth = hadamard_bits(values, columns)
    rows = []
    for window in range(windows):
        memo = KeyedCoins(
            coin, names, collection_id=found.collection_id, epoch=0 if forever else window
        )
        instant = KeyedCoins(
            coin, names, collection_id=found.collection_id, epoch=window, purpose="instant"
        )
        coins = TwoStageCoins(memo, instant) if found.two_stages else memo
        rows.append(found.randomize(values, columns, coins))
    return np.array(rows), truth


@pytest.mark.parametrize("stages", [1, 2])
def test_averaging_200_reports_gains_nothing_beyond_the_memoised_bit(stages):
    users = 4000
    domain = Domain([f"v{i}" for i in range(8)])
    found = TwoStageOneBit(domain, 1.0, 0.5) if stages == 2 else OneBitHadamard(domain, 1.0)
    bits, truth = reports_of(found, users, 200, forever=True)
    one_report = float(OneBitHadamard(domain, 1.0).truth)
    guessed = np.mean((bits.mean(axis=0) > 0.5) == truth)
    # Four standard errors: a false alarm in 16,000 for each case; the keys are fixed.
    error = math.sqrt(one_report * (1 - one_report) / users)
    assert abs(guessed - one_report) < 4 * error
    single = np.mean(bits[0] == truth)
    assert abs(single - float(found.truth)) < 4 * error
    # Fresh coins in each window would give it all away.
    if stages == 1:
        bits, truth = reports_of(found, users, 200, forever=False)
        assert np.mean((bits.mean(axis=0) > 0.5) == truth) > 0.999


def test_second_stage_is_fresh_in_each_window_and_repeats_within_it():
    found = oracle(1.0, 0.5)
    bits, _ = reports_of(found, 2000, 3, forever=True)
    again, _ = reports_of(found, 2000, 3, forever=True)
    np.testing.assert_array_equal(bits, again)
    # Two windows of a user differ if exactly one second coin flips: 2 f2 (1 - f2).
    second = found.instant_threshold / WORD
    expected = 2 * second * (1 - second)
    error = math.sqrt(expected * (1 - expected) / 2000)
    assert abs(np.mean(bits[0] != bits[1]) - expected) < 4 * error


def test_collections_of_one_and_two_stages_differ():
    one = OneBitHadamard(oracle().domain, 1.0)
    ids = {one.collection_id, oracle().collection_id, oracle(1.0, 0.25).collection_id}
    assert len(ids) == 3
    made = make_oracle("one_bit_hadamard", one.domain, 1.0, instant_epsilon=0.5)
    assert isinstance(made, TwoStageOneBit)
    assert made.collection_id == oracle().collection_id


@pytest.mark.parametrize("instant", [1.0, 1.5, 0.0, -1.0, math.nan, True, "0.5"])
def test_instant_epsilon_must_be_a_number_below_epsilon(instant):
    with pytest.raises(ParameterError, match="instant_epsilon"):
        oracle(1.0, instant)


def test_other_oracles_and_wrong_coins_are_refused():
    with pytest.raises(ParameterError, match="rappor has one stage"):
        make_oracle("rappor", oracle().domain, 1.0, instant_epsilon=0.5)
    with pytest.raises(ParameterError, match="one stage"):
        TwoStageOneBit.as_published(oracle().domain, 1.0)
    found = oracle()
    key = Prf(bytes(32))
    names = key.pseudonyms(["u"])
    coins = KeyedCoins(key, names, collection_id=found.collection_id, epoch=0)
    with pytest.raises(ParameterError, match="TwoStageCoins"):
        found.randomize(np.array([0]), found.assign(names, key), coins)
