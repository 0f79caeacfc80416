"""The door of the stream: times of any type, lanes, and input that it refuses."""

from __future__ import annotations

import datetime

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import FixedWindows, SlidingWindows, TimestampedValue

from hadabeam.mechanisms import Domain, ParameterError
from hadabeam.testing import seeded_keys
from hadabeam.transforms.arrivals import EncodeArrivals, lane_of
from hadabeam.transforms.encode import RecordEncoder
from hadabeam.transforms.records import record_batch
from hadabeam.transforms.stream import StreamEstimates
from hadabeam.transforms.windows import END_OF_TIME, START_OF_TIME, WindowSpec

S = 1_000_000
TENS = WindowSpec(10 * S)
KEYS = seeded_keys("arrivals")
DOMAIN = Domain(["a", "b"]).with_other()
NOON = datetime.datetime(2024, 3, 1, 12)
NOON_MICROS = 1_709_294_400 * S
TODAY = NOON_MICROS - 12 * 3600 * S


def arrive(times: pa.Array) -> tuple[list[int], dict[str, int]]:
    """The times that were let in, and the tally."""
    users = [f"u{number}" for number in range(len(times))]
    batch = record_batch(users, ["a"] * len(times)).append_column("event_time", times)
    step = EncodeArrivals(DOMAIN, KEYS, "other")
    step.setup()
    let_in: list[int] = []
    tally: dict[str, int] = {}
    for found in step.process(batch):
        if isinstance(found, TaggedOutput):
            tally = found.value[2]
        else:
            let_in += found[1].column("event_time").to_pylist()
    # The batch jobs read the same.
    encoded, dropped = RecordEncoder(DOMAIN, KEYS.load().users).encode(batch)
    assert (encoded.times.tolist(), dropped) == (let_in, tally)
    return let_in, tally


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.timestamp("s"), NOON_MICROS),
        (pa.timestamp("ms", "UTC"), NOON_MICROS),
        (pa.timestamp("us"), NOON_MICROS),
        (pa.timestamp("ns"), NOON_MICROS),
        (pa.timestamp("ns", "UTC"), NOON_MICROS),
        (pa.timestamp("ns", "Europe/Berlin"), NOON_MICROS),
        (pa.date32(), TODAY),
        (pa.date64(), TODAY),
    ],
)
def test_times_and_dates_of_any_type(kind, expected):
    assert arrive(pa.array([NOON, None], kind)) == ([expected], {"bad_time": 1})


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.float64(), pa.string()])
def test_numbers_are_microseconds(kind):
    times = pa.array([NOON_MICROS, None]).cast(kind)
    assert arrive(times) == ([NOON_MICROS], {"bad_time": 1})


def test_what_is_no_time_is_a_bad_time():
    assert arrive(pa.array(["2024-03-01T12:00:00Z", "noon"])) == ([], {"bad_time": 2})
    assert arrive(pa.array([True, False])) == ([], {"bad_time": 2})
    outside = [START_OF_TIME - 1, START_OF_TIME, END_OF_TIME - 1, END_OF_TIME]
    assert arrive(pa.array(outside)) == (outside[1:3], {"bad_time": 2})


def test_batches_of_pandas_times_are_counted(run_stream, begin, oracle):
    batch = record_batch(["u1", "u2"], ["a", "a"]).append_column(
        "event_time", pa.array([NOON, NOON], pa.timestamp("ns"))
    )
    stream = begin().add_elements([TimestampedValue(batch, NOON_MICROS // S)])
    found = run_stream(
        stream.advance_watermark_to_infinity(),
        StreamEstimates.Globally(oracle, TENS, KEYS, early=None),
    )
    assert found.story() == [(NOON_MICROS // S, "on_time-0", 2)]
    assert found.tally == {"reports": 2}


def test_full_batches_are_dealt_to_all_lanes():
    batches = [
        record_batch([f"u{number}-{row}" for row in range(100)], ["a"] * 100, [0] * 100)
        for number in range(200)
    ]
    lanes = [lane_of(batch, 4) for batch in batches]
    assert min(lanes.count(b"%d" % lane) for lane in range(4)) > 25
    # However the same batch lies in memory.
    again = [pa.concat_batches([batch, batch]).slice(100) for batch in batches]
    assert [lane_of(batch, 4) for batch in again] == lanes
    assert {lane_of(batch, 1) for batch in batches} == {b"\0"}


def test_input_in_sliding_windows_is_refused(oracle):
    estimates = StreamEstimates.Globally(oracle, TENS, KEYS)
    pairs = beam.Pipeline() | beam.Create([("u1", "a")])
    with pytest.raises(ParameterError, match="WindowSpec"):
        _ = pairs | beam.WindowInto(SlidingWindows(40, 10)) | estimates
    # An element lies in one of these.
    _ = pairs | "Fixed" >> beam.WindowInto(FixedWindows(10)) | "FromFixed" >> estimates
    _ = pairs | "Tiles" >> beam.WindowInto(SlidingWindows(10, 10)) | "FromTiles" >> estimates
