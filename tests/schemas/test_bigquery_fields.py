"""BigQuery's columns follow from the .avsc files."""

from __future__ import annotations

import pytest

from hadabeam.schemas.avro import load_schema
from hadabeam.schemas.bigquery import bigquery_fields


def test_columns_of_estimates() -> None:
    fields = bigquery_fields("published_estimate")
    assert [field["name"] for field in fields] == [
        field["name"] for field in load_schema("published_estimate")["fields"]
    ]
    kinds = {field["name"]: (field["type"], field["mode"]) for field in fields}
    assert kinds["window_start"] == ("TIMESTAMP", "NULLABLE")
    assert kinds["key"] == ("STRING", "NULLABLE")
    assert kinds["value"] == ("STRING", "REQUIRED")
    assert kinds["raw"] == ("FLOAT", "REQUIRED")
    assert kinds["detected"] == ("BOOLEAN", "REQUIRED")
    assert kinds["reports"] == ("INTEGER", "REQUIRED")
    assert fields[4]["description"] == "The value of the domain."
    # BigQuery's limit.
    assert all(len(field["description"]) <= 1024 for field in fields)


def test_columns_of_reports() -> None:
    kinds = {field["name"]: (field["type"], field["mode"]) for field in bigquery_fields("report")}
    assert kinds["payload"] == ("BYTES", "NULLABLE")
    assert kinds["event_time"] == ("TIMESTAMP", "REQUIRED")
    assert kinds["column"][0] == "INTEGER"


def test_what_has_no_plain_column_is_refused() -> None:
    with pytest.raises(ValueError, match="field dropped of summary is of type map"):
        bigquery_fields("summary")
    with pytest.raises(ValueError, match="no schema named"):
        bigquery_fields("nothing")
