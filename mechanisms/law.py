"""Counts of simulated collections: by running the oracle, or drawn by their exact law.

Hadamard schemes privatize ten million users a second, so that simulations run them as
they are. A report of RAPPOR or subset selection takes a hundred times as long, but the
sum of many has a law that is drawn in time that does not depend on the users: for those,
and for randomized response, the counts of a whole collection are drawn at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .coins import WORD, SeededCoins
from .errors import ParameterError
from .one_bit import OneBitHadamard
from .oracle import FrequencyOracle
from .prf import Prf
from .randomized_response import RandomizedResponse
from .rappor import Rappor
from .subset_selection import SubsetSelection

Array = np.ndarray[Any, Any]

#: Users that are privatized at a time.
_CHUNK = 1 << 17


def has_law(oracle: FrequencyOracle) -> bool:
    """Whether :func:`draw_counts` knows the law of the oracle's counts."""
    return type(oracle) in (RandomizedResponse, Rappor, SubsetSelection)


def simulated_counts(oracle: FrequencyOracle, users: Array, seed: np.random.SeedSequence) -> Array:
    """The counts of a collection in which ``users[x]`` users have value x.

    By their law where there is one, else by running the oracle.

    Args:
      oracle: the mechanism.
      users: int64[k], users of each value.
      seed: the same seed gives the same counts.
    """
    if has_law(oracle):
        return draw_counts(oracle, users, np.random.Generator(np.random.PCG64(seed)))
    return run_oracle(oracle, users, seed)


def run_oracle(oracle: FrequencyOracle, users: Array, seed: np.random.SeedSequence) -> Array:
    """Privatizes and counts, with seeded pseudonyms and coins; arguments as above.

    The users of a value come one after another: columns are drawn without regard to
    places, so that the order does not matter. For the published one-bit scheme, whose
    columns follow the places, users are shuffled first.
    """
    names, coin = seed.spawn(2)
    generator = np.random.Generator(np.random.PCG64(names))
    key, coins = Prf(generator.bytes(32)), SeededCoins(coin)
    counts = oracle.zero()
    values = np.repeat(np.arange(users.size, dtype=np.int32), users)
    by_place = isinstance(oracle, OneBitHadamard) and oracle.published
    if by_place:
        generator.shuffle(values)
    for low in range(0, values.size, _CHUNK):
        some = values[low : low + _CHUNK]
        if isinstance(oracle, OneBitHadamard) and by_place:
            columns = oracle.assign_sequential(low, some.size)
            counts += oracle.count(columns, oracle.randomize(some, columns, coins))
            continue
        pseudonyms = np.frombuffer(generator.bytes(16 * some.size), np.uint8).reshape(-1, 16)
        columns = oracle.assign(pseudonyms, key)
        counts += oracle.count(columns, oracle.randomize(some, columns, coins))
    return counts


def draw_counts(oracle: FrequencyOracle, users: Array, generator: np.random.Generator) -> Array:
    """Counts that have exactly the distribution which privatizing one by one gives them.

    Raises:
      ParameterError: if the oracle's counts have no law that is known here.
    """
    if isinstance(oracle, RandomizedResponse):
        return _randomized_response(oracle, users, generator)
    if isinstance(oracle, Rappor):
        return _rappor(oracle, users, generator)
    if isinstance(oracle, SubsetSelection):
        return _subset_selection(oracle, users, generator)
    raise ParameterError(f"the counts of {oracle.name} are simulated by running it")


def _randomized_response(
    oracle: RandomizedResponse, users: Array, generator: np.random.Generator
) -> Array:
    """A report is the truth with probability ``gain``, else uniform over all values."""
    kept = generator.binomial(users, float(oracle.gain))
    size = users.size
    rest = generator.multinomial(int(users.sum() - kept.sum()), np.full(size, 1 / size))
    return np.asarray(kept + rest)


def _rappor(oracle: Rappor, users: Array, generator: np.random.Generator) -> Array:
    """Bits are independent: ``Bin(users[x], q) + Bin(n - users[x], 1 - q)`` ones."""
    n = int(users.sum())
    flip = oracle.threshold / WORD
    ones = generator.binomial(users, 1 - flip) + generator.binomial(n - users, flip)
    return np.asarray(np.append(ones, n))


def _subset_selection(
    oracle: SubsetSelection, users: Array, generator: np.random.Generator
) -> Array:
    """Goes through the values; users are told apart only by how many places are left.

    Whether a user's own value is in the subset is drawn first. The rest is a uniform
    subset of the other values, and a user who has r places left among m values takes the
    next one with probability r / m. Users whose own value is still to come have had the
    same chances as each other, so which of them turn out to own the next value is a
    sample without replacement.
    """
    size, subset = oracle.domain.size, oracle.subset
    with_own = generator.binomial(users, 1 - oracle.threshold / WORD)
    owners = np.stack([users - with_own, with_own])
    # Rows: users whose own value is to come and is not, or is, in the subset. Columns:
    # places left among the other values.
    ahead = np.zeros((2, subset + 1), dtype=np.int64)
    ahead[0, subset], ahead[1, subset - 1] = owners.sum(axis=1)
    passed = np.zeros(subset + 1, dtype=np.int64)
    counts: Array = with_own.copy()
    places = np.arange(subset + 1)
    for value in range(size):
        left = size - value
        own = np.stack([_sample(ahead[row], int(owners[row, value]), generator) for row in (0, 1)])
        ahead -= own
        # Of the values from here on, all are others to those who passed their own.
        counts[value] += _take_next(passed, places, left, generator)
        for row in (0, 1):
            counts[value] += _take_next(ahead[row], places, left - 1, generator)
        passed += own.sum(axis=0)
    return counts


def _take_next(groups: Array, places: Array, left: int, generator: np.random.Generator) -> int:
    """Users of each group take the next of ``left`` values; changes ``groups``."""
    held = np.flatnonzero(groups)
    if not held.size:
        return 0
    taken = generator.binomial(groups[held], np.minimum(places[held] / left, 1.0))
    groups[held] -= taken
    # Group r loses to group r - 1; nobody takes from group 0, whose chance is 0.
    np.add.at(groups, np.maximum(held - 1, 0), taken)
    return int(taken.sum())


def _sample(groups: Array, number: int, generator: np.random.Generator) -> Array:
    """A sample without replacement: how many of it are in each group."""
    sample = np.zeros_like(groups)
    held = np.flatnonzero(groups)
    if number and held.size:
        sample[held] = generator.multivariate_hypergeometric(
            groups[held], number, method="marginals"
        )
    return sample
