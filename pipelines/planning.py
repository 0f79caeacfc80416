"""What to expect of each oracle, before anything is collected: the numbers behind ``plan``."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..mechanisms.accuracy import (
    detectable_frequency,
    expected_errors,
    users_needed,
    variance,
)
from ..mechanisms.coins import SystemCoins
from ..mechanisms.distributions import distribution
from ..mechanisms.errors import ParameterError
from ..mechanisms.nameless import NamelessDomain
from ..mechanisms.oracle import Array, FrequencyOracle
from ..mechanisms.registry import ORACLES, make_oracle

#: Within so much more variance than the best, the oracle with the fewest bits is recommended.
CHEAP = 1.5
#: Above so much more variance than the best, an oracle costs much.
DEAR = 3.0
#: Bytes of noisy bits or indices that a measurement makes, about.
_WORK = 4_000_000


@dataclass(frozen=True)
class OraclePlan:
    """One oracle of a plan.

    Attributes:
      oracle: its name.
      problem: why it cannot be used here; all else is None then.
      users: users that the errors are for, or that are needed for the wanted error.
      l1, l2, l_infinity: expected errors after post-processing; see ``ExpectedErrors``.
      standard_error: of the raw value of a rare value.
      detectable: the least frequency that is detected with probability .9; None if even
        a value that everybody has is not.
      variance: n times the variance of a raw value at frequency 0.
      variance_ratio: that over the least of all oracles: as many times the users are
        needed for the same raw error; None if the least is 0.
      bits_per_report: what a user sends.
      message_bytes: what a report takes besides collection, epoch and column.
      state_bytes: the additive counts of one window and key.
      server_bytes: the most that counting and estimating hold at the same time, about.
      privatize_seconds: for a million reports, measured (one core of this machine).
      count_seconds: likewise, at the server.
      estimate_seconds: for one table, likewise.
      server_seconds: counting ``users`` reports, and one estimate.
    """

    oracle: str
    problem: str | None = None
    users: int | None = None
    l1: float | None = None
    l2: float | None = None
    l_infinity: float | None = None
    standard_error: float | None = None
    detectable: float | None = None
    variance: float | None = None
    variance_ratio: float | None = None
    bits_per_report: int | None = None
    message_bytes: int | None = None
    state_bytes: int | None = None
    server_bytes: int | None = None
    privatize_seconds: float | None = None
    count_seconds: float | None = None
    estimate_seconds: float | None = None
    server_seconds: float | None = None


@dataclass(frozen=True)
class Plan:
    """A plan for one domain and epsilon.

    Attributes:
      domain_size: k, with the value for all others if there is one.
      epsilon: the privacy parameter.
      distribution: what the frequencies are supposed to be.
      post: the post-processing.
      wanted: ``(measure, error)`` if users were asked for.
      most_accurate: the oracle with the least variance.
      recommended: the oracle with the fewest bits among the accurate ones.
      advice: sentences.
      oracles: one row for each oracle.
    """

    domain_size: int
    epsilon: float
    distribution: str
    post: str
    wanted: tuple[str, float] | None
    most_accurate: str
    recommended: str
    advice: tuple[str, ...]
    oracles: tuple[OraclePlan, ...]


def make_plan(
    size: int,
    epsilon: float,
    *,
    users: int | None = None,
    wanted: tuple[str, float] | None = None,
    assumed: str = "zipf:1",
    post: str = "simplex",
    timing: bool = True,
) -> Plan:
    """Makes a plan, from the users or from a wanted error.

    Args:
      size: k.
      epsilon: the privacy parameter.
      users: n, or None if an error is wanted.
      wanted: ``(measure, error)``, see
        :func:`~hadabeam.mechanisms.accuracy.users_needed`; else None.
      assumed: a name of :func:`~hadabeam.mechanisms.distributions.distribution`.
      post: the post-processing.
      timing: whether to measure how long reports take on this machine.

    Raises:
      ParameterError: if not exactly one of ``users`` and ``wanted`` is given, or another
        parameter is wrong.
    """
    if (users is None) == (wanted is None):
        raise ParameterError("give either --users or --wanted_error")
    truth = distribution(assumed, size)
    domain = NamelessDomain(size)
    made: dict[str, FrequencyOracle] = {}
    problems: dict[str, str] = {}
    for name in ORACLES:
        try:
            made[name] = make_oracle(name, domain, epsilon)
        except ParameterError as error:
            problems[name] = str(error)
    constants = {name: variance(oracle, 1) for name, oracle in made.items()}
    least = min(constants.values())
    best = next(name for name in made if _ratio(constants[name], least) == 1.0)
    rows = []
    for name in ORACLES:
        if name in problems:
            rows.append(OraclePlan(name, problem=problems[name]))
            continue
        try:
            rows.append(_row(made[name], users, wanted, truth, post, constants[best], timing))
        except ParameterError as error:
            rows.append(OraclePlan(name, problem=str(error)))
    if all(row.problem is not None for row in rows):
        raise ParameterError(rows[0].problem or "no oracle fits")
    cheap = [name for name in made if constants[name] <= CHEAP * constants[best]]
    recommended = min(cheap, key=lambda name: made[name].bits_per_report)
    return Plan(
        domain_size=size,
        epsilon=epsilon,
        distribution=assumed,
        post=post,
        wanted=wanted,
        most_accurate=best,
        recommended=recommended,
        advice=tuple(_advice(epsilon, constants, made, best, recommended, rows)),
        oracles=tuple(rows),
    )


def _row(
    oracle: FrequencyOracle,
    users: int | None,
    wanted: tuple[str, float] | None,
    truth: Array,
    post: str,
    least: float,
    timing: bool,
) -> OraclePlan:
    if users is None:
        assert wanted is not None
        users = users_needed(oracle, truth, *wanted, post)
    errors = expected_errors(oracle, users, truth, post)
    detectable = detectable_frequency(oracle, users)
    times: dict[str, Any] = measure(oracle) if timing else {}
    if times:
        count = times["count_seconds"] * users / 1e6
        times["server_seconds"] = count + times["estimate_seconds"]
    constant = variance(oracle, 1)
    return OraclePlan(
        oracle=oracle.name,
        users=users,
        **errors._asdict(),
        standard_error=math.sqrt(variance(oracle, users)),
        detectable=detectable if math.isfinite(detectable) else None,
        variance=constant,
        variance_ratio=_ratio(constant, least),
        bits_per_report=oracle.bits_per_report,
        message_bytes=oracle.payload_bytes or 1,
        state_bytes=8 * math.prod(oracle.state_shape),
        server_bytes=server_bytes(oracle),
        **times,
    )


def _ratio(constant: float, least: float) -> float | None:
    """How much larger a variance is than the least; None if that is 0 and this is not."""
    if constant <= least * (1 + 1e-9):  # The same but for rounding.
        return 1.0
    return constant / least if least > 0 else None


def server_bytes(oracle: FrequencyOracle) -> int:
    """What counting and estimating hold: a batch, the state, its transform, ten columns of k."""
    return 4_000_000 + 5 * 8 * math.prod(oracle.state_shape) + 10 * 8 * oracle.domain.size


def measure(oracle: FrequencyOracle) -> dict[str, float]:
    """Seconds for a million reports and for an estimate: processor time, one thread, now.

    Fresh coins from the operating system; 2 to 20,000 reports, fewer if they are wide.
    """
    width = 1 if oracle.payload_bytes < 8 else oracle.domain.size
    n = max(2, min(20_000, _WORK // width))
    generator = np.random.default_rng(0)
    values = generator.integers(0, oracle.domain.size, n)
    pseudonyms = np.zeros((n, 16), dtype=np.uint8)
    times = [time.process_time()]
    columns = oracle.assign(pseudonyms, None)
    messages = oracle.randomize(values, columns, SystemCoins())
    times.append(time.process_time())
    # The state is made once for many reports: what it takes is no part of a report.
    repeats = max(1, min(20_000, _WORK // width) // n)
    for _ in range(repeats):
        counts = oracle.count(columns, messages)
    times.append(time.process_time())
    empty = oracle.count(columns[:0], messages[:0])
    times.append(time.process_time())
    assert empty.shape == counts.shape
    estimate = oracle.estimate(counts)
    assert estimate.frequencies.size == estimate.detected.size
    times.append(time.process_time())
    counting = max(0.0, (times[2] - times[1]) / repeats - (times[3] - times[2]))
    return {
        "privatize_seconds": (times[1] - times[0]) / n * 1e6,
        "count_seconds": counting / n * 1e6,
        "estimate_seconds": times[4] - times[3],
    }


def users_text(number: int) -> str:
    """``1 user``, ``1,000 users``."""
    return f"{number:,} user{'s' if number != 1 else ''}"


def _advice(
    epsilon: float,
    constants: dict[str, float],
    made: dict[str, FrequencyOracle],
    best: str,
    recommended: str,
    rows: list[OraclePlan],
) -> list[str]:
    one_bit = "one_bit_hadamard"
    ratio = _ratio(constants[one_bit], constants[best])
    price = "much"
    if ratio is not None and ratio <= DEAR:
        price = "little" if ratio <= CHEAP else "something"
    numbers = f"{constants[one_bit]:.3g}/n against {constants[best]:.3g}/n"
    if ratio is None:
        sentences = [f"One bit costs much at epsilon {epsilon:g}: {numbers} with {best}."]
    elif ratio == 1.0:
        sentences = [f"One bit costs nothing at epsilon {epsilon:g}: no oracle has less variance."]
    else:
        sentences = [
            f"One bit costs {price} at epsilon {epsilon:g}: a rare value has variance {numbers} "
            f"with {best}, so that {ratio:.3g} times the users give the same error."
        ]
    bits = made[recommended].bits_per_report
    plural = "bit" if bits == 1 else "bits"
    sentences.append(
        f"Recommended: {recommended}, {bits} {plural} a report"
        + (", and none is more accurate." if recommended == best else ".")
    )
    row = next(row for row in rows if row.oracle == recommended)
    if row.problem is None and row.users is not None:
        if row.detectable is None:
            sentences.append(
                f"With {users_text(row.users)} it detects nothing: collect from more, "
                "or from a smaller domain."
            )
        else:
            sentences.append(
                f"With {users_text(row.users)} it detects values that {100 * row.detectable:.3g} % "
                "or more of them have, with probability .9; rarer ones mostly drown in the noise."
            )
    return sentences
