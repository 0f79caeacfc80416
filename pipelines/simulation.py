"""Simulated collections: cases, their errors, and a grid of them on several processes."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from ..mechanisms.distributions import distribution
from ..mechanisms.errors import InputError
from ..mechanisms.law import has_law, simulated_counts
from ..mechanisms.nameless import NamelessDomain
from ..mechanisms.one_bit import OneBitHadamard
from ..mechanisms.oracle import Array, FrequencyOracle
from ..mechanisms.registry import ORACLES, make_oracle
from ..mechanisms.unperturbed_one_bit import UnperturbedOneBit

#: What can be simulated: the registered oracles, and two that only simulations use.
SIMULATED = (*ORACLES, "one_bit_as_published", "unperturbed_one_bit")

#: Repeats that one process does at a stretch.
_STRETCH = 5


@dataclass(frozen=True)
class Case:
    """One point of a simulation.

    Attributes:
      distribution: a name of :func:`~hadabeam.mechanisms.distributions.distribution`.
      oracle: a name of :data:`SIMULATED`.
      epsilon: the privacy parameter.
      domain_size: k.
      users: n.
    """

    distribution: str
    oracle: str
    epsilon: float
    domain_size: int
    users: int

    def seed(self, seed: int, repeat: int) -> np.random.SeedSequence:
        """The seed of a repeat: of the case's own, whatever else is simulated, and where."""
        text = (
            f"{self.distribution}|{self.oracle}|{float(self.epsilon).hex()}|"
            f"{self.domain_size}|{self.users}"
        )
        word = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
        return np.random.SeedSequence(seed, spawn_key=(word, repeat))


@dataclass(frozen=True)
class Row:
    """Errors of the estimate against the distribution: means over repeats, and their errors.

    Attributes:
      counts: "law" if counts were drawn by their exact law, "run" if the oracle ran.
      l1: mean of ``sum |f - p|``; ``_error``: standard error of the mean.
      squared_l2: mean of ``sum (f - p)**2``.
      l_infinity: mean of ``max |f - p|``.
    """

    distribution: str
    oracle: str
    epsilon: float
    domain_size: int
    users: int
    post: str
    repeats: int
    counts: str
    l1: float
    l1_error: float
    squared_l2: float
    squared_l2_error: float
    l_infinity: float
    l_infinity_error: float


@lru_cache(maxsize=32)
def oracle_of(name: str, epsilon: float, size: int) -> FrequencyOracle:
    """The oracle of a name of :data:`SIMULATED` over a made-up domain."""
    domain = NamelessDomain(size)
    if name == "one_bit_as_published":
        return OneBitHadamard.as_published(domain, epsilon)
    if name == "unperturbed_one_bit":
        return UnperturbedOneBit(domain, i_accept_no_privacy=True)
    return make_oracle(name, domain, epsilon)


@lru_cache(maxsize=32)
def _probabilities(name: str, size: int) -> Array:
    return distribution(name, size)


def errors(estimate: Array, truth: Array) -> tuple[float, float, float]:
    """The l1, squared l2 and l-infinity distances of two rows of frequencies."""
    gaps = np.abs(estimate - truth)
    return float(gaps.sum()), float(np.sum(gaps * gaps)), float(gaps.max())


def simulate_once(case: Case, posts: Sequence[str], seed: np.random.SeedSequence) -> Array:
    """One collection: users drawn from the distribution, reports, counts, estimate.

    Returns:
      float64[posts, 3]: l1, squared l2 and l-infinity of each post-processing.
    """
    truth = _probabilities(case.distribution, case.domain_size)
    data, reports = seed.spawn(2)
    users = np.random.Generator(np.random.PCG64(data)).multinomial(case.users, truth)
    oracle = oracle_of(case.oracle, case.epsilon, case.domain_size)
    estimate = oracle.estimate(simulated_counts(oracle, users, reports))
    return np.array([errors(estimate.post_process(post), truth) for post in posts])


def _stretch(task: tuple[Case, tuple[str, ...], int, range]) -> Array:
    case, posts, seed, repeats = task
    return np.stack([simulate_once(case, posts, case.seed(seed, repeat)) for repeat in repeats])


def simulate(
    cases: Sequence[Case],
    posts: Sequence[str],
    repeats: int,
    *,
    seed: int = 0,
    processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """Simulates every case ``repeats`` times; the result does not depend on ``processes``.

    Args:
      cases: the points.
      posts: post-processings; each is applied to the same estimates.
      repeats: collections per case.
      seed: the same seed gives the same rows.
      processes: how many work at the same time.
      progress: is told the collections done, and all.

    Returns:
      One row for each case and post-processing, in that order.

    Raises:
      ParameterError: if a case is impossible.
    """
    for case in cases:  # Fails here, not in a process half an hour later.
        oracle_of(case.oracle, case.epsilon, case.domain_size)
        _probabilities(case.distribution, case.domain_size)
    tasks = [
        (case, tuple(posts), seed, range(low, min(low + _STRETCH, repeats)))
        for case in cases
        for low in range(0, repeats, _STRETCH)
    ]
    total, done = len(cases) * repeats, 0
    found: dict[Case, list[Array]] = {case: [] for case in cases}
    for task, result in zip(tasks, _results(tasks, processes), strict=True):
        found[task[0]].append(result)
        done += len(task[3])
        if progress is not None:
            progress(done, total)
    return [
        _row(case, post, np.concatenate(found[case])[:, place])
        for case in cases
        for place, post in enumerate(posts)
    ]


def _results(tasks: list[Any], processes: int) -> Iterator[Array]:
    if processes == 1 or len(tasks) == 1:
        yield from map(_stretch, tasks)
        return
    # Fresh interpreters: the same on every system, and no thread is forked away.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(processes, len(tasks)), mp_context=context)
    try:
        yield from pool.map(_stretch, tasks)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _row(case: Case, post: str, found: Array) -> Row:
    repeats = len(found)
    means = found.mean(axis=0)
    spread = found.std(axis=0, ddof=1) / math.sqrt(repeats) if repeats > 1 else means * math.nan
    counts = "law" if has_law(oracle_of(case.oracle, case.epsilon, case.domain_size)) else "run"
    numbers = [float(x) for pair in zip(means, spread, strict=True) for x in pair]
    return Row(
        case.distribution,
        case.oracle,
        case.epsilon,
        case.domain_size,
        case.users,
        post,
        repeats,
        counts,
        *numbers,
    )


def to_csv(rows: Sequence[Row]) -> str:
    """Rows as CSV with a header; six digits, which is more than the repeats allow."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    names = [field.name for field in fields(Row)]
    writer.writerow(names)
    for row in rows:
        values = [getattr(row, name) for name in names]
        writer.writerow([f"{x:.6g}" if isinstance(x, float) else x for x in values])
    return file.getvalue()


def write_whole(path: str, content: bytes) -> None:
    """Writes a local file under a temporary name and renames it.

    Raises:
      InputError: if it cannot be written.
    """
    folder = os.path.dirname(path) or "."
    try:
        os.makedirs(folder, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".hadabeam-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
