"""The exact channel of every oracle, enumerated: privacy, bias and variance, for small k."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from hadabeam.mechanisms.domain import Domain
from hadabeam.mechanisms.one_bit import OneBitHadamard
from hadabeam.mechanisms.registry import ORACLES, make_oracle

EPSILONS = (0.1, 1.0, 3.0)
SIZES = (2, 3, 4, 5, 6)
NAMES = (*ORACLES, "as_published")


def build(name, size, epsilon):
    domain = Domain([f"v{i}" for i in range(size)])
    if name == "as_published":
        return OneBitHadamard.as_published(domain, epsilon)
    return make_oracle(name, domain, epsilon)


def state_of(oracle, output):
    """The counts of the one report that is ``output`` in the channel's notation."""
    if isinstance(output, tuple) and oracle.columns > 1:
        column, bit = output
        return oracle.count(np.array([column]), np.array([bit], dtype=np.uint8))
    if oracle.name == "rappor":
        message = np.packbits(np.array([output], dtype=np.uint8), axis=1, bitorder="little")
    elif oracle.name == "subset_selection":
        message = oracle._pack(np.array([output]))
    else:
        message = np.array([output])
    return oracle.count(np.zeros(1, dtype=np.int64), message)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_rows_sum_to_one_and_ratios_stay_below_e_to_the_epsilon(name, size, epsilon):
    oracle = build(name, size, epsilon)
    outputs, rows = oracle.channel()
    assert len(rows) == size
    assert len(set(outputs)) == len(outputs)
    assert all(len(row) == len(outputs) and sum(row) == 1 for row in rows)
    worst = Fraction(0)
    for column in zip(*rows, strict=True):
        assert min(column) > 0
        worst = max(worst, max(column) / min(column))
    # math.exp is off by less than 1e-15; what is delivered stays 1e-12 below, or is checked
    # by its logarithm, which the oracle rounds down.
    assert worst <= Fraction(math.exp(epsilon)) * (1 + Fraction(1, 10**15))
    assert oracle.epsilon_effective <= epsilon
    assert math.log(worst) == pytest.approx(oracle.epsilon_effective, abs=1e-12)
    assert math.log(worst) == pytest.approx(epsilon, abs=1e-6)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", tuple(ORACLES))
def test_estimate_of_one_report_is_unbiased_and_has_the_stated_variance(name, size, epsilon):
    oracle = build(name, size, epsilon)
    outputs, rows = oracle.channel()
    raw = np.array([oracle.estimate(state_of(oracle, output)).raw for output in outputs])
    probabilities = np.array([[float(p) for p in row] for row in rows])
    mean = probabilities @ raw
    np.testing.assert_allclose(mean, np.eye(size), atol=1e-10 * np.abs(raw).max())
    # A population with these shares; the variance depends on a value's own share only.
    population = np.arange(1, size + 1) / (size * (size + 1) / 2)
    second = population @ (probabilities @ raw**2)
    stated = [oracle.variance(1, f) for f in population]
    np.testing.assert_allclose(second - population**2, stated, rtol=1e-9)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("size", SIZES)
def test_published_scheme_is_unbiased_over_all_its_columns(size, epsilon):
    """One user in each column: the mean of the estimate is linear in the users' means."""
    oracle = build("as_published", size, epsilon)
    outputs, rows = oracle.channel()
    for value, row in enumerate(rows):
        ones = np.zeros(oracle.order)
        for (column, bit), probability in zip(outputs, row, strict=True):
            ones[column] += bit * float(probability) * oracle.order
        # The state is of whole numbers: scale the expected share of ones up.
        scale = 1 << 40
        state = np.stack([np.rint(ones * scale), np.full(oracle.order, scale)]).astype(np.int64)
        raw = oracle.estimate(state).raw
        np.testing.assert_allclose(raw, np.eye(size)[value], atol=1e-9 * oracle.factor)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_samplers_follow_the_channel(name, size, epsilon):
    """Chi-square per value, one fixed seed; 5 sigma: false alarms 3e-7 each, 4e-5 in all."""
    from hadabeam.mechanisms.coins import SeededCoins

    oracle = build(name, size, epsilon)
    outputs, rows = oracle.channel()
    n = 20_000
    generator = np.random.default_rng(size)
    for value, row in enumerate(rows):
        values = np.full(n, value)
        first = 1 if name == "one_bit_hadamard" else 0
        columns = generator.integers(first, oracle.columns, n)
        messages = oracle.randomize(values, columns, SeededCoins(1000 * size + value))
        observed = dict.fromkeys(outputs, 0)
        for output in as_outputs(oracle, columns, messages):
            observed[output] += 1
        counts = np.array([observed[output] for output in outputs], dtype=float)
        expected = n * np.array([float(p) for p in row])
        large = expected >= 5
        found, wanted = counts[large], expected[large]
        if not large.all():
            found = np.append(found, counts[~large].sum())
            wanted = np.append(wanted, expected[~large].sum())
        statistic = float(np.sum((found - wanted) ** 2 / wanted))
        freedom = len(wanted) - 1
        # Wilson and Hilferty: the cube root of chi-square over freedom is nearly normal.
        z = ((statistic / freedom) ** (1 / 3) - 1 + 2 / (9 * freedom)) / math.sqrt(
            2 / (9 * freedom)
        )
        assert z < 5, (value, z)


def as_outputs(oracle, columns, messages):
    if oracle.columns > 1:
        return zip(columns.tolist(), messages.tolist(), strict=True)
    if oracle.name == "rappor":
        bits = np.unpackbits(messages, axis=1, count=oracle.domain.size, bitorder="little")
        return map(tuple, bits.tolist())
    if oracle.name == "subset_selection":
        if oracle.bitmap:
            bits = np.unpackbits(messages, axis=1, count=oracle.domain.size, bitorder="little")
            return (tuple(np.flatnonzero(row).tolist()) for row in bits)
        return map(tuple, oracle._indices(messages).tolist())
    return messages.tolist()


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("size", SIZES)
def test_public_coin_is_one_bit_on_the_next_row_with_all_columns(size, epsilon):
    """Value x on row x + 1 and columns uniform on 0..K-1: the published matrix, one row down."""
    public = build("public_coin", size, epsilon)
    # The published scheme of as many values as there are rows: it uses all columns, of a
    # matrix twice as large, whose upper left quarter is this one.
    one_bit = OneBitHadamard.as_published(Domain([f"w{i}" for i in range(public.order)]), epsilon)
    assert one_bit.order == 2 * public.order
    outputs, rows = public.channel()
    their_outputs, their_rows = one_bit.channel()
    assert outputs == their_outputs[: 2 * public.order]
    for value in range(size):
        assert rows[value] == [2 * p for p in their_rows[value + 1][: 2 * public.order]]
    base_outputs, base_rows = build("hadamard_response", size, epsilon).channel()
    assert [y for y in base_outputs for _ in (0, 1)] == [y for y, _ in outputs]
    # The bit is 1 with probability q exactly where Hadamard response favours the output.
    for value in range(size):
        favoured = [p == max(base_rows[value]) for p in base_rows[value]]
        likely = [p == max(rows[value]) for p in rows[value][1::2]]
        assert favoured == likely
