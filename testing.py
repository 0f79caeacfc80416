"""Helpers for tests: of hadabeam itself, and of pipelines that use it.

Nothing here is for production: the keys are known to everybody who knows the seed.
"""

from __future__ import annotations

import copy
import hashlib
import pickle
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .mechanisms.keys import KeyFile
    from .transforms.randomness import UserKeys


class SeededKey:
    """A key that follows from a seed; can be given wherever a key file can. For tests only.

    Has the method of Beam's ``Secret``, so it is read on the worker as a real one is.
    """

    def __init__(self, seed: int | str) -> None:
        self.seed = seed

    def get_secret_bytes(self) -> bytes:
        """32 bytes, always the same for a seed."""
        return hashlib.sha256(f"hadabeam test key {self.seed}".encode()).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SeededKey) and other.seed == self.seed

    def __hash__(self) -> int:
        return hash(("SeededKey", self.seed))


def seeded_keys(seed: int | str = 0) -> UserKeys:
    """An assignment key and a coin key for tests: the same in every run."""
    from .transforms.randomness import UserKeys

    return UserKeys(SeededKey(f"assignment {seed}"), SeededKey(f"coin {seed}"))


def seeded_key_files(folder: str | Path, seed: int | str = 0) -> tuple[KeyFile, KeyFile]:
    """Writes the keys of :func:`seeded_keys` to ``assignment.key`` and ``coin.key``."""
    from .mechanisms.keys import KeyFile

    files = []
    for purpose in ("assignment", "coin"):
        path = Path(folder, f"{purpose}.key")
        path.write_bytes(SeededKey(f"{purpose} {seed}").get_secret_bytes())
        path.chmod(0o600)
        files.append(KeyFile(str(path)))
    return files[0], files[1]


def assert_combiner_contract(
    fn: Any,
    inputs: Sequence[Any],
    expected: Any,
    *,
    same: Callable[[Any, Any], bool] | None = None,
    seed: int = 0,
) -> None:
    """Asserts that a ``CombineFn`` gives one answer whatever a runner does with it.

    Tried are: elements one by one and in bulk, in other orders; accumulators split at every
    place, empty ones among them, merged in one go, in a chain and as a tree; compacting
    before a merge; accumulators that went through pickle; an accumulator that goes on after
    its output was read; and that merging leaves all accumulators but the first alone.

    Args:
      fn: the ``CombineFn``.
      inputs: at least two elements.
      expected: the output for all of them.
      same: whether two outputs are the same; ``==`` by default.
      seed: of the orders that are tried.

    Raises:
      AssertionError: naming the way of combining that gave something else.
    """
    equal = same or (lambda left, right: bool(left == right))
    if len(inputs) < 2:
        raise ValueError("a combiner is tested on at least two elements")

    def fill(elements: Iterable[Any], start: Any = None) -> Any:
        accumulator = fn.create_accumulator() if start is None else start
        for element in elements:
            accumulator = fn.add_input(accumulator, element)
        return accumulator

    def check(accumulator: Any, how: str) -> None:
        output = fn.extract_output(accumulator)
        if not equal(output, expected):
            raise AssertionError(f"combining {how} gave another output than expected")

    check(fill(inputs), "one by one")
    check(fn.add_inputs(fn.create_accumulator(), list(inputs)), "in bulk")
    shuffler = random.Random(seed)
    for _ in range(5):
        order = list(inputs)
        shuffler.shuffle(order)
        check(fill(order), "in another order")
    for cut in range(len(inputs) + 1):
        parts = [inputs[:cut], inputs[cut:]]
        check(fn.merge_accumulators([fill(part) for part in parts]), "two accumulators")
        check(
            fn.merge_accumulators([fn.compact(fill(part)) for part in parts]),
            "compacted accumulators",
        )
    singles = [[element] for element in inputs]
    check(
        fn.merge_accumulators([fn.create_accumulator(), *map(fill, singles)]),
        "an empty accumulator first",
    )
    check(
        fn.merge_accumulators([*map(fill, singles), fn.create_accumulator()]),
        "an empty accumulator last",
    )
    chain = fn.create_accumulator()
    for single in singles:
        chain = fn.merge_accumulators([chain, fill(single)])
    check(chain, "a chain of merges")
    tree = [fill(single) for single in singles]
    while len(tree) > 1:
        tree = [fn.merge_accumulators(tree[at : at + 2]) for at in range(0, len(tree), 2)]
    check(tree[0], "a tree of merges")
    check(fill(inputs[1:], start=fill(inputs[:1])), "into an accumulator that holds something")
    check(
        fill(inputs[1:], start=pickle.loads(pickle.dumps(fill(inputs[:1])))),
        "after a pickled accumulator",
    )
    halfway = fill(inputs[:1])
    fn.extract_output(halfway)
    check(fill(inputs[1:], start=halfway), "after an output was read")
    later = fill(inputs[1:])
    before = copy.deepcopy(later)
    fn.merge_accumulators([fill(inputs[:1]), later])
    if not equal(fn.extract_output(later), fn.extract_output(before)):
        raise AssertionError("merging changed an accumulator that was not the first")


def assert_within_intervals(
    rows: Iterable[Any], truth: Mapping[str, float], *, least: float = 0.9
) -> None:
    """Asserts that true frequencies lie in the 95 % intervals often enough.

    Args:
      rows: estimate rows (``value``, ``low`` and ``high`` as attributes or items).
      truth: value to true frequency; a value that is not there has frequency 0.
      least: the share of rows whose interval must hold the truth. With 100 values and
        intervals that cover 95 %, fewer than 0.9 is seen once in 50 to 100 tables: fix the
        keys (:func:`seeded_keys`) and the outcome is the same in every run.

    Raises:
      AssertionError: naming the values (which are public) that lie outside.
    """

    def field(row: Any, name: str) -> Any:
        return row[name] if isinstance(row, Mapping) else getattr(row, name)

    outside, total = [], 0
    for row in rows:
        total += 1
        value = field(row, "value")
        if not field(row, "low") <= truth.get(value, 0.0) <= field(row, "high"):
            outside.append(value)
    if not total:
        raise AssertionError("there are no rows")
    if total - len(outside) < least * total:
        raise AssertionError(
            f"only {total - len(outside)} of {total} intervals hold the truth; outside: {outside}"
        )
