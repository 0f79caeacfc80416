"""The fast Walsh-Hadamard transform against numba's simple in-place loop.

Run ``python benchmarks/fwht.py`` (needs numba, ``pip install hadabeam[benchmark]``).
One row per size and type: the best time of each in milliseconds, and their ratio.
Neither uses threads. ``--quick`` takes the small sizes only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from hadabeam.mechanisms import fwht

Array = np.ndarray[Any, Any]


@njit(cache=False)
def simple_loop(x: Array) -> None:
    """Butterflies of growing stride, in place."""
    half = 1
    while half < x.size:
        for start in range(0, x.size, 2 * half):
            for i in range(start, start + half):
                first, second = x[i], x[i + half]
                x[i], x[i + half] = first + second, first - second
        half *= 2


def best(function: Callable[[Array], object], x: Array, repeats: int) -> float:
    """The least time of a call on a fresh copy, in seconds."""
    times = []
    for _ in range(repeats):
        copy = x.copy()
        start = time.perf_counter()
        function(copy)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="sizes 2^16 and 2^18 only")
    sizes = (16, 18) if parser.parse_args().quick else (10, 12, 14, 16, 17, 18, 19, 20, 21, 22)
    generator = np.random.default_rng(1)
    print("    size  type     hadabeam ms   numba ms   ratio")
    for power in sizes:
        for dtype in (np.int64, np.float64):
            x = generator.integers(-1000, 1000, 2**power).astype(dtype)
            expected = x.copy()
            simple_loop(expected)
            if not np.array_equal(fwht(x), expected):
                raise SystemExit("the two transforms differ")
            repeats = max(5, min(200, 2**24 // x.size))
            ours = best(lambda copy: fwht(copy, overwrite=True), x, repeats)
            theirs = best(simple_loop, x, repeats)
            print(
                f"    2^{power:<4}  {np.dtype(dtype).name:7}  {1e3 * ours:11.3f} "
                f"{1e3 * theirs:10.3f}   {ours / theirs:5.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
