"""What a stream promises, on a TestStream: early, on time, late, too late, repeated, withheld."""

from __future__ import annotations

import time

import numpy as np
import pytest
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.window import TimestampedValue

from hadabeam.mechanisms import Domain, OneBitHadamard, ParameterError, TwoStageOneBit
from hadabeam.testing import seeded_keys
from hadabeam.transforms.records import record_batch
from hadabeam.transforms.stream import StreamEstimates
from hadabeam.transforms.windows import CalendarDays, WindowSpec

S = 1_000_000
TENS = WindowSpec(10 * S)
KEYS = seeded_keys("stream")


def test_early_on_time_late_and_too_late(run_stream, begin, batch, oracle):
    # Early timers are set by the real clock, which goes on while the test is under way: the
    # test's clock takes far longer steps than the 5 s between early panes.
    stream = (
        begin()
        .add_elements([batch(1, ["u1", "u2"]), batch(3, ["u3"]), batch(12, ["u1"])])
        .advance_processing_time(600)  # an early pane of each window
        .advance_processing_time(600)  # nothing new: no pane
        .add_elements([batch(2, ["u1", "u4"])])  # u1 once more
        .advance_processing_time(600)
        .add_elements([batch(2, ["u1", "u2"])])  # repeated only: no pane
        .advance_processing_time(600)
        .advance_watermark_to(10)
        .add_elements([batch(5, ["u5"]), batch(9.9, ["u1"])])  # late, and repeated in a late bundle
        .advance_watermark_to(14.9)
        .add_elements([batch(8, ["u6"])])  # the last moment
        .advance_watermark_to(15)
        .add_elements([batch(8, ["u7", "u8", "u1"])])  # too late
        .advance_watermark_to(25)
        # Nobody had a record in 30..50, and the watermark passes it: closed all the same.
        .advance_watermark_to(67)
        .add_elements([batch(31, ["x"]), batch(44, ["y", "z"]), batch(69, ["u1"])])
        .advance_watermark_to(90)
        .advance_watermark_to_infinity()
    )
    found = run_stream(
        stream, StreamEstimates.Globally(oracle, TENS, KEYS, early=5, allowed_lateness=5 * S)
    )
    assert found.story(0) == [
        (0, "early-0", 3),
        (0, "early-1", 4),
        (0, "on_time-2", 4),
        (0, "late-3", 5),
        (0, "late-4", 6),
    ]
    assert found.story(10) == [(10, "early-0", 1), (10, "on_time-1", 1)]
    # By now the clock of the test is ahead of the real one, so an early pane is due at once.
    assert found.story(60) == [(60, "early-0", 1), (60, "on_time-1", 1)]
    # An empty window has no pane.
    assert {start for start, _, _ in found.story()} == {0, 10, 60}
    assert found.tally == {"late": 6, "over_limit": 4, "reports": 8}
    first = [pane for pane in found.panes if pane.info.window_start == 0]
    assert [pane.summary["dropped"] for pane in first] == [
        {},
        {"over_limit": 1},
        {"over_limit": 3},
        {"over_limit": 4},
        {"over_limit": 4},
    ]
    assert [pane.previous and pane.previous.name for pane in first] == [
        None,
        "early-0",
        "early-1",
        "on_time-2",
        "late-3",
    ]
    for pane in found.panes:
        assert pane.summary["pane"] == pane.info.name
        assert pane.summary["reports"] == pane.info.reports == pane.tables[0].estimate.n
        dropped = sum(pane.summary["dropped"].values())
        assert pane.summary["records_read"] == pane.info.reports + dropped
        assert {row.pane for row in pane.rows()} == {pane.info.name}


def test_first_value_of_a_user_counts(run_stream, begin, batch):
    # So large an epsilon that a report shows the true bit, but for one in 10**17.
    oracle = OneBitHadamard(Domain(["no", "yes"]), 40.0)
    stream = begin()
    users = [f"user {number}" for number in range(40)]
    stream = (
        stream.add_elements([batch(1, users, "yes")])
        .advance_processing_time(600)
        .add_elements([batch(1, users, "no"), batch(0.5, users, "no")])
        .advance_watermark_to(20)
        .advance_watermark_to_infinity()
    )
    found = run_stream(
        stream, StreamEstimates.Globally(oracle, TENS, KEYS, unknown="drop", early=5)
    )
    assert found.story() == [(0, "early-0", 40), (0, "on_time-1", 40)]
    for pane in found.panes:
        assert [row.frequency for row in pane.rows()] == [0.0, 1.0]
    assert found.panes[-1].summary["dropped"] == {"over_limit": 80}


def test_disorder_jumps_and_sliding_windows(run_stream, begin, batch, oracle):
    sliding = WindowSpec(10 * S, 5 * S)
    stream = (
        begin()
        .add_elements([batch(31, ["u1"]), batch(7, ["u1"]), batch(22, ["u2"])])
        .add_elements([batch(3, ["u3"]), batch(7, ["u1"])])
        .advance_watermark_to(12)  # 0..10 closes, 5..15 does not
        .add_elements([batch(6, ["u4"])])
        .advance_watermark_to(400)
        .advance_watermark_to_infinity()
    )
    found = run_stream(
        stream, StreamEstimates.Globally(oracle, sliding, KEYS, early=None, memo="window")
    )
    assert sorted(found.story()) == [
        (-5, "on_time-0", 1),
        (0, "on_time-0", 2),
        (5, "on_time-0", 2),
        (15, "on_time-0", 1),
        (20, "on_time-0", 1),
        (25, "on_time-0", 1),
        (30, "on_time-0", 1),
    ]
    # A record in two windows counts in each, and is late in each.
    assert found.tally == {"late": 1, "over_limit": 2, "reports": 9}
    assert found.panes[0].summary["epsilon_effective"] == pytest.approx(2.0)


def test_tables_per_key_and_withheld_ones(run_stream, begin, batch, oracle):
    stream = (
        begin()
        .add_elements([batch(1, ["u1", "u2", "u3"], key="DE"), batch(2, ["u4"], key="FR")])
        .add_elements([batch(2, ["u1"], key="FR"), batch(11, ["u1", "u2"], key="FR")])
        .advance_processing_time(600)
        .advance_watermark_to(20)
        .add_elements([batch(12, ["u3"], key="FR"), batch(13, ["u4"], key="IT")])
        .advance_watermark_to(40)
        .advance_watermark_to_infinity()
    )
    found = run_stream(
        stream,
        StreamEstimates.PerKey(oracle, TENS, KEYS, early=5, allowed_lateness=10 * S, min_reports=3),
    )
    shown = [
        (
            pane.info.window_start // S,
            pane.info.name,
            [(table.key, table.estimate.n) for table in pane.tables],
            pane.summary["tables_withheld"],
        )
        for pane in found.panes
    ]
    assert shown == [
        (0, "early-0", [("DE", 3)], 1),
        (0, "on_time-1", [("DE", 3)], 1),
        # Early it had no table to show, and on time it says so.
        (10, "on_time-1", [], 1),
        # What arrives together makes one pane.
        (10, "late-2", [("FR", 3)], 1),
    ]
    withheld = found.panes[2]
    assert withheld.summary["reports"] == 2
    assert any("withheld" in note for note in withheld.summary["notes"])
    # u1 has one report in a window over all keys.
    assert found.tally == {"over_limit": 1, "reports": 8}


def test_pairs_days_of_a_time_zone_and_two_stages(run_stream):
    oracle = TwoStageOneBit(Domain(["a", "b"]).with_other(), 1.0, 0.5)
    night = 1_711_839_600  # 2024-03-31 00:00 in Berlin, the night that clocks go on
    stream = (
        TestStream()
        .advance_watermark_to(night - 5)
        .advance_processing_time(int(time.time()))
        .add_elements(
            [
                TimestampedValue(("canary-user", "a"), night - 1),
                TimestampedValue(("canary-user", "b"), night),
                TimestampedValue(("u2", "zebra"), night + 23 * 3600 - 1),
                TimestampedValue(("u2", None), night + 23 * 3600),
                TimestampedValue(("", "a"), night),
            ]
        )
        .advance_watermark_to(night + 100 * 3600)
        .advance_watermark_to_infinity()
    )
    found = run_stream(
        stream,
        StreamEstimates.Globally(
            oracle, CalendarDays("Europe/Berlin"), KEYS, early=None, memo="forever"
        ),
    )
    rows = [
        (pane.info.window_start // S - night, pane.info.window_end // S - night, pane.info.reports)
        for pane in found.panes
    ]
    assert rows == [(-86400, 0, 1), (0, 82800, 2), (82800, 169200, 1)]
    assert found.tally == {"missing_user": 1, "reports": 4}
    assert found.panes[0].info.window_name == "2024-03-29T230000Z_2024-03-30T230000Z"
    assert "0.5" in found.panes[0].summary["notes"][0]
    assert "canary" not in repr(found)


def test_any_order_and_bundling_gives_the_same_final_counts(run_stream):
    """50 orders of the same events, one value per user and window, in windows of their own."""
    oracle = OneBitHadamard(Domain(["a", "b", "c", "d"]).with_other(), 1.0)
    generator = np.random.default_rng(5)
    copies, users = 50, 60
    values = generator.integers(0, 4, users)
    # Each copy has two windows of ten seconds; users are in both.
    bundles: list[list[TimestampedValue]] = [[] for _ in range(30)]
    for copy in range(copies):
        events = np.array([(user, window) for user in range(users) for window in (0, 1)])
        # Some come twice, which changes nothing.
        events = np.concatenate([events, events[generator.integers(0, len(events), 20)]])
        events = generator.permutation(events)
        for part in np.split(events, np.sort(generator.integers(0, len(events), 3))):
            if len(part):
                offsets = part[:, 1] * 10 + generator.uniform(0, 9.9, len(part))
                times = ((copy * 20 + offsets) * S).astype(int)
                records = record_batch(
                    [f"u{user}" for user in part[:, 0]],
                    ["abcd"[values[user]] for user in part[:, 0]],
                    times.tolist(),
                )
                bundle = bundles[int(generator.integers(0, len(bundles)))]
                bundle.append(TimestampedValue(records, int(times.min()) / S))
    stream = TestStream().advance_watermark_to(0).advance_processing_time(int(time.time()))
    for number, bundle in enumerate(bundles):
        stream = stream.add_elements(bundle)
        if number % 10 == 9:
            stream = stream.advance_processing_time(600)
    stream = stream.advance_watermark_to(copies * 20).advance_watermark_to_infinity()
    found = run_stream(
        stream, StreamEstimates.Globally(oracle, TENS, KEYS, early=5, memo="forever", shards=2)
    )
    last = found.last()
    assert sorted(last) == [10 * S * number for number in range(2 * copies)]
    tables = {
        pane.tables[0].estimate.raw.tobytes() + pane.tables[0].estimate.standard_error.tobytes()
        for pane in last.values()
    }
    assert len(tables) == 1
    assert {pane.info.reports for pane in last.values()} == {users}
    assert found.tally == {"over_limit": 20 * copies, "reports": 2 * copies * users}
    # The orders really differed on the way.
    early = [pane for pane in found.panes if pane.info.timing == "early"]
    assert len({pane.info.reports for pane in early}) > 10


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"early": 0}, "early"),
        ({"allowed_lateness": -1}, "allowed_lateness"),
        ({"shards": 0}, "shards"),
        ({"lanes": 0}, "lanes"),
        ({"min_reports": 0, "memo": "always"}, "memo"),
        ({"unknown": "guess"}, "unknown"),
        ({"post": "magic"}, "post"),
    ],
)
def test_wrong_parameters_are_refused_at_once(oracle, options, words):
    with pytest.raises(ParameterError, match=words):
        StreamEstimates.Globally(oracle, TENS, KEYS, **options)


def test_forever_needs_keys_and_two_stages_need_forever(oracle):
    with pytest.raises(ParameterError, match="assignment key"):
        StreamEstimates.Globally(oracle, TENS, memo="forever")
    with pytest.raises(ParameterError, match="memo='forever'"):
        StreamEstimates.Globally(TwoStageOneBit(oracle.domain, 1.0, 0.5), TENS, KEYS)
