"""The one-bit oracle by simulation: coverage, detection, Theorem 1, and order of the users.

Where only the counts matter they are drawn directly. With columns assigned at random and
values drawn from a population, users are independent and equal: the reports of the columns are
multinomial, and the ones of a column, given its reports, are binomial with the column's own
chance, ``1/2 + (q - 1/2) (H p)[y]``. That is the exact law of counting real bits, not an
approximation; the first test compares the two.
"""

import math

import numpy as np
import pytest

from hadabeam.mechanisms import (
    Domain,
    KeyedCoins,
    OneBitHadamard,
    Prf,
    SeededCoins,
    fwht,
    hadamard_bits,
)

COLLECTIONS = 1000


def make(size, epsilon=1.0, published=False):
    domain = Domain([f"v{i}" for i in range(size)])
    maker = OneBitHadamard.as_published if published else OneBitHadamard
    return maker(domain, epsilon)


def drawn_counts(oracle, shares, n, generator):
    """Counts of n users from a population, by their law."""
    padded = np.zeros(oracle.order)
    padded[: shares.size] = shares
    q = 1 - oracle.threshold / 2**64
    chance = np.clip(0.5 + (q - 0.5) * fwht(padded), 0, 1)
    counts = oracle.zero()
    usable = slice(oracle.known, None)
    if oracle.published:
        counts[1] = np.bincount(oracle.assign_sequential(0, n), minlength=oracle.order)
    else:
        even = np.full(oracle.usable, 1 / oracle.usable)
        counts[1, usable] = generator.multinomial(n, even)
    counts[0] = generator.binomial(counts[1], chance)
    return counts


def half_zipf(size):
    """Zipf's law on the first half of the values; the others are absent."""
    shares = 1 / np.arange(1, size + 1)
    shares[(size + 1) // 2 :] = 0
    return shares / shares.sum()


def test_drawn_counts_have_the_law_of_counted_bits():
    oracle = make(6)
    shares = half_zipf(6)
    generator = np.random.default_rng(1)
    n, times = 300, 400
    counted, drawn = [], []
    for _ in range(times):
        values = generator.choice(6, n, p=shares)
        columns = generator.integers(1, 8, n)
        bits = oracle.randomize(values, columns, SeededCoins(int(generator.integers(2**40))))
        counted.append(oracle.count(columns, bits))
        drawn.append(drawn_counts(oracle, shares, n, generator))
    counted, drawn = np.array(counted)[:, :, 1:], np.array(drawn)[:, :, 1:]
    # Means and variances of the 14 counts at 5.5 standard errors: a false alarm once in 4e5 runs.
    for moment in (counted, counted**2):
        other = drawn if moment is counted else drawn**2
        gap = np.abs(moment.mean(axis=0) - other.mean(axis=0))
        error = np.sqrt((moment.var(axis=0) + other.var(axis=0)) / times)
        assert (gap < 5.5 * error).all()


SLOW = pytest.mark.slow
GRID = [
    pytest.param(size, load, epsilon, marks=[SLOW] if size == 1000 and epsilon != 1.0 else [])
    for size in (16, 64, 1000)
    for load in (2, 20, 40, 2000)
    for epsilon in (0.5, 1.0, 4.0)
]


@pytest.mark.parametrize(("size", "load", "epsilon"), GRID)
def test_intervals_cover_and_detection_keeps_its_level(size, load, epsilon):
    """Data redrawn for each collection; coverage averaged over values.

    An average of at least 16,000 nearly independent indicators has a standard deviation below
    .002, and what is seen is within .944 and .959. Of the familywise level, at most .05,
    1,000 collections show more than 80 with probability 3e-5 at most; about 25 are seen
    (half of the values are absent).
    """
    oracle = make(size, epsilon)
    shares = half_zipf(size)
    generator = np.random.default_rng([size, load, int(10 * epsilon)])
    n = load * oracle.order
    covered, alarms = 0.0, 0
    for _ in range(COLLECTIONS):
        estimate = oracle.estimate(drawn_counts(oracle, shares, n, generator))
        low, high = estimate.interval()
        covered += np.mean((low <= shares) & (shares <= high))
        alarms += bool(estimate.detected[shares == 0].any())
    assert 0.93 <= covered / COLLECTIONS <= 0.97
    assert alarms <= 80


@pytest.mark.parametrize(("size", "n"), [(2, 100), (2, 2000), (1000, 300), (1000, 1000)])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_detection_keeps_its_level_where_counts_are_small(size, n, epsilon):
    """All users have one value; at k = 2 and epsilon 4 an absent one expects 2 reports of 100."""
    oracle = make(size, epsilon)
    shares = np.zeros(size)
    shares[0] = 1
    generator = np.random.default_rng([size, n, int(epsilon)])
    alarms = 0
    for _ in range(COLLECTIONS):
        estimate = oracle.estimate(drawn_counts(oracle, shares, n, generator))
        alarms += bool(estimate.detected[1:].any())
    assert alarms <= 80  # As above.


def test_simultaneous_intervals_cover_all_values_at_once():
    oracle = make(64)
    shares = half_zipf(64)
    generator = np.random.default_rng(7)
    misses = 0
    for _ in range(COLLECTIONS):
        low, high = oracle.estimate(
            drawn_counts(oracle, shares, 5000, generator)
        ).simultaneous_interval()
        misses += bool(((shares < low) | (high < shares)).any())
    # At level .95, more than 80 of 1,000 with probability 3e-5; none at all with 1e-10 at least,
    # unless the intervals were far too wide.
    assert 10 <= misses <= 80


@pytest.mark.parametrize("n", [10, 100, 1024, 10_240])
def test_empty_columns_cause_no_bias(n):
    """k = 1000; of 10 users at most 10 columns are met. Fixed data, fresh columns and coins."""
    oracle = make(1000)
    values = np.arange(n) % 7 * 100
    shares = np.bincount(values, minlength=1000) / n
    times = 400
    generator = np.random.default_rng(n)
    total = np.zeros(1000)
    for _ in range(times):
        columns = generator.integers(1, 1024, n)
        bits = oracle.randomize(values, columns, SeededCoins(int(generator.integers(2**40))))
        total += oracle.estimate(oracle.count(columns, bits)).raw
    away = np.abs(total / times - shares) / math.sqrt(oracle.variance(n) / times)
    # 1,000 means at 6 standard errors: a false alarm once in 5e5 runs.
    assert away.max() < 6
    # And their spread is that of the formula (1,000 squares: standard deviation .045).
    assert np.mean(away**2) == pytest.approx(1, abs=0.3)


@pytest.mark.parametrize(
    ("size", "n", "epsilon"), [(1000, 1024, 1.0), (1000, 8192, 0.5), (63, 640, 2.0), (7, 20, 1.0)]
)
def test_theorem_1_holds_with_room(size, n, epsilon):
    """Acharya and Sun (2019), Theorem 1: bounds on the expected squared l2 error."""
    oracle = make(size, epsilon, published=True)
    shares = half_zipf(size)
    generator = np.random.default_rng([size, n])
    times = 300
    raw, projected = [], []
    for _ in range(times):
        estimate = oracle.estimate(drawn_counts(oracle, shares, n, generator))
        raw.append(((estimate.raw - shares) ** 2).sum())
        projected.append(((estimate.frequencies - shares) ** 2).sum())
    factor = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
    linear = 2 * size * factor**2 / n
    root = 8 * factor * math.sqrt(math.log(size) / n)
    error = np.std(raw) / math.sqrt(times)
    # "With room": the mean, plus 5 standard errors, stays below .75 of the bound (.5 where K
    # divides n, up to rounding and the signal).
    assert np.mean(raw) + 5 * error < 0.75 * linear
    assert np.mean(projected) <= np.mean(raw)
    assert np.mean(projected) < 0.75 * min(linear, root)


def test_raw_error_at_n_equal_k_is_the_exact_one():
    oracle = make(1000, 1.0, published=True)
    shares = np.full(1000, 1e-3)
    generator = np.random.default_rng(3)
    errors = [
        ((oracle.estimate(drawn_counts(oracle, shares, 1024, generator)).raw - shares) ** 2).sum()
        for _ in range(400)
    ]
    exact = 1000 * oracle.variance(1024)
    assert exact == pytest.approx(4.573, abs=0.002)
    # The standard deviation of one error is about .2: 5 standard errors are .05.
    assert np.mean(errors) == pytest.approx(exact, abs=0.05)


def adversarial_values(order, n):
    """Value 1 where ``H[1, j mod K] = +1``, else value 0: half of the users have each.

    Every user's true bit is then 1, in every column, just as if all had value 0.
    """
    position = np.arange(n) % order
    return hadamard_bits(np.int64(1), position).astype(np.int64)


def test_values_that_follow_the_position_defeat_sequential_columns_only():
    """Theorem 4 made visible: the same data, both assignments."""
    size, n = 100, 128 * 400
    published, default = make(size, published=True), make(size)
    values = adversarial_values(published.order, n)
    shares = np.bincount(values, minlength=size) / n
    assert shares[:2].tolist() == [0.5, 0.5]

    columns = published.assign_sequential(0, n)
    bits = published.randomize(values, columns, SeededCoins(1))
    wrong = published.estimate(published.count(columns, bits))
    assert wrong.raw[0] > 0.95
    assert abs(wrong.raw[1]) < 0.05
    low, high = wrong.simultaneous_interval(0.999)
    assert not low[0] <= 0.5 <= high[0]

    prf, coin_prf = Prf(bytes(32)), Prf(bytes(range(32)))
    users = prf.pseudonyms([f"user-{j}" for j in range(n)])
    columns = default.assign(users, prf)
    coins = KeyedCoins(coin_prf, users, collection_id=default.collection_id, epoch=0)
    right = default.estimate(default.count(columns, default.randomize(values, columns, coins)))
    # 100 values at 5 standard errors: a false alarm once in 2e4 keys, and the key is fixed.
    assert (np.abs(right.raw - shares) < 5 * right.standard_error).all()
    assert right.detected[:2].all()


@pytest.mark.parametrize("size", [2, 3, 100])
def test_no_order_defeats_keyed_columns(size):
    """The mean over 300 keys, for values that follow j mod K and users in a row."""
    oracle = make(size)
    n, times = 256, 300
    values = np.arange(n) % oracle.order % size
    shares = np.bincount(values, minlength=size) / n
    total = np.zeros(size)
    for key in range(times):
        prf = Prf(key.to_bytes(32, "big"))
        users = prf.pseudonyms([f"user-{j}" for j in range(n)])
        coins = KeyedCoins(prf, users, collection_id=oracle.collection_id, epoch=0)
        columns = oracle.assign(users, prf)
        total += oracle.estimate(
            oracle.count(columns, oracle.randomize(values, columns, coins))
        ).raw
    # At most 100 means at 5.5 standard errors: a false alarm once in 2e5 choices of keys.
    assert (np.abs(total / times - shares) < 5.5 * math.sqrt(oracle.variance(n) / times)).all()
