"""Which timestamps panes have, what becomes of them in windows of a user's own, and their state."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Duration
from notes import noted

from hadabeam.testing import seeded_keys
from hadabeam.transforms import panes
from hadabeam.transforms.lateness import WINDOW
from hadabeam.transforms.panes import FirePanes
from hadabeam.transforms.records import record_batch
from hadabeam.transforms.reports import ReportArrays
from hadabeam.transforms.stream import StreamEstimates
from hadabeam.transforms.windows import WindowSpec

S = 1_000_000
MINUTES = WindowSpec(60 * S)
KEYS = seeded_keys("pane times")


class _Note(beam.DoFn):
    """Appends what comes to a file, with its timestamp and window."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def process(
        self,
        element: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
    ) -> None:
        grouped = element[1] if isinstance(element, tuple) and element[0] == 0 else [element]
        with self._path.open("ab") as file:
            for pane in grouped:
                name = (pane.info.window_start // S, pane.info.name)
                start = getattr(window, "start", None)
                at = int(timestamp.micros), None if start is None else int(start.micros) // S
                file.write(pickle.dumps((*name, *at)))


def _stream(batch: Any) -> TestStream:
    """A record in time, one late as the watermark is at the end, one after a leap of it."""
    return (
        TestStream()
        .advance_watermark_to(0)
        .advance_processing_time(int(time.time()))
        .add_elements([batch(1, ["u1", "u2"]), batch(70, ["u3"])])
        .advance_processing_time(600)
        .advance_watermark_to(60)
        .add_elements([batch(5, ["u5"])])
        .advance_watermark_to(300)
        .add_elements([batch(6, ["u6"]), batch(310, ["u1"])])
        .advance_watermark_to(2000)
        .advance_watermark_to_infinity()
    )


def test_panes_have_the_last_moment_of_their_window(batch, oracle, tmp_path):
    pipeline = beam.Pipeline(
        runner="BundleBasedDirectRunner", options=PipelineOptions(streaming=True)
    )
    found = (
        pipeline
        | _stream(batch)
        | StreamEstimates.Globally(oracle, MINUTES, KEYS, early=5, allowed_lateness=600 * S)
    )
    found[None] | beam.ParDo(_Note(tmp_path / "panes"))
    pipeline.run().wait_until_finish()
    seen = noted(tmp_path / "panes")
    assert {name.split("-")[0] for _, name, _, _ in seen} == {"early", "on_time", "late"}
    assert len(seen) >= 6
    for start, _, timestamp, _ in seen:
        assert timestamp == (start + 60) * S - 1000


def test_a_window_shorter_than_a_millisecond_has_its_panes_within_it(oracle):
    step, cells = FirePanes(oracle, None, 0, False), _Cells()
    cells.add(step, WINDOW.pack(500, 1000), _reports(oracle, 3))
    (found,) = cells.end(step, WINDOW.pack(500, 1000))
    assert found.timestamp.micros == 500


@pytest.mark.prism
@pytest.mark.parametrize("early", [None, 5.0])
def test_windows_of_a_users_own(batch, oracle, tmp_path, early):
    """On a runner that keeps the holds of timers: no pane on time is lost, nor is a late one
    where lateness is allowed."""
    pipeline = beam.Pipeline(
        options=PipelineOptions(
            [
                "--runner=PrismRunner",
                f"--prism_location={os.environ['HADABEAM_PRISM']}",
                "--environment_type=LOOPBACK",
                "--experiments=prism_disable_sdf_split",
                "--streaming",
            ]
        )
    )
    found = (
        pipeline
        | _stream(batch)
        | StreamEstimates.Globally(oracle, MINUTES, KEYS, early=early, allowed_lateness=600 * S)
    )
    one = found[None] | beam.Map(lambda pane: (0, pane))
    _ = (
        one
        | "Strict" >> beam.WindowInto(FixedWindows(60))
        | "GroupStrict" >> beam.GroupByKey()
        | "NoteStrict" >> beam.ParDo(_Note(tmp_path / "strict"))
    )
    _ = (
        one
        | "Lax"
        >> beam.WindowInto(
            FixedWindows(60),
            trigger=AfterWatermark(late=AfterCount(1)),
            accumulation_mode=AccumulationMode.DISCARDING,
            allowed_lateness=Duration(601),
        )
        | "GroupLax" >> beam.GroupByKey()
        | "NoteLax" >> beam.ParDo(_Note(tmp_path / "lax"))
    )
    pipeline.run().wait_until_finish()
    strict, lax = noted(tmp_path / "strict"), noted(tmp_path / "lax")
    for start, _, _, window in strict + lax:
        assert window == start
    on_time = {start for start, name, _, _ in strict if name.startswith("on_time")}
    assert on_time == {0, 60, 300}
    assert sum(name.startswith("on_time") for _, name, _, _ in lax) == 3
    late = [start for start, name, _, _ in lax if name.startswith("late")]
    assert late == [0, 0]


class _Cells:
    """The state of a window, and how often it is written; timers do nothing."""

    def __init__(self) -> None:
        self.window, self.counts = _Cell(), _Cell()
        self.pending = _Bag()

    def add(self, step: FirePanes, place: bytes, reports: Any) -> None:
        timers = [_Timer()] * 5
        list(step.process((place, (reports, 0)), self.window, self.counts, self.pending, *timers))

    def end(self, step: FirePanes, place: bytes) -> list[Any]:
        timers = _Timer(), _Timer()
        return list(step.end(place, self.window, self.counts, self.pending, *timers))


class _Cell:
    def __init__(self) -> None:
        self._bytes: bytes | None = None
        self.writes = 0

    def read(self) -> Any:
        return None if self._bytes is None else pickle.loads(self._bytes)

    def write(self, value: Any) -> None:
        self._bytes = pickle.dumps(value)
        self.writes += 1


class _Bag(list[Any]):
    def add(self, value: Any) -> None:
        self.append(value)

    def read(self) -> list[Any]:
        return list(self)


class _Timer:
    def set(self, at: Any) -> None:
        pass

    def clear(self) -> None:
        pass


def _reports(oracle: Any, number: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    columns = rng.integers(1, 4, number).astype(np.int32)
    bits = rng.integers(0, 2, number).astype(np.uint8)
    return ReportArrays(0, None, columns, bits, None).to_batch()


def test_counts_are_not_written_for_each_batch(oracle, monkeypatch):
    place = WINDOW.pack(0, 60 * S)
    batches = [_reports(oracle, 100, seed) for seed in range(50)]
    found = []
    ten = 10 * (batches[0].nbytes + panes._BATCH_BYTES)
    for limit in (panes.PENDING_BYTES, ten, 1):
        monkeypatch.setattr(panes, "PENDING_BYTES", limit)
        step, cells = FirePanes(oracle, None, 0, False), _Cells()
        for reports in batches:
            cells.add(step, place, reports)
        (pane,) = cells.end(step, place)
        assert pane.value.pane.reports == 5000
        assert not cells.pending
        found.append((cells.counts.writes, pane.value.counts[None].tolist()))
    assert [writes for writes, _ in found] == [1, 5, 50]
    assert found[0][1] == found[1][1] == found[2][1]


def test_small_batches_are_counted_together(oracle, monkeypatch):
    """One by one each would cost as much as the domain is large."""
    place = WINDOW.pack(0, 60 * S)
    keys = [pa.array(["x", "y"] * 5), pa.array(["y", "z"] * 5).dictionary_encode()]
    batches = [
        _reports(oracle, 10, seed).append_column("key", keys[seed % 2]) for seed in range(200)
    ]
    calls = []
    count = panes.count_batch
    monkeypatch.setattr(panes, "count_batch", lambda *given: calls.append(given) or count(*given))
    step, cells = FirePanes(oracle, None, 0, True), _Cells()
    for reports in batches:
        cells.add(step, place, reports)
    (pane,) = cells.end(step, place)
    # Three keys, in columns of two types.
    assert len(calls) == 4
    expected = {}
    for reports in batches:
        for key, part in panes.split_by_key(reports):
            expected[key] = expected.get(key, 0) + count(oracle, part)
    assert {key: array.tolist() for key, array in pane.value.counts.items()} == {
        key: array.tolist() for key, array in expected.items()
    }


def test_tables_are_those_of_counts_written_for_each_batch(
    run_stream, begin, batch, oracle, monkeypatch, tmp_path
):
    tables = []
    for number, limit in enumerate((panes.PENDING_BYTES, 1)):
        monkeypatch.setattr(panes, "PENDING_BYTES", limit)
        stream = begin()
        for at in range(8):
            users = [f"u{at}-{row}" for row in range(20)]
            stream = stream.add_elements([batch(at, users, "ab"[at % 2], key="xyz"[at % 3])])
        stream = stream.advance_processing_time(600).add_elements([batch(9, ["v"], key="x")])
        found = run_stream(
            stream.advance_watermark_to(20).advance_watermark_to_infinity(),
            StreamEstimates.PerKey(oracle, WindowSpec(10 * S), KEYS, early=5),
        )
        # What the run before gave is there still. An early pane is due at once after the first: the
        # clock of the test is ahead of the real one.
        story = found.story()[3 * number :]
        assert story == [(0, "early-0", 160), (0, "early-1", 161), (0, "on_time-2", 161)]
        tables.append(
            [
                (table.key, table.estimate.raw.tobytes())
                for pane in found.panes[3 * number :]
                for table in pane.tables
            ]
        )
    assert len(tables[0]) == 9
    assert tables[0] == tables[1]


def test_a_batch_must_not_be_later_than_its_records(run_stream, begin, oracle):
    """What the docstring asks for: the watermark waits for the timestamp of a batch only."""
    early = record_batch(["u1"], ["a"], [5 * S])
    stream = begin().add_elements([TimestampedValue(early, 65)])
    stream = stream.advance_watermark_to(60).add_elements(
        [TimestampedValue(record_batch(["u2"], ["a"], [6 * S]), 65)]
    )
    found = run_stream(
        stream.advance_watermark_to_infinity(),
        StreamEstimates.Globally(oracle, MINUTES, KEYS, early=None),
    )
    assert found.tally == {"reports": 1, "late": 1}
