"""Event-time windows of a batch, and how Beam's windows become epochs and rows."""

from __future__ import annotations

from dataclasses import dataclass

import apache_beam as beam
from apache_beam.transforms import window as beam_window
from apache_beam.utils.timestamp import Duration, Timestamp

from ..mechanisms.errors import ParameterError

#: The epoch of reports that belong to no window.
NO_WINDOW = 0


@dataclass(frozen=True)
class WindowSpec:
    """Fixed windows, or sliding ones where ``period`` is shorter than ``size``.

    Windows start at whole multiples of the period since 1970 UTC.

    Attributes:
      size: length of a window in microseconds.
      period: from one start to the next, in microseconds; None means ``size``.

    Raises:
      ParameterError: unless ``0 < period <= size`` and the period divides the size.
    """

    size: int
    period: int | None = None

    def __post_init__(self) -> None:
        if self.size <= 0 or self.step <= 0:
            raise ParameterError("window and period must be longer than nothing, e.g. 7d")
        if self.step > self.size:
            raise ParameterError(
                "period must not be longer than window: records between two windows would be lost"
            )
        if self.size % self.step:
            raise ParameterError(
                "window must be a whole multiple of period (7d and 1d, say), "
                "so that every record lies in the same number of windows"
            )

    @property
    def step(self) -> int:
        """The period in microseconds."""
        return self.size if self.period is None else self.period

    @property
    def windows_per_record(self) -> int:
        """In how many windows each record lies: what epsilon is multiplied by."""
        return self.size // self.step

    def window_fn(self) -> beam_window.WindowFn:
        """The Beam WindowFn."""
        if self.windows_per_record == 1:
            return beam_window.FixedWindows(Duration(micros=self.size))
        return beam_window.SlidingWindows(Duration(micros=self.size), Duration(micros=self.step))


def bounds(window: beam_window.BoundedWindow) -> tuple[int | None, int | None]:
    """Start and end of a window in microseconds, or ``(None, None)`` of the global one."""
    if isinstance(window, beam_window.GlobalWindow):
        return None, None
    return int(window.start.micros), int(window.end.micros)


def epoch(window: beam_window.BoundedWindow) -> int:
    """What enters the context of the coins: the window's start in microseconds."""
    start, _ = bounds(window)
    return NO_WINDOW if start is None else start


def timestamp(micros: int) -> Timestamp:
    """A Beam timestamp of microseconds since 1970 UTC."""
    return Timestamp(micros=micros)


def is_unwindowed(pcoll: beam.PCollection) -> bool:
    """Whether a collection lies in the global window with the default trigger."""
    return bool(pcoll.windowing.is_default())
