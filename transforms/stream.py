"""Streaming estimates: for each window a table early, on time and late."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows, SlidingWindows

from ..mechanisms.errors import ParameterError
from ..mechanisms.estimate import check_post
from ..mechanisms.oracle import FrequencyOracle
from ..schemas.rows import EstimateRow
from .arrivals import BatchArrivals, EncodeArrivals
from .checks import (
    check_oracle,
    check_report_keys,
    check_user_keys,
    check_whole,
    check_windowing,
    is_positive,
)
from .element_types import typed
from .encode import check_unknown
from .estimate import estimate_table
from .lateness import AssignWindows
from .limit import WindowTally
from .once import OnePerUser
from .panes import FirePanes, PaneInfo, WindowCounts
from .privatize import check_memo, check_memo_choice
from .randomness import ReportKeys, UserKeys
from .receive import ReceiveReports
from .records import DEAD_LETTERS, TALLIES, DeadLetter
from .summary import iso, privacy_notes, summary
from .tables import EstimateTable
from .windows import EpochWindows, Windowing

_KEYED = beam.typehints.KV[bytes, beam.typehints.Any]


class Pane(NamedTuple):
    """What is known of a window at one time. It is the whole window so far.

    Attributes:
      info: which pane of which window.
      previous: the pane of the window that it follows in this run, or None.
      tables: one estimate, or one for each key, in the order of the keys. Empty if the
        window is withheld for having too few reports.
      summary: the pane's numbers (see ``schemas/summary.avsc``): ``records_read`` and ``dropped``
        are those of the window, as far as it had come.
    """

    info: PaneInfo
    previous: PaneInfo | None
    tables: tuple[EstimateTable, ...]
    summary: dict[str, Any]

    @beam.typehints.with_output_types(Iterable[EstimateRow])
    def rows(self) -> Iterator[EstimateRow]:
        """The rows of all tables."""
        for table in self.tables:
            yield from table.rows()


@dataclass
class EstimatePanes(beam.PTransform):
    """Window counts to :class:`Pane`, estimated.

    Attributes:
      oracle: the mechanism that the counts come from.
      post: the post-processing.
      min_reports: tables of fewer reports are withheld. A window that has no other tables
        gives a pane without tables when it is on time, so that it says so, and else none.
      epsilon_effective: what one record costs its user over all windows.
      memo: "window" or "forever", for the summary.

    Raises:
      ParameterError: if ``post`` is unknown or ``min_reports`` is below 1.
    """

    oracle: FrequencyOracle
    post: str = "simplex"
    min_reports: int = 1
    epsilon_effective: float | None = None
    memo: str = "window"

    def __post_init__(self) -> None:
        super().__init__()
        check_post(self.post)
        check_oracle(self.oracle)
        self.min_reports = check_whole("min_reports", self.min_reports, 1)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        return pcoll | "Estimate" >> beam.FlatMap(self._estimate).with_output_types(Pane)

    def _estimate(self, window: WindowCounts) -> Iterator[Pane]:
        info = window.pane
        kept: list[EstimateTable] = []
        withheld = 0
        for key in sorted(window.counts, key=lambda name: name or ""):
            counts = window.counts[key]
            if self.oracle.reports(counts) < self.min_reports:
                withheld += 1
                continue
            kept.append(
                estimate_table(
                    self.oracle,
                    counts,
                    self.post,
                    (info.window_start, info.window_end),
                    key,
                    info.name,
                )
            )
        if not kept and info.timing != "on_time":
            return
        numbers = {
            "records_read": info.reports + window.repeated,
            "reports": info.reports,
            "over_limit": window.repeated,
            "empty_columns": sum(table.empty_columns for table in kept),
        }
        effective = self.epsilon_effective
        if effective is None:
            effective = self.oracle.epsilon_effective
        found = summary({(None, None): numbers}, self.oracle, effective, False)
        found |= {
            "window_start": iso(info.window_start),
            "window_end": iso(info.window_end),
            "pane": info.name,
            "memo": self.memo,
            "tables_withheld": withheld,
        }
        notes = privacy_notes(self.oracle, self.memo)
        if withheld:
            notes.append(
                f"{withheld} of {withheld + len(kept)} tables are withheld: they have fewer than "
                f"{self.min_reports} reports."
            )
        found["notes"] = [*found.get("notes", []), *notes]
        yield Pane(info, window.previous, tuple(kept), found)


@dataclass
class _StreamEstimates(beam.PTransform):
    oracle: FrequencyOracle
    windowing: Windowing
    keys: UserKeys | ReportKeys = field(default_factory=UserKeys)
    unknown: str = "other"
    post: str = "simplex"
    memo: str = "window"
    early: float | None = 10.0
    allowed_lateness: int = 0
    min_reports: int = 1
    from_reports: bool = False
    shards: int = 16
    lanes: int = 1

    _keyed = False

    def __post_init__(self) -> None:
        super().__init__()
        check_oracle(self.oracle)
        check_windowing(self.windowing)
        check_post(self.post)
        if self.from_reports:
            if isinstance(self.keys, UserKeys):
                self.keys = ReportKeys(self.keys.assignment)
            check_report_keys(self.keys)
            check_memo_choice(self.memo)
        else:
            if isinstance(self.keys, ReportKeys):
                raise ParameterError("records need UserKeys; ReportKeys are for reports")
            check_user_keys(self.keys)
            check_unknown(self.oracle.domain, self.unknown)
            check_memo(self.memo, self.keys, self.oracle)
        if self.early is not None and not is_positive(self.early):
            raise ParameterError("early must be more than 0 seconds, or None for no early results")
        self.allowed_lateness = check_whole("allowed_lateness", self.allowed_lateness, 0)
        self.min_reports = check_whole("min_reports", self.min_reports, 1)
        self.shards = check_whole("shards", self.shards, 1, 2**16)
        self.lanes = check_whole("lanes", self.lanes, 1, 2**10)

    def default_label(self) -> str:
        return f"StreamEstimates.{type(self).__name__}"

    @property
    def epsilon_effective(self) -> float:
        """What one record costs its user over all the windows that it lies in."""
        times = 1 if self.memo == "forever" else self.windowing.windows_per_record
        return self.oracle.epsilon_effective * times

    def expand(self, pcoll: beam.PCollection) -> dict[str | None, beam.PCollection]:
        given = pcoll.windowing.windowfn
        if isinstance(given, SlidingWindows) and given.period < given.size:
            raise ParameterError(
                "in sliding windows StreamEstimates would count each record once for each of its "
                "windows; leave the input in the global window, and pass the windows to "
                "StreamEstimates, as WindowSpec(size, period)"
            )
        arrived = pcoll | "ToGlobal" >> beam.WindowInto(GlobalWindows())
        windowing = self.windowing
        if isinstance(self.keys, ReportKeys):
            door: Any = ReceiveReports(self.oracle, windowing, self.keys, self._keyed, self.lanes)
            windowing = EpochWindows(windowing)
        else:
            arrived |= "Batch" >> beam.ParDo(BatchArrivals(self._keyed))
            door = EncodeArrivals(
                self.oracle.domain, self.keys, self.unknown, self._keyed, self.lanes
            )
        encoded = arrived | "Encode" >> beam.ParDo(door).with_outputs(
            TALLIES, DEAD_LETTERS, main="batches"
        )
        # Side outputs lose the types that keys of a state are encoded by.
        encoded.batches.element_type = _KEYED
        placed = encoded.batches | "AssignWindows" >> beam.ParDo(
            AssignWindows(windowing, self.allowed_lateness, self.shards)
        ).with_outputs(TALLIES, main="placed")
        placed.placed.element_type = _KEYED
        reports = placed.placed | "OnePerUser" >> beam.ParDo(
            OnePerUser(
                self.oracle,
                self.keys if isinstance(self.keys, UserKeys) else None,
                self.memo,
                self.allowed_lateness,
                "duplicate" if self.from_reports else "over_limit",
            )
        ).with_outputs(TALLIES, main="reports")
        reports.reports.element_type = _KEYED
        panes = (
            reports.reports
            | "FirePanes"
            >> beam.ParDo(FirePanes(self.oracle, self.early, self.allowed_lateness, self._keyed))
            | "Estimate"
            >> EstimatePanes(
                self.oracle, self.post, self.min_reports, self.epsilon_effective, self.memo
            )
        )
        tallies = [typed(part[TALLIES], WindowTally) for part in (encoded, placed, reports)]
        letters = typed(encoded[DEAD_LETTERS], DeadLetter)
        return {None: panes, TALLIES: tallies | beam.Flatten(), DEAD_LETTERS: letters}


class StreamEstimates:
    """Frequencies in windows of event time, as records come.

    ``StreamEstimates.Globally(oracle, windowing)`` and ``StreamEstimates.PerKey(oracle,
    windowing)`` give ``None``: a PCollection of :class:`Pane`; ``TALLIES``: a
    PCollection of ``(window_start, window_end, tally)``, of which ``SumTallies`` makes the
    numbers of the run; and ``DEAD_LETTERS``, of refused reports. Everything is in the global
    window; which windows there are is the transform's own business, so that lateness is
    decided, and counted, in one place.

    Example::

        found = visits | StreamEstimates.Globally(oracle, WindowSpec(3_600_000_000), keys)
        rows = found[None] | beam.FlatMap(Pane.rows)
    """

    @dataclass
    class Globally(_StreamEstimates):
        """One table for each window and pane.

        Takes a PCollection of ``(user, value)`` pairs, whose timestamps are the event times, or
        of record batches with ``event_time``, whose timestamps must not be later than
        their earliest record, as the watermark waits for no more than that; with
        ``from_reports``, of batches with the columns of ``report.avsc``. Numbers in ``event_time``
        are microseconds since 1970 UTC; timestamps and dates of Arrow are read as such.

        A :class:`Pane` has the timestamp of the last moment of its window, a millisecond
        before its end (docs/streaming.md says what that means for windows of your own).

        Attributes:
          oracle: the mechanism, with its domain and epsilon.
          windowing: ``WindowSpec`` or ``CalendarDays``.
          keys: an assignment key and a coin key, by reference. Without them a bundle that
            is tried again draws fresh coins, and a restart spends epsilon again.
          unknown: "other", "drop" or "fail", see ``LimitContributions``.
          post: the post-processing of ``frequency``.
          memo: "window" or "forever", see ``Privatize``.
          early: seconds of real time between early panes; None for none.
          allowed_lateness: how long after its end a window still takes records, in
            microseconds. Each user of an open window costs 8 bytes of state.
          min_reports: tables of fewer reports are withheld.
          from_reports: whether the input holds reports that are already private.
          shards: into how many groups the users of a window are split.
          lanes: into how many lanes all records are dealt before windows are assigned. Each
            lane decides by itself what is late; one is exact, and takes millions of
            records a second.

        Raises:
          ParameterError: if a choice is unknown or out of range; when it is applied, if the input
            is in sliding windows, where an element is there more than once.
        """

    @dataclass
    class PerKey(_StreamEstimates):
        """One table for each key, window and pane; keys are public.

        Takes a PCollection of ``(key, (user, value))``, or of batches with a ``key`` column.
        Each user still sends one report in a window, over all keys. Attributes as in
        ``Globally``.
        """

        _keyed = True
