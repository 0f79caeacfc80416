"""Distributions over a domain for simulations and plans, by name."""

from __future__ import annotations

import difflib
import math
from typing import Any

import numpy as np

from .errors import ParameterError

Array = np.ndarray[Any, Any]

#: The six of Figure 1 of Acharya and Sun (2019).
FIGURE_1 = ("uniform", "geo:0.8", "geo:0.98", "zipf:0.5", "zipf:1", "two_steps")
_FORMS = ("uniform", "geo:RATIO", "zipf:EXPONENT", "two_steps")


def distribution(name: str, size: int) -> Array:
    """The probabilities of a named distribution.

    * ``uniform``;
    * ``geo:r``: ``p(i)`` proportional to ``r**i``, 0 < r < 1;
    * ``zipf:s``: ``p(i)`` proportional to ``(i + 1)**-s``, s >= 0;
    * ``two_steps``: the first half of the values (rounded down) three times as likely as
      the others. The paper does not say what its two steps are; this is a choice.

    Args:
      name: as above.
      size: k, at least 2.

    Returns:
      float64[k], adding up to one, largest first.

    Raises:
      ParameterError: if there is no such distribution.
    """
    if size < 2:
        raise ParameterError("a distribution needs at least two values")
    kind, colon, text = name.partition(":")
    places = np.arange(size, dtype=np.float64)
    if name == "uniform":
        weights = np.ones(size)
    elif name == "two_steps":
        weights = np.where(places < size // 2, 3.0, 1.0)
    elif kind == "geo" and colon:
        ratio = _number(name, text)
        if not 0 < ratio < 1:
            raise ParameterError("the ratio of geo:RATIO must lie between 0 and 1")
        weights = ratio**places
    elif kind == "zipf" and colon:
        exponent = _number(name, text)
        if exponent < 0:
            raise ParameterError("the exponent of zipf:EXPONENT must not be negative")
        weights = (places + 1.0) ** -exponent
    else:
        near = difflib.get_close_matches(name, (*FIGURE_1, *_FORMS), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ParameterError(f"a distribution is one of {', '.join(_FORMS)}, not {name!r}{hint}")
    return np.asarray(weights / weights.sum())


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ParameterError(f"{name!r} needs a number after the colon, as in zipf:1 or geo:0.98")
    return value


def label(name: str) -> str:
    """How a figure titles a distribution: ``Geo(0.8)`` for ``geo:0.8``."""
    kind, colon, text = name.partition(":")
    title = kind.replace("_", " ").capitalize()
    return f"{title}({text})" if colon else title
