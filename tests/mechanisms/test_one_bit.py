"""The one-bit oracle: layout, bits, counts, both forms of the estimate, and its exact laws."""

import itertools
import math
import pickle
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg

from hadabeam.mechanisms import (
    Domain,
    InputError,
    KeyedCoins,
    OneBitHadamard,
    ParameterError,
    Prf,
    SeededCoins,
    SystemCoins,
)
from hadabeam.mechanisms.coins import Coins

KEY = Prf(bytes(range(32)))


def make(size, epsilon=1.0, published=False, **kwargs):
    domain = Domain([f"v{i}" for i in range(size)])
    maker = OneBitHadamard.as_published if published else OneBitHadamard
    return maker(domain, epsilon, **kwargs)


def some_users(n, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, 16), dtype=np.uint8)


def exact(oracle):
    """q, c, d, M and K, straight from the definitions."""
    q = 1 - oracle.threshold / 2**64
    return q, 1 / (2 * q - 1), oracle.known, oracle.usable, oracle.order


@pytest.mark.parametrize(
    ("size", "order", "published_order"),
    [(2, 2, 4), (3, 4, 4), (4, 4, 8), (5, 8, 8), (1000, 1024, 1024), (1024, 1024, 2048)],
)
def test_layout(size, order, published_order):
    default, published = make(size), make(size, published=True)
    assert (default.order, default.usable, default.known) == (order, order - 1, 1)
    assert (published.order, published.usable, published.known) == (
        published_order,
        published_order,
        0,
    )
    assert default.state_shape == (2, order)
    assert default.columns == order
    assert default.zero().shape == (2, order)
    assert default.bits_per_report == 1
    assert default.payload_bytes == 0


def test_collections_are_told_apart():
    oracles = [
        make(3),
        make(3, published=True),
        make(4),
        make(3, epsilon=1.5),
        make(3, collection="b"),
        make(3, version=2),
    ]
    assert len({oracle.collection_id for oracle in oracles}) == len(oracles)
    assert make(3).collection_id == make(3, epsilon=1).collection_id


@pytest.mark.parametrize("published", [False, True])
def test_pickling_keeps_everything(published):
    oracle = make(5, published=published)
    copied = pickle.loads(pickle.dumps(oracle))
    assert copied.collection_id == oracle.collection_id
    assert copied.published is published
    assert copied.state_shape == oracle.state_shape


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": True}, "epsilon"),
        ({"epsilon": "1"}, "epsilon"),
        ({"domain": ["a", "b"]}, "domain"),
        ({"collection": ""}, "collection"),
        ({"collection": 7}, "collection"),
        ({"version": 0}, "version"),
        ({"version": True}, "version"),
    ],
)
@pytest.mark.parametrize("maker", [OneBitHadamard, OneBitHadamard.as_published])
def test_bad_parameters(maker, arguments, message):
    good = {"domain": Domain(["a", "b"]), "epsilon": 1.0}
    with pytest.raises(ParameterError, match=message):
        maker(**{**good, **arguments})


@pytest.mark.parametrize("epsilon", [2.0**-20, 0.5, 1.0, math.log(3), 4.0, 40.0, 50.0])
def test_epsilon_delivered_is_never_above_the_one_asked(epsilon):
    oracle = make(3, epsilon)
    assert oracle.epsilon_effective <= epsilon
    _, rows = oracle.channel()
    worst = max(max(column) / min(column) for column in zip(*rows, strict=True))
    assert worst == Fraction(2**64 - oracle.threshold, oracle.threshold)


# Columns


def test_keyed_columns_follow_the_prf():
    oracle = make(6)
    users = some_users(50)
    head = KEY.context("column", oracle.collection_id).block
    expected = [
        1 + int.from_bytes(KEY.cmac(head + user.tobytes())[:8], "little") % 7 for user in users
    ]
    columns = oracle.assign(users, KEY)
    assert columns.dtype == np.int64
    assert columns.tolist() == expected
    order = np.random.default_rng(1).permutation(50)
    np.testing.assert_array_equal(oracle.assign(users[order], KEY), columns[order])


@pytest.mark.parametrize("key", [KEY, None], ids=["keyed", "system"])
def test_columns_are_uniform_and_never_column_0(key):
    oracle = make(16)
    counts = np.bincount(oracle.assign(some_users(150_000), key), minlength=16)
    assert counts[0] == 0
    assert counts.size == 16
    # Chi-square with 14 degrees of freedom; above 60 once in 1e7 runs.
    assert ((counts[1:] - 10_000) ** 2 / 10_000).sum() < 60


def test_fresh_columns_differ_from_call_to_call():
    oracle = make(1000)
    users = some_users(100)
    assert (oracle.assign(users, None) != oracle.assign(users, None)).any()
    assert oracle.assign(users[:0], None).shape == (0,)


def test_two_values_leave_one_column():
    assert set(make(2).assign(some_users(20), KEY).tolist()) == {1}


def test_published_columns_are_j_mod_k():
    oracle = make(3, published=True)
    assert oracle.assign_sequential(0, 10).tolist() == [j % 4 for j in range(10)]
    assert oracle.assign_sequential(7, 6).tolist() == [j % 4 for j in range(7, 13)]
    for start, n in ((-1, 3), (0, -1)):
        with pytest.raises(ParameterError):
            oracle.assign_sequential(start, n)


def test_each_scheme_refuses_the_columns_of_the_other():
    with pytest.raises(ParameterError, match="assign_sequential"):
        make(3, published=True).assign(some_users(2), KEY)
    with pytest.raises(ParameterError, match="as_published"):
        make(3).assign_sequential(0, 4)


# Bits


class FixedCoins(Coins):
    def __init__(self, words):
        self.table = np.array(words, dtype=np.uint64)

    def words(self, n, *, inputs=None, block=0):
        assert inputs is None
        assert n == len(self.table)
        return self.table


def test_a_word_below_the_threshold_flips_and_each_true_bit_has_its_own_word():
    oracle = make(2)
    t, high = oracle.threshold, 2**64 - 1
    values, columns = np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.ones(8, dtype=np.int64)
    words = [
        *([high, t - 1], [high, t], [0, high], [0, 0]),  # Value 0 has true bit 1: word 1 decides.
        *([t - 1, high], [t, high], [high, 0], [0, 0]),  # Value 1 has true bit 0: word 0.
    ]
    bits = oracle.randomize(values, columns, FixedCoins(words))
    assert bits.dtype == np.uint8
    assert bits.tolist() == [0, 1, 1, 0, 1, 0, 0, 1]


@pytest.mark.parametrize("published", [False, True])
def test_bits_follow_the_channel(published):
    oracle = make(5, published=published)
    outputs, rows = oracle.channel()
    n = 20_000
    coins = SeededCoins(11)
    for value, row in enumerate(rows):
        for (column, bit), probability in zip(outputs, row, strict=True):
            if bit:
                bits = oracle.randomize(np.full(n, value), np.full(n, column), coins)
                q = float(probability * oracle.usable)
                # 75 counts at 6 standard deviations: a false alarm once in 6e6 runs.
                assert abs(int(bits.sum()) - n * q) < 6 * math.sqrt(n * q * (1 - q))


def test_keyed_bits_repeat_and_change_with_the_epoch():
    oracle = make(100)
    users = some_users(1000)
    columns, values = oracle.assign(users, KEY), np.arange(1000) % 100

    def bits(epoch):
        coins = KeyedCoins(KEY, users, collection_id=oracle.collection_id, epoch=epoch)
        return oracle.randomize(values, columns, coins)

    np.testing.assert_array_equal(bits(0), bits(0))
    assert (bits(0) != bits(1)).any()


@pytest.mark.parametrize("value", [-1, 3, 2**40, -(2**63)])
def test_an_index_outside_the_domain_never_yields_a_report(value):
    with pytest.raises(ParameterError, match="indices from 0 to 2"):
        make(3).randomize(np.array([0, value]), np.array([1, 1]), SystemCoins())


@pytest.mark.parametrize(
    ("values", "columns"),
    [
        (np.array([0.0]), np.array([1])),
        (np.array([True]), np.array([1])),
        (np.array([[0]]), np.array([[1]])),
        (np.array([0, 1]), np.array([1])),
        (np.array([0]), np.array([0])),
        (np.array([0]), np.array([4])),
        (np.array([0]), np.array([-1])),
        (np.array([0]), np.array([1.0])),
    ],
)
def test_wrong_arrays_are_refused(values, columns):
    with pytest.raises(ParameterError):
        make(3).randomize(values, columns, SystemCoins())


def test_no_users_no_bits():
    assert make(3).randomize(np.zeros(0, int), np.zeros(0, int), SystemCoins()).shape == (0,)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.int64, np.uint64])
def test_values_of_any_whole_type(dtype):
    oracle, coins = make(3), FixedCoins([[2**64 - 1] * 2] * 3)
    bits = oracle.randomize(np.array([0, 1, 2], dtype=dtype), np.array([3, 3, 3]), coins)
    assert bits.tolist() == [1, 0, 0]


# Counts


@pytest.mark.parametrize("column_type", [np.int32, np.int64, np.uint16])
@pytest.mark.parametrize("bit_type", [np.uint8, np.bool_, np.uint64])
def test_count_is_a_count(column_type, bit_type):
    oracle = make(6)
    generator = np.random.default_rng(2)
    n = 200_001  # More than one chunk.
    columns = generator.integers(1, 8, n).astype(column_type)
    bits = generator.integers(0, 2, n).astype(bit_type)
    counts = oracle.count(columns, bits)
    assert counts.dtype == np.int64
    expected = Counter(zip(columns.tolist(), bits.tolist(), strict=True))
    for column in range(8):
        assert counts[0, column] == expected[column, 1]
        assert counts[1, column] == expected[column, 0] + expected[column, 1]
    assert oracle.reports(counts) == n
    assert oracle.empty_columns(counts) == 0


def test_counts_add_up_over_any_grouping():
    oracle = make(6)
    generator = np.random.default_rng(3)
    columns, bits = generator.integers(1, 8, 1000), generator.integers(0, 2, 1000)
    order = generator.permutation(1000)
    parts = np.split(order, [10, 10, 500])
    total = oracle.zero()
    for part in parts:
        total += oracle.count(columns[part], bits[part])
    np.testing.assert_array_equal(total, oracle.count(columns, bits))


@pytest.mark.parametrize(
    ("columns", "bits"),
    [
        ([0], [1]),
        ([4], [1]),
        ([-1], [1]),
        ([2**40], [1]),
        ([1], [2]),
        ([1], [-1]),
        ([1, 2], [1]),
        ([1.0], [1]),
        ([1], [1.0]),
    ],
)
def test_reports_out_of_range_are_refused(columns, bits):
    with pytest.raises(ParameterError):
        make(3).count(np.array(columns), np.array(bits))


def test_fields_of_a_report():
    oracle = make(3)
    columns, bits = np.array([1, 3, 2]), np.array([0, 1, 1], dtype=np.uint8)
    column, bit, payload = oracle.encode(columns, bits)
    assert (column.dtype, bit.dtype, payload) == (np.int32, np.uint8, None)
    back = oracle.decode(column, bit, payload)
    np.testing.assert_array_equal(back[0], columns)
    np.testing.assert_array_equal(back[1], bits)
    valid = oracle.valid(np.array([0, 1, 3, 4, -1, 1]), np.array([0, 1, 0, 0, 0, 2]), None)
    assert valid.tolist() == [False, True, True, False, False, False]
    assert make(3, published=True).valid(np.array([0]), np.array([0]), None).tolist() == [True]


# Estimates


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
