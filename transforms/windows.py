"""Windows of event time: which ones a record lies in, and how they become epochs and rows.

A :class:`Windowing` says so for whole arrays of times. Batch jobs hand it to Beam as a
``WindowFn``; streaming jobs assign windows themselves, in the step that decides what is late.
"""

from __future__ import annotations

import bisect
import datetime
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import apache_beam as beam
import numpy as np
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.transforms import window as beam_window
from apache_beam.utils.timestamp import Duration, Timestamp

from ..mechanisms.errors import InputError, ParameterError
from .checks import is_whole

Array = np.ndarray[Any, Any]

_MILLISECOND = 1_000

#: The epoch of reports that belong to no window.
NO_WINDOW = 0
#: Records have times from here (the year 3) ...
START_OF_TIME = -62_072_524_800_000_000
#: ... to here (December 9998): no calendar computation between them leaves Python's years, and
#: windows of up to a year begin and end at dates that can be written.
END_OF_TIME = 253_368_086_400_000_000


@runtime_checkable
class Windowing(Protocol):
    """Windows that lie the same whatever the data: fixed, sliding, or calendar days."""

    @property
    def windows_per_record(self) -> int:
        """In how many windows each record lies: what epsilon is multiplied by."""

    @property
    def step(self) -> int:
        """From one window's start to the next, in microseconds (about, for calendar days)."""

    def granules(self, times: Array) -> Array:
        """int64[n]: for each time the first of the stretch in which all times share windows."""

    def assign(self, times: Array) -> Iterator[tuple[Array, Array]]:
        """``windows_per_record`` pairs of int64[n]: the starts and ends of each time's windows."""

    def next_end(self, after: int) -> int:
        """The first end of a window after a time; :data:`END_OF_TIME` if there is none."""

    def window_fn(self) -> beam_window.WindowFn:
        """The Beam ``WindowFn``, whose windows are ``IntervalWindow``."""


@dataclass(frozen=True)
class WindowSpec:
    """Fixed windows, or sliding ones where ``period`` is shorter than ``size``.

    Windows start at whole multiples of the period since 1970 UTC.

    Attributes:
      size: length of a window in microseconds.
      period: from one start to the next, in microseconds; None means ``size``.

    Raises:
      ParameterError: unless both are whole milliseconds (multiples of 1,000, as Beam keeps the
        ends of windows no finer), ``0 < period <= size``, and the period divides the size.
    """

    size: int
    period: int | None = None

    def __post_init__(self) -> None:
        if not (is_whole(self.size) and is_whole(self.step)):
            raise ParameterError(
                "window and period must be whole numbers of microseconds, e.g. 3_600_000_000"
            )
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
        if self.step % _MILLISECOND:
            raise ParameterError(
                "window and period must be multiples of 1,000 microseconds (1ms), since Beam keeps "
                "the ends of windows in milliseconds"
            )

    @property
    def step(self) -> int:
        """The period in microseconds."""
        return self.size if self.period is None else self.period

    @property
    def windows_per_record(self) -> int:
        """In how many windows each record lies: what epsilon is multiplied by."""
        return self.size // self.step

    def granules(self, times: Array) -> Array:
        """See :meth:`Windowing.granules`: the start of the period."""
        return times // self.step * self.step

    def assign(self, times: Array) -> Iterator[tuple[Array, Array]]:
        """See :meth:`Windowing.assign`."""
        last = self.granules(times)
        for number in range(self.windows_per_record):
            start = last - number * self.step
            yield start, start + self.size

    def next_end(self, after: int) -> int:
        """See :meth:`Windowing.next_end`: ends are multiples of the period, as starts are."""
        return min(after // self.step * self.step + self.step, END_OF_TIME)

    def window_fn(self) -> beam_window.WindowFn:
        """The Beam WindowFn."""
        if self.windows_per_record == 1:
            return beam_window.FixedWindows(Duration(micros=self.size))
        return beam_window.SlidingWindows(Duration(micros=self.size), Duration(micros=self.step))


@dataclass(frozen=True)
class CalendarDays:
    """Windows from midnight to midnight of a time zone, 23 or 25 hours when clocks change.

    A day that has no midnight (clocks went on at 0:00) starts at its first instant. Before
    the year 3 and after November 9998 days are those of UTC.

    Attributes:
      time_zone: a name of the IANA database, as ``Europe/Berlin``.

    Raises:
      ParameterError: if there is no such time zone.
    """

    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        _zone(self.time_zone)

    @property
    def windows_per_record(self) -> int:
        """1."""
        return 1

    @property
    def step(self) -> int:
        """24 hours."""
        return 86_400_000_000

    def granules(self, times: Array) -> Array:
        """See :meth:`Windowing.granules`: the start of the day."""
        return next(self.assign(times))[0]

    def assign(self, times: Array) -> Iterator[tuple[Array, Array]]:
        """See :meth:`Windowing.assign`."""
        if not len(times):
            yield times, times
            return
        inside = (times >= START_OF_TIME) & (times < END_OF_TIME)
        if not inside.all():
            # Zones have no offsets that far away.
            start = times // self.step * self.step
            end = start + self.step
            start[inside], end[inside] = next(self.assign(times[inside]))
            yield start, end
            return
        # Local days begin at most a day before or after those of UTC. Only years that occur are
        # looked up: one record may be of another age.
        near = np.concatenate([times - self.step, times + 2 * self.step])
        years = np.unique(near.astype("datetime64[us]").astype("datetime64[Y]").astype(np.int64))
        midnights = np.concatenate(
            [_midnights(self.time_zone, 1970 + year) for year in years.tolist()]
        )
        days = np.searchsorted(midnights, times, side="right")
        yield midnights[days - 1], midnights[days]

    def next_end(self, after: int) -> int:
        """See :meth:`Windowing.next_end`."""
        if after >= END_OF_TIME:
            return END_OF_TIME
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=after)
        for year in (moment.year, moment.year + 1):
            midnights = _midnights(self.time_zone, year)
            place = bisect.bisect_right(midnights, after)
            if place < len(midnights):
                return int(midnights[place])
        return END_OF_TIME

    def window_fn(self) -> beam_window.WindowFn:
        """The Beam WindowFn."""
        return _DayWindows(self.time_zone)


@dataclass(frozen=True)
class EpochWindows:
    """The windows of ready-made reports: each lies in the one that its time is the start of.

    Attributes:
      windowing: the windows that the reports were made with.
    """

    windowing: Windowing

    @property
    def windows_per_record(self) -> int:
        """1."""
        return 1

    @property
    def step(self) -> int:
        """As that of the windowing."""
        return self.windowing.step

    def granules(self, times: Array) -> Array:
        """See :meth:`Windowing.granules`."""
        return self.windowing.granules(times)

    def assign(self, times: Array) -> Iterator[tuple[Array, Array]]:
        """See :meth:`Windowing.assign`: of the windows of a time the one that starts last."""
        yield next(iter(self.windowing.assign(times)))

    def next_end(self, after: int) -> int:
        """See :meth:`Windowing.next_end`."""
        return self.windowing.next_end(after)

    def window_fn(self) -> beam_window.WindowFn:
        """See :meth:`Windowing.window_fn`."""
        return self.windowing.window_fn()


def are_starts(windowing: Windowing | None, epochs: Array) -> Array:
    """bool[n]: which epochs reports of a collection can have.

    Args:
      windowing: the windows that the reports were made with. None: none, and the epoch of all is
        :data:`NO_WINDOW`, which therefore no report of a window has.
      epochs: int64[n].
    """
    if windowing is None:
        return np.asarray(epochs == NO_WINDOW)
    found: Array = (epochs >= START_OF_TIME) & (epochs < END_OF_TIME) & (epochs != NO_WINDOW)
    start, _ = next(EpochWindows(windowing).assign(epochs[found]))
    found[found] = start == epochs[found]
    return found


def window_of_epoch(windowing: Windowing, epoch: int) -> tuple[int, int]:
    """Start and end, in microseconds, of the window whose reports have an epoch.

    Raises:
      InputError: if no window starts there.
    """
    start, end = next(EpochWindows(windowing).assign(np.array([epoch])))
    if epoch == NO_WINDOW or int(start[0]) != epoch:
        raise InputError(
            "reports belong to other windows than these, or to none; pass --window, --period and "
            "--time_zone as they were given to hadabeam privatize"
        )
    return int(start[0]), int(end[0])


class _DayWindows(beam_window.NonMergingWindowFn):
    """:class:`CalendarDays` for Beam."""

    def __init__(self, time_zone: str) -> None:
        self._days = CalendarDays(time_zone)

    def assign(self, context: Any) -> list[beam_window.IntervalWindow]:
        time = np.array([int(context.timestamp.micros)])
        start, end = next(self._days.assign(time))
        return [beam_window.IntervalWindow(timestamp(int(start[0])), timestamp(int(end[0])))]

    def get_window_coder(self) -> IntervalWindowCoder:
        return IntervalWindowCoder()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._days == getattr(other, "_days", None)

    def __hash__(self) -> int:
        return hash(self._days)


def _zone(name: str) -> datetime.tzinfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        if name == "UTC":
            return datetime.timezone.utc
        raise ParameterError(
            f"there is no time zone {name!r}; write a name such as Europe/Berlin or UTC"
        ) from None


@lru_cache(maxsize=1024)
def _midnights(time_zone: str, year: int) -> Array:
    """int64: the first instants of the days of a year in a zone, in microseconds since 1970 UTC."""
    zone = _zone(time_zone)
    first = datetime.date(year, 1, 1).toordinal()
    days = datetime.date(year + 1, 1, 1).toordinal() - first if year < 9999 else 365
    found = np.empty(days, np.int64)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    for number in range(days):
        day = datetime.date.fromordinal(first + number)
        # A midnight that is skipped (fold 0) is the instant of the change. One that comes
        # twice is first an instant of the day before.
        for fold in (0, 1):
            local = datetime.datetime(day.year, day.month, day.day, fold=fold, tzinfo=zone)
            instant = local.astimezone(datetime.timezone.utc)
            if instant.astimezone(zone).date() >= day:
                break
        found[number] = (instant - epoch) // datetime.timedelta(microseconds=1)
    found.flags.writeable = False
    return found


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
