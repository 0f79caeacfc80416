"""Runs streaming transforms on a TestStream and keeps what they give, in order."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.window import TimestampedValue
from notes import noted

from hadabeam.mechanisms import Domain, OneBitHadamard
from hadabeam.transforms.records import TALLIES, add_tallies, record_batch
from hadabeam.transforms.stream import Pane

S = 1_000_000
DOMAIN = Domain(["a", "b", "c", "d"]).with_other()


class Found(NamedTuple):
    """What a stream gave: panes in the order they came, and the sum of all tallies."""

    panes: list[Pane]
    tally: dict[str, int]

    def story(self, start: int | None = None) -> list[tuple[int, str, int]]:
        """Start of the window (in seconds), name of the pane and reports, pane by pane."""
        rows = [
            (pane.info.window_start // S, pane.info.name, pane.info.reports) for pane in self.panes
        ]
        return [row for row in rows if start is None or row[0] == start]

    def last(self) -> dict[int, Pane]:
        """The pane that holds for each window."""
        found: dict[int, Pane] = {}
        for pane in self.panes:
            start = pane.info.window_start
            if start not in found or pane.info.file_name > found[start].info.file_name:
                found[start] = pane
        return found


class _Keep(beam.DoFn):
    """Appends what comes to a file, so that the order is that in which the runner gave it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def process(self, element: Any) -> None:
        with open(self._path, "ab") as file:
            file.write(pickle.dumps(element))


@pytest.fixture
def run_stream(tmp_path: Path) -> Callable[[TestStream, Any], Found]:
    """Runs a transform on a TestStream."""

    def run(stream: TestStream, transform: Any) -> Found:
        pipeline = beam.Pipeline(
            runner="BundleBasedDirectRunner", options=PipelineOptions(streaming=True)
        )
        found = pipeline | stream | transform
        found[None] | "KeepPanes" >> beam.ParDo(_Keep(str(tmp_path / "panes")))
        found[TALLIES] | "KeepTallies" >> beam.ParDo(_Keep(str(tmp_path / "tallies")))
        pipeline.run().wait_until_finish()
        tallies = [tally for _, _, tally in noted(tmp_path / "tallies")]
        return Found(noted(tmp_path / "panes"), add_tallies(tallies))

    return run


@pytest.fixture
def oracle() -> OneBitHadamard:
    return OneBitHadamard(DOMAIN, 1.0)


@pytest.fixture
def begin() -> Callable[[], TestStream]:
    """A TestStream whose clock shows the real time, which early timers are set by."""

    def make() -> TestStream:
        now = int(time.time())
        return TestStream().advance_watermark_to(0).advance_processing_time(now)

    return make


@pytest.fixture
def batch() -> Callable[..., TimestampedValue]:
    """A batch of one value at one time (in seconds), of several users."""

    def make(
        at: float, users: Sequence[str], value: str = "a", key: str | None = None
    ) -> TimestampedValue:
        n = len(users)
        keys = None if key is None else [key] * n
        return TimestampedValue(record_batch(list(users), [value] * n, [int(at * S)] * n, keys), at)

    return make
