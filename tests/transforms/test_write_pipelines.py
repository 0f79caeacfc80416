"""The writers in pipelines: one file or many, whatever the bundles, and nothing stale."""

from __future__ import annotations

import json
import pathlib
import random
from typing import Any

import apache_beam as beam
import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from hadabeam.mechanisms.domain import Domain
from hadabeam.mechanisms.errors import ParameterError
from hadabeam.mechanisms.estimate import FrequencyEstimate
from hadabeam.schemas.avro import arrow_schema
from hadabeam.transforms import write, write_reports
from hadabeam.transforms.records import DeadLetter
from hadabeam.transforms.runs import Runs
from hadabeam.transforms.tables import EstimateTable
from hadabeam.transforms.write import WriteDeadLetters, WriteEstimates, WriteSummary
from hadabeam.transforms.write_reports import WriteReports

RUNNER = "FnApiRunner"


def estimates(seed: int) -> list[EstimateTable]:
    """Tables of three windows and three keys, in an order that depends on the seed."""
    tables = [
        EstimateTable(
            start,
            start + 10,
            None,
            key,
            FrequencyEstimate(
                raw=np.array([0.25, 0.75]) + start / 1000,
                standard_error=np.array([0.1, 0.1]),
                null_standard_error=0.1,
                n=100,
                epsilon_effective=1.0,
                domain=Domain(["b", "a"]),
            ),
        )
        for start in (0, 10, 20)
        for key in (None, "k", "é")
    ]
    random.Random(seed).shuffle(tables)
    return tables


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def report_batch(columns: list[int]) -> pa.RecordBatch:
    n = len(columns)
    cells: dict[str, Any] = {name: [None] * n for name in arrow_schema("report").names}
    cells |= {"collection": ["c"] * n, "epoch": [0] * n, "column": columns}
    cells |= {"bit": [1] * n, "event_time": [0] * n}
    return pa.RecordBatch.from_pydict(cells, schema=arrow_schema("report"))


@pytest.mark.parametrize("format", ["avro", "csv"])
def test_estimates_are_one_sorted_file_in_any_order(format: str, tmp_path: pathlib.Path) -> None:
    written = []
    for seed in (1, 2):
        prefix = str(tmp_path / str(seed) / "pages")
        with TestPipeline(runner=RUNNER) as pipeline:
            paths = (
                pipeline
                | beam.Create(estimates(seed))
                | beam.Reshuffle()
                | WriteEstimates(prefix, format)
            )
            assert_that(paths, equal_to([f"{prefix}-estimates.{format}"]))
        written.append(pathlib.Path(f"{prefix}-estimates.{format}").read_bytes())
        assert names(tmp_path / str(seed)) == [f"pages-estimates.{format}"]
    assert written[0] == written[1]
    if format == "avro":
        path = tmp_path / "1" / "pages-estimates.avro"
        with path.open("rb") as file:
            rows = [
                (row["window_start"], row["key"], row["value"]) for row in fastavro.reader(file)
            ]
        starts = sorted({start for start, _, _ in rows})
        assert rows == [
            (start, key, value) for start in starts for key in (None, "k", "é") for value in "ba"
        ]


def test_estimates_of_windows_are_gathered(tmp_path: pathlib.Path) -> None:
    prefix = str(tmp_path / "pages")
    with TestPipeline(runner=RUNNER) as pipeline:
        _ = (
            pipeline
            | beam.Create(estimates(3))
            | beam.Map(lambda table: TimestampedValue(table, table.window_start / 1e6))
            | beam.WindowInto(FixedWindows(1e-5))
            | WriteEstimates(prefix, "jsonl")
        )
    assert (tmp_path / "pages-estimates.jsonl").read_text().count("\n") == 18


def test_no_estimates_make_an_empty_table(tmp_path: pathlib.Path) -> None:
    with TestPipeline(runner=RUNNER) as pipeline:
        _ = pipeline | beam.Create([]) | WriteEstimates(str(tmp_path / "pages"), "parquet")
    table = pq.read_table(tmp_path / "pages-estimates.parquet")
    assert table == arrow_schema("estimate").empty_table()


def test_the_summary_is_one_object(tmp_path: pathlib.Path) -> None:
    prefix = str(tmp_path / "pages")
    with TestPipeline(runner=RUNNER) as pipeline:
        paths = pipeline | beam.Create([{"reports": 3, "dropped": {}}]) | WriteSummary(prefix)
        assert_that(paths, equal_to([f"{prefix}-summary.json"]))
    assert json.loads((tmp_path / "pages-summary.json").read_text()) == {
        "reports": 3,
        "dropped": {},
    }
    with pytest.raises(Exception, match="one summary, not 2"), TestPipeline(runner=RUNNER) as two:
        _ = two | beam.Create([{}, {}]) | WriteSummary(prefix)


def test_dead_letters_are_sorted_and_stale_ones_removed(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "_LETTERS_PER_RUN", 7)
    prefix = str(tmp_path / "pages")
    letters = [
        DeadLetter("unparseable", file, position)
        for file in ("a.jsonl", "b.jsonl")
        for position in (*range(0, 90, 9), 100, 1000)
    ]
    letters.append(DeadLetter("bad_time", "c.jsonl", 5, b"raw \xff\n\x00"))
    random.Random(5).shuffle(letters)
    with TestPipeline(runner=RUNNER) as pipeline:
        paths = pipeline | beam.Create(letters) | beam.Reshuffle() | WriteDeadLetters(prefix)
        assert_that(paths, equal_to([f"{prefix}-dead-letters.jsonl"]))
    lines = (tmp_path / "pages-dead-letters.jsonl").read_text().splitlines()
    objects = [json.loads(line) for line in lines]
    places = [(item["file"], item["position"]) for item in objects]
    assert places == sorted((letter.file, letter.position) for letter in letters)
    assert objects[0] == {"reason": "unparseable", "file": "a.jsonl", "position": 0}
    assert objects[-1]["raw"] == "raw \\xff\n\x00"
    assert names(tmp_path) == ["pages-dead-letters.jsonl"]

    with TestPipeline(runner=RUNNER) as pipeline:
        paths = pipeline | beam.Create([]) | WriteDeadLetters(prefix)
        assert_that(paths, equal_to([]))
    assert names(tmp_path) == []


def test_reports_become_shards_and_older_ones_go(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = str(tmp_path / "pages")
    keep = ["pages-reports-of-mine.txt", "pages2-reports-00000-of-00001.avro"]
    for name in (*keep, "pages-reports-00007-of-00009.csv", "pages-reports-00000-of-00002.avro"):
        (tmp_path / name).touch()
    monkeypatch.setattr(write_reports, "SHARD_BYTES", 1000)
    batches = [report_batch([start, start + 1]) for start in range(0, 100, 2)]
    with TestPipeline(runner=RUNNER) as pipeline:
        paths = pipeline | beam.Create(batches) | WriteReports(prefix)
        sizes = paths | beam.combiners.Count.Globally()
        assert_that(sizes, lambda count: count[0] > 2 or pytest.fail("one shard"))
    shards = [name for name in names(tmp_path) if name not in keep]
    total = len(shards)
    assert shards == [f"pages-reports-{i:05d}-of-{total:05d}.avro" for i in range(total)]
    assert names(tmp_path) == sorted([*keep, *shards])
    columns = []
    for shard in shards:
        with (tmp_path / shard).open("rb") as file:
            columns += [row["column"] for row in fastavro.reader(file)]
    assert sorted(columns) == list(range(100))


@pytest.mark.parametrize("format", ["avro", "parquet", "csv", "jsonl"])
def test_no_reports_make_one_empty_shard(format: str, tmp_path: pathlib.Path) -> None:
    with TestPipeline(runner=RUNNER) as pipeline:
        _ = pipeline | beam.Create([]) | WriteReports(str(tmp_path / "pages"), format, packed=True)
    assert names(tmp_path) == [f"pages-reports-00000-of-00001.{format}"]


def test_packed_reports(tmp_path: pathlib.Path) -> None:
    cells = {"collection": ["c"], "epoch": [0], "event_time": [0], "key": ["NL"], "reports": [2]}
    cells |= {"columns": [b"\1\0\0\0\2\0\0\0"], "bits": [b"\2"], "payload": [None]}
    batch = pa.RecordBatch.from_pydict(cells, schema=arrow_schema("packed_reports"))
    with TestPipeline(runner=RUNNER) as pipeline:
        _ = (
            pipeline
            | beam.Create([batch])
            | WriteReports(str(tmp_path / "pages"), "parquet", packed=True)
        )
    table = pq.read_table(tmp_path / "pages-reports-00000-of-00001.parquet")
    assert table == pa.Table.from_batches([batch])


def test_a_failed_run_leaves_older_shards(tmp_path: pathlib.Path) -> None:
    older = tmp_path / "pages-reports-00000-of-00001.csv"
    older.write_text("older")
    wrong = report_batch([1]).drop_columns(["bit"])
    with pytest.raises(Exception, match="bit"), TestPipeline(runner=RUNNER) as pipeline:
        _ = (
            pipeline
            | beam.Create([report_batch([1]), wrong])
            | WriteReports(str(tmp_path / "pages"), "csv")
        )
    assert older.read_text() == "older"
    (hidden,) = (path for path in tmp_path.iterdir() if path != older)
    assert list(hidden.iterdir()) == []


def test_putting_shards_in_place_twice_keeps_them(tmp_path: pathlib.Path) -> None:
    """As a runner does that tries a step again after it was cut short."""
    prefix = str(tmp_path / "pages")
    runs = Runs(f"{prefix}-reports")
    made = []
    for text in (b"one", b"two"):
        with runs.new() as (name, file):
            file.write(text)
        made.append(name)
    moved = tmp_path / "pages-reports-00000-of-00002.csv"
    pathlib.Path(sorted(made)[0]).rename(moved)
    for _ in range(2):
        paths = write_reports._put_in_place(made, runs, prefix, "csv", "report").splitlines()
        assert {pathlib.Path(path).read_bytes() for path in paths} == {b"one", b"two"}
    assert names(tmp_path) == [f"pages-reports-0000{i}-of-00002.csv" for i in range(2)]


@pytest.mark.parametrize("kind", [WriteEstimates, WriteSummary, WriteDeadLetters, WriteReports])
def test_a_folder_is_no_prefix(kind: Any, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ParameterError, match="is a folder"):
        kind(str(tmp_path))
    with pytest.raises(ParameterError, match="names a folder"):
        kind(str(tmp_path / "new") + "/")


def test_formats_are_checked_when_the_pipeline_is_built(tmp_path: pathlib.Path) -> None:
    for kind in (WriteEstimates, WriteReports):
        with pytest.raises(ParameterError, match="output format"):
            kind(str(tmp_path / "pages"), "xls")


def test_a_file_in_the_way_is_an_input_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    prefix = str(tmp_path / "file" / "pages")
    for transform in (WriteEstimates(prefix), WriteReports(prefix)):
        with (
            pytest.raises(Exception, match=r"cannot write .* is a file, not a folder"),
            TestPipeline(runner=RUNNER) as pipeline,
        ):
            _ = pipeline | beam.Create([]) | transform
