"""No window that had records is opened again, however far the watermark moves at once."""

from __future__ import annotations

import numpy as np
import pytest
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from hadabeam.testing import seeded_keys
from hadabeam.transforms.lateness import PLACE, SINGLE_STEPS, AssignWindows
from hadabeam.transforms.records import record_batch
from hadabeam.transforms.stream import StreamEstimates
from hadabeam.transforms.windows import CalendarDays, WindowSpec

S = 1_000_000
DAY = 86_400 * S
TENS = WindowSpec(10 * S)
SLIDING = WindowSpec(20 * S, 10 * S)
KEYS = seeded_keys("lateness")


def backfill(times: list[int], name: str) -> TimestampedValue:
    """A batch of records at times in seconds, each of a user of their own."""
    users = [f"{name} {number}" for number in range(len(times))]
    return TimestampedValue(
        record_batch(users, ["a"] * len(times), [at * S for at in times]), min(times)
    )


@pytest.mark.parametrize("lateness", [0, 25])
@pytest.mark.parametrize("windowing", [TENS, SLIDING])
@pytest.mark.parametrize("gap", [0, 3000])
def test_a_backfill_read_at_once_leaves_its_windows_closed(
    run_stream, begin, oracle, windowing, lateness, gap
):
    # Twelve windows one after the other, a gap of up to 300 windows, and six more.
    early = [10 * number + 5 for number in range(12)]
    times = early + [at + 120 + gap for at in early[:6]]
    stream = (
        begin()
        .add_elements([backfill(times, "first")])
        .advance_watermark_to(times[-1] + 5 + lateness)
        .add_elements([backfill(times[:-3], "again")])
        .advance_watermark_to_infinity()
    )
    found = run_stream(
        stream,
        StreamEstimates.Globally(
            oracle, windowing, KEYS, early=None, allowed_lateness=lateness * S, shards=1
        ),
    )
    overlap = windowing.windows_per_record
    assert found.tally["reports"] == overlap * len(times)
    # Once the last record's first window is closed, so are all that begin before it.
    assert found.tally["late"] == overlap * (len(times) - 3)
    timings = [(start, name) for start, name, _ in found.story()]
    assert len(timings) == len(set(timings)) == len(found.last())
    assert {name for _, name in timings} == {"on_time-0"}


def test_a_late_file_after_a_backfill_of_days(run_stream, begin, oracle):
    first = 1_729_728_000  # 2024-10-24
    times = (first + np.arange(3000) * (5 * 86_400) // 3000).tolist()
    stream = (
        begin()
        .add_elements([backfill(times, "log")])
        # The end of the third day: the second has been closed for long.
        .advance_watermark_to(first + 3 * 86_400)
        .add_elements([backfill([first + 86_400 + 60 * n for n in range(150)], "late file")])
        .advance_watermark_to(first + 5 * 86_400 - 30)
        .advance_watermark_to_infinity()
    )
    found = run_stream(
        stream,
        StreamEstimates.Globally(
            oracle, WindowSpec(DAY), KEYS, early=None, allowed_lateness=3600 * S, shards=1
        ),
    )
    assert found.tally == {"late": 150, "reports": 3000}
    assert found.story() == [(first + day * 86_400, "on_time-0", 600) for day in range(5)]


class _Step:
    """The step by itself, with a watermark that the test moves; timers fire as they are due."""

    def __init__(self, windowing, lateness):
        self.step = AssignWindows(windowing, lateness, 1)
        self.windowing = windowing
        self.state = self.due = None
        self.fired = 0

    def read(self):
        return self.state

    def write(self, state):
        self.state = state

    def set(self, at):
        self.due = at.micros

    def add(self, times):
        """The windows that records were put into, and those that they are late for."""
        batch = record_batch(["u"] * len(times), ["a"] * len(times), times)
        put, late = [], []
        for found in self.step.process((b"", batch), self, self):
            if isinstance(found, TaggedOutput):
                late.append(found.value[:2])
            else:
                put.append(PLACE.unpack(found.value[0])[:2])
        return put, late

    def advance(self, watermark):
        while self.due is not None and self.due <= watermark:
            fired, self.due = self.due, None
            self.fired += 1
            self.step.walk(self, self, Timestamp(micros=fired))


@pytest.mark.parametrize("periods", [0, 0.3, 6, 500])
@pytest.mark.parametrize(
    "windowing", [TENS, SLIDING, WindowSpec(DAY), CalendarDays("Europe/Berlin")]
)
def test_whatever_was_filled_is_late_once_the_watermark_has_passed(windowing, periods):
    generator = np.random.default_rng(17)
    unit = windowing.step
    lateness = int(periods * unit)
    closed_again = 0
    for _ in range(25):
        step = _Step(windowing, lateness)
        filled: set[tuple[int, int]] = set()
        now, watermark = 1_700_000_000 * S, -(2**60)
        for _ in range(12):
            now += int(unit * generator.choice([0, 1, 5, 40, 3000]) * generator.random())
            old = now - (generator.random(8) * unit * generator.choice([1, 20, 300])).astype(int)
            again = [start for start, _ in filled]
            put, late = step.add([*old.tolist(), *again])
            for window in put:
                # Open, unless nobody had a record in it.
                assert window[1] + lateness > watermark or window not in filled
            for window in late:
                assert window[1] + lateness <= watermark
            closed_again += len(filled & set(late))
            filled |= set(put)
            if generator.random() < 0.6:
                watermark = max(watermark, now - int(generator.integers(0, 2 * unit)))
            step.advance(watermark)
    assert closed_again > 100


def test_a_gap_costs_few_steps_and_one_event_of_the_far_future_too():
    step = _Step(TENS, 3 * S)
    # A window, a million windows without records, a window, and one of the year 8000.
    step.add([5 * S, 10_000_005 * S, 190_000_000_000 * S])
    step.advance(10_000_013 * S)
    assert step.fired < 3 * SINGLE_STEPS + 30
    assert step.add([5 * S, 10_000_004 * S]) == (
        [],
        [(0, 10 * S), (10_000_000 * S, 10_000_010 * S)],
    )
    step.advance(10_000_100 * S)
    step.advance(253_368_086_400 * S)
    assert step.fired < 8 * SINGLE_STEPS + 80
    assert step.add([190_000_000_001 * S])[0] == []


def test_what_is_kept_of_filled_windows_stays_small():
    step = _Step(TENS, 0)
    for number in range(500):
        step.add([10 * S * number, 10 * S * (number + 3)])
    # Neighbours are one stretch.
    assert len(step.state) == 24 + 16
    step.add([10 * S * 10_000])
    assert len(step.state) == 24 + 32
    step.advance(10 * S * 600)
    assert len(step.state) == 24 + 16
