"""Estimated frequencies: raw values with their errors, and what is derived from them."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .domain import Domain
from .errors import ParameterError
from .shrinkage import posterior_means
from .simplex import clip_frequencies, project_simplex
from .tails import Tails, upper_quantile

Array = np.ndarray[Any, Any]

#: The post-processings by name; the first is the default.
POST_PROCESSINGS = ("simplex", "clip", "none", "empirical_bayes")
#: The familywise level of :attr:`FrequencyEstimate.detected`.
DETECTION_LEVEL = 0.05


def check_post(name: object) -> str:
    """Returns the name of a post-processing, or says which ones there are.

    Raises:
      ParameterError: if there is none of that name.
    """
    if isinstance(name, str) and name in POST_PROCESSINGS:
        return name
    near = difflib.get_close_matches(str(name), POST_PROCESSINGS, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ParameterError(f"post must be one of {', '.join(POST_PROCESSINGS)}{hint}")


class HeavyHitter(NamedTuple):
    """A frequent value: its index in the domain, raw frequency, and simultaneous bounds."""

    value_index: int
    raw: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class FrequencyEstimate:
    """Frequencies of the k values of a domain, estimated from n reports.

    Raw values are unbiased, may be negative and need not sum to one; errors, intervals
    and detection belong to them. ``frequencies`` are post-processed.

    Without reports nothing is known: raw values are 0 with infinite standard errors,
    intervals are the whole line, nothing is detected, and frequencies are uniform
    under ``simplex`` and ``empirical_bayes`` and 0 under ``clip`` and ``none``.

    Attributes:
      raw: float64[k].
      standard_error: float64[k], of each raw value.
      null_standard_error: float64, or float64[k]: the standard error at frequency 0.
      n: reports.
      epsilon_effective: log of the largest odds that the reports were made with.
      post: the post-processing of ``frequencies``.
      domain: the values, or None where nobody needs their names.
      tails: exact tails and intervals, or None where the normal law serves.
    """

    raw: Array
    standard_error: Array
    null_standard_error: float | Array
    n: int
    epsilon_effective: float
    post: str = "simplex"
    domain: Domain | None = None
    tails: Tails | None = None

    def __post_init__(self) -> None:
        check_post(self.post)
        if self.raw.ndim != 1 or self.raw.shape != self.standard_error.shape:
            raise ParameterError("raw values and standard errors must be two rows of one length")
        if self.domain is not None and self.domain.size != self.raw.size:
            raise ParameterError("an estimate needs one raw value for each value of the domain")
        self.raw.flags.writeable = False
        self.standard_error.flags.writeable = False

    @property
    def size(self) -> int:
        """k, the number of values."""
        return int(self.raw.size)

    def _interval(self, alpha: float) -> tuple[Array, Array]:
        z = upper_quantile(alpha / 2)
        if self.n == 0:
            return np.full(self.size, -math.inf), np.full(self.size, math.inf)
        if self.tails is not None:
            return self.tails.interval(self.raw, z)
        return self.raw - z * self.standard_error, self.raw + z * self.standard_error

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Bounds that each cover the frequency of their value with probability ``level``.

        The frequency is that of the population which the users were drawn from. Bounds
        belong to the raw value and are not clipped to [0, 1].

        Returns:
          ``(low, high)``, float64[k] each.

        Raises:
          ParameterError: if ``level`` is not between 0 and 1.
        """
        return self._interval(1.0 - _checked_level(level))

    def simultaneous_interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Bounds that cover all k frequencies at once with probability at least ``level``.

        Bonferroni: each has level ``1 - (1 - level) / k``.
        """
        return self._interval((1.0 - _checked_level(level)) / self.size)

    @cached_property
    def detection_threshold(self) -> float | Array:
        """The raw value above which a value counts as detected (a float, or float64[k]).

        A value of frequency 0 exceeds it with probability at most .05 / k, so that any
        such value is detected with probability at most .05.
        """
        alpha = DETECTION_LEVEL / self.size
        if self.n == 0:
            return math.inf
        if self.tails is not None:
            return self.tails.threshold(alpha)
        return upper_quantile(alpha) * self.null_standard_error

    @cached_property
    def detected(self) -> Array:
        """bool[k]: whether the value is there at all, at familywise level .05, one-sided."""
        return np.asarray(self.raw > self.detection_threshold)

    def heavy_hitters(self, threshold: float | None = None) -> list[HeavyHitter]:
        """The values with a raw frequency of at least ``threshold``, the largest first.

        Args:
          threshold: a frequency; by default the detected values are taken.

        Returns:
          One row a value, with simultaneous bounds of level .95, since the values are
          chosen for being large.
        """
        if threshold is None:
            chosen = np.flatnonzero(self.detected)
        else:
            if not math.isfinite(threshold):
                raise ParameterError("threshold must be a frequency such as 0.01")
            chosen = np.flatnonzero(self.raw >= threshold)
        low, high = self.simultaneous_interval()
        order = chosen[np.argsort(-self.raw[chosen], kind="stable")]
        return [
            HeavyHitter(int(i), float(self.raw[i]), float(low[i]), float(high[i])) for i in order
        ]

    def post_process(self, name: str) -> Array:
        """Frequencies under a post-processing, float64[k].

        Args:
          name: ``simplex`` (the nearest frequencies that sum to one), ``clip`` (each into
            [0, 1], no sum), ``none`` (the raw values) or ``empirical_bayes``
            (:func:`~hadabeam.mechanisms.shrinkage.posterior_means`, with the root of the
            mean variance as standard error).

        Raises:
          ParameterError: if there is no post-processing of that name.
        """
        check_post(name)
        if name == "none":
            return self.raw
        if name == "clip":
            return clip_frequencies(self.raw)
        if name == "simplex":
            return project_simplex(self.raw)
        error = math.sqrt(float(np.mean(np.square(self.standard_error))))
        if self.n == 0 or error == 0.0:
            return project_simplex(self.raw)
        return posterior_means(self.raw, error)

    @cached_property
    def frequencies(self) -> Array:
        """float64[k], post-processed by ``post``."""
        return self.post_process(self.post)

    @property
    def count(self) -> Array:
        """float64[k]: ``n * frequencies``, the estimated users per value."""
        return np.asarray(self.n * self.frequencies)


def _checked_level(level: float) -> float:
    if isinstance(level, bool) or not isinstance(level, (int, float)) or not 0 < level < 1:
        raise ParameterError("level must lie between 0 and 1, for instance 0.95")
    return float(level)
