"""One report per user and window, however often events are repeated or come again."""

from __future__ import annotations

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

from ..mechanisms.errors import InputError
from ..mechanisms.oracle import Array, FrequencyOracle
from . import windows
from .lateness import AFTERWARDS, PLACE, WINDOW, digests
from .privatize import report_batch
from .randomness import UserKeys
from .records import TALLIES

#: Users of one window that one group may hold: 32 MiB of state.
MOST_USERS = 1 << 22

#: ``(packed window, (report batch, further records of users that had one))``.
Admitted = tuple[bytes, tuple[pa.RecordBatch, int]]


class OnePerUser(beam.DoFn):
    """The first record of each user in each window, as a report.

    Takes ``(place, batch)`` from :class:`~hadabeam.transforms.lateness.AssignWindows`, the
    batch with the columns ``user`` (binary(16)), ``value`` (int32) and ``key`` if there are
    keys; or ``column``, ``bit``, ``payload`` and ``key``, with or without ``user``,
    where reports come ready-made (``user`` is then the pseudonym of a report's id). Gives
    ``(packed WINDOW, (report batch, repeated))`` and, to ``TALLIES``, reports and
    repetitions by window.

    The state of a window and group is the sorted 8-byte digests of the users that were let
    in, in one cell that is rewritten once a bundle. It lives until the window closes: by
    then nothing more of the window can come. Two users of one window share a digest with
    probability ``n**2 / 2**65`` (3e-6 among ten million), and the second is then
    taken for the first.

    Of a user's records those that come later count for nothing, whatever they say: an early
    result may have used the first, and a second bit would spend epsilon again.

    Args:
      oracle: the mechanism.
      keys: the keys by reference; None where reports come ready-made.
      memo: see ``Privatize``.
      lateness: how long after its end a window still takes records, in microseconds.
      reason: as what repetitions are counted.
      most_users: how many users of a window one group may hold.

    Raises:
      InputError: if a group holds more users.
    """

    _CELL = ReadModifyWriteStateSpec("users", BytesCoder())
    _CLOSE = TimerSpec("close", TimeDomain.WATERMARK)

    def __init__(
        self,
        oracle: FrequencyOracle,
        keys: UserKeys | None,
        memo: str,
        lateness: int,
        reason: str = "over_limit",
        most_users: int = MOST_USERS,
    ) -> None:
        self._oracle = oracle
        self._keys = keys
        self._memo = memo
        self._lateness = lateness
        self._reason = reason
        self._most_users = most_users

    def setup(self) -> None:
        self._loaded = None if self._keys is None else self._keys.load()

    def process(
        self,
        element: tuple[bytes, pa.RecordBatch],
        cell: Any = beam.DoFn.StateParam(_CELL),
        close: Any = beam.DoFn.TimerParam(_CLOSE),
    ) -> Iterator[Any]:
        place, batch = element
        start, end, _ = PLACE.unpack(place)
        repeated = 0
        if "user" in batch.schema.names:
            known = cell.read()
            if known is None:
                close.set(windows.timestamp(end + self._lateness + AFTERWARDS))
            seen = np.frombuffer(known or b"", "<u8")
            rows, seen = first_of_each(digests(batch), seen)
            if len(seen) > self._most_users:
                raise InputError(
                    f"a group of users holds more than {self._most_users} users of one window; "
                    "pass a larger number of --shards"
                )
            repeated = batch.num_rows - len(rows)
            if repeated:
                batch = batch.take(pa.array(rows))
                Metrics.counter("hadabeam", self._reason).inc(repeated)
            if len(rows):
                cell.write(seen.tobytes())
        if "value" in batch.schema.names:
            assert self._loaded is not None
            forever = self._memo == "forever"
            batch = report_batch(
                self._oracle, self._loaded, batch, start, forever, end=end, timed=True
            )
        elif "user" in batch.schema.names:
            batch = batch.drop_columns(["user", "event_time"])
        else:
            batch = batch.drop_columns(["event_time"])
        Metrics.counter("hadabeam", "reports").inc(batch.num_rows)
        tally = {"reports": batch.num_rows, self._reason: repeated}
        yield TaggedOutput(TALLIES, (start, end, {name: n for name, n in tally.items() if n}))
        yield WINDOW.pack(start, end), (batch, repeated)

    @on_timer(_CLOSE)
    def forget(self, cell: Any = beam.DoFn.StateParam(_CELL)) -> None:
        """The window has closed: nothing of it will come."""
        cell.clear()


def first_of_each(found: Array, seen: Array) -> tuple[Array, Array]:
    """The rows of digests that were not seen before, each digest once.

    Args:
      found: uint64[n], in the order of arrival.
      seen: uint64[m], sorted, distinct.

    Returns:
      ``(rows, all)``: the rows of the first arrivals, ascending, and the digests with the new
      ones, sorted.
    """
    new, rows = np.unique(found, return_index=True)
    if len(seen):
        places = np.searchsorted(seen, new)
        fresh = seen[np.minimum(places, len(seen) - 1)] != new
        new, rows, places = new[fresh], rows[fresh], places[fresh]
        if len(new):
            seen = np.insert(seen, places, new)
    else:
        seen = new
    return np.sort(rows), seen.astype("<u8", copy=False)
