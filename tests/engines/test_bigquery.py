"""BigQuery, against an emulator: rows streamed and loaded, what is refused, and the docs' view."""

from __future__ import annotations

import json
import pickle
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from engines import ROOT, installed, prism_flags, reach
from made_logs import jsonl, visits

from hadabeam.pipelines.cli import main
from hadabeam.schemas.avro import arrow_schema
from hadabeam.schemas.bigquery import bigquery_fields
from hadabeam.transforms.write_bigquery import WriteBigQuery
from hadabeam.transforms.write_panes import current_panes

pytestmark = pytest.mark.engines

PROJECT = "test-project"
DAY = 86_400_000_000
#: 6 January 2025.
START = 20_094 * DAY
COLLECTION = "0" * 32


class Database(NamedTuple):
    """A dataset of the test's own.

    Attributes:
      client: Google's client, which asks the emulator.
      dataset: ``PROJECT.DATASET``.
      flags: Beam's, with a bucket for the files that are loaded.
    """

    client: Any
    dataset: str
    flags: list[str]

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """What a query answers."""
        return [dict(row) for row in self.client.query_and_wait(sql)]


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    env = reach("bigquery")
    bigquery = installed("google.cloud.bigquery", "gcp")
    import google.auth
    from apache_beam.internal.gcp import auth
    from apache_beam.io.gcp.internal.clients.bigquery import BigqueryV2
    from google.auth.credentials import AnonymousCredentials

    host, store = env["HADABEAM_BIGQUERY"], env["HADABEAM_BIGQUERY_GCS"]
    # Beam asks by two clients: Google's finds the emulator by a variable, Beam's own has the
    # address in its class. Workers of these tests are threads of this process.
    monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", host)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", store)
    monkeypatch.setattr(BigqueryV2, "BASE_URL", f"{host}/bigquery/v2/")
    nobody = AnonymousCredentials()
    monkeypatch.setattr(google.auth, "default", lambda *_, **__: (nobody, PROJECT))
    # Without any, Beam's client would wait for somebody to log in.
    adapter = auth._ApitoolsCredentialsAdapter(nobody)
    monkeypatch.setattr(auth, "get_service_credentials", lambda _: adapter)

    name = uuid.uuid4().hex[:8]
    body = json.dumps({"name": f"bucket-{name}"}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{store}/storage/v1/b?project=tests", body, headers)
    with urllib.request.urlopen(request, timeout=30):
        pass
    client = bigquery.Client(PROJECT, nobody)
    client.create_dataset(f"d{name}")
    flags = [f"--temp_location=gs://bucket-{name}/tmp", "--no_auth"]
    yield Database(client, f"{PROJECT}.d{name}", flags)
    client.delete_dataset(f"d{name}", delete_contents=True)
    client.close()


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


def expected(*tables: pa.Table) -> list[str]:
    return sorted(repr(list(row.items())) for table in tables for row in table.to_pylist())


def found(rows: list[dict[str, Any]]) -> list[str]:
    """Rows of a query, with times as Arrow has them."""
    return expected(pa.Table.from_pylist(rows, arrow_schema("published_estimate")))


def latest(database: Database, table: str) -> list[dict[str, Any]]:
    """The rows of the docs' view of a table."""
    sql = (ROOT / "docs" / "latest_panes.sql").read_text()
    sql = sql.replace("PROJECT.DATASET.TABLE", table).replace("PROJECT.DATASET", database.dataset)
    database.rows(sql)
    return database.rows(f"SELECT * FROM `{database.dataset}.latest`")


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


def test_a_load_that_does_not_fit_fails_the_job(
    database: Database, job_flags: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.jsonl").write_text(jsonl(visits(500, 300)))
    table = f"{database.dataset}.narrow"
    database.rows(f"CREATE TABLE `{table}` (value INT64)")
    command = ["batch", "--input", str(tmp_path / "log.jsonl"), *job_flags, *database.flags]
    command += ["--output", str(tmp_path / "out"), "--output", f"bigquery:{table}"]
    assert main(command) == 1
    message = capfd.readouterr().err
    assert "BigQuery did not load the rows: Provided Schema does not match" in message
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


def as_estimates(rows: list[dict[str, Any]]) -> list[str]:
    """Published rows without what ``estimate.avsc`` does not have."""
    names = arrow_schema("estimate").names
    kept = [{name: row[name] for name in names} for row in rows]
    return expected(pa.Table.from_pylist(kept, arrow_schema("estimate")))


def test_a_batch_jobs_rows_are_those_of_its_file(
    database: Database, job_flags: list[str], tmp_path: Path
) -> None:
    (tmp_path / "log.jsonl").write_text(jsonl(visits(2000, 700)))
    table, out = f"{database.dataset}.pages", str(tmp_path / "out")
    command = ["batch", "--input", str(tmp_path / "log.jsonl"), *job_flags, *database.flags]
    command += ["--output", out, "--output_format", "parquet", "--output", f"bigquery:{table}"]
    assert main(command) == 0
    written = pq.read_table(f"{out}-estimates.parquet")
    rows = database.rows(f"SELECT * FROM `{table}`")
    assert as_estimates(rows) == expected(written)
    assert {row["pane_order"][12:19] for row in rows} == {"-batch-"}

    # Once more, with the same keys: the table has all twice, the view once.
    assert main(command) == 0
    assert len(database.rows(f"SELECT * FROM `{table}`")) == 2 * written.num_rows
    assert as_estimates(latest(database, table)) == expected(written)
    # In place of both.
    assert main([*command, "--bigquery_write", "truncate"]) == 0
    assert as_estimates(database.rows(f"SELECT * FROM `{table}`")) == expected(written)


def stream(
    database: Database, job_flags: list[str], tmp_path: Path, fields: list[dict[str, str]]
) -> tuple[str, Path]:
    """Runs ``hadabeam stream`` on made logs; gives its table and its folder.

    The table is there before, with these fields: of two workers that make a table BigQuery tells
    the second one that it is there; the emulator fails then.
    """
    from google.cloud.bigquery import SchemaField, Table

    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "log.jsonl").write_text(jsonl(sorted(visits(2000, 700), key=lambda row: row["time"])))
    table, out = f"{database.dataset}.pages", tmp_path / "out"
    database.client.create_table(Table(table, list(map(SchemaField.from_api_repr, fields))))
    command = ["stream", "--input", str(logs / "*"), *job_flags, "--stop_after", "5s"]
    command += ["--output", str(out), "--output_format", "parquet"]
    command += ["--output", f"bigquery:{table}"]
    assert main([*command, *prism_flags()]) == 0
    return table, out


def test_a_streams_view_is_its_current_files(
    database: Database, job_flags: list[str], tmp_path: Path
) -> None:
    fields = bigquery_fields("published_estimate")
    table, out = stream(database, job_flags, tmp_path, fields)
    panes = [pq.read_table(path) for path in current_panes(str(out)).values()]
    assert len(panes) >= 3
    assert not list(out.glob("dead-letters/*"))
    assert as_estimates(latest(database, table)) == expected(*panes)


def test_a_streams_refused_rows_are_among_its_dead_letters(
    database: Database, job_flags: list[str], tmp_path: Path
) -> None:
    fields = bigquery_fields("published_estimate")[:-1]
    table, out = stream(database, job_flags, tmp_path, fields)
    assert database.rows(f"SELECT * FROM `{table}`") == []
    letters = [
        json.loads(line)
        for path in out.glob("dead-letters/*.jsonl")
        for line in path.read_text().splitlines()
    ]
    refused = [letter for letter in letters if letter["reason"] == "refused_by_bigquery"]
    rows = [json.loads(letter["raw"])["row"] for letter in refused]
    written = [pq.read_table(path) for path in out.glob("*/*.parquet")]
    assert len(rows) == sum(pane.num_rows for pane in written) > 0
    assert {row["value"] for row in rows} == set(written[0]["value"].to_pylist())
