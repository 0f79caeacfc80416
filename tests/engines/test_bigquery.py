"""BigQuery, against an emulator: rows streamed and loaded, what is refused, and the docs' view."""

from __future__ import annotations

import json
import pickle
import uuid
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from bigquery_emulator import Database, expected, found, latest

from hadabeam.schemas.avro import arrow_schema
from hadabeam.transforms.write_bigquery import WriteBigQuery

pytestmark = pytest.mark.engines

DAY = 86_400_000_000
#: 6 January 2025.
START = 20_094 * DAY
COLLECTION = "0" * 32


def estimates(order: str, numbers: list[float], key: str | None = None, **more: Any) -> pa.Table:
    """A pane with one row for each number, with the columns of ``published_estimate.avsc``."""
    rows = [
        {
            "window_start": START,
            "window_end": START + DAY,
            "pane": "early-0",
            "key": key,
            "value": f"page \u00fc {index}",
            "raw": number,
            "standard_error": 0.1,
            "low": number - 0.2,
            "high": number + 0.2,
            "frequency": max(number, 0.0),
            "count": 100 * max(number, 0.0),
            "detected": number > 0.2,
            "collection": COLLECTION,
            "reports": int(order[:12]),
            "pane_order": order,
            **more,
        }
        for index, number in enumerate(numbers)
    ]
    return pa.Table.from_pylist(rows, arrow_schema("published_estimate"))


def write(
    database: Database, tables: list[pa.Table], sink: WriteBigQuery, letters: Path
) -> list[Any]:
    """Runs the sink; gives its dead letters."""
    flags = [*database.flags, *(["--streaming"] if sink.streaming else [])]
    letters.mkdir(exist_ok=True)
    with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(flags)) as pipeline:
        pipeline | beam.Create(tables) | sink | "Keep" >> beam.Map(_keep, str(letters))
    return [pickle.loads(path.read_bytes()) for path in sorted(letters.iterdir())]


def _keep(letter: Any, folder: str) -> None:
    (Path(folder) / uuid.uuid4().hex).write_bytes(pickle.dumps(letter))


@pytest.mark.parametrize("streaming", [False, True], ids=["loaded", "streamed"])
def test_rows_arrive_as_they_are(database: Database, tmp_path: Path, streaming: bool) -> None:
    table = f"{database.dataset}.pages"
    tables = [
        estimates("000000000100-early-000000", [0.25, -1e-300, 0.1 + 0.2]),
        estimates("000000000100-early-000000", [0.5], key="NL \U0001f600"),
        # A batch without windows.
        estimates("000000000007-batch-x", [1.0], window_start=None, window_end=None, pane=None),
        # What JSON has no numbers for.
        estimates("000000000008-batch-x", [1.0], high=float("inf"), low=float("-inf")),
    ]
    letters = write(database, tables, WriteBigQuery(table, streaming), tmp_path / "letters")
    assert letters == []
    assert found(database.rows(f"SELECT * FROM `{table}`")) == expected(*tables)

    made = database.client.get_table(table)
    assert (made.time_partitioning.type_, made.time_partitioning.field) == ("DAY", "window_start")
    assert made.clustering_fields == ["key", "value"]
    columns = {field.name: (field.field_type, field.mode) for field in made.schema}
    assert columns["window_start"] == ("TIMESTAMP", "NULLABLE")
    if streaming:
        # The emulator forgets the modes of a table that a load makes.
        assert columns["reports"] == ("INTEGER", "REQUIRED")
    assert list(columns) == arrow_schema("published_estimate").names

    # Once more, into the table that is there.
    more = [estimates("000000000200-early-000001", [0.75])]
    write(database, more, WriteBigQuery(table, streaming), tmp_path / "letters")
    assert found(database.rows(f"SELECT * FROM `{table}`")) == expected(*tables, *more)


def test_truncate_replaces_the_rows(database: Database, tmp_path: Path) -> None:
    table = f"{database.dataset}.pages"
    sink = WriteBigQuery(table, False, write="truncate", partition="month")
    for order in ("000000000002-batch-1", "000000000001-batch-2"):
        tables = [estimates(order, [0.5, 0.25])]
        write(database, tables, sink, tmp_path / "letters")
    assert found(database.rows(f"SELECT * FROM `{table}`")) == expected(*tables)


def test_reports_are_streamed(database: Database, tmp_path: Path) -> None:
    table = f"{database.dataset}.reports"
    report: dict[str, Any] = dict.fromkeys(arrow_schema("report").names)
    report |= {"collection": COLLECTION, "epoch": 0, "column": 5, "bit": 1}
    report |= {"event_time": START + 1, "payload": b"\0\xff"}
    reports = pa.Table.from_pylist([report], arrow_schema("report"))
    sink = WriteBigQuery(table, True, schema="report")
    assert write(database, [reports], sink, tmp_path / "letters") == []
    (row,) = database.rows(f"SELECT * FROM `{table}`")
    assert pa.Table.from_pylist([row], arrow_schema("report")).equals(reports)


def test_what_a_stream_may_not_insert_is_a_dead_letter(database: Database, tmp_path: Path) -> None:
    table = f"{database.dataset}.narrow"
    kept = ", ".join(
        f"{name} {'STRING' if name in ('value', 'pane_order') else 'TIMESTAMP'}"
        for name in ("window_start", "window_end", "value", "pane_order")
    )
    database.rows(f"CREATE TABLE `{table}` ({kept})")
    sent = estimates("000000000100-early-000000", [0.5, 0.25])
    letters = write(database, [sent], WriteBigQuery(table, True), tmp_path / "letters")
    assert {(letter.reason, letter.file) for letter in letters} == {
        ("refused_by_bigquery", f"bigquery:{table}")
    }
    contents = [json.loads(letter.raw) for letter in letters]
    assert sorted(content["row"]["raw"] for content in contents) == [0.25, 0.5]
    assert "no such field" in contents[0]["errors"][0]["message"]
    assert database.rows(f"SELECT * FROM `{table}`") == []


def test_the_view_shows_one_pane_of_each_window(database: Database, tmp_path: Path) -> None:
    table = f"{database.dataset}.pages"
    next_window = {"window_start": START + DAY, "window_end": START + 2 * DAY}
    whole = {"window_start": None, "window_end": None, "pane": None}
    current = [
        # An on-time pane holds against an early one of as many reports, whatever its index.
        estimates("000000000100-on_time-000001", [0.5, 0.25]),
        # The pane that holds has fewer values than an older one.
        estimates("000000000900-late-000002", [0.125], **next_window),
        estimates("000000000100-on_time-000001", [0.75, 0.5], key="NL"),
        estimates("000000000050-batch-20250106T120001.000000Z", [0.1, 0.2], **whole),
        estimates("000000000001-batch-20250106T120000.000000Z", [0.9], collection="1" * 32),
    ]
    stale = [
        estimates("000000000100-early-000007", [0.3, 0.2]),
        estimates("000000000099-late-000009", [0.4, 0.1]),
        estimates("000000000800-on_time-000001", [0.3, 0.3, 0.3], **next_window),
        estimates("000000000100-early-000000", [0.1, 0.1, 0.1], key="NL"),
        estimates("000000000050-batch-20250106T120000.000000Z", [0.2, 0.1], **whole),
    ]
    sent = [*stale, *current, *current, *stale]
    write(database, sent, WriteBigQuery(table, True), tmp_path / "letters")
    count = database.rows(f"SELECT COUNT(*) AS n FROM `{table}`")[0]["n"]
    assert count == sum(rows.num_rows for rows in sent)

    assert found(latest(database, table)) == expected(*current)
