"""Exact coins: thresholds on 64-bit words, and where the words come from.

A truth is flipped when a word is below ``t = ceil(2**64 / (e**epsilon + 1))``. The odds
of truth to flip, ``(2**64 - t) / t``, are a fraction that never exceeds ``e**epsilon``;
estimators use this fraction, not epsilon.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from .errors import ParameterError
from .oracle import check_epsilon
from .prf import BLOCK, Prf, as_words

Array = np.ndarray[Any, Any]

WORD = 2**64
#: Digits that decide a ceiling below 2**64 with some 60 digits to spare.
_EXACT = Context(prec=100)


def exact_threshold(epsilon: float, others: int = 1) -> int:
    """``ceil(2**64 / (e**epsilon + others))``, in decimal arithmetic of 100 digits.

    Args:
      epsilon: from 2**-20 to 50.
      others: how many outputs share the other side: 1 for a coin, k - 1 for k-ary
        randomized response.
    """
    odds = _EXACT.exp(Decimal(check_epsilon(epsilon)))
    share = _EXACT.divide(Decimal(WORD), _EXACT.add(odds, Decimal(others)))
    return int(share.to_integral_value(rounding=ROUND_CEILING, context=_EXACT))


def flip_threshold(epsilon: float) -> int:
    """``t = ceil(2**64 / (e**epsilon + 1))``: a word below it flips the truth.

    Raises:
      ParameterError: if epsilon is no number from 2**-20 to 50.
    """
    return exact_threshold(epsilon)


def odds(threshold: int) -> Fraction:
    """``(2**64 - t) / t``: how much likelier the truth is than its flip."""
    return Fraction(WORD - threshold, threshold)


def truth_probability(threshold: int) -> Fraction:
    """``q = 1 - t / 2**64``."""
    return Fraction(WORD - threshold, WORD)


def debias_factor(threshold: int) -> float:
    """``c = 1 / (2 q - 1) = 2**64 / (2**64 - 2 t)``, correctly rounded."""
    return float(Fraction(WORD, WORD - 2 * threshold))


def epsilon_of(ratio: Fraction) -> float:
    """``log(ratio)``, rounded down, so that it never exceeds what bounds it."""
    exact = _EXACT.ln(_EXACT.divide(Decimal(ratio.numerator), Decimal(ratio.denominator)))
    value = float(exact)
    return math.nextafter(value, -math.inf) if Decimal(value) > exact else value


class Coins(ABC):
    """Random words for users. One draw per user and purpose."""

    @abstractmethod
    def words(self, n: int, *, inputs: Array | None = None, block: int | Array = 0) -> Array:
        """Two independent uniform 64-bit words per user.

        Args:
          n: the number of users.
          inputs: int64[n], what the words are for, where an oracle needs other words for
            another input (a value index); None for one-bit coins, where word 0 is the
            coin of true bit 0 and word 1 that of true bit 1.
          block: further words for the same input: 0, 1, 2, ...; int64[n] if users are at
            different ones.

        Returns:
          uint64[n, 2].
        """

    def take(self, rows: Array | slice) -> Coins:
        """The coins of some of the users (indices or a slice), in that order."""
        del rows
        return self


class KeyedCoins(Coins):
    """Coins from a key: the same user, collection, epoch, scope and input give the same words.

    ``PRF(coin key; "coin", collection, epoch, *scope; user)`` for one-bit coins, and with
    inputs ``PRF(...; user || input || block)``, both numbers as 8 bytes little-endian.

    Args:
      prf: the coin key's PRF (secret).
      users: uint8[n, 16], the users' pseudonyms, in the order of the values.
      collection_id: the identity of the collection (public).
      epoch: the window's start in microseconds, or a constant (public).
      purpose: ``coin``, or ``instant`` for the second stage of two (public).
      scope: what else is asked for that a user's true bit depends on (public). Two questions that
        shared a coin would prove, wherever the reports differ, that the answers do.

    Raises:
      ParameterError: if the users are no uint8[n, 16].
    """

    def __init__(
        self,
        prf: Prf,
        users: Array,
        *,
        collection_id: str,
        epoch: int,
        purpose: str = "coin",
        scope: tuple[str | int, ...] = (),
    ) -> None:
        if users.ndim != 2 or users.shape[1] != BLOCK or users.dtype != np.uint8:
            raise ParameterError("users must be pseudonyms, uint8[n, 16]")
        self._prf = prf
        self._users = users
        self._context = prf.context(purpose, collection_id, int(epoch), *scope)
        self._chain: Array | None = None

    def __repr__(self) -> str:
        return f"KeyedCoins(<{len(self._users)} users>)"

    def words(self, n: int, *, inputs: Array | None = None, block: int | Array = 0) -> Array:
        """See :meth:`Coins.words`.

        Raises:
          ParameterError: if ``n`` is not the number of users.
        """
        if n != len(self._users):
            raise ParameterError(f"these coins are for {len(self._users)} users, not for {n}")
        if inputs is None and isinstance(block, int) and block == 0:
            return self._prf.words(self._context, self._users)
        if self._chain is None:
            self._chain = self._prf.absorb(self._context, self._users)
        last = np.empty((n, 2), dtype="<i8")
        last[:, 0] = -1 if inputs is None else inputs
        last[:, 1] = block
        return as_words(self._prf.finish(self._chain, last.view(np.uint8)))

    def take(self, rows: Array | slice) -> KeyedCoins:
        """The coins of some of the users (indices or a slice), in that order."""
        some = object.__new__(KeyedCoins)
        some._prf, some._context = self._prf, self._context
        some._users = _take_rows(self._users, rows)
        some._chain = None if self._chain is None else _take_rows(self._chain, rows)
        return some


def _take_rows(blocks: Array, rows: Array | slice) -> Array:
    """``blocks[rows]`` of uint8[n, 16]; as items of 16 bytes they move several times faster."""
    items = np.ascontiguousarray(blocks).view(np.complex128)[:, 0]
    return np.ascontiguousarray(items[rows]).view(np.uint8).reshape(-1, BLOCK)


class SystemCoins(Coins):
    """Fresh coins from the operating system: nobody can repeat them, and nobody can guess them."""

    def words(self, n: int, *, inputs: Array | None = None, block: int | Array = 0) -> Array:
        """See :meth:`Coins.words`. Every call draws anew."""
        return as_words(np.frombuffer(os.urandom(BLOCK * n), dtype=np.uint8).reshape(n, BLOCK))


class SeededCoins(Coins):
    """Coins for TESTS AND SIMULATIONS ONLY: who knows the seed undoes the privacy.

    NumPy's Philox generator. Every call draws anew, so results depend on the order of
    the calls.

    Args:
      seed: a whole number or a NumPy ``SeedSequence`` (public).
    """

    def __init__(self, seed: int | np.random.SeedSequence) -> None:
        self._generator = np.random.Generator(np.random.Philox(seed))

    def __repr__(self) -> str:
        return "SeededCoins(<not private: for tests and simulations only>)"

    def words(self, n: int, *, inputs: Array | None = None, block: int | Array = 0) -> Array:
        """See :meth:`Coins.words`."""
        return self._generator.integers(0, WORD, size=(n, 2), dtype=np.uint64)
