"""One bit in two stages, as RAPPOR has them: a memoised coin, and a fresh one on top.

The first coin is drawn at epsilon and kept for as long as the key lives, the second at
each report. Who sees all reports of a user whose true bit never changes learns at most the
memoised bit (epsilon); who sees one report learns less (``instant_epsilon``).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NoReturn

import numpy as np

from .coins import WORD, Coins, epsilon_of, flip_threshold, odds
from .domain import Domain
from .errors import ParameterError
from .one_bit import OneBitHadamard
from .oracle import check_epsilon

Array = np.ndarray[Any, Any]


class TwoStageCoins(Coins):
    """The coins of both stages. :meth:`words` are those of the first.

    Args:
      memo: the coins that stay the same (secret).
      instant: the coins that are fresh in each epoch (secret).
    """

    def __init__(self, memo: Coins, instant: Coins) -> None:
        self.memo = memo
        self.instant = instant

    def words(self, n: int, *, inputs: Array | None = None, block: int | Array = 0) -> Array:
        """See :meth:`Coins.words`."""
        return self.memo.words(n, inputs=inputs, block=block)

    def take(self, rows: Array | slice) -> TwoStageCoins:
        """See :meth:`Coins.take`."""
        return TwoStageCoins(self.memo.take(rows), self.instant.take(rows))


class TwoStageOneBit(OneBitHadamard):
    """:class:`OneBitHadamard` with a second coin at every report.

    With ``N = 2**64``, ``t1 = ceil(N / (e**epsilon + 1))`` and ``tE`` likewise for
    ``instant_epsilon``, the memoised bit is flipped again when a fresh word is below
    ``t2 = ceil(N (tE - t1) / (N - 2 t1))``. The composed flip has probability
    ``f1 + f2 - 2 f1 f2`` (at least ``tE / N``), so ``c = c1 c2``; the estimate and its
    variance are those of one coin with this c.

    What it promises (and no more):

    * :attr:`epsilon_effective`, at most ``epsilon``, in total over any number of reports, to
      whoever sees them all, for a user whose true bit stays the same;
    * :attr:`instant_epsilon_effective`, at most ``instant_epsilon``, to whoever sees one report;
    * :attr:`change_epsilon` for one epoch in which the true bit is another one, to whoever
      sees all reports;
    * nothing for a bit that changes many times.

    Args:
      domain: the k values (public).
      epsilon: the privacy parameter of the memoised bit (public).
      instant_epsilon: that of a single report, below epsilon (public).
      collection: the name of the collection (public).
      version: its version, from 1 up (public).

    Raises:
      ParameterError: if a parameter is wrong, or ``instant_epsilon`` is not below epsilon.
    """

    two_stages = True

    def __init__(
        self,
        domain: Domain,
        epsilon: float,
        instant_epsilon: float,
        *,
        collection: str = "default",
        version: int = 1,
    ) -> None:
        self.instant_epsilon = check_epsilon(instant_epsilon, "instant_epsilon")
        first, single = flip_threshold(epsilon), flip_threshold(self.instant_epsilon)
        if self.instant_epsilon >= epsilon or single <= first:
            raise ParameterError(
                f"instant_epsilon must be below epsilon ({epsilon:g}): a single report then tells "
                "less than all reports together; leave it out for one stage"
            )
        #: t2, the threshold of the second coin.
        self.instant_threshold = -(-WORD * (single - first) // (WORD - 2 * first))
        super().__init__(domain, epsilon, collection=collection, version=version)
        self.factor = float(1 / (2 * self.truth - 1))

    @classmethod
    def as_published(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: the published scheme has one stage."""
        raise ParameterError("the published scheme has one stage; use OneBitHadamard.as_published")

    def parameters(self) -> dict[str, Any]:
        """See :meth:`FrequencyOracle.parameters`."""
        return {**super().parameters(), "instant_epsilon": self.instant_epsilon.hex()}

    @property
    def truth(self) -> Fraction:
        """The exact probability that a report shows the true bit, through both stages."""
        first = Fraction(self.threshold, WORD)
        second = Fraction(self.instant_threshold, WORD)
        return 1 - (first + second - 2 * first * second)

    @property
    def instant_epsilon_effective(self) -> float:
        """The log of the odds of one report, rounded down; at most ``instant_epsilon``."""
        return epsilon_of(self.truth / (1 - self.truth))

    @property
    def change_epsilon(self) -> float:
        """``ln((N - t2) / t2)``: what one epoch with another true bit costs, at most, to
        whoever knows the memoised bits from the other epochs."""
        return epsilon_of(odds(self.instant_threshold))

    def randomize(self, values: Array, columns: Array, coins: Coins) -> Array:
        """uint8[n]: the bits. See :meth:`FrequencyOracle.randomize`.

        Raises:
          ParameterError: if a value is outside the domain, or the coins are of one stage.
        """
        if not isinstance(coins, TwoStageCoins):
            raise ParameterError("two stages need TwoStageCoins: memoised coins and fresh ones")
        memo = super().randomize(values, columns, coins.memo)
        words = coins.instant.words(memo.size)
        # A fresh word for each memoised bit, as the first stage has one for each true bit.
        word = np.where(memo.view(np.bool_), words[:, 1], words[:, 0])
        return np.asarray(memo ^ (word < np.uint64(self.instant_threshold)).view(np.uint8))
