"""Empirical Bayes: frequencies shrunk by what the whole table says about their spread."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: The most points of the prior, the most bins of raw values, and the steps of EM.
GRID_POINTS = 800
BINS = 3000
EM_STEPS = 200
#: Points and bins are this many per standard error, and likelihoods reach this far.
POINTS_PER_ERROR = 4
BINS_PER_ERROR = 8
REACH = 6.0


def _cells(scaled: Array, width: float) -> tuple[Array, Array]:
    """The occupied cells of a histogram: their centres, and how many values each holds."""
    numbers, counts = np.unique(np.floor(scaled / width).astype(np.int64), return_counts=True)
    return (numbers + 0.5) * width, counts


def _grid(scaled: Array) -> Array:
    """Where the prior may put mass: 0, and multiples of a step near some raw value."""
    step = 1.0 / POINTS_PER_ERROR
    while True:
        near = np.unique(np.rint(np.maximum(scaled, 0.0) / step).astype(np.int64))
        around = np.arange(-POINTS_PER_ERROR, POINTS_PER_ERROR + 1)
        points = np.unique(np.maximum((near[:, None] + around).ravel(), 0))
        if points.size <= GRID_POINTS:
            return np.union1d(points, [0]) * step
        step *= 2.0


def posterior_means(raw: Array, standard_error: float) -> Array:
    """Posterior mean frequencies under a prior that is estimated from the table itself.

    The normal means problem: ``raw[i]`` is normal around ``f[i] >= 0`` with the common
    ``standard_error``, and the f are drawn from an unknown distribution. Its maximum
    likelihood estimate (J. Kiefer and J. Wolfowitz, 1956) on a grid of steps of a
    quarter standard error is found by EM, as W. Jiang and C.-H. Zhang (2009) do, from a
    uniform start with a fixed number of steps: the result depends on the table only.
    Values that lie alone and far up keep their raw frequency; the many that are noise
    around 0 move to nearly 0.

    Args:
      raw: float64[k], finite.
      standard_error: of each, above 0 and finite.

    Returns:
      float64[k], not negative. They are scaled to sum to one, since frequencies do
      (all equal if the posterior means are all 0).
    """
    scaled = raw / standard_error
    width = 1.0 / BINS_PER_ERROR
    centres, counts = _cells(scaled, width)
    while centres.size > BINS:
        width *= 2.0
        centres, counts = _cells(scaled, width)
    grid = _grid(scaled)
    gaps = centres[:, None] - grid
    # Beyond the reach the likelihood is held at its level there, so that a raw value far
    # below 0 still has a prior point that explains it.
    gaps -= np.maximum(centres.clip(max=0.0) + REACH, 0.0).clip(max=0.0)[:, None]
    exponent = -0.5 * gaps * gaps
    exponent -= exponent.max(axis=1, keepdims=True)
    likelihood = np.exp(exponent)
    share = counts / raw.size
    prior = np.full(grid.size, 1.0 / grid.size)
    # einsum without BLAS: the same order of additions with any number of threads.
    for _ in range(EM_STEPS):
        evidence = np.einsum("ij,j->i", likelihood, prior)
        prior = prior * np.einsum("ij,i->j", likelihood, share / evidence)
    evidence = np.einsum("ij,j->i", likelihood, prior)
    means = np.einsum("ij,j->i", likelihood, prior * grid) / evidence
    result = np.interp(scaled, centres, means) * standard_error
    total = float(result.sum())
    if total <= 0.0:
        return np.full(raw.size, 1.0 / raw.size)
    return np.asarray(result / total)
