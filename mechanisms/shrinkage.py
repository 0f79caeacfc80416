"""Empirical Bayes: frequencies shrunk by what the whole table says about their spread."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: The most points of the prior, the most bins of raw values, and the steps of EM.
GRID_POINTS = 800
BINS = 3000
EM_STEPS = 200
#: Points and bins are this many per standard error, where that is not too many.
POINTS_PER_ERROR = 4
BINS_PER_ERROR = 8
#: Of a posterior mean, in squared standard errors.
LEAST_VARIANCE = 1e-6


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
    around 0 move to nearly 0. What is then missing from, or above, a sum of one is
    spread in proportion to the posterior variances.

    Args:
      raw: float64[k], finite.
      standard_error: of each, above 0 and finite.

    Returns:
      float64[k], not negative, with sum one.
    """
    scaled = raw / standard_error
    width = 1.0 / BINS_PER_ERROR
    centres, counts = _cells(scaled, width)
    while centres.size > BINS:
        width *= 2.0
        centres, counts = _cells(scaled, width)
    grid = _grid(scaled)
    gaps = centres[:, None] - grid
    exponent = -0.5 * gaps * gaps
    # Each row may be scaled; with 1 as its largest entry none is lost to underflow.
    exponent -= exponent.max(axis=1, keepdims=True)
    likelihood = np.exp(exponent)
    share = counts / raw.size
    prior = np.full(grid.size, 1.0 / grid.size)
    # einsum without BLAS: the same order of additions with any number of threads.
    for _ in range(EM_STEPS):
        evidence = np.einsum("ij,j->i", likelihood, prior)
        prior = prior * np.einsum("ij,i->j", likelihood, share / evidence)
    evidence = np.einsum("ij,j->i", likelihood, prior)
    first = np.einsum("ij,j->i", likelihood, prior * grid) / evidence
    second = np.einsum("ij,j->i", likelihood, prior * grid * grid) / evidence
    means = np.interp(scaled, centres, first)
    spreads = np.interp(scaled, centres, np.maximum(second - first * first, LEAST_VARIANCE))
    return _sum_to_one(means * standard_error, spreads)


def _sum_to_one(means: Array, variances: Array) -> Array:
    """The least weighted change of ``means`` that makes them sum to one, none negative.

    Minimises ``sum((f - means)**2 / variances)``: values known well move least. The solution is
    ``max(means - shift * variances, 0)``, with the shift found on a shrinking active set.
    """
    active = np.flatnonzero(means > 0.0)
    if active.size == 0:
        return np.full(means.size, 1.0 / means.size)
    if means.sum() < 1.0:
        active = np.arange(means.size)
    while True:
        shift = (means[active].sum() - 1.0) / variances[active].sum()
        positive = means[active] > shift * variances[active]
        if positive.all():
            break
        active = active[positive]
    result = np.zeros(means.size)
    result[active] = means[active] - shift * variances[active]
    return result
