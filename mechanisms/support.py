"""Oracles that count, for each value, the reports that support it.

A report supports a value of frequency f with probability ``null + gain * f``. The number
of supporting reports is binomial, and its linear function

    ``raw = (supports / n - null) / gain``

is unbiased, with variance ``m (1 - m) / (gain**2 n)``, ``m = null + gain * f``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from .errors import ParameterError
from .estimate import FrequencyEstimate, check_post
from .oracle import FrequencyOracle
from .prf import Prf
from .tails import exact_tails

Array = np.ndarray[Any, Any]

#: The exact channel is written out for domains up to this size.
CHANNEL_LIMIT = 64


class SupportOracle(FrequencyOracle):
    """Estimate, variance and intervals of an oracle with binomial supports.

    Attributes:
      null: the exact probability of a report to support a value its user does not have.
      gain: how much larger it is for the user's own value.
    """

    null: Fraction
    gain: Fraction

    @abstractmethod
    def _supports(self, counts: Array) -> tuple[Array, int]:
        """A checked state as ``(supports int64[k], n)``."""

    def reports(self, counts: Array) -> int:
        """n. See :meth:`FrequencyOracle.reports`."""
        return self._supports(counts)[1]

    def variance(self, n: int, frequency: float = 0.0) -> float:
        """The variance of a raw value at a frequency, with n reports (exact)."""
        if n < 1:
            return float("inf")
        null, gain = float(self.null), float(self.gain)
        mean = null + gain * frequency
        return mean * (1.0 - mean) / (gain * gain * n)

    def estimate(self, counts: Array, post: str = "simplex") -> FrequencyEstimate:
        """Frequencies. See :meth:`FrequencyOracle.estimate`."""
        check_post(post)
        supports, n = self._supports(counts)
        null, gain = float(self.null), float(self.gain)
        size = self.domain.size
        if n == 0:
            raw, error, null_error = np.zeros(size), np.full(size, np.inf), float("inf")
        else:
            raw = (supports / n - null) / gain
            mean = null + gain * np.clip(raw, 0.0, 1.0)
            error = np.sqrt(mean * (1.0 - mean) / n) / gain
            null_error = float(np.sqrt(self.variance(n)))
        return FrequencyEstimate(
            raw=raw,
            standard_error=error,
            null_standard_error=null_error,
            n=n,
            epsilon_effective=self.epsilon_effective,
            post=post,
            domain=self.domain,
            tails=exact_tails(n, null, gain) if n else None,
        )


class NoColumns(FrequencyOracle):
    """An oracle whose users need no column: all are in column 0, and messages are payload."""

    @property
    def columns(self) -> int:
        """1: all users are in column 0."""
        return 1

    def assign(self, users: Array, key: Prf | None) -> Array:
        """int64[n] of zeros. See :meth:`FrequencyOracle.assign`."""
        del key
        return np.zeros(len(users), dtype=np.int64)

    def encode(self, columns: Array, messages: Array) -> tuple[Array, Array, Array | None]:
        """Column 0, bit 0, and the message as payload. See :meth:`FrequencyOracle.encode`."""
        del columns
        n = len(messages)
        return np.zeros(n, np.int32), np.zeros(n, np.uint8), self._to_payload(messages)

    def decode(self, column: Array, bit: Array, payload: Array | None) -> tuple[Array, Array]:
        """The inverse of :meth:`encode`.

        Raises:
          ParameterError: if there is no payload of the right width.
        """
        del bit
        return column.astype(np.int64), self._from_payload(self._payload_of(payload))

    def valid(self, column: Array, bit: Array, payload: Array | None) -> Array:
        """bool[n]: column 0, bit 0, and a payload that :meth:`encode` can give."""
        outside = (np.asarray(column) != 0) | (np.asarray(bit) != 0)
        if payload is None or payload.ndim != 2 or payload.shape[1] != self.payload_bytes:
            return np.zeros(len(outside), dtype=np.bool_)
        return np.asarray(~outside & self._valid_payload(payload))

    def _payload_of(self, payload: Array | None) -> Array:
        width = self.payload_bytes
        if (
            payload is None
            or payload.ndim != 2
            or payload.dtype != np.uint8
            or payload.shape[1] != width
        ):
            raise ParameterError(f"reports of {self.name} need a payload of {width} bytes each")
        return payload

    @abstractmethod
    def _to_payload(self, messages: Array) -> Array:
        """Messages as uint8[n, payload_bytes]."""

    @abstractmethod
    def _from_payload(self, payload: Array) -> Array:
        """uint8[n, payload_bytes] as messages."""

    @abstractmethod
    def _valid_payload(self, payload: Array) -> Array:
        """bool[n]: whether :meth:`_to_payload` can give each row."""


def checked_values(values: Array, columns: Array, size: int) -> Array:
    """Values as int64[n].

    Raises:
      ParameterError: if they are no indices of the domain, or the columns do not match.
    """
    values = np.asarray(values)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ParameterError("values must be whole numbers in one dimension")
    if np.shape(columns) != values.shape:
        raise ParameterError("randomize needs one column for each value")
    if values.size and (values.min() < 0 or values.max() >= size):
        raise ParameterError(
            f"values must be indices from 0 to {size - 1}; replace unknown values "
            "by other, or drop them, first"
        )
    return values.astype(np.int64, copy=False)


def checked_counts(counts: Array, shape: tuple[int, ...]) -> Array:
    """A state as int64 of the shape, without negative entries.

    Raises:
      ParameterError: if it is none.
    """
    if not isinstance(counts, np.ndarray) or counts.dtype.kind not in "iu":
        raise ParameterError("counts must be an array of whole numbers")
    if counts.shape != shape:
        raise ParameterError(
            f"counts must have the shape {shape}, not {counts.shape}; "
            "are they of another collection?"
        )
    counts = counts.astype(np.int64, copy=False)
    if (counts < 0).any():
        raise ParameterError("counts must not be negative")
    return counts


def check_channel_size(size: int, limit: int = CHANNEL_LIMIT) -> None:
    """Raises ParameterError if the channel of a domain of that size is not written out."""
    if size > limit:
        raise ParameterError(f"the channel is written out for k <= {limit}")


def chunks(n: int, bytes_each: int, budget: int = 1 << 21) -> Iterator[slice]:
    """Slices of ``range(n)`` whose rows together take about ``budget`` bytes."""
    step = max(1, budget // max(1, bytes_each))
    for low in range(0, n, step):
        yield slice(low, min(low + step, n))
