"""LimitContributions on a runner."""

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterCount,
    AfterWatermark,
    Repeatedly,
)

from hadabeam.mechanisms.domain import Domain
from hadabeam.mechanisms.errors import ParameterError
from hadabeam.mechanisms.prf import Prf
from hadabeam.testing import SeededKey, seeded_keys
from hadabeam.transforms.encode import RecordEncoder
from hadabeam.transforms.limit import LimitContributions
from hadabeam.transforms.randomness import UserKeys
from hadabeam.transforms.records import TALLIES, record_batch
from hadabeam.transforms.windows import END_OF_TIME, START_OF_TIME, CalendarDays, WindowSpec

DOMAIN = Domain(["a", "b", "c"]).with_other()
KEYS = seeded_keys(1)
WEEK = 7 * 86_400_000_000
DAY = 86_400_000_000
RUNNERS = [FnApiRunner, BundleBasedDirectRunner]


def pseudonym(user):
    return Prf(SeededKey("assignment 1").get_secret_bytes()).pseudonyms([user])[0].tobytes()


def rows(batch, window=beam.DoFn.WindowParam):
    start = None if window == beam.window.GlobalWindow() else int(window.start.micros)
    keys = batch.column("key").to_pylist() if "key" in batch.schema.names else [None] * len(batch)
    columns = (batch.column("user").to_pylist(), batch.column("value").to_pylist(), keys)
    return [(start, *row) for row in zip(*columns, strict=True)]


def total(tallies):
    found = {}
    for start, end, tally in tallies:
        for name, number in tally.items():
            found[start, end, name] = found.get((start, end, name), 0) + number
    return sorted(found.items(), key=str)


def tallies_are(expected):
    def check(tallies):
        assert total(tallies) == sorted(expected.items(), key=str)

    return check


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("spill", [False, True])
def test_one_record_of_each_user_is_kept(runner, spill, tmp_path):
    batches = [
        record_batch(["u1", "u2", "u3", None], ["a", "b", "x", "a"]),
        record_batch(["u1", "u2", "u1"], ["a", "b", "a"]),
    ]
    with TestPipeline(runner=runner()) as pipeline:
        limited = (
            pipeline
            | beam.Create(batches)
            | LimitContributions(DOMAIN, KEYS, spill_folder=str(tmp_path) if spill else None)
        )
        expected = [
            (None, pseudonym("u1"), 0, None),
            (None, pseudonym("u2"), 1, None),
            (None, pseudonym("u3"), 3, None),
        ]
        assert_that(limited[None] | beam.FlatMap(rows), equal_to(expected), label="rows")
        assert_that(
            limited[TALLIES],
            tallies_are({(None, None, "missing_user"): 1, (None, None, "over_limit"): 3}),
            label="tallies",
        )


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("spill", [False, True])
def test_a_batch_that_holds_several_windows_is_split(runner, spill, tmp_path):
    batch = record_batch(
        ["u1", "u1", "u1", "u2", "u3"],
        ["a", "a", "b", "c", "a"],
        [0, WEEK - 1, WEEK, -1, 3 * WEEK],
    )
    with TestPipeline(runner=runner()) as pipeline:
        limited = (
            pipeline
            | beam.Create([batch])
            | LimitContributions(
                DOMAIN,
                KEYS,
                windowing=WindowSpec(WEEK),
                spill_folder=str(tmp_path) if spill else None,
            )
        )
        expected = [
            (0, pseudonym("u1"), 0, None),
            (WEEK, pseudonym("u1"), 1, None),
            (-WEEK, pseudonym("u2"), 2, None),
            (3 * WEEK, pseudonym("u3"), 0, None),
        ]
        assert_that(limited[None] | beam.FlatMap(rows), equal_to(expected), label="rows")
        assert_that(limited[TALLIES], tallies_are({(0, WEEK, "over_limit"): 1}), label="tallies")


def test_sliding_windows_hold_a_record_several_times():
    batch = record_batch(["u1", "u2"], ["a", "b"], [0, 2 * DAY])
    with TestPipeline(runner=FnApiRunner()) as pipeline:
        limited = (
            pipeline
            | beam.Create([batch])
            | LimitContributions(DOMAIN, KEYS, windowing=WindowSpec(3 * DAY, DAY))
        )
        expected = [(start * DAY, pseudonym("u1"), 0, None) for start in (-2, -1, 0)]
        expected += [(start * DAY, pseudonym("u2"), 1, None) for start in (0, 1, 2)]
        assert_that(limited[None] | beam.FlatMap(rows), equal_to(expected))


def test_windows_of_the_input_are_kept():
    elements = [
        beam.window.TimestampedValue(record_batch(["u1"], ["a"]), 5),
        beam.window.TimestampedValue(record_batch(["u1"], ["b"]), 15),
    ]
    with TestPipeline(runner=FnApiRunner()) as pipeline:
        limited = (
            pipeline
            | beam.Create(elements)
            | beam.Map(lambda element: element)
            | beam.WindowInto(beam.window.FixedWindows(10))
            | LimitContributions(DOMAIN, KEYS)
        )
        expected = [(0, pseudonym("u1"), 0, None), (10_000_000, pseudonym("u1"), 1, None)]
        assert_that(limited[None] | beam.FlatMap(rows), equal_to(expected))


def test_the_limit_is_over_all_keys():
    batches = [record_batch(["u1"], ["a"], keys=[key]) for key in ("de", "fr", "")]
    with TestPipeline(runner=FnApiRunner()) as pipeline:
        limited = pipeline | beam.Create(batches) | LimitContributions(DOMAIN, KEYS)
        kept = limited[None] | beam.FlatMap(rows)

        def one_row_with_a_key(found):
            assert len(found) == 1
            assert found[0][3] in ("de", "fr", "")

        assert_that(kept, one_row_with_a_key, label="rows")
        assert_that(limited[TALLIES], tallies_are({(None, None, "over_limit"): 2}), label="tallies")


@pytest.mark.parametrize("shards", [1, 7, 64, 65_536])
def test_the_answer_does_not_depend_on_the_shards(shards, tmp_path):
    batches = [
        record_batch([f"u{(7 * i + b) % 50}" for i in range(100)], ["abc"[(i + b) % 3]] * 100)
        for b in range(3)
        for i in range(2)
    ]

    def run(count):
        file = tmp_path / str(count)
        with TestPipeline(runner=FnApiRunner()) as pipeline:
            limited = (
                pipeline | beam.Create(batches) | LimitContributions(DOMAIN, KEYS, shards=count)
            )
            gathered = limited[None] | beam.FlatMap(rows) | beam.combiners.ToList()
            _ = gathered | beam.Map(lambda found: file.write_text(repr(sorted(found))))
        return file.read_text()

    assert run(shards) == run(3)
    assert run(shards).count("b'") + run(shards).count('b"') >= 50


def test_more_records_than_are_gathered_at_once(monkeypatch, tmp_path):
    monkeypatch.setattr("hadabeam.transforms.limit.FLUSH_RECORDS", 25)
    batches = [record_batch([f"u{b}-{i}" for i in range(10)], ["a"] * 10) for b in range(12)]
    with TestPipeline(runner=FnApiRunner()) as pipeline:
        limited = (
            pipeline
            | beam.Create(batches)
            | LimitContributions(DOMAIN, KEYS, spill_folder=str(tmp_path), shards=4)
        )
        number = limited[None] | beam.Map(len) | beam.CombineGlobally(sum)
        assert_that(number, equal_to([120]))
    assert len(list(tmp_path.iterdir())) > 1


@pytest.mark.parametrize("windowing", [None, WindowSpec(DAY), CalendarDays("Europe/Berlin")])
def test_times_outside_the_calendar_are_bad_times(windowing):
    outside = [START_OF_TIME - 1, END_OF_TIME, -(2**63), 2**63 - 1]
    times = [START_OF_TIME, END_OF_TIME - 1, 0, *outside]
    users = [f"u{number}" for number in range(len(times))]
    with TestPipeline(runner=FnApiRunner()) as pipeline:
        limited = (
            pipeline
            | beam.Create([record_batch(users, ["a"] * len(times), times)])
            | LimitContributions(DOMAIN, KEYS, windowing=windowing)
        )
        found = limited[None] | beam.FlatMap(rows) | beam.Map(lambda row: row[1])
        assert_that(found, equal_to([pseudonym(user) for user in users[:3]]))
        assert_that(limited[TALLIES], tallies_are({(None, None, "bad_time"): 4}), label="tallies")


def test_windows_need_times():
    with (
        pytest.raises(Exception, match="event_time"),
        TestPipeline(runner=FnApiRunner()) as pipeline,
    ):
        _ = (
            pipeline
            | beam.Create([record_batch(["u"], ["a"])])
            | LimitContributions(DOMAIN, KEYS, windowing=WindowSpec(WEEK))
        )


def test_bad_parameters_are_refused_when_they_are_given():
    with pytest.raises(ParameterError, match="shards"):
        LimitContributions(DOMAIN, shards=0)
    with pytest.raises(ParameterError, match="with_other"):
        LimitContributions(Domain(["a", "b"]))
    with pytest.raises(ParameterError, match="both"):
        UserKeys(SeededKey(1))
    with pytest.raises(ParameterError, match="differ"):
        UserKeys(SeededKey(1), SeededKey(1))


@pytest.mark.parametrize(
    ("size", "period", "message"),
    [(0, None, "longer"), (5, 0, "longer"), (5, 7, "lost"), (7, 2, "whole multiple")],
)
def test_windows_that_do_not_fit_are_refused(size, period, message):
    with pytest.raises(ParameterError, match=message):
        WindowSpec(size, period)


def test_batches_leave_without_the_memory_of_their_parents():
    batch = record_batch([f"u{i}" for i in range(10_000)], ["a"] * 10_000)
    with TestPipeline(runner=FnApiRunner()) as pipeline:
        limited = pipeline | beam.Create([batch]) | LimitContributions(DOMAIN, KEYS)

        def small(batches):
            for found in batches:
                assert isinstance(found, pa.RecordBatch)
                assert found.get_total_buffer_size() <= 40 * found.num_rows

        assert_that(limited[None], small)


def test_unbounded_collections_are_refused():
    pipeline = beam.Pipeline(runner=BundleBasedDirectRunner())
    endless = pipeline | beam.Create([record_batch(["u"], ["a"])])
    endless.is_bounded = False
    with pytest.raises(ParameterError, match="StreamEstimates"):
        _ = endless | LimitContributions(DOMAIN, KEYS)


def test_windows_that_merge_are_refused():
    pipeline = beam.Pipeline(runner=FnApiRunner())
    sessions = (
        pipeline
        | beam.Create([record_batch(["u"], ["a"])])
        | beam.WindowInto(beam.window.Sessions(60))
    )
    with pytest.raises(ParameterError, match="sessions"):
        _ = sessions | LimitContributions(DOMAIN, KEYS)


@pytest.mark.parametrize(
    "trigger",
    [
        AfterWatermark(early=AfterCount(1)),
        AfterWatermark(late=AfterCount(1)),
        Repeatedly(AfterCount(1)),
    ],
)
def test_windows_in_parts_are_refused(trigger):
    """Else a user would report in each part."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    parts = (
        pipeline
        | beam.Create([record_batch(["u"], ["a"])])
        | beam.WindowInto(
            beam.window.FixedWindows(60),
            trigger=trigger,
            accumulation_mode=AccumulationMode.DISCARDING,
            allowed_lateness=60,
        )
    )
    with pytest.raises(ParameterError, match="leave the trigger out"):
        _ = parts | LimitContributions(DOMAIN, KEYS)


def test_a_trigger_that_fires_once_is_none():
    with TestPipeline(runner=FnApiRunner()) as pipeline:
        limited = (
            pipeline
            | beam.Create([record_batch(["u"] * 9, ["a"] * 9)])
            | beam.WindowInto(
                beam.window.FixedWindows(60),
                trigger=AfterWatermark(),
                accumulation_mode=AccumulationMode.DISCARDING,
            )
            | LimitContributions(DOMAIN, KEYS)
        )
        assert_that(limited[None] | beam.Map(len), equal_to([1]))


def test_ids_in_bytes_and_in_texts_are_the_same_users():
    """Also those that are no UTF-8."""
    ids = [b"ann", "b\u00fcb".encode(), b"\xff\xfe"]
    loaded = KEYS.load()
    users = []
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), None):
        batch = record_batch(ids, ["a"] * 3)
        if kind is not None:
            batch = batch.set_column(0, "user", pa.array(ids, kind))
        records, tally = RecordEncoder(DOMAIN, loaded.users, "drop").encode(batch)
        assert not tally
        users.append(records.users.tolist())
    assert all(found == users[0] for found in users)
