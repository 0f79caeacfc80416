"""What is too late: decided in one place, before anything else looks at windows."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.coders import BytesCoder
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import TimestampedValue

from ..mechanisms.oracle import Array
from . import windows
from .privatize import fixed_rows
from .records import TALLIES
from .windows import END_OF_TIME, START_OF_TIME, Windowing

#: ``(start, end)`` of a window in microseconds, and a group of users: a key of the state.
PLACE = struct.Struct(">qqI")
#: The key of what belongs to a window as a whole.
WINDOW = struct.Struct(">qq")

#: So many ends of windows without a record are looked at one by one; then each step is four
#: times the one before.
SINGLE_STEPS = 16
#: So many windows before the first record are looked at as well.
LOOK_BACK = 8
#: So much later than here (in microseconds; no runner tells shorter times apart) the steps behind
#: forget a window: their watermark passes a closing only after the walk has come to it, and with
#: it all that was let in before.
AFTERWARDS = 1000
#: Where the watermark is known to be before anything is known.
_UNKNOWN = -(2**62)
#: The watermark as it is known, what the timer is set to, and steps without a record; then, as
#: pairs, the first and last ends of the stretches of windows that have records.
_STATE = struct.Struct("<qqq")
_NOTHING = _UNKNOWN, END_OF_TIME, 0, np.zeros((0, 2), np.int64)


class AssignWindows(beam.DoFn):
    """Puts records into their windows, and drops and counts what comes too late.

    Takes ``(lane, batch)``; a batch has a column ``event_time``. Gives ``(place, batch)``,
    the place being the packed :data:`PLACE` of a window and a group of users, and to ``TALLIES``
    ``(window_start, window_end, {"late": n})``. A record in several windows counts as late
    in each that is closed.

    A window is closed when the watermark has passed its end by the allowed lateness. Beam
    tells a ``DoFn`` the watermark only by firing timers, so a timer walks from one end (or
    closing) of a window to the next, whether or not there are records. It stops at each end and
    each closing of a window that a record was put into, however far the watermark moves at once:
    such a window is never opened a second time. After :data:`SINGLE_STEPS` steps on
    other windows the steps grow, up to the next window that has records. So where the
    watermark rests in a longer gap, a window that nobody had a record in may be opened by a
    late record, and closes at once.

    What is let in has the timestamp of the last moment of its window (or, if the window
    has ended, before its closing), so that nothing behind this step is late in Beam's sense,
    and the watermark waits for it.

    Args:
      windowing: the windows.
      lateness: how long after its end a window still takes records, in microseconds.
      shards: into how many groups the users of a window are split.
    """

    _CELL = ReadModifyWriteStateSpec("watermark", BytesCoder())
    _TICK = TimerSpec("tick", TimeDomain.WATERMARK)

    def __init__(self, windowing: Windowing, lateness: int, shards: int) -> None:
        self._windowing = windowing
        self._lateness = lateness
        self._shards = shards

    def process(
        self,
        element: tuple[bytes, pa.RecordBatch],
        cell: Any = beam.DoFn.StateParam(_CELL),
        tick: Any = beam.DoFn.TimerParam(_TICK),
    ) -> Iterator[Any]:
        batch = element[1]
        times = batch.column("event_time").to_numpy(zero_copy_only=False)
        state = cell.read()
        watermark, due, misses, filled = _unpack(state) if state else _NOTHING
        earliest = int(times.min()) - (0 if state else LOOK_BACK * self._windowing.step)
        wanted = self._next(max(watermark, earliest))
        if watermark > _UNKNOWN and misses:
            wanted = min(wanted, self._next(watermark))
        if wanted < due:
            due = wanted
            tick.set(windows.timestamp(due))
        assigned = list(self._windowing.assign(times))
        filled = self._fill(filled, [end for _, end in assigned], watermark)
        cell.write(_STATE.pack(watermark, due, 0) + filled.tobytes())
        for start, end in assigned:
            yield from self._place(batch, start, end, watermark)

    @on_timer(_TICK)
    def walk(
        self,
        cell: Any = beam.DoFn.StateParam(_CELL),
        tick: Any = beam.DoFn.TimerParam(_TICK),
        fired: Any = beam.DoFn.TimestampParam,
    ) -> None:
        """The watermark has come to an end of a window, or to a closing."""
        state = cell.read()
        if not state:
            return
        before, _, misses, filled = _unpack(state)
        watermark = max(before, int(fired.micros))
        misses = 0 if self._stop(filled, before) <= watermark else misses + 1
        filled = filled[filled[:, 1] + self._lateness > watermark]
        leap = 0
        if misses > SINGLE_STEPS:
            leap = self._windowing.step * 4 ** min(misses - SINGLE_STEPS, 30)
        due = min(self._next(watermark + leap), self._stop(filled, watermark))
        if due < END_OF_TIME:
            tick.set(windows.timestamp(due))
        cell.write(_STATE.pack(watermark, due, misses) + filled.tobytes())

    def _fill(self, filled: Array, ends: list[Array], watermark: int) -> Array:
        """The stretches of ends, with those of further windows that are not closed."""
        # Neighbours mostly share a window: sort only where it changes.
        new = np.unique(
            np.concatenate([end[np.flatnonzero(np.diff(end, prepend=end[0] - 1))] for end in ends])
        )
        new = new[(new + self._lateness > watermark) & (new < END_OF_TIME)]
        if not len(new):
            return filled
        firsts, lasts = np.concatenate([filled, np.stack([new, new], axis=1)]).T
        order = np.argsort(firsts, kind="stable")
        firsts, lasts = firsts[order], np.maximum.accumulate(lasts[order])
        # What single steps would pass over anyway need not be known apart.
        apart = np.flatnonzero(firsts[1:] - lasts[:-1] > SINGLE_STEPS * self._windowing.step)
        low, high = np.append(0, apart + 1), np.append(apart, len(firsts) - 1)
        return np.stack([firsts[low], lasts[high]], axis=1)

    def _stop(self, filled: Array, after: int) -> int:
        """The first end or closing after a time that the walk must not pass over."""
        found = END_OF_TIME
        for delay in {0, self._lateness}:
            ended = max(after - delay, START_OF_TIME)
            place = int(np.searchsorted(filled[:, 1], ended, side="right"))
            if place < len(filled):
                first = int(filled[place, 0])
                end = first if first > ended else self._windowing.next_end(ended)
                found = min(found, end + delay)
        return found

    def _next(self, after: int) -> int:
        """The first end or closing of a window after a time."""
        if after >= END_OF_TIME:
            return END_OF_TIME
        end = self._windowing.next_end(max(after, START_OF_TIME))
        if not self._lateness:
            return end
        ended = max(after - self._lateness, START_OF_TIME)
        return min(end, self._windowing.next_end(ended) + self._lateness)

    def _place(
        self, batch: pa.RecordBatch, start: Array, end: Array, watermark: int
    ) -> Iterator[Any]:
        """The records of each window and group, and the tally of those that come too late."""
        shard = shard_of(batch, self._shards)
        order = np.lexsort((shard, start))
        start, end, shard = start[order], end[order], shard[order]
        changes = np.flatnonzero((start[1:] != start[:-1]) | (shard[1:] != shard[:-1])) + 1
        edges = [0, *changes.tolist(), len(order)]
        late: dict[tuple[int, int], int] = {}
        for low, high in itertools.pairwise(edges):
            window = int(start[low]), int(end[low])
            closing = window[1] + self._lateness
            if closing <= watermark:
                late[window] = late.get(window, 0) + high - low
                continue
            # The sort is stable: within a group the records stay in the order they came in.
            part = batch.take(pa.array(order[low:high]))
            last = (window[1] if window[1] > watermark else closing) - 1
            yield TimestampedValue(
                (PLACE.pack(*window, int(shard[low])), part), windows.timestamp(last)
            )
        for window, number in late.items():
            Metrics.counter("hadabeam", "late").inc(number)
            yield TaggedOutput(TALLIES, (*window, {"late": number}))


def _unpack(state: bytes) -> tuple[int, int, int, Array]:
    watermark, due, misses = _STATE.unpack_from(state)
    return watermark, due, misses, np.frombuffer(state, "<i8", offset=_STATE.size).reshape(-1, 2)


def shard_of(batch: pa.RecordBatch, shards: int) -> Array:
    """int64[n]: the group of each row, by its pseudonym (or, without one, all in one)."""
    if shards == 1 or "user" not in batch.schema.names:
        return np.zeros(batch.num_rows, np.int64)
    return np.asarray((digests(batch) >> np.uint64(48)).astype(np.int64) % shards)


def digests(batch: pa.RecordBatch) -> Array:
    """uint64[n]: eight bytes of each row's pseudonym."""
    rows = fixed_rows(batch.column("user"))
    words = np.ascontiguousarray(rows[:, :8]).view("<u8").ravel()
    return np.asarray(words, np.uint64)
