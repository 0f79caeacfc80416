"""Processor seconds and memory to privatize reports, for each oracle and its rivals.

100,000 reports at k = 1000 and epsilon = 1, each in a process of its own. hadabeam is
measured with keyed coins and with the operating system's; counting and estimating too. Rivals:

* ``plain``: the scheme in ordinary Python, user by user, written here;
* ``pure-ldp`` and ``multi-freq-ldpy``: libraries, if they are installed (``--rivals`` in a
  ``PYTHONPATH`` will do).

Usage::

    python benchmarks/oracles.py            # some minutes
    python benchmarks/oracles.py --short    # 5,000 reports
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

SIZE, EPSILON = 1000, 1.0

#: What is compared: oracle, and the rivals that make the same reports.
SCHEMES = {
    "one_bit_hadamard": ("plain one bit",),
    "hadamard_response": ("plain Hadamard response", "pure-ldp HadamardResponse"),
    "randomized_response": (
        "plain randomized response",
        "pure-ldp DE",
        "multi-freq-ldpy GRR",
    ),
    "rappor": ("plain RAPPOR", "pure-ldp UE", "multi-freq-ldpy UE"),
    "subset_selection": ("plain subset selection", "multi-freq-ldpy SS"),
    "public_coin": (),
    "public_coin_randomized_response": (),
}


def plain_one_bit(values: list[int]) -> list[Any]:
    q = math.exp(EPSILON) / (math.exp(EPSILON) + 1)
    reports = []
    for value in values:
        column = random.randrange(1, 1024)
        bit = 1 - bin(value & column).count("1") % 2
        reports.append((column, bit if random.random() < q else 1 - bit))
    return reports


def plain_hadamard_response(values: list[int]) -> list[Any]:
    q = math.exp(EPSILON) / (math.exp(EPSILON) + 1)
    reports = []
    for value in values:
        inside = random.random() < q
        while True:
            column = random.randrange(1024)
            if (bin((value + 1) & column).count("1") % 2 == 0) == inside:
                break
        reports.append(column)
    return reports


def plain_randomized_response(values: list[int]) -> list[Any]:
    p = math.exp(EPSILON) / (math.exp(EPSILON) + SIZE - 1)
    reports = []
    for value in values:
        if random.random() < p:
            reports.append(value)
        else:
            other = random.randrange(SIZE - 1)
            reports.append(other + (other >= value))
    return reports


def plain_rappor(values: list[int]) -> list[Any]:
    q = math.exp(EPSILON / 2) / (math.exp(EPSILON / 2) + 1)
    reports = []
    for value in values:
        bits = np.random.random(SIZE) < 1 - q
        bits[value] = random.random() < q
        reports.append(bits)
    return reports


def plain_subset_selection(values: list[int]) -> list[Any]:
    d = max(1, round(SIZE / (math.exp(EPSILON) + 1)))
    weight = d * math.exp(EPSILON)
    p = weight / (weight + SIZE - d)
    reports = []
    for value in values:
        others = [other for other in range(SIZE) if other != value]
        if random.random() < p:
            reports.append([value, *random.sample(others, d - 1)])
        else:
            reports.append(random.sample(others, d))
    return reports


def library(name: str) -> Callable[[list[int]], list[Any]]:
    """A rival from a library, as a function of the values."""
    if name.startswith("pure-ldp"):
        from pure_ldp.frequency_oracles.direct_encoding import DEClient
        from pure_ldp.frequency_oracles.hadamard_response import (
            HadamardResponseClient,
            HadamardResponseServer,
        )
        from pure_ldp.frequency_oracles.unary_encoding import UEClient

        if name.endswith("HadamardResponse"):
            hashes = HadamardResponseServer(EPSILON, SIZE).get_hash_funcs()
            client: Any = HadamardResponseClient(EPSILON, SIZE, hashes)
        else:
            client = (DEClient if name.endswith("DE") else UEClient)(EPSILON, SIZE)
        return lambda values: [client.privatise(value + 1) for value in values]
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client
    from multi_freq_ldpy.pure_frequency_oracles.SS import SS_Client
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Client

    if name.endswith("UE"):
        UE_Client(0, SIZE, EPSILON, False)  # Compiles; that is no part of the time.
        return lambda values: [UE_Client(value, SIZE, EPSILON, False) for value in values]
    function = GRR_Client if name.endswith("GRR") else SS_Client
    function(0, SIZE, EPSILON)
    return lambda values: [function(value, SIZE, EPSILON) for value in values]


PLAIN = {
    "plain one bit": plain_one_bit,
    "plain Hadamard response": plain_hadamard_response,
    "plain randomized response": plain_randomized_response,
    "plain RAPPOR": plain_rappor,
    "plain subset selection": plain_subset_selection,
}


def peak() -> float:
    """Megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def one_rival(name: str, n: int) -> dict[str, float]:
    """Seconds and megabytes of a rival; the best of three."""
    values = np.random.default_rng(0).integers(0, SIZE, n).tolist()
    privatize = PLAIN.get(name) or library(name)
    privatize(values[:10])
    before, best = peak(), math.inf
    for _ in range(3 if n <= 5000 else 1):
        start = time.process_time()
        reports = privatize(values)
        best = min(best, time.process_time() - start)
    assert len(reports) == n
    return {"privatize": best, "memory": peak() - before}


def one_oracle(name: str, n: int) -> dict[str, float]:
    """Seconds and megabytes of an oracle; the best of three."""
    from hadabeam.mechanisms import KeyedCoins, Prf, SystemCoins, make_oracle
    from hadabeam.mechanisms.nameless import NamelessDomain

    oracle = make_oracle(name, NamelessDomain(SIZE), EPSILON)
    values = np.random.default_rng(0).integers(0, SIZE, n)
    assignment, coin = Prf(bytes(32)), Prf(bytes(range(32)))
    users = assignment.pseudonyms([str(user) for user in range(n)])
    oracle.randomize(values[:10], oracle.assign(users[:10], None), SystemCoins())
    before = peak()
    best = dict.fromkeys(("privatize", "system", "count", "estimate"), math.inf)
    for _ in range(3):
        times = [time.process_time()]
        columns = oracle.assign(users, None)
        oracle.randomize(values, columns, SystemCoins())
        times.append(time.process_time())
        columns = oracle.assign(users, assignment)
        coins = KeyedCoins(coin, users, collection_id=oracle.collection_id, epoch=0)
        messages = oracle.randomize(values, columns, coins)
        times.append(time.process_time())
        counts = oracle.count(columns, messages)
        times.append(time.process_time())
        estimate = oracle.estimate(counts)
        assert len(estimate.frequencies) == len(estimate.detected)
        times.append(time.process_time())
        steps = dict(zip(("system", "privatize", "count", "estimate"), np.diff(times), strict=True))
        best = {step: min(best[step], float(steps[step])) for step in best}
    return {**best, "memory": peak() - before}


def measure(name: str, n: int) -> dict[str, float] | None:
    """The numbers of one process, or None if it cannot run."""
    command = [sys.executable, __file__, "--one", name, "--reports", str(n)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        print(f"({name} cannot run: {found.stderr.strip().splitlines()[-1]})", file=sys.stderr)
        return None
    return json.loads(found.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="5,000 reports")
    parser.add_argument("--reports", type=int, default=100_000)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    n = 5_000 if args.short else args.reports
    if args.one is not None:
        found = one_rival(args.one, n) if args.one not in SCHEMES else one_oracle(args.one, n)
        print(json.dumps(found))
        return
    modules = {"pure-ldp": "pure_ldp", "multi-freq-ldpy": "multi_freq_ldpy"}
    print(f"{n:,} reports, k = {SIZE}, epsilon = {EPSILON:g}; processor seconds, megabytes\n")
    print("| scheme | privatize | with fresh coins | count | estimate | memory | times hadabeam |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, rivals in SCHEMES.items():
        ours = measure(name, n)
        if ours is None:
            continue
        cells = [f"{ours[step]:.3f}" for step in ("privatize", "system", "count", "estimate")]
        print(f"| **{name}** | {' | '.join(cells)} | {ours['memory']:.0f} | 1 |", flush=True)
        for rival in rivals:
            module = modules.get(rival.split(" ")[0])
            if module is not None and importlib.util.find_spec(module) is None:
                continue
            found = measure(rival, n)
            if found is not None:
                ratio = found["privatize"] / ours["privatize"]
                print(
                    f"| {rival} | {found['privatize']:.3f} | | | | {found['memory']:.0f} "
                    f"| {ratio:.3g} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
