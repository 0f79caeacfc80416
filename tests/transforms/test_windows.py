"""Windows for arrays of times: fixed, sliding, and calendar days with their changes of clocks."""

from __future__ import annotations

import datetime
import zoneinfo

import numpy as np
import pytest
from apache_beam.transforms.window import IntervalWindow, WindowFn
from apache_beam.utils.timestamp import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from hadabeam.mechanisms import ParameterError
from hadabeam.transforms.windows import (
    END_OF_TIME,
    START_OF_TIME,
    CalendarDays,
    EpochWindows,
    WindowSpec,
)

S = 1_000_000
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/Sao_Paulo",  # clocks went on at midnight
    "America/Havana",  # and back to the day before
    "Pacific/Apia",  # which left out a day
    "Asia/Kathmandu",
    "Australia/Lord_Howe",  # by half an hour
]
ALL = [
    WindowSpec(10 * S),
    WindowSpec(7 * 86400 * S, 86400 * S),
    EpochWindows(WindowSpec(60 * S, 20 * S)),
    *map(CalendarDays, ZONES),
]
DAY = 86400 * S
# Mostly the years that have changes of clocks, and the far ends.
TIMES = st.one_of(
    st.integers(-90 * 365 * DAY, 90 * 365 * DAY),
    st.integers(START_OF_TIME + 10 * DAY, START_OF_TIME + 1000 * DAY),
    st.integers(END_OF_TIME - 1000 * DAY, END_OF_TIME - 10 * DAY),
)


def beam_windows(fn: WindowFn, time: int) -> list[tuple[int, int]]:
    context = WindowFn.AssignContext(Timestamp(micros=time))
    found = fn.assign(context)
    assert all(isinstance(window, IntervalWindow) for window in found)
    return sorted((int(window.start.micros), int(window.end.micros)) for window in found)


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(ALL), TIMES)
def test_windows_hold_their_times_and_ends_are_found(windowing, time):
    times = np.array([time])
    found = [(int(start[0]), int(end[0])) for start, end in windowing.assign(times)]
    assert len(found) == windowing.windows_per_record
    granule = int(windowing.granules(times)[0])
    for start, end in found:
        assert start <= granule <= time < end
        # All times of a granule have the same windows.
        same = list(windowing.assign(np.array([granule])))
        assert (start, end) in [(int(a[0]), int(b[0])) for a, b in same]
    following = windowing.next_end(time)
    assert following > time
    assert min(end for _, end in found) >= following
    # Nothing ends in between.
    assert windowing.next_end(following - 1) == following


def test_times_at_the_ends_of_the_calendar_lie_in_days():
    first, last = -62_135_596_800_000_000, 253_402_300_799_999_999
    times = np.array([first, START_OF_TIME - 1, START_OF_TIME, 0, END_OF_TIME - 1, last])
    for name in ZONES:
        start, end = next(CalendarDays(name).assign(times))
        assert (start <= times).all()
        assert (times < end).all()
        assert CalendarDays(name).next_end(last) == END_OF_TIME


@settings(deadline=None, max_examples=100)
@given(st.sampled_from([case for case in ALL if not isinstance(case, EpochWindows)]), TIMES)
def test_beam_sees_the_same_windows(windowing, time):
    found = sorted(
        (int(start[0]), int(end[0])) for start, end in windowing.assign(np.array([time]))
    )
    assert beam_windows(windowing.window_fn(), time) == found


@pytest.mark.parametrize("name", ZONES)
def test_a_day_is_one_date_of_its_zone(name):
    zone = zoneinfo.ZoneInfo(name)
    first = int(datetime.datetime(2011, 12, 20, tzinfo=datetime.timezone.utc).timestamp())
    times = (first + np.arange(0, 800 * 86400, 1800)) * S
    start, end = next(CalendarDays(name).assign(times))
    dates = [datetime.datetime.fromtimestamp(time // S, zone).date() for time in times.tolist()]
    by_window: dict[int, set[datetime.date]] = {}
    for begin, date in zip(start.tolist(), dates, strict=True):
        by_window.setdefault(begin, set()).add(date)
    assert all(len(found) == 1 for found in by_window.values())
    assert len({min(found) for found in by_window.values()}) == len(by_window)
    lengths = set(((end - start) // (S * 1800)).tolist())
    assert lengths <= {46, 47, 48, 49, 50}


def test_days_when_clocks_change():
    def hours(zone: str, *date: int) -> float:
        noon = datetime.datetime(*date, 12, tzinfo=zoneinfo.ZoneInfo(zone)).timestamp()
        start, end = next(CalendarDays(zone).assign(np.array([int(noon) * S])))
        return float(end[0] - start[0]) / (3600 * S)

    assert hours("Europe/Berlin", 2024, 3, 31) == 23
    assert hours("Europe/Berlin", 2024, 10, 27) == 25
    assert hours("America/Sao_Paulo", 2018, 11, 4) == 23
    assert hours("America/Sao_Paulo", 2018, 2, 17) == 25
    assert hours("Australia/Lord_Howe", 2024, 4, 7) == 24.5
    assert hours("UTC", 2024, 3, 31) == 24


def test_reports_lie_in_the_window_that_their_epoch_starts():
    sliding = WindowSpec(60 * S, 20 * S)
    assert [
        (int(start[0]), int(end[0]))
        for start, end in EpochWindows(sliding).assign(np.array([40 * S]))
    ] == [(40 * S, 100 * S)]


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc/passwd", None])
def test_unknown_time_zone_is_refused(name):
    with pytest.raises(ParameterError, match="time zone"):
        CalendarDays(name)
