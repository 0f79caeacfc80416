"""The numbers of a run: what was read, counted and dropped, for the run and each window.

They ride in the data, through a combiner: metrics of a bundle that is retried would
count twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import apache_beam as beam

from ..mechanisms.oracle import FrequencyOracle
from .limit import WindowTally
from .records import READING_REASONS, REPORT_REASONS, WINDOW_REASONS, Tally, add_tallies

_REASONS = (*READING_REASONS, *REPORT_REASONS, *WINDOW_REASONS)
#: Of how many received reports something could not be checked.
_UNCHECKED = ("unchecked_columns", "unchecked_duplicates")
_ByWindow = dict[tuple[int | None, int | None], Tally]


class AddTallies(beam.CombineFn):
    """``(window_start, window_end, tally)`` to one tally for each window."""

    def create_accumulator(self) -> _ByWindow:
        return {}

    def add_input(self, accumulator: _ByWindow, element: WindowTally) -> _ByWindow:
        start, end, tally = element
        accumulator[start, end] = add_tallies([accumulator.get((start, end), {}), tally])
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[_ByWindow]) -> _ByWindow:
        total: _ByWindow = {}
        for accumulator in accumulators:
            for window, tally in accumulator.items():
                total[window] = add_tallies([total.get(window, {}), tally])
        return total

    def extract_output(self, accumulator: _ByWindow) -> _ByWindow:
        return accumulator


@dataclass
class Summarize(beam.PTransform):
    """Tallies to the one summary of a run.

    Takes a PCollection of ``(window_start, window_end, tally)`` in the global window, with
    microseconds, or None and None for what belongs to the whole run. Gives one dict.

    Attributes:
      oracle: the mechanism of the run.
      epsilon_effective: what one record of a user costs in this run:
        the oracle's own, times the windows that a record lies in.
      windowed: whether to list the numbers of each window.
      memo: "window" or "forever", which windows are told with.
    """

    oracle: FrequencyOracle
    epsilon_effective: float
    windowed: bool = False
    memo: str = "window"

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        return (
            pcoll
            | "Add" >> beam.CombineGlobally(AddTallies())
            | "Describe"
            >> beam.Map(
                summary, self.oracle, self.epsilon_effective, self.windowed, self.memo
            ).with_output_types(dict[str, Any])
        )


def summary(
    tallies: _ByWindow,
    oracle: FrequencyOracle,
    epsilon_effective: float,
    windowed: bool,
    memo: str = "window",
) -> dict[str, Any]:
    """The summary of a run as a JSON object (see ``schemas/summary.avsc``)."""
    total = add_tallies(tallies.values())
    found: dict[str, Any] = {
        "records_read": total.get("records_read", 0),
        "reports": total.get("reports", 0),
        "dropped": _dropped(total),
        "empty_columns": total.get("empty_columns", 0),
        "epsilon": oracle.epsilon,
        "epsilon_effective": epsilon_effective,
        "oracle": oracle.name,
        "domain_size": oracle.domain.size,
        "domain_fingerprint": oracle.domain.fingerprint,
        "collection": oracle.collection_id,
    }
    for name in _UNCHECKED:
        if total.get(name):
            found[name] = total[name]
    if windowed:
        found["memo"] = memo
        found["notes"] = privacy_notes(oracle, memo)
        found["windows"] = [
            {
                "window_start": iso(start),
                "window_end": iso(end),
                "reports": tally.get("reports", 0),
                "dropped": _dropped(tally),
                "empty_columns": tally.get("empty_columns", 0),
            }
            for (start, end), tally in sorted(
                (item for item in tallies.items() if item[0][0] is not None),
                key=lambda item: item[0],
            )
        ]
    return found


def privacy_notes(oracle: FrequencyOracle, memo: str) -> list[str]:
    """What the epsilons of a longitudinal collection stand for, a sentence each."""
    if memo != "forever":
        return ["Each window spends epsilon again (memo: window)."]
    notes = [
        "A user whose true bit stays the same spends epsilon once, for as long as the coin key "
        "lives (memo: forever). That a value changed can be seen, and no epsilon covers it."
    ]
    if oracle.two_stages:
        single = getattr(oracle, "instant_epsilon_effective", 0.0)
        change = getattr(oracle, "change_epsilon", 0.0)
        notes = [
            f"A user whose true bit stays the same spends epsilon once; a single report spends "
            f"{single:.4g}. One changed window costs {change:.4g} to whoever sees all reports; "
            "many changes are not covered."
        ]
    return notes


def _dropped(tally: Tally) -> Tally:
    return {reason: tally[reason] for reason in _REASONS if tally.get(reason)}


def iso(micros: int | None) -> str | None:
    """ISO 8601 in UTC of microseconds since 1970, without a fraction where there is none."""
    if micros is None:
        return None
    moment = datetime.fromtimestamp(micros // 1_000_000, timezone.utc)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    fraction = micros % 1_000_000
    return f"{text}.{fraction:06d}Z" if fraction else f"{text}Z"
