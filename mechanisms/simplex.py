"""Post-processing of raw frequencies: the projection onto the simplex, and clipping."""

from __future__ import annotations

from typing import Any

import numpy as np

from .errors import ParameterError

Array = np.ndarray[Any, Any]


def project_simplex(x: Array) -> Array:
    """The nearest point (least squares) whose entries are non-negative and sum to one.

    The solution is ``max(x - tau, 0)``. The active set starts with all entries less than 1
    below the largest; ``tau`` is the value that makes the active entries sum to one, and
    entries below it leave the set, until none does (C. Michelot, 1986). No sort, and the
    passes shrink.

    Args:
      x: float64[k], finite.

    Returns:
      float64[k], a new array.

    Raises:
      ParameterError: if ``x`` is empty, not one-dimensional, or has an entry that is
        not finite.
    """
    x = np.asarray(x, dtype=np.float64)
    if x.ndim != 1 or x.size == 0:
        raise ParameterError("the projection needs one dimension and at least one entry")
    if not np.isfinite(x).all():
        raise ParameterError("the projection needs finite entries; some are NaN or infinite")
    # The projection ignores a shift. With the maximum at 0, -1 <= tau < 0 whatever is
    # rounded: the active set never becomes empty, and what is below -1 never belongs to it.
    with np.errstate(over="ignore"):
        shifted = x - x.max()
    active = shifted[shifted > -1.0]
    while True:
        tau = (active.sum() - 1.0) / active.size
        kept = active[active > tau]
        if kept.size == active.size:
            break
        active = kept
    return np.asarray(np.maximum(shifted - tau, 0.0))


def clip_frequencies(x: Array) -> Array:
    """Each entry moved into [0, 1], alone: the sum is not made one afterwards.

    The bias that clipping causes at rare values is upwards, and the values keep their
    meaning one by one; where the frequencies must add up, project instead.

    Raises:
      ParameterError: if an entry is NaN.
    """
    x = np.asarray(x, dtype=np.float64)
    if np.isnan(x).any():
        raise ParameterError("frequencies to clip must not be NaN")
    return np.asarray(np.clip(x, 0.0, 1.0))
