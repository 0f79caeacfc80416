"""Reports of every oracle: keyed coins, fields, counts, memory, intervals and detection."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from hadabeam.mechanisms.coins import WORD, KeyedCoins, SeededCoins, SystemCoins
from hadabeam.mechanisms.domain import Domain
from hadabeam.mechanisms.errors import ParameterError
from hadabeam.mechanisms.prf import Prf
from hadabeam.mechanisms.registry import ORACLES, make_oracle
from hadabeam.mechanisms.unperturbed_one_bit import UnperturbedOneBit
from hadabeam.mechanisms.weights import share_threshold, subset_size

NAMES = tuple(ORACLES)
WIDE = ("hadamard_response", "randomized_response", "rappor", "subset_selection")
ASSIGNMENT, COIN = Prf(bytes(range(32))), Prf(bytes(range(1, 33)))


def domain(size):
    return Domain([f"v{i}" for i in range(size)])


def users(n):
    return ASSIGNMENT.pseudonyms([f"user {i}" for i in range(n)])


def keyed(oracle, rows, epoch=0):
    return KeyedCoins(COIN, rows, collection_id=oracle.collection_id, epoch=epoch)


def reports(oracle, values, seed=0):
    """Columns and messages under seeded coins."""
    n = len(values)
    columns = oracle.assign(users(n), Prf(bytes([seed % 256]) * 32))
    return columns, oracle.randomize(values, columns, SeededCoins(seed))


@pytest.mark.parametrize("size", [2, 7, 100])
@pytest.mark.parametrize("name", NAMES)
def test_keyed_coins_repeat_whatever_the_batch(name, size):
    oracle = make_oracle(name, domain(size), 1.0)
    n = 600
    values = np.random.default_rng(1).integers(0, size, n)
    rows = users(n)
    columns = oracle.assign(rows, ASSIGNMENT)
    whole = oracle.randomize(values, columns, keyed(oracle, rows))
    order = np.random.default_rng(2).permutation(n)
    for part in (order[:5], order[5:300], order[300:]):
        again = oracle.randomize(values[part], columns[part], keyed(oracle, rows[part]))
        np.testing.assert_array_equal(again, whole[part])
    other_epoch = oracle.randomize(values, columns, keyed(oracle, rows, epoch=1))
    assert (other_epoch != whole).any()


@pytest.mark.parametrize("name", WIDE)
def test_a_changed_value_draws_new_words(name):
    """Under old words a changed value would be a shifted copy of the old report."""
    oracle = make_oracle(name, domain(64), 1.0)
    n = 4000
    rows, zeros = users(n), np.zeros(n, dtype=np.int64)
    one = oracle.randomize(zeros + 3, zeros, keyed(oracle, rows))
    two = oracle.randomize(zeros + 5, zeros, keyed(oracle, rows))
    fresh = oracle.randomize(zeros + 5, zeros, SeededCoins(1))
    if name == "rappor":
        # Bits whose truth did not change keep their coins, and only those.
        changed = np.unpackbits(one ^ two, axis=1, bitorder="little").mean(axis=0)
        assert changed[[i for i in range(64) if i not in (3, 5)]].max() == 0
        q = 1 - oracle.threshold / WORD
        # Two independent coins differ after a flip of the truth; 5 sigma.
        wanted = q * q + (1 - q) ** 2
        assert abs(changed[3] - wanted) < 5 * math.sqrt(wanted * (1 - wanted) / n)
        assert abs(changed[5] - wanted) < 5 * math.sqrt(wanted * (1 - wanted) / n)
        return
    same_keyed = (one == two).reshape(n, -1).all(axis=1).mean()
    same_fresh = (one == fresh).reshape(n, -1).all(axis=1).mean()
    # As often equal as with independent coins; 5 sigma of the difference.
    spread = math.sqrt(max(same_fresh * (1 - same_fresh), 1 / n) * 2 / n)
    assert abs(same_keyed - same_fresh) < 5 * spread


@pytest.mark.parametrize("size", [2, 9, 300])
@pytest.mark.parametrize("name", NAMES)
def test_report_fields_round_trip_and_are_valid(name, size):
    oracle = make_oracle(name, domain(size), 1.0)
    values = np.random.default_rng(3).integers(0, size, 500)
    columns, messages = reports(oracle, values)
    column, bit, payload = oracle.encode(columns, messages)
    assert column.dtype == np.int32
    assert bit.dtype == np.uint8
    if oracle.payload_bytes:
        assert payload.dtype == np.uint8
        assert payload.shape == (500, oracle.payload_bytes)
        assert oracle.payload_bytes * 8 >= oracle.bits_per_report
    else:
        assert payload is None
    assert oracle.valid(column, bit, payload).all()
    again_columns, again = oracle.decode(column, bit, payload)
    np.testing.assert_array_equal(again_columns, columns)
    np.testing.assert_array_equal(again, messages)
    np.testing.assert_array_equal(
        oracle.count(again_columns, again), oracle.count(columns, messages)
    )


@pytest.mark.parametrize("name", WIDE)
def test_malformed_reports_are_not_valid(name):
    oracle = make_oracle(name, domain(9), 1.0)
    values = np.arange(9).repeat(20)
    column, bit, payload = oracle.encode(*reports(oracle, values))
    n = len(values)
    assert not oracle.valid(column + 1, bit, payload).any()
    assert not oracle.valid(column, bit + 1, payload).any()
    assert not oracle.valid(column, bit, None).any()
    wide = np.zeros((n, oracle.payload_bytes + 1), dtype=np.uint8)
    assert not oracle.valid(column, bit, wide).any()
    broken = payload.copy()
    broken[:, -1] = 0xFF
    assert not oracle.valid(column, bit, broken).any()
    with pytest.raises(ParameterError):
        oracle.count(*oracle.decode(column, bit, broken))
    with pytest.raises(ParameterError, match="payload"):
        oracle.decode(column, bit, None)


def test_index_payloads_of_subsets_must_be_sorted_sets():
    oracle = make_oracle("subset_selection", domain(300), 4.0)
    assert not oracle.bitmap
    assert oracle.subset == 5
    _, messages = reports(oracle, np.arange(300))
    zeros = np.zeros(300, dtype=np.int32)
    bits = zeros.astype(np.uint8)
    assert oracle.valid(zeros, bits, messages).all()
    swapped = messages.copy()
    swapped[:, :2], swapped[:, 2:4] = messages[:, 2:4], messages[:, :2]
    assert not oracle.valid(zeros, bits, swapped).any()
    twice = messages.copy()
    twice[:, 2:4] = twice[:, :2]
    assert not oracle.valid(zeros, bits, twice).any()


@pytest.mark.parametrize("name", NAMES)
def test_counts_add_up_in_any_grouping(name):
    oracle = make_oracle(name, domain(37), 1.0)
    values = np.random.default_rng(4).integers(0, 37, 3000)
    columns, messages = reports(oracle, values)
    whole = oracle.count(columns, messages)
    assert whole.dtype == np.int64
    assert whole.shape == oracle.state_shape
    assert oracle.reports(whole) == 3000
    total = oracle.zero()
    for part in np.array_split(np.random.default_rng(5).permutation(3000), 7):
        total = total + oracle.count(columns[part], messages[part])
    np.testing.assert_array_equal(total, whole)
    nothing = oracle.count(columns[:0], messages[:0])
    np.testing.assert_array_equal(nothing, oracle.zero())


@pytest.mark.parametrize("name", NAMES)
def test_no_reports_and_no_users(name):
    oracle = make_oracle(name, domain(5), 1.0)
    none = np.zeros(0, dtype=np.int64)
    assert len(oracle.randomize(none, none, SystemCoins())) == 0
    estimate = oracle.estimate(oracle.zero())
    assert estimate.n == 0
    assert not estimate.detected.any()
    assert np.isfinite(estimate.frequencies).all()
    assert np.isinf(estimate.standard_error).all()
    assert oracle.variance(0) == math.inf


@pytest.mark.parametrize("name", NAMES)
def test_wrong_values_and_counts_are_refused(name):
    oracle = make_oracle(name, domain(5), 1.0)
    columns = oracle.assign(users(1), ASSIGNMENT)
    for bad in ([5], [-1], [0.0], [[1]], [True]):
        with pytest.raises(ParameterError):
            oracle.randomize(np.array(bad), columns, SeededCoins(0))
    with pytest.raises(ParameterError):
        oracle.randomize(np.array([1, 2]), columns, SeededCoins(0))
    with pytest.raises(ParameterError):
        oracle.estimate(oracle.zero().astype(float))
    with pytest.raises(ParameterError):
        oracle.estimate(oracle.zero()[:-1])
    negative = oracle.zero()
    negative.reshape(-1)[-1] = -1
    with pytest.raises(ParameterError):
        oracle.estimate(negative)
    with pytest.raises(ParameterError, match="post"):
        oracle.estimate(oracle.zero(), post="simplx")


def test_inconsistent_counts_are_refused():
    rappor = make_oracle("rappor", domain(3), 1.0)
    with pytest.raises(ParameterError, match="ones"):
        rappor.estimate(np.array([3, 0, 0, 2]))
    subset = make_oracle("subset_selection", domain(8), 1.0)
    assert subset.subset == 2
    with pytest.raises(ParameterError, match="sets"):
        subset.estimate(np.array([1, 0, 0, 0, 0, 0, 0, 0]))
    with pytest.raises(ParameterError, match="sets"):
        subset.estimate(np.array([2, 0, 0, 0, 0, 0, 0, 0]))
    public = make_oracle("public_coin", domain(3), 1.0)
    with pytest.raises(ParameterError, match="ones"):
        public.estimate(np.array([[2, 0, 0, 0], [1, 1, 1, 1]]))


@pytest.mark.parametrize("name", NAMES)
def test_memory_at_a_thousand_values_stays_far_below_n_times_k(name):
    """n x k bytes would be 40 MB; allowed are the messages and 12 MB."""
    oracle = make_oracle(name, domain(1000), 1.0)
    n = 40_000
    values = np.random.default_rng(6).integers(0, 1000, n)
    rows = users(n)
    columns = oracle.assign(rows, ASSIGNMENT)
    coins = keyed(oracle, rows)
    tracemalloc.start()
    try:
        messages = oracle.randomize(values, columns, coins)
        oracle.count(columns, messages)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - messages.nbytes < 12e6


@pytest.mark.parametrize("epsilon", [2.0**-20, 0.5, 3.0, 10.0, 50.0])
@pytest.mark.parametrize("size", [2, 5, 1000])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_delivered_never_exceeds_what_was_asked(name, size, epsilon):
    oracle = make_oracle(name, domain(size), epsilon)
    assert 0 < oracle.epsilon_effective <= epsilon
    if epsilon < 40:
        assert oracle.epsilon_effective == pytest.approx(epsilon, rel=1e-5)
    _, messages = reports(oracle, np.arange(size))
    raw = oracle.estimate(oracle.count(*reports(oracle, np.arange(size)))).raw
    assert len(messages) == size
    assert np.isfinite(raw).all()


def test_randomized_response_refuses_what_its_coins_cannot_tell_apart():
    class Huge(Domain):
        """A domain of 2**30 values that are not written out."""

        def __init__(self):
            self.values = ()
            self.other_index = None

        size = 2**30

    with pytest.raises(ParameterError, match="too large"):
        make_oracle("randomized_response", Huge(), 2.0**-20)
    for name in ("rappor", "subset_selection"):
        with pytest.raises(ParameterError, match="one_bit_hadamard"):
            make_oracle(name, Huge(), 1.0)


def test_thresholds_are_the_least_that_keep_the_promise():
    for epsilon in (2.0**-21, 0.1, 1.0, 7.5, 50.0):
        for own, others in ((1, 1), (3, 5), (269, 731)):
            threshold = share_threshold(epsilon, own, others)
            odds = Fraction(WORD - threshold, threshold) * others / own
            assert float(odds) <= math.exp(epsilon) * (1 + 1e-15)
            if threshold > 1:
                more = Fraction(WORD - threshold + 1, threshold - 1) * others / own
                assert float(more) >= math.exp(epsilon) * (1 - 1e-15)
    assert subset_size(1000, 1.0) == 269
    assert subset_size(2, 1.0) == 1
    assert subset_size(10, 50.0) == 1


@pytest.mark.parametrize("name", NAMES)
def test_intervals_cover(name):
    """30 collections of redrawn data, 64 values each: 1,920 intervals of level .95.

    Their mean has a standard deviation of .5 % (errors of one collection are nearly
    independent); 93 to 97 % is 4 sigma, false alarms 1 in 16,000. The seed is fixed.
    """
    oracle = make_oracle(name, domain(64), 1.0)
    generator = np.random.default_rng(7)
    truth = 1 / np.arange(1, 65)
    truth /= truth.sum()
    inside = []
    for seed in range(30):
        values = generator.choice(64, size=3000, p=truth)
        low, high = oracle.estimate(oracle.count(*reports(oracle, values, seed))).interval(0.95)
        inside.append(np.mean((low <= truth) & (truth <= high)))
    assert 0.93 <= np.mean(inside) <= 0.97


@pytest.mark.parametrize("name", ["randomized_response", "public_coin_randomized_response"])
def test_detection_keeps_its_level_where_counts_are_small(name):
    """n = 1,000 on k = 1,000 values, all users at value 0: is another one detected?

    400 collections at level .05: more than 42 alarms (20 expected, sd 4.4) has
    probability below 1e-5. A normal threshold finds 3.6 such values in each.
    """
    oracle = make_oracle(name, domain(1000), 1.0)
    values = np.zeros(1000, dtype=np.int64)
    alarms = normal_alarms = 0
    for seed in range(400):
        generator = np.random.default_rng(seed)
        columns = generator.integers(0, oracle.columns, 1000)
        messages = oracle.randomize(values, columns, SeededCoins(seed))
        estimate = oracle.estimate(oracle.count(columns, messages))
        assert estimate.tails is not None
        alarms += bool(estimate.detected[1:].any())
        normal = 3.89 * np.asarray(estimate.null_standard_error)
        normal_alarms += int((estimate.raw > normal)[1:].sum())
    assert alarms <= 42
    assert normal_alarms > 400


def test_true_bits_are_not_sent_by_accident():
    with pytest.raises(ParameterError, match="one_bit_hadamard"):
        UnperturbedOneBit(domain(10))
    with pytest.raises(ParameterError):
        UnperturbedOneBit(domain(10), i_accept_no_privacy=1)
    assert "unperturbed_one_bit" not in ORACLES
    with pytest.raises(ParameterError):
        make_oracle("unperturbed_one_bit", domain(10), 1.0)
    oracle = UnperturbedOneBit(domain(10), i_accept_no_privacy=True)
    assert oracle.epsilon_effective == math.inf
    values = np.random.default_rng(8).integers(0, 10, 20_000)
    estimate = oracle.estimate(oracle.count(*reports(oracle, values)))
    # 10 values: beyond 5 sigma with probability 6e-6.
    assert (np.abs(estimate.raw - 0.1) < 5 * estimate.standard_error).all()
    # (1 - f**2) / n or so, against 4.68 / n for one private bit at epsilon 1.
    assert oracle.variance(1) == pytest.approx(0.875, abs=0.01)


@pytest.mark.parametrize(
    ("name", "constant"),
    [
        ("one_bit_hadamard", 4.682),
        ("hadamard_response", 4.683),
        ("public_coin", 4.683),
        ("rappor", 3.918),
        ("subset_selection", 3.673),
    ],
)
def test_variance_constants_at_epsilon_one(name, constant):
    """n times the variance at frequency 0 for k = 1000."""
    oracle = make_oracle(name, domain(1000), 1.0)
    assert oracle.variance(1) == pytest.approx(constant, rel=2e-3)


def test_mechanisms_need_no_beam_and_no_arrow():
    code = (
        "import sys, json, hadabeam.mechanisms; "
        "print(json.dumps([m for m in ('apache_beam', 'pyarrow', 'matplotlib', 'scipy') "
        "if m in sys.modules]))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert json.loads(found) == []
