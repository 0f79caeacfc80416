import math
import pickle
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hadabeam.mechanisms import (
    MAX_EPSILON,
    MIN_EPSILON,
    KeyedCoins,
    ParameterError,
    Prf,
    SeededCoins,
    SystemCoins,
    flip_threshold,
)
from hadabeam.mechanisms.coins import debias_factor, epsilon_of, odds, truth_probability

EPSILONS = [MIN_EPSILON, 2.0**-19, 1e-3, 0.1, 0.5, math.log(2), 1.0, math.log(3), 2.0, 4.0]
EPSILONS += [10.0, 20.0, 30.0, 40.0, 44.0, 45.0, MAX_EPSILON]
PRF = Prf(bytes(32))


def bounds_of_exp(epsilon):
    """Fractions just below and just above e**epsilon, from 300 digits."""
    with localcontext() as context:
        context.prec = 300
        value = Fraction(Decimal(epsilon).exp())
    return value * (1 - Fraction(1, 10**290)), value * (1 + Fraction(1, 10**290))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_threshold_is_the_least_that_keeps_the_odds_below_e_to_the_epsilon(epsilon):
    threshold = flip_threshold(epsilon)
    below, above = bounds_of_exp(epsilon)
    assert 1 <= threshold < 2**63
    assert odds(threshold) <= below
    if threshold > 1:
        assert odds(threshold - 1) > above


@given(st.floats(MIN_EPSILON, MAX_EPSILON))
def test_no_epsilon_is_exceeded(epsilon):
    threshold = flip_threshold(epsilon)
    assert odds(threshold) <= bounds_of_exp(epsilon)[0]
    delivered = epsilon_of(odds(threshold))
    assert delivered <= epsilon
    # One unit of 2**64 costs about e**epsilon / 2**64 of epsilon.
    assert delivered >= epsilon - 2 * math.exp(epsilon) / 2**64 - 1e-15 * epsilon - 2.0**-62


def test_what_large_epsilons_deliver():
    assert epsilon_of(odds(flip_threshold(40.0))) == pytest.approx(39.992, abs=5e-4)
    assert flip_threshold(50.0) == 1


def test_log_is_rounded_down():
    assert epsilon_of(Fraction(3)) <= math.log(3)
    for ratio in (Fraction(2), Fraction(3), Fraction(10**18 + 1, 10**18)):
        with localcontext() as context:
            context.prec = 60
            exact = (Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln()
        value = epsilon_of(ratio)
        assert Decimal(value) <= exact < Decimal(math.nextafter(value, math.inf))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_q_and_c(epsilon):
    threshold = flip_threshold(epsilon)
    q = truth_probability(threshold)
    assert float(q) == pytest.approx(math.exp(epsilon) / (math.exp(epsilon) + 1))
    assert debias_factor(threshold) == float(1 / (2 * q - 1))
    assert odds(threshold) == q / (1 - q)


@pytest.mark.parametrize(
    "epsilon",
    [0, -1.0, math.nan, math.inf, 2.0**-21, 50.1, True, np.True_, "1", None, 1j, [1.0]],
)
def test_bad_epsilon(epsilon):
    with pytest.raises(ParameterError, match="epsilon"):
        flip_threshold(epsilon)


def users(n, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, 16), dtype=np.uint8)


def keyed(some, collection_id="c", epoch=0, prf=PRF):
    return KeyedCoins(prf, some, collection_id=collection_id, epoch=epoch)


def test_keyed_coins_are_the_prf_of_the_user():
    some = users(20)
    words = keyed(some, "abc", 7).words(20)
    assert words.dtype == np.uint64
    head = PRF.context("coin", "abc", 7).block
    for row, user in zip(words, some, strict=True):
        code = PRF.cmac(head + user.tobytes())
        assert row.tolist() == [int.from_bytes(code[i : i + 8], "little") for i in (0, 8)]


def test_keyed_coins_for_inputs_and_blocks():
    some = users(20)
    inputs = np.arange(20, dtype=np.int64) * 1000
    coins = keyed(some, "abc", 7)
    head = PRF.context("coin", "abc", 7).block
    for block in (0, 1, 5):
        words = coins.words(20, inputs=inputs, block=block)
        for row, user, number in zip(words, some, inputs, strict=True):
            message = user.tobytes() + int(number).to_bytes(8, "little")
            code = PRF.cmac(head + message + block.to_bytes(8, "little"))
            assert row.tolist() == [int.from_bytes(code[i : i + 8], "little") for i in (0, 8)]


def test_keyed_coins_do_not_depend_on_the_batch():
    some = users(100)
    whole = keyed(some).words(100)
    order = np.random.default_rng(1).permutation(100)[:30]
    np.testing.assert_array_equal(keyed(some[order]).words(30), whole[order])
    np.testing.assert_array_equal(keyed(some).take(order).words(30), whole[order])
    inputs = np.arange(100)
    whole = keyed(some).words(100, inputs=inputs, block=2)
    coins = keyed(some)
    coins.words(100, inputs=inputs)
    np.testing.assert_array_equal(
        coins.take(order).words(30, inputs=inputs[order], block=2), whole[order]
    )


def test_keyed_coins_differ_with_all_that_they_depend_on():
    some = users(1)
    draws = [
        keyed(some).words(1),
        keyed(users(1, seed=1)).words(1),
        keyed(some, collection_id="d").words(1),
        keyed(some, epoch=1).words(1),
        keyed(some, epoch=-1).words(1),
        keyed(some, prf=Prf(bytes(31) + b"\1")).words(1),
        keyed(some).words(1, block=1),
        keyed(some).words(1, inputs=np.array([0])),
        keyed(some).words(1, inputs=np.array([1])),
        keyed(some).words(1, inputs=np.array([0]), block=1),
    ]
    assert len({draw.tobytes() for draw in draws}) == len(draws)
    assert len({int(word) for draw in draws for word in draw[0]}) == 2 * len(draws)


def test_keyed_coins_refuse_another_number_of_users():
    with pytest.raises(ParameterError, match="3 users"):
        keyed(users(3)).words(4)
    for wrong in (np.zeros((3, 8), np.uint8), np.zeros(16, np.uint8), np.zeros((3, 16), np.int64)):
        with pytest.raises(ParameterError, match="pseudonyms"):
            keyed(wrong)


def test_keyed_coins_hide_their_users_and_do_not_travel():
    coins = keyed(users(3))
    assert repr(coins) == "KeyedCoins(<3 users>)"
    with pytest.raises(TypeError):
        pickle.dumps(coins)


@pytest.mark.parametrize(
    "coins", [keyed(users(100_000)), SystemCoins(), SeededCoins(3)], ids=["keyed", "system", "seed"]
)
def test_words_are_uniform_and_independent(coins):
    # Each of the 128 bits, and the agreement of the two words in each place, is a fair coin: 192
    # counts of 100,000 at 6.5 standard deviations. A false alarm once in 6e7 runs.
    words = coins.words(100_000)
    assert words.shape == (100_000, 2)
    bits = np.unpackbits(words.view(np.uint8), axis=1)
    agree = np.unpackbits((words[:, 0] ^ words[:, 1]).view(np.uint8).reshape(-1, 8), axis=1)
    for table in (bits, agree):
        away = np.abs(table.sum(axis=0, dtype=np.int64) - 50_000)
        assert away.max() < 6.5 * math.sqrt(100_000 / 4)


def test_system_coins_are_fresh_each_time():
    coins = SystemCoins()
    assert coins.words(1).tobytes() != coins.words(1).tobytes()
    assert coins.words(0).shape == (0, 2)
    assert coins.take(np.array([0])) is coins


def test_seeded_coins_repeat_with_the_seed_only():
    np.testing.assert_array_equal(SeededCoins(5).words(9), SeededCoins(5).words(9))
    assert SeededCoins(5).words(1).tobytes() != SeededCoins(6).words(1).tobytes()
    coins = SeededCoins(5)
    assert coins.words(1).tobytes() != coins.words(1).tobytes()
    assert "not private" in repr(coins)
