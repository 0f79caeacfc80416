"""The paper's bounds hold in simulation, and its lower bounds can be seen."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest

from hadabeam.mechanisms import bounds
from hadabeam.mechanisms.accuracy import (
    detectable_frequency,
    expected_errors,
    users_needed,
    variance,
)
from hadabeam.mechanisms.adversary import (
    TARGET,
    SymmetricOneBit,
    against_places,
    confused_pair,
    data_sets,
)
from hadabeam.mechanisms.coins import SeededCoins
from hadabeam.mechanisms.distributions import FIGURE_1, distribution, label
from hadabeam.mechanisms.domain import Domain
from hadabeam.mechanisms.errors import ParameterError
from hadabeam.mechanisms.hadamard import hadamard_bits
from hadabeam.mechanisms.law import draw_counts, has_law, run_oracle, simulated_counts
from hadabeam.mechanisms.nameless import NamelessDomain
from hadabeam.mechanisms.one_bit import OneBitHadamard
from hadabeam.mechanisms.prf import Prf
from hadabeam.mechanisms.registry import ORACLES, make_oracle

NAMES = tuple(ORACLES)


def build(name, size, epsilon):
    domain = NamelessDomain(size)
    if name == "as_published":
        return OneBitHadamard.as_published(domain, epsilon)
    return make_oracle(name, domain, epsilon)


def seeds(count, *key):
    return [np.random.SeedSequence(11, spawn_key=(*key, i)) for i in range(count)]


def draw(oracle, truth, n, seed):
    data, reports = seed.spawn(2)
    users = np.random.default_rng(data).multinomial(n, truth)
    return oracle.estimate(simulated_counts(oracle, users, reports))


def test_numbers_that_were_computed_by_hand():
    # c = (e + 1) / (e - 1) = 2.16395 at epsilon 1, c**2 = 4.68269.
    assert bounds.noise_factor(1.0) ** 2 == pytest.approx(4.68269, abs=1e-5)
    assert bounds.theorem_1_branches(1000, 1024, 1.0)[0] == pytest.approx(9.1459, abs=1e-4)
    second = 8 * 2.16395 * math.sqrt(math.log(1000) / 1024)
    assert bounds.theorem_1(1000, 1024, 1.0) == pytest.approx(second, rel=1e-5)
    assert bounds.corollary_1(1000, 10**6, 1.0) == pytest.approx(3.0603, abs=1e-4)
    assert bounds.theorem_3(1000, 10**6, 1.0) == pytest.approx(0.022750, abs=1e-5)
    assert bounds.theorem_4(1) == 1 / 12
    assert bounds.expected_largest(1) == pytest.approx(math.sqrt(2 / math.pi), abs=1e-6)
    assert bounds.expected_largest(2) == pytest.approx(2 / math.sqrt(math.pi), abs=1e-6)
    for bad in ((1, 10), (2, 0)):
        with pytest.raises(ParameterError):
            bounds.theorem_1(*bad, 1.0)


@pytest.mark.parametrize("name", [*NAMES, "as_published"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_squared_l2_is_what_the_variances_say(name, epsilon):
    """60 collections of 64 values: the sum of squares has a relative deviation below

    sqrt(2 / (60 * 64)) = 2.3 % (a few values carry more in the sparse schemes, 4 %);
    20 % is 5 sigma.
    """
    oracle = build(name, 64, epsilon)
    truth = distribution("zipf:1", 64)
    n = 128 * 4
    measured = [np.sum((draw(oracle, truth, n, seed).raw - truth) ** 2) for seed in seeds(60, 1)]
    expected = bounds.expected_squared_l2(oracle, n, truth)
    assert np.mean(measured) == pytest.approx(expected, rel=0.2)


def test_theorem_1_with_n_equal_to_the_order():
    """n = K = 1024: raw squared l2 4.572 exactly, against the bound 9.146 for it."""
    oracle = build("as_published", 1000, 1.0)
    truth = distribution("uniform", 1000)
    exact = bounds.expected_squared_l2(oracle, 1024, truth)
    assert exact == pytest.approx(4.572, abs=1e-3)
    raw, projected, first = [], [], []
    for seed in seeds(20, 2):
        estimate = draw(oracle, truth, 1024, seed)
        raw.append(np.sum((estimate.raw - truth) ** 2))
        projected.append(np.sum((estimate.frequencies - truth) ** 2))
        first.append(np.abs(estimate.frequencies - truth).sum())
    assert np.mean(raw) == pytest.approx(exact, rel=0.1)
    assert np.mean(raw) < bounds.theorem_1_branches(1000, 1024, 1.0)[0]
    assert np.mean(projected) < bounds.theorem_1(1000, 1024, 1.0)
    assert np.mean(first) < bounds.corollary_1(1000, 1024, 1.0)


@pytest.mark.parametrize("name", ["one_bit_hadamard", "as_published"])
@pytest.mark.parametrize("shape", FIGURE_1)
@pytest.mark.parametrize(("size", "n"), [(15, 64), (100, 1000), (1000, 30_000)])
def test_theorem_1_and_corollary_1_bound_what_is_simulated(name, shape, size, n):
    oracle = build(name, size, 1.0)
    truth = distribution(shape, size)
    gaps = [draw(oracle, truth, n, seed).frequencies - truth for seed in seeds(5, 3)]
    assert np.mean([np.sum(gap**2) for gap in gaps]) <= bounds.theorem_1(size, n, 1.0)
    assert np.mean([np.abs(gap).sum() for gap in gaps]) <= bounds.corollary_1(size, n, 1.0)


@pytest.mark.parametrize("name", ["hadamard_response", "one_bit_hadamard", "public_coin"])
@pytest.mark.parametrize(
    "which", ["one value", "in turn", "side by side", "against places", "their twin"]
)
def test_theorem_3_bounds_fixed_adversarial_data_sets(name, which):
    """The data set is fixed; only coins and keyed columns are drawn. Mean of 10."""
    n, size = 20_000, 200
    oracle = build(name, size, 1.0)
    values = data_sets(n, size)[which]
    truth = np.bincount(values, minlength=size) / n
    users = Prf(bytes(32)).pseudonyms([str(i) for i in range(n)])
    worst = []
    for seed in range(10):
        columns = oracle.assign(users, Prf(bytes([seed]) * 32))
        messages = oracle.randomize(values, columns, SeededCoins(seed))
        raw = oracle.estimate(oracle.count(columns, messages)).raw
        worst.append(np.abs(raw - truth).max())
    assert np.mean(worst) < bounds.theorem_3(size, n, 1.0)


def test_theorem_2_a_symmetric_bit_confuses_two_disjoint_distributions():
    """Any channel that all users share and that has fewer outputs than values."""
    scheme = SymmetricOneBit(NamelessDomain(8), 1.0)
    left, right = confused_pair(scheme.channel_matrix())
    assert np.abs(left - right).sum() == pytest.approx(2.0)
    assert left.min() >= 0
    assert right.min() >= 0
    assert np.sum(left * right) == 0
    outputs = scheme.channel_matrix()
    np.testing.assert_allclose(left @ outputs, right @ outputs, atol=1e-14)
    # Reports of a million users: no difference that counts can show. 5 sigma of a binomial.
    n = 10**6
    shares = []
    for truth in (left, right):
        users = np.random.default_rng(4).multinomial(n, truth)
        bits = scheme.randomize(np.repeat(np.arange(8), users), SeededCoins(5))
        shares.append(bits.mean())
    assert abs(shares[0] - shares[1]) < 5 * math.sqrt(2 * 0.25 / n)
    # The asymmetric one-bit scheme tells them apart.
    oracle = build("one_bit_hadamard", 8, 1.0)
    for truth, other in ((left, right), (right, left)):
        found = draw(oracle, truth, n, np.random.SeedSequence(6)).frequencies
        assert np.abs(found - truth).sum() < 0.1 < np.abs(found - other).sum()


def test_theorem_2_pair_exists_for_every_symmetric_channel_with_few_outputs():
    generator = np.random.default_rng(7)
    for outputs in (2, 4, 8):
        matrix = generator.random((16, outputs))
        matrix /= matrix.sum(axis=1, keepdims=True)
        left, right = confused_pair(matrix)
        assert np.abs(left - right).sum() == pytest.approx(2.0)
        np.testing.assert_allclose(left @ matrix, right @ matrix, atol=1e-12)
    with pytest.raises(ParameterError, match="fewer outputs"):
        confused_pair(np.eye(4))


def test_theorem_4_places_defeat_private_coin_bits_and_nothing_else():
    """Values that follow the place: the error of j mod K stays, whatever n."""
    size = 64
    published = build("as_published", size, 1.0)
    for n in (1 << 14, 1 << 18):
        places = published.assign_sequential(0, n)
        pair = against_places(n)
        # The true bits agree user by user, so that the laws of all reports are the same.
        truths = [hadamard_bits(values, places) for values in pair]
        np.testing.assert_array_equal(*truths)
        shares = [np.mean(values == TARGET) for values in pair]
        assert shares == [0.0, 0.75]
        bits = published.randomize(pair[0], places, SeededCoins(8))
        raw = published.estimate(published.count(places, bits)).raw
        for share in shares:
            assert abs(raw[TARGET] - share) > 0.2 > bounds.theorem_4(1)
        users = Prf(bytes(32)).pseudonyms([str(i) for i in range(n)])
        for name in ("one_bit_hadamard", "hadamard_response"):
            oracle = build(name, size, 1.0)
            for values in pair:
                columns = oracle.assign(users, Prf(bytes(range(32))))
                messages = oracle.randomize(values, columns, SeededCoins(9))
                raw = oracle.estimate(oracle.count(columns, messages)).raw
                truth = np.bincount(values, minlength=size) / n
                # 4 x 64 values, 5.5 sigma: false alarms 1e-5.
                assert np.abs(raw - truth).max() < 5.5 * math.sqrt(4.7 / n)


def test_laws_of_small_collections_are_exact():
    """Every state of three users, by enumeration; chi-square within 5 sigma."""
    users = np.array([1, 0, 2, 0])
    for name, epsilon in (
        ("randomized_response", 1.0),
        ("rappor", 1.0),
        ("subset_selection", 0.2),
    ):
        oracle = make_oracle(name, Domain(list("abcd")), epsilon)
        outputs, rows = oracle.channel()
        states = []
        for output in outputs:
            if name == "randomized_response":
                states.append(np.eye(4, dtype=int)[output])
            elif name == "rappor":
                states.append(np.array([*output, 1]))
            else:
                states.append(np.bincount(output, minlength=4))
        law: Counter[tuple[int, ...]] = Counter()
        one, two = rows[0], rows[2]
        for a, b, c in product(range(len(outputs)), repeat=3):
            state = tuple((states[a] + states[b] + states[c]).tolist())
            law[state] += float(one[a] * two[b] * two[c])
        generator = np.random.default_rng(10)
        times = 4_000
        seen = Counter(tuple(draw_counts(oracle, users, generator).tolist()) for _ in range(times))
        assert set(seen) <= set(law)
        common = {state: p for state, p in law.items() if times * p >= 5}
        statistic = sum((seen[s] - times * p) ** 2 / (times * p) for s, p in common.items())
        freedom = len(common) - 1
        z = ((statistic / freedom) ** (1 / 3) - 1 + 2 / (9 * freedom)) / math.sqrt(
            2 / (9 * freedom)
        )
        assert z < 5, (name, z)


@pytest.mark.parametrize("name", ["randomized_response", "rappor", "subset_selection"])
def test_law_and_oracle_agree_on_larger_collections(name):
    """Squared errors of 60 collections by each: ratio 1 within 20 % (5 sigma, see above)."""
    oracle = build(name, 50, 1.0)
    assert has_law(oracle)
    users = np.random.default_rng(12).multinomial(800, distribution("zipf:1", 50))
    truth = users / 800
    by_law, by_run = [], []
    for seed in seeds(60, 4):
        drawn = oracle.estimate(draw_counts(oracle, users, np.random.default_rng(seed)))
        ran = oracle.estimate(run_oracle(oracle, users, seed))
        by_law.append([np.sum((drawn.raw - truth) ** 2), np.abs(drawn.frequencies - truth).sum()])
        by_run.append([np.sum((ran.raw - truth) ** 2), np.abs(ran.frequencies - truth).sum()])
    np.testing.assert_allclose(np.mean(by_law, axis=0), np.mean(by_run, axis=0), rtol=0.2)


def test_hadamard_oracles_have_no_shortcut():
    oracle = build("one_bit_hadamard", 50, 1.0)
    assert not has_law(oracle)
    with pytest.raises(ParameterError, match="running it"):
        draw_counts(oracle, np.ones(50, dtype=np.int64), np.random.default_rng(0))


def test_distributions():
    for name in FIGURE_1:
        p = distribution(name, 7)
        assert p.sum() == pytest.approx(1.0)
        assert (np.diff(p) <= 1e-15).all()
    geo = distribution("geo:0.8", 10)
    np.testing.assert_allclose(geo[1:] / geo[:-1], 0.8)
    zipf = distribution("zipf:0.5", 4)
    np.testing.assert_allclose(zipf[0] / zipf, np.sqrt([1, 2, 3, 4]))
    np.testing.assert_allclose(distribution("two_steps", 5) * 9, [3, 3, 1, 1, 1])
    assert label("geo:0.8") == "Geo(0.8)"
    assert label("two_steps") == "Two steps"
    for bad in ("unifrom", "geo:1", "geo:x", "zipf:-1", "zipf", "geo:nan", ""):
        with pytest.raises(ParameterError):
            distribution(bad, 5)


@pytest.mark.parametrize("name", NAMES)
def test_expected_errors_are_those_of_simulation(name):
    """20 collections of 200 values: means within 15 % (l-infinity: within 30 %)."""
    oracle = build(name, 200, 1.0)
    truth = distribution("zipf:1", 200)
    n = 30_000
    gaps = [np.abs(draw(oracle, truth, n, seed).frequencies - truth) for seed in seeds(20, 5)]
    expected = expected_errors(oracle, n, truth)
    assert expected.l1 == pytest.approx(np.mean([gap.sum() for gap in gaps]), rel=0.15)
    squared = np.mean([np.sum(gap**2) for gap in gaps])
    assert expected.l2 == pytest.approx(math.sqrt(squared), rel=0.15)
    assert expected.l_infinity == pytest.approx(np.mean([gap.max() for gap in gaps]), rel=0.3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1_000, 20_000])
def test_a_value_of_detectable_frequency_is_found_nine_times_of_ten(name, n):
    """100 collections: .9 has a standard deviation of 3 %; 4 sigma, false alarms 6e-5 each."""
    oracle = build(name, 20, 2.0)
    frequency = detectable_frequency(oracle, n)
    assert 0 < frequency < 1
    truth = np.full(20, (1 - frequency) / 19)
    truth[7] = frequency
    found = [bool(draw(oracle, truth, n, seed).detected[7]) for seed in seeds(100, 6)]
    assert abs(np.mean(found) - 0.9) < 4 * 0.03


def test_nothing_is_detectable_with_too_few_users():
    assert detectable_frequency(build("randomized_response", 1000, 1.0), 1000) == math.inf
    assert detectable_frequency(build("one_bit_hadamard", 1000, 1.0), 0) == math.inf


@pytest.mark.parametrize("measure", ["l1", "l2", "l_infinity", "detectable"])
def test_users_needed_are_enough_and_not_many_too_many(measure):
    oracle = build("one_bit_hadamard", 100, 1.0)
    truth = distribution("zipf:1", 100)
    wanted = {"l1": 0.5, "l2": 0.05, "l_infinity": 0.02, "detectable": 0.02}[measure]
    n = users_needed(oracle, truth, measure, wanted)

    def reached(users):
        if measure == "detectable":
            return detectable_frequency(oracle, users)
        return getattr(expected_errors(oracle, users, truth), measure)

    assert reached(n) <= wanted < reached(int(n * 0.95))
    with pytest.raises(ParameterError):
        users_needed(oracle, truth, measure, 0.0)
    with pytest.raises(ParameterError, match="measure"):
        users_needed(oracle, truth, "l3", wanted)


def test_variances_shrink_as_one_over_n():
    for name in NAMES:
        oracle = build(name, 30, 1.0)
        assert variance(oracle, 400, 0.2) == pytest.approx(variance(oracle, 100, 0.2) / 4)


def test_nameless_domains():
    domain = NamelessDomain(10**9)
    assert domain.size == len(domain) == 10**9
    assert domain == NamelessDomain(10**9)
    assert domain != NamelessDomain(10)
    assert make_oracle("one_bit_hadamard", domain, 1.0).order == 2**30
    with pytest.raises(ParameterError):
        NamelessDomain(1)
