"""What is sent to BigQuery: names of tables, rows, and the steps of a job."""

from __future__ import annotations

import json
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from hadabeam.mechanisms.errors import ParameterError
from hadabeam.schemas.avro import arrow_schema
from hadabeam.transforms.write_bigquery import (
    WriteBigQuery,
    bigquery_rows,
    parse_table,
    refused_row,
)

TABLE = "my-project.stats.pages"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("bigquery:my-project.stats.pages", ("my-project", "stats", "pages", "")),
        ("example.com:my-project.s.t", ("example.com:my-project", "s", "t", "")),
        ("p1.d_2.seiten-ü", ("p1", "d_2", "seiten-ü", "")),
        ("p1.d.t$20250106", ("p1", "d", "t", "$20250106")),
        ("p1.d.t$__NULL__", ("p1", "d", "t", "$__NULL__")),
    ],
)
def test_names_of_tables(text: str, parts: tuple[str, ...]) -> None:
    assert parse_table(text) == parts


@pytest.mark.parametrize(
    "text",
    ["", "a.b", "proj.d-s.t", "proj:d.t", "Proj.d.t", "p1.d.t.u", "p1.d.t$x", "p1.d.", "p1.d.t u"],
)
def test_names_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(ParameterError, match=r"bigquery:PROJECT\.DATASET\.TABLE"):
        parse_table(f"bigquery:{text}")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"write": "replace"}, "append or truncate"),
        ({"partition": "week"}, "day, month, none"),
        ({"streaming": True, "write": "truncate"}, "cannot replace"),
        ({"streaming": True, "table": f"{TABLE}$20250106"}, r"leave \$20250106 out"),
        ({"schema": "summary"}, "no plain column"),
        ({"schema": "nothing"}, "no schema"),
    ],
)
def test_attributes(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        WriteBigQuery(**{"table": TABLE, "streaming": False, **attributes})


@pytest.mark.parametrize("flags", [[], ["--temp_location=/tmp/x"]])
def test_a_batch_job_needs_a_bucket(flags: list[str]) -> None:
    pipeline = beam.Pipeline(options=PipelineOptions(flags))
    with pytest.raises(ParameterError, match="--temp_location gs://BUCKET/tmp"):
        pipeline | beam.Create([]) | WriteBigQuery(TABLE, False)


def test_rows_for_json_and_for_avro() -> None:
    report: dict[str, Any] = dict.fromkeys(arrow_schema("report").names)
    report |= {"collection": "c", "epoch": 0, "column": 5, "bit": 1}
    report |= {"event_time": 1_700_000_000_000_001, "payload": b"\0\xff"}
    table = pa.Table.from_pylist([report], arrow_schema("report"))
    (text,) = bigquery_rows(table.select(table.column_names[::-1]), "report", True)
    assert text == {**report, "event_time": "2023-11-14T22:13:20.000001Z", "payload": "AP8="}
    assert list(text) == arrow_schema("report").names
    assert list(bigquery_rows(table.to_batches()[0], "report", False)) == [report]


def test_numbers_that_json_does_not_have() -> None:
    numbers = [1.5, float("nan"), float("inf"), float("-inf")]
    schema = arrow_schema("estimate")
    columns = {name: [None] * 4 for name in schema.names}
    for field in schema:
        if not field.nullable:
            columns[field.name] = pa.array([0] * 4).cast(field.type)
    table = pa.Table.from_pydict({**columns, "high": numbers}, schema)
    found = [row["high"] for row in bigquery_rows(table, "estimate", True)]
    assert found == [1.5, "NaN", "Infinity", "-Infinity"]
    assert repr([row["high"] for row in bigquery_rows(table, "estimate", False)]) == repr(numbers)


def test_a_refused_row_is_kept_with_its_reasons() -> None:
    errors = [{"reason": "invalid", "message": "no such field: raw."}]
    letter = refused_row(("p:d.t", {"value": "a", "raw": 0.5}, errors), "bigquery:p.d.t")
    assert letter[:3] == ("refused_by_bigquery", "bigquery:p.d.t", -1)
    assert letter.raw is not None
    assert json.loads(letter.raw) == {"row": {"value": "a", "raw": 0.5}, "errors": errors}
