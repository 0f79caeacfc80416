"""Jobs that give their rows to BigQuery (an emulator) hold there what their files hold."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from bigquery_emulator import Database, as_estimates, expected, latest
from engines import prism_flags
from made_logs import jsonl, visits

from hadabeam.pipelines.cli import main
from hadabeam.schemas.bigquery import bigquery_fields
from hadabeam.transforms.write_panes import current_panes

pytestmark = pytest.mark.engines


@pytest.mark.parametrize("runner", ["local"], indirect=True)
def test_a_batch_jobs_rows_are_those_of_its_file(
    database: Database, runner: list[str], job_flags: list[str], tmp_path: Path
) -> None:
    (tmp_path / "log.jsonl").write_text(jsonl(visits(2000, 700)))
    table, out = f"{database.dataset}.pages", str(tmp_path / "out")
    command = ["batch", "--input", str(tmp_path / "log.jsonl"), *job_flags, *database.flags]
    command += ["--output", out, "--output_format", "parquet", "--output", f"bigquery:{table}"]
    command += runner
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
    database: Database,
    flags: list[str],
    tmp_path: Path,
    fields: list[dict[str, str]],
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
    command = ["stream", "--input", str(logs / "*"), *flags, "--stop_after", "5s"]
    command += ["--output", str(out), "--output_format", "parquet"]
    command += ["--output", f"bigquery:{table}"]
    assert main(command) == 0
    return table, out


@pytest.mark.parametrize("runner", ["prism"], indirect=True)
def test_a_streams_view_is_its_current_files(
    database: Database, runner: list[str], job_flags: list[str], tmp_path: Path
) -> None:
    fields = bigquery_fields("published_estimate")
    table, out = stream(database, [*job_flags, *runner], tmp_path, fields)
    panes = [pq.read_table(path) for path in current_panes(str(out)).values()]
    assert len(panes) >= 3
    assert not list(out.glob("dead-letters/*"))
    assert as_estimates(latest(database, table)) == expected(*panes)


def test_a_streams_refused_rows_are_among_its_dead_letters(
    database: Database, job_flags: list[str], tmp_path: Path
) -> None:
    fields = bigquery_fields("published_estimate")[:-1]
    table, out = stream(database, [*job_flags, *prism_flags()], tmp_path, fields)
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
