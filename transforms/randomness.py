"""Where columns and coins come from: two keys that are read on the worker, or none.

The pipeline graph holds only *where* a key is (a file's path, a Beam ``Secret``), never
the key. Without keys users are still grouped, by a hash under a salt that is drawn
afresh for each job; the salt is no secret and does travel in the graph.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from ..mechanisms.coins import Coins, KeyedCoins, SystemCoins
from ..mechanisms.errors import ParameterError
from ..mechanisms.keys import check_reference, read_key
from ..mechanisms.limit import PUBLIC_KEY
from ..mechanisms.oracle import Array, FrequencyOracle
from ..mechanisms.prf import Prf
from ..mechanisms.two_stage import TwoStageCoins
from .windows import NO_WINDOW


@dataclass(frozen=True)
class UserKeys:
    """The assignment key and the coin key of a collection, by reference.

    Attributes:
      assignment: a ``KeyFile`` or Beam ``Secret``; gives users their pseudonyms and
        columns. Known to the edge and to the collector.
      coin: a ``KeyFile`` or Beam ``Secret``; gives users their coins. Known to the edge
        only: with it, reports can be turned back into the true bits.
      question: what is asked of the users (public), as the name of the private field. Two
        questions draw different coins. Where two pipelines ask about different fields under the
        same keys, give each its own question (or the oracle its own ``collection``): with one coin
        for both, reports that differ would prove that the answers do, and no epsilon covers that.
      salt: made by the class; groups users where there are no keys.

    With both keys, the same question over the same records gives the same reports however
    often a job runs, and nothing more is spent. With neither, every run draws fresh columns
    and coins, and spends epsilon again.

    Raises:
      ParameterError: if only one key is given, both are the same, or one is no reference: a text
        is none, write ``KeyFile('assignment.key')``.
    """

    assignment: Any = None
    coin: Any = None
    question: str = ""
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.question, str):
            raise ParameterError("question must be a text, as the name of the private field")
        if (self.assignment is None) != (self.coin is None):
            raise ParameterError(
                "give both an assignment key and a coin key, or neither: "
                "with only one of them, runs would not repeat"
            )
        if self.assignment is None:
            return
        check_reference(self.assignment)
        check_reference(self.coin)
        if self.assignment == self.coin:
            raise ParameterError(
                "the assignment key and the coin key must differ: the collector may know "
                "the first, and must never know the second"
            )

    @property
    def keyed(self) -> bool:
        """Whether reports are the same in every run."""
        return self.assignment is not None

    def load(self) -> LoadedKeys:
        """Reads the keys; called on the worker.

        Raises:
          InputError: if a key cannot be read, or is not 32 bytes.
          ParameterError: if both references lead to the same key.
        """
        if not self.keyed:
            return LoadedKeys(Prf(self.salt), None, self.question)
        assignment, coin = read_key(self.assignment), read_key(self.coin)
        if assignment == coin:
            raise ParameterError("the assignment key and the coin key must differ")
        return LoadedKeys(Prf(assignment), Prf(coin), self.question)


def question_of(value_field: str, time_field: str | None = None) -> str:
    """The question of a job that reads fields: ``batch``, ``stream`` and YAML ask the same.

    Args:
      value_field: the private field.
      time_field: what parts a user's records besides their values, where it says no window.
    """
    return json.dumps([value_field] if time_field is None else [value_field, time_field])


@dataclass(frozen=True)
class ReportKeys:
    """What a collector knows: the assignment key, by reference, or nothing.

    Attributes:
      assignment: a ``KeyFile`` or Beam ``Secret``, the one that reports were made with.
      salt: made by the class; groups senders where there is no key.

    Raises:
      ParameterError: if the key is no reference.
    """

    assignment: Any = None
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def __post_init__(self) -> None:
        if self.assignment is not None:
            check_reference(self.assignment)

    @property
    def assigned(self) -> bool:
        """Whether a sender's column can be told."""
        return self.assignment is not None

    def load(self) -> Prf:
        """The PRF that tells senders apart; called on the worker.

        Raises:
          InputError: if the key cannot be read, or is not 32 bytes.
        """
        return Prf(read_key(self.assignment) if self.assigned else self.salt)


class LoadedKeys:
    """What a worker does with the keys. Cannot be pickled, as a :class:`Prf` cannot."""

    def __init__(self, assignment: Prf, coin: Prf | None, question: str = "") -> None:
        self.users = assignment
        self._coin = coin
        self._question = question

    @property
    def limit(self) -> Prf:
        """The PRF that chooses which of a user's records is kept."""
        return Prf(PUBLIC_KEY) if self._coin is None else self._coin

    def columns(self, oracle: FrequencyOracle, users: Array) -> Array:
        """int64[n]: the columns of users, given as pseudonyms uint8[n, 16]."""
        return oracle.assign(users, None if self._coin is None else self.users)

    def coins(
        self,
        oracle: FrequencyOracle,
        users: Array,
        epoch: int,
        forever: bool = False,
        *,
        end: int | None = None,
        keyed: bool = False,
        timed: bool = False,
    ) -> Coins:
        """One draw of coins for each user.

        Which of a user's records is kept, and so the true bit, depends on the window, on whether
        there are keys, and on whether records have times. All enter the coins, so that they are
        other coins where the bit may be another one.

        Args:
          oracle: the mechanism that will use them.
          users: uint8[n, 16], the pseudonyms.
          epoch: the start of the window in microseconds.
          forever: the same coins in every window, except for those of an oracle's second
            stage, which are fresh in each.
          end: the end of the window in microseconds, or None without windows.
          keyed: whether the estimate is per key.
          timed: whether times had a part in the choice of each user's record.
        """
        if self._coin is None:
            if oracle.two_stages:
                raise ParameterError("two stages need an assignment key and a coin key")
            return SystemCoins()
        collection = oracle.collection_id
        asked: tuple[str | int, ...] = (*(("timed",) * timed), *(("per key",) * keyed))
        if self._question:
            asked += "question", self._question
        window: tuple[str | int, ...] = () if end is None else ("until", end)
        memo = KeyedCoins(
            self._coin,
            users,
            collection_id=collection,
            epoch=NO_WINDOW if forever else epoch,
            scope=asked if forever else window + asked,
        )
        if not oracle.two_stages:
            return memo
        instant = KeyedCoins(
            self._coin,
            users,
            collection_id=collection,
            epoch=epoch,
            purpose="instant",
            scope=window + asked,
        )
        return TwoStageCoins(memo, instant)
