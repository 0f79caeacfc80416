"""The one-bit oracle: layout, columns, bits and counts."""

import math
import pickle
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from hadabeam.mechanisms import (
    Domain,
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
