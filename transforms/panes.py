"""When a window's numbers are given out: early, on time, and late, each the whole window so far."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.coders import PickleCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer

from ..mechanisms.oracle import Array, FrequencyOracle
from . import windows
from .count import count_batch, split_by_key
from .lateness import AFTERWARDS, WINDOW
from .summary import iso

#: When a pane is given out: before the watermark passes the window's end, as it does, after.
TIMINGS = ("early", "on_time", "late")


class PaneInfo(NamedTuple):
    """Which pane of which window.

    Of two panes of a window the one with more reports holds, and of two with equally
    many the one with the greater name: :attr:`file_name` orders them as it is.

    Attributes:
      window_start: start of the window (inclusive), microseconds since 1970 UTC.
      window_end: its end (exclusive).
      timing: one of :data:`TIMINGS`.
      index: 0, 1, 2, ... within the window; goes back when a runner restores or restarts a job.
      reports: how many reports of the window were counted.
    """

    window_start: int
    window_end: int
    timing: str
    index: int  # type: ignore[assignment]  # the number of the pane, not tuple.index
    reports: int

    @property
    def name(self) -> str:
        """``on_time-3``: what the column ``pane`` of a table holds."""
        return f"{self.timing}-{self.index}"

    @property
    def window_name(self) -> str:
        """``2013-01-07T000000Z_2013-01-14T000000Z``: the folder of the window's panes."""
        return f"{_path_time(self.window_start)}_{_path_time(self.window_end)}"

    @property
    def file_name(self) -> str:
        """``000000168000-on_time-000003``: the name of the pane's files, without an ending."""
        return f"{self.reports:012d}-{self.timing}-{self.index:06d}"


def _bounds(place: bytes) -> tuple[int, int]:
    start, end = WINDOW.unpack(place)
    return start, end


def _path_time(micros: int) -> str:
    """ISO 8601 without colons, which not every file system takes in names."""
    return (iso(micros) or "").replace(":", "")


class WindowCounts(NamedTuple):
    """The counts of a window at the time of a pane.

    Attributes:
      pane: which pane.
      previous: the pane of the window that it follows in this run, or None.
      repeated: further records of users that had a report in the window already.
      counts: key (or None) to the oracle's counts.
    """

    pane: PaneInfo
    previous: PaneInfo | None
    repeated: int
    counts: dict[str | None, Array]


class _Window:
    """What the state of a window holds."""

    def __init__(self) -> None:
        self.counts: dict[str | None, Array] = {}
        self.reports = 0
        self.repeated = 0
        self.previous: PaneInfo | None = None
        self.on_time = False
        #: Whether the early timer is set.
        self.waiting = False

    @property
    def news(self) -> bool:
        """Whether there are reports that no pane has."""
        return self.reports > (self.previous.reports if self.previous else 0)


def _own(cell: Any) -> _Window | None:
    """What the state holds, to be changed: a worker may keep it for a bundle that is retried."""
    kept = cell.read()
    if kept is None:
        return None
    window = copy.copy(kept)
    window.counts = dict(kept.counts)
    return cast(_Window, window)


@beam.typehints.with_output_types(WindowCounts)
class FirePanes(beam.DoFn):
    """Adds the reports of each window up and gives them out as panes.

    Takes ``(packed WINDOW, (report batch, repeated))`` from
    :class:`~hadabeam.transforms.once.OnePerUser`; gives :class:`WindowCounts`.

    * early: at most every ``early`` seconds of real time, if reports have come since the
      last pane;
    * on time: once, as the watermark passes the end of the window, whether or not
      an early pane had the same numbers: it says that they are complete;
    * late: at each arrival after that (what arrives together makes one pane).

    A window in which no report came has no pane. The state of a window is the
    counts of all its keys; it is freed when the window closes.

    Args:
      oracle: the mechanism.
      early: seconds between early panes; None for none.
      lateness: how long after its end a window still takes records, in microseconds.
      keyed: whether report batches have a ``key`` column.
    """

    _CELL = ReadModifyWriteStateSpec("window", PickleCoder())
    _END = TimerSpec("end", TimeDomain.WATERMARK)
    _CLOSE = TimerSpec("close", TimeDomain.WATERMARK)
    _EARLY = TimerSpec("early", TimeDomain.REAL_TIME)
    _LATE = TimerSpec("late", TimeDomain.WATERMARK)

    def __init__(
        self, oracle: FrequencyOracle, early: float | None, lateness: int, keyed: bool
    ) -> None:
        self._oracle = oracle
        self._early = early
        self._lateness = lateness
        self._keyed = keyed

    def process(
        self,
        element: tuple[bytes, tuple[pa.RecordBatch, int]],
        cell: Any = beam.DoFn.StateParam(_CELL),
        end_timer: Any = beam.DoFn.TimerParam(_END),
        close_timer: Any = beam.DoFn.TimerParam(_CLOSE),
        early_timer: Any = beam.DoFn.TimerParam(_EARLY),
        late_timer: Any = beam.DoFn.TimerParam(_LATE),
    ) -> Iterator[WindowCounts]:
        place, (reports, repeated) = element
        end = _bounds(place)[1]
        window = _own(cell)
        if window is None:
            window = _Window()
            end_timer.set(windows.timestamp(end))
            close_timer.set(windows.timestamp(end + self._lateness + AFTERWARDS))
        if reports.num_rows:
            self._add(window, reports)
        window.repeated += repeated
        if window.on_time:
            # Due at once: all that arrives together, of all groups of users, makes one pane.
            late_timer.set(windows.timestamp(end))
        elif self._early is not None and not window.waiting and window.news:
            window.waiting = True
            early_timer.set(time.time() + self._early)
        cell.write(window)
        yield from ()

    def _add(self, window: _Window, reports: pa.RecordBatch) -> None:
        window.reports += reports.num_rows
        parts: Any = split_by_key(reports) if self._keyed else [(None, reports)]
        for key, part in parts:
            counts = count_batch(self._oracle, part)
            if key in window.counts:
                counts += window.counts[key]
            window.counts[key] = counts

    @on_timer(_EARLY)
    def early(
        self,
        key: Any = beam.DoFn.KeyParam,
        cell: Any = beam.DoFn.StateParam(_CELL),
    ) -> Iterator[Any]:
        """Some time has gone by since the first report that no pane has."""
        window = _own(cell)
        if window is None or not window.waiting:
            return
        window.waiting = False
        if not window.on_time:
            yield from self._fire(window, *_bounds(key), "early")
        cell.write(window)

    @on_timer(_END)
    def end(
        self,
        key: Any = beam.DoFn.KeyParam,
        cell: Any = beam.DoFn.StateParam(_CELL),
    ) -> Iterator[Any]:
        """The watermark has passed the end of the window."""
        window = _own(cell)
        if window is None or window.on_time:
            return
        yield from self._fire(window, *_bounds(key), "on_time")
        cell.write(window)

    @on_timer(_LATE)
    def late(
        self,
        key: Any = beam.DoFn.KeyParam,
        cell: Any = beam.DoFn.StateParam(_CELL),
    ) -> Iterator[Any]:
        """Something has come after the end of the window."""
        window = _own(cell)
        if window is None or not window.on_time:
            return
        yield from self._fire(window, *_bounds(key), "late")
        cell.write(window)

    @on_timer(_CLOSE)
    def close(
        self,
        key: Any = beam.DoFn.KeyParam,
        cell: Any = beam.DoFn.StateParam(_CELL),
        early_timer: Any = beam.DoFn.TimerParam(_EARLY),
    ) -> Iterator[Any]:
        """The watermark has passed the closing of the window."""
        window = _own(cell)
        if window is None:
            return
        # Timers that are due at once need not fire in the order of their times.
        timing = "late" if window.on_time else "on_time"
        yield from self._fire(window, *_bounds(key), timing)
        early_timer.clear()
        cell.clear()

    def _fire(self, window: _Window, start: int, end: int, timing: str) -> Iterator[Any]:
        if timing == "on_time":
            window.on_time = True
        if not window.reports or (timing != "on_time" and not window.news):
            return
        previous = window.previous
        index = 0 if previous is None else previous.index + 1
        window.previous = pane = PaneInfo(start, end, timing, index, window.reports)
        # A copy: the state goes on counting.
        counts = {key: counts.copy() for key, counts in window.counts.items()}
        yield WindowCounts(pane, previous, window.repeated, counts)
