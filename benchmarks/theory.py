"""The numbers of docs/theory.md: bounds of the paper beside what is measured.

Usage::

    python benchmarks/theory.py           # about a minute
    python benchmarks/theory.py --short   # a few seconds, fewer repeats
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from hadabeam.mechanisms import bounds
from hadabeam.mechanisms.adversary import (
    TARGET,
    SymmetricOneBit,
    against_places,
    confused_pair,
    data_sets,
)
from hadabeam.mechanisms.coins import SeededCoins
from hadabeam.mechanisms.distributions import distribution
from hadabeam.mechanisms.law import simulated_counts
from hadabeam.mechanisms.nameless import NamelessDomain
from hadabeam.mechanisms.one_bit import OneBitHadamard
from hadabeam.mechanisms.prf import Prf
from hadabeam.mechanisms.registry import ORACLES, make_oracle
from hadabeam.mechanisms.unperturbed_one_bit import UnperturbedOneBit

EPSILON = 1.0


def table(*rows: tuple[object, ...]) -> None:
    """Prints rows as a Markdown table, the first as its head."""
    texts = [
        [f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows
    ]
    texts.insert(1, ["---"] * len(texts[0]))
    print("\n".join("| " + " | ".join(row) + " |" for row in texts))


def estimate(oracle, truth, n, seed):
    """One collection of n users drawn from a distribution."""
    data, reports = np.random.SeedSequence(1, spawn_key=(seed,)).spawn(2)
    users = np.random.default_rng(data).multinomial(n, truth)
    return oracle.estimate(simulated_counts(oracle, users, reports))


def theorem_1(repeats: int) -> None:
    """Theorem 1 and Corollary 1, for the published scheme and the default."""
    print("\n## Theorem 1 and Corollary 1: k = 1000, epsilon = 1, uniform\n")
    rows: list[tuple[object, ...]] = [
        ("scheme", "n", "raw squared l2", "exact", "bound (first branch)", "projected", "bound",
         "l1", "bound (Corollary 1)")
    ]  # fmt: skip
    truth = distribution("uniform", 1000)
    domain = NamelessDomain(1000)
    schemes = {
        "as published": OneBitHadamard.as_published(domain, EPSILON),
        "default": OneBitHadamard(domain, EPSILON),
    }
    for n in (1024, 10_240, 102_400, 1_024_000):
        for name, oracle in schemes.items():
            found = [estimate(oracle, truth, n, seed) for seed in range(repeats)]
            raw = np.mean([np.sum((one.raw - truth) ** 2) for one in found])
            gaps = [one.frequencies - truth for one in found]
            rows.append(
                (
                    name,
                    f"{n:,}",
                    float(raw),
                    bounds.expected_squared_l2(oracle, n, truth),
                    bounds.theorem_1_branches(1000, n, EPSILON)[0],
                    float(np.mean([np.sum(gap**2) for gap in gaps])),
                    bounds.theorem_1(1000, n, EPSILON),
                    float(np.mean([np.abs(gap).sum() for gap in gaps])),
                    bounds.corollary_1(1000, n, EPSILON),
                )
            )
    table(*rows)


def exact_errors(repeats: int) -> None:
    """Exact expected squared l2 of every oracle beside simulation."""
    print("\n## Squared l2 of the raw estimate: k = 1000, n = 100,000, Zipf(1)\n")
    truth = distribution("zipf:1", 1000)
    domain = NamelessDomain(1000)
    oracles = {name: make_oracle(name, domain, EPSILON) for name in ORACLES}
    oracles["one bit as published"] = OneBitHadamard.as_published(domain, EPSILON)
    oracles["one true bit (not private)"] = UnperturbedOneBit(domain, i_accept_no_privacy=True)
    rows: list[tuple[object, ...]] = [
        ("oracle", "exact", "measured", "n times a rare value's variance")
    ]
    for name, oracle in oracles.items():
        found = [
            np.sum((estimate(oracle, truth, 100_000, seed).raw - truth) ** 2)
            for seed in range(repeats)
        ]
        exact = bounds.expected_squared_l2(oracle, 100_000, truth)
        rows.append((name, exact, float(np.mean(found)), oracle.variance(1)))
    table(*rows)


def theorem_2() -> None:
    """Theorem 2: a symmetric bit confuses two disjoint distributions."""
    print("\n## Theorem 2: k = 8, one million users, epsilon = 1\n")
    domain = NamelessDomain(8)
    scheme, oracle = SymmetricOneBit(domain, EPSILON), OneBitHadamard(domain, EPSILON)
    pair = confused_pair(scheme.channel_matrix())
    rows: list[tuple[object, ...]] = [
        ("distribution", "share of ones, symmetric bit", "l1 error of one-bit (columns)")
    ]
    for name, truth in zip(("first", "second, disjoint"), pair, strict=True):
        users = np.random.default_rng(2).multinomial(10**6, truth)
        bits = scheme.randomize(np.repeat(np.arange(8), users), SeededCoins(3))
        found = estimate(oracle, truth, 10**6, 4).frequencies
        rows.append((name, f"{bits.mean():.5f}", float(np.abs(found - truth).sum())))
    table(*rows)


def theorem_3(repeats: int) -> None:
    """Theorem 3: l-infinity of fixed data sets."""
    print("\n## Theorem 3: l-infinity for fixed data sets, k = 1000, n = 200,000, epsilon = 1\n")
    n, size = 200_000, 1000
    domain = NamelessDomain(size)
    users = Prf(bytes(32)).pseudonyms([str(i) for i in range(n)])
    names = ("hadamard_response", "one_bit_hadamard", "public_coin")
    rows: list[tuple[object, ...]] = [("data set", *names, "one bit, j mod K", "bound")]
    published = OneBitHadamard.as_published(domain, EPSILON)
    for which, values in data_sets(n, size).items():
        truth = np.bincount(values, minlength=size) / n
        cells = []
        for oracle in (*(make_oracle(name, domain, EPSILON) for name in names), published):
            worst = []
            for seed in range(repeats):
                if oracle is published:
                    columns = published.assign_sequential(0, n)
                else:
                    columns = oracle.assign(users, Prf(seed.to_bytes(32, "big")))
                messages = oracle.randomize(values, columns, SeededCoins(seed))
                raw = oracle.estimate(oracle.count(columns, messages)).raw
                worst.append(np.abs(raw - truth).max())
            cells.append(float(np.mean(worst)))
        rows.append((which, *cells, bounds.theorem_3(size, n, EPSILON)))
    table(*rows)
    normal = bounds.noise_factor(EPSILON) / math.sqrt(n) * bounds.expected_largest(size)
    print(f"\nAs the largest of {size} independent normal errors: {normal:.4g}")


def theorem_4() -> None:
    """Theorem 4: two data sets with one law of reports, and who tells them apart."""
    print("\n## Theorem 4: the estimate of one value, k = 64, epsilon = 1\n")
    domain = NamelessDomain(64)
    published = OneBitHadamard.as_published(domain, EPSILON)
    rows: list[tuple[object, ...]] = [
        ("n", "true frequency", "one bit, j mod K", "one bit, keyed", "Hadamard response",
         "least error, any private-coin bit")
    ]  # fmt: skip
    for n in (1 << 12, 1 << 16, 1 << 20):
        users = Prf(bytes(32)).pseudonyms([str(i) for i in range(n)])
        for values in against_places(n):
            cells = []
            for oracle in (
                published,
                OneBitHadamard(domain, EPSILON),
                make_oracle("hadamard_response", domain, EPSILON),
            ):
                if oracle is published:
                    columns = published.assign_sequential(0, n)
                else:
                    columns = oracle.assign(users, Prf(bytes(range(32))))
                messages = oracle.randomize(values, columns, SeededCoins(5))
                counts = oracle.count(columns, messages)
                cells.append(f"{oracle.estimate(counts).raw[TARGET]:.3f}")
            rows.append((f"{n:,}", float(np.mean(values == TARGET)), *cells, bounds.theorem_4(1)))
    table(*rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="fewer repeats")
    repeats = 2 if parser.parse_args().short else 20
    theorem_1(repeats)
    exact_errors(repeats)
    theorem_2()
    theorem_3(repeats)
    theorem_4()


if __name__ == "__main__":
    main()
