"""How many users a second one core can pseudonymise, assign, randomize and count.

Run ``python benchmarks/prf.py``. Each row is the best of several runs; nothing here uses
threads. ``--quick`` takes fewer users.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections.abc import Callable

import numpy as np

from hadabeam.mechanisms import Domain, KeyedCoins, OneBitHadamard, Prf


def rate(name: str, users: int, function: Callable[[], object], repeats: int = 5) -> None:
    """Prints the best rate of a call that treats so many users."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    print(f"    {name:46}  {users / min(times) / 1e6:7.1f} M users/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="a tenth of the users")
    n = 200_000 if parser.parse_args().quick else 2_000_000
    generator = np.random.default_rng(1)
    prf = Prf(os.urandom(32))
    for shortest, longest in ((9, 14), (16, 16), (36, 44)):
        offsets = np.zeros(n + 1, dtype=np.int32)
        np.cumsum(generator.integers(shortest, longest + 1, n), out=offsets[1:])
        data = generator.integers(97, 123, offsets[-1]).astype(np.uint8)

        def pseudonyms(offsets: np.ndarray = offsets, data: np.ndarray = data) -> np.ndarray:
            return prf.pseudonyms_arrow_buffers(offsets, data)

        rate(f"pseudonyms of ids of {shortest} to {longest} bytes", n, pseudonyms)
    few = [str(i) for i in range(10**8, 10**8 + n // 10)]
    rate("pseudonyms of a list of str", n // 10, lambda: prf.pseudonyms(few))

    def blake() -> list[bytes]:
        key = bytes(32)
        return [hashlib.blake2b(i.encode(), key=key, digest_size=16).digest() for i in few]

    rate("(for comparison) keyed BLAKE2b in a Python loop", n // 10, blake)

    oracle = OneBitHadamard(Domain([f"v{i}" for i in range(1000)]), 1.0)
    users = pseudonyms()
    values = generator.integers(0, 1000, n)
    coins = KeyedCoins(prf, users, collection_id=oracle.collection_id, epoch=0)
    columns = oracle.assign(users, prf)
    bits = oracle.randomize(values, columns, coins)
    rate("columns (k = 1000)", n, lambda: oracle.assign(users, prf))
    rate("coins and bits", n, lambda: oracle.randomize(values, columns, coins))
    rate("count, int64 columns", n, lambda: oracle.count(columns, bits))
    narrow = columns.astype(np.int32)
    rate("count, int32 columns", n, lambda: oracle.count(narrow, bits))

    def everything() -> np.ndarray:
        chosen = oracle.assign(users, prf)
        return oracle.count(chosen, oracle.randomize(values, chosen, coins))

    rate("columns, coins, bits and count together", n, everything)


if __name__ == "__main__":
    main()
