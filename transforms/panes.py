"""When a window's numbers are given out: early, on time, and late, each the whole window so far."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

import apache_beam as beam
import pyarrow as pa
from apache_beam.coders import PickleCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    ReadModifyWriteStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import TimestampedValue

from ..mechanisms.oracle import Array, FrequencyOracle
from . import windows
from .count import count_batch, split_by_key
from .lateness import AFTERWARDS, WINDOW
from .summary import iso

#: When a pane is given out: before the watermark passes the window's end, as it does, after.
TIMINGS = ("early", "on_time", "late")
#: So many bytes of a window's reports are kept as they are before they are added to its counts.
PENDING_BYTES = 1 << 22
#: What a batch takes in the state besides its reports, about.
_BATCH_BYTES = 512
#: The smallest step of time that all runners keep, in microseconds.
_STEP = 1000
#: Later than any job: seconds from now on.
_NEVER = 3600 * 24 * 3650


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


def _joined(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Small batches as few large ones: of each the counts cost as much as the domain is large."""
    by_schema: dict[str, list[pa.RecordBatch]] = {}
    for part in parts:
        by_schema.setdefault(str(part.schema), []).append(part)
    for batches in by_schema.values():
        table = pa.Table.from_batches(batches)
        yield from table.unify_dictionaries().combine_chunks().to_batches()


class _Window:
    """What the state of a window holds, but for its counts."""

    def __init__(self) -> None:
        self.reports = 0
        #: Bytes of the reports that are not in the counts.
        self.pending = 0
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
    return cast(_Window, copy.copy(kept))


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

    A window in which no report came has no pane. A pane has the timestamp of the last moment of its
    window (a millisecond before its end). The watermark is held there until the on-time
    pane is out, where the runner keeps the holds of timers, so that neither it nor an early pane
    is late in Beam's sense. Late panes are, as Beam's own are.

    The state of a window is the counts of all its keys in one cell, some words, and the
    reports that are not in the counts yet. The cell (16 bytes for each key and value with the
    one-bit oracle, 8 with others) is read and written once a pane, and once for every
    :data:`PENDING_BYTES` of reports, not for each batch. All is freed when the window closes.

    Args:
      oracle: the mechanism.
      early: seconds between early panes; None for none.
      lateness: how long after its end a window still takes records, in microseconds.
      keyed: whether report batches have a ``key`` column.
    """

    _CELL = ReadModifyWriteStateSpec("window", PickleCoder())
    _COUNTS = ReadModifyWriteStateSpec("counts", PickleCoder())
    _PENDING = BagStateSpec("pending", PickleCoder())
    _END = TimerSpec("end", TimeDomain.WATERMARK)
    _CLOSE = TimerSpec("close", TimeDomain.WATERMARK)
    _EARLY = TimerSpec("early", TimeDomain.REAL_TIME)
    _LATE = TimerSpec("late", TimeDomain.WATERMARK)
    # Never fires. A timer of event time holds the watermark at the time it fires at, which here is
    # the window's end and so too late. One of real time holds it at the timestamp of the element
    # that it was set by: the last moment of the window.
    _HOLD = TimerSpec("hold", TimeDomain.REAL_TIME)

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
        counts: Any = beam.DoFn.StateParam(_COUNTS),
        pending: Any = beam.DoFn.StateParam(_PENDING),
        end_timer: Any = beam.DoFn.TimerParam(_END),
        close_timer: Any = beam.DoFn.TimerParam(_CLOSE),
        early_timer: Any = beam.DoFn.TimerParam(_EARLY),
        late_timer: Any = beam.DoFn.TimerParam(_LATE),
        hold_timer: Any = beam.DoFn.TimerParam(_HOLD),
    ) -> Iterator[WindowCounts]:
        place, (reports, repeated) = element
        end = _bounds(place)[1]
        window = _own(cell)
        if window is None:
            window = _Window()
            end_timer.set(windows.timestamp(end))
            close_timer.set(windows.timestamp(end + self._lateness + AFTERWARDS))
            hold_timer.set(time.time() + _NEVER)
        if reports.num_rows:
            window.reports += reports.num_rows
            window.pending += reports.nbytes + _BATCH_BYTES
            pending.add(reports)
            if window.pending >= PENDING_BYTES:
                self._counted(window, counts, pending)
        window.repeated += repeated
        if window.on_time:
            # Due at once: all that arrives together, of all groups of users, makes one pane.
            late_timer.set(windows.timestamp(end))
        elif self._early is not None and not window.waiting and window.news:
            window.waiting = True
            early_timer.set(time.time() + self._early)
        cell.write(window)
        yield from ()

    def _counted(self, window: _Window, cell: Any, pending: Any) -> dict[str | None, Array]:
        """The counts of all reports of the window: those that are pending are added to the cell."""
        # Copies, here and below: a worker may keep the cell's for a bundle that is retried.
        total: dict[str | None, Array] = dict(cell.read() or {})
        if not window.pending:
            return total
        for reports in _joined(pending.read()):
            parts: Any = split_by_key(reports) if self._keyed else [(None, reports)]
            for key, part in parts:
                counts = count_batch(self._oracle, part)
                if key in total:
                    counts += total[key]
                total[key] = counts
        pending.clear()
        window.pending = 0
        cell.write(total)
        return total

    @on_timer(_EARLY)
    def early(
        self,
        key: Any = beam.DoFn.KeyParam,
        cell: Any = beam.DoFn.StateParam(_CELL),
        counts: Any = beam.DoFn.StateParam(_COUNTS),
        pending: Any = beam.DoFn.StateParam(_PENDING),
    ) -> Iterator[Any]:
        """Some time has gone by since the first report that no pane has."""
        window = _own(cell)
        if window is None or not window.waiting:
            return
        window.waiting = False
        if not window.on_time:
            yield from self._fire(window, *_bounds(key), "early", counts, pending)
        cell.write(window)

    @on_timer(_END)
    def end(
        self,
        key: Any = beam.DoFn.KeyParam,
        cell: Any = beam.DoFn.StateParam(_CELL),
        counts: Any = beam.DoFn.StateParam(_COUNTS),
        pending: Any = beam.DoFn.StateParam(_PENDING),
        early_timer: Any = beam.DoFn.TimerParam(_EARLY),
        hold_timer: Any = beam.DoFn.TimerParam(_HOLD),
    ) -> Iterator[Any]:
        """The watermark has passed the end of the window."""
        window = _own(cell)
        if window is None or window.on_time:
            return
        yield from self._fire(window, *_bounds(key), "on_time", counts, pending)
        # It would hold the watermark as well, for nothing.
        window.waiting = False
        early_timer.clear()
        hold_timer.clear()
        cell.write(window)

    @on_timer(_LATE)
    def late(
        self,
        key: Any = beam.DoFn.KeyParam,
        cell: Any = beam.DoFn.StateParam(_CELL),
        counts: Any = beam.DoFn.StateParam(_COUNTS),
        pending: Any = beam.DoFn.StateParam(_PENDING),
    ) -> Iterator[Any]:
        """Something has come after the end of the window."""
        window = _own(cell)
        if window is None or not window.on_time:
            return
        yield from self._fire(window, *_bounds(key), "late", counts, pending)
        cell.write(window)

    @on_timer(_CLOSE)
    def close(
        self,
        key: Any = beam.DoFn.KeyParam,
        cell: Any = beam.DoFn.StateParam(_CELL),
        counts: Any = beam.DoFn.StateParam(_COUNTS),
        pending: Any = beam.DoFn.StateParam(_PENDING),
        early_timer: Any = beam.DoFn.TimerParam(_EARLY),
        hold_timer: Any = beam.DoFn.TimerParam(_HOLD),
    ) -> Iterator[Any]:
        """The watermark has passed the closing of the window."""
        window = _own(cell)
        if window is None:
            return
        # Timers that are due at once need not fire in the order of their times.
        timing = "late" if window.on_time else "on_time"
        yield from self._fire(window, *_bounds(key), timing, counts, pending)
        early_timer.clear()
        hold_timer.clear()
        for state in (cell, counts, pending):
            state.clear()

    @on_timer(_HOLD)
    def hold(self) -> None:
        """Some runners fire what is left when a job ends; there is nothing to do."""

    def _fire(
        self, window: _Window, start: int, end: int, timing: str, cell: Any, pending: Any
    ) -> Iterator[Any]:
        if timing == "on_time":
            window.on_time = True
        if not window.reports or (timing != "on_time" and not window.news):
            return
        previous = window.previous
        index = 0 if previous is None else previous.index + 1
        window.previous = pane = PaneInfo(start, end, timing, index, window.reports)
        counts = {k: array.copy() for k, array in self._counted(window, cell, pending).items()}
        yield TimestampedValue(
            WindowCounts(pane, previous, window.repeated, counts),
            windows.timestamp(max(start, end - _STEP)),
        )
