"""The emulator of BigQuery: a dataset for a test, and rows as tests compare them."""

from __future__ import annotations

import json
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from engines import ROOT, installed, reach

from hadabeam.schemas.avro import arrow_schema

PROJECT = "test-project"


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


def databases(monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """Gives a dataset, and removes it.

    The workers that ask for it have to be threads of this process, which is told where the
    emulator is.
    """
    env = reach("bigquery")
    bigquery = installed("google.cloud.bigquery", "gcp")
    import google.auth
    from apache_beam.internal.gcp import auth
    from apache_beam.io.gcp.internal.clients.bigquery import BigqueryV2
    from google.auth.credentials import AnonymousCredentials

    host, store = env["HADABEAM_BIGQUERY"], env["HADABEAM_BIGQUERY_GCS"]
    # Beam asks by two clients: Google's finds the emulator by a variable, Beam's own has the
    # address in its class.
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


def expected(*tables: pa.Table) -> list[str]:
    """The rows of tables, in an order of their own."""
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


def as_estimates(rows: list[dict[str, Any]]) -> list[str]:
    """Published rows without what ``estimate.avsc`` does not have."""
    names = arrow_schema("estimate").names
    kept = [{name: row[name] for name in names} for row in rows]
    return expected(pa.Table.from_pylist(kept, arrow_schema("estimate")))
