"""Exact integer thresholds for coins whose two sides stand for many outputs."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_HALF_EVEN, Context, Decimal

from .coins import WORD

#: Digits that decide a ceiling below 2**64 with some 60 digits to spare.
_EXACT = Context(prec=100)


def share_threshold(epsilon: float, own: int = 1, others: int = 1) -> int:
    """``ceil(2**64 others / (own e**epsilon + others))``, in decimal arithmetic of 100 digits.

    A word below it takes the side of the ``others``, outputs of weight 1, and else that
    of the user's ``own``, of weight at most ``e**epsilon`` each.

    Args:
      epsilon: a positive number.
      own: outputs on the user's side.
      others: outputs on the other side.
    """
    odds = _EXACT.multiply(_EXACT.exp(Decimal(epsilon)), Decimal(own))
    share = _EXACT.divide(Decimal(WORD * others), _EXACT.add(odds, Decimal(others)))
    return int(share.to_integral_value(rounding=ROUND_CEILING, context=_EXACT))


def subset_size(size: int, epsilon: float) -> int:
    """``max(1, round(k / (e**epsilon + 1)))``, the same on every machine."""
    odds = _EXACT.exp(Decimal(epsilon))
    share = _EXACT.divide(Decimal(size), _EXACT.add(odds, Decimal(1)))
    return max(1, int(share.to_integral_value(rounding=ROUND_HALF_EVEN, context=_EXACT)))
