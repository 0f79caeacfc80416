"""The .avsc files, the Arrow schemas and the row types say the same."""

from __future__ import annotations

import io
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam
import fastavro
import pyarrow as pa
import pytest
from apache_beam.coders import RowCoder, registry
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to

from hadabeam.schemas.avro import NAMES, arrow_schema, load_schema
from hadabeam.schemas.rows import ROWS, EstimateRow, WindowSummaryRow

FULL_NAMES = {
    "report": "hadabeam.Report",
    "packed_reports": "hadabeam.PackedReports",
    "estimate": "hadabeam.Estimate",
    "published_estimate": "hadabeam.PublishedEstimate",
    "summary": "hadabeam.Summary",
}
EXAMPLES: dict[str, list[Any]] = {
    "report": [
        ROWS["report"]("c" * 32, 0, 5, 1, 0),
        ROWS["report"]("c" * 32, 7 * 86_400_000_000, 2**31 - 1, 0, 7, "NL", b"\0\xff", "s", "id"),
    ],
    "packed_reports": [
        ROWS["packed_reports"]("c", 0, 0, None, 2, b"\1\0\0\0\2\0\0\0", b"\2"),
        ROWS["packed_reports"]("c", -1, -1, "", 1, b"\1\0\0\0", b"\1", b"abc"),
    ],
    "estimate": [
        ROWS["estimate"](None, None, None, None, "a", -0.1, 0.2, -0.5, 0.3, 0.0, 0.0, False),
        ROWS["estimate"](0, 1, "early-0", "k", "ü", 0.1, 0.2, -0.3, 0.5, 0.1, 1.5, True),
    ],
    "published_estimate": [
        ROWS["published_estimate"](
            *(None, None, None, None, "a", -0.1, 0.2, -0.5, 0.3, 0.0, 0.0, False),
            *("c" * 32, 7, "000000000007-batch-20250106T000000.000000Z"),
        ),
        ROWS["published_estimate"](
            *(0, 1, "early-0", "k", "ü", 0.1, 0.2, -0.3, 0.5, 0.1, 1.5, True),
            *("c" * 32, 15, "000000000015-early-000000"),
        ),
    ],
    "summary": [
        ROWS["summary"](
            None, None, None, 9, 8, {"late": 1}, 0, 1.0, 1.0, "o", 4, "f", "c", None, []
        ),
        ROWS["summary"](
            *(1, 2, "on_time-0", 9, 8, {}, 0, 1.0, 0.9, "o", 4, "f", "c"),
            [WindowSummaryRow(0, 1, 4, {"over_limit": 3}, 0)],
            ["one note"],
        ),
    ],
}


def record_fields(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """All fields, those of nested records included."""
    fields = []
    for field in schema["fields"]:
        fields.append(field)
        branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
        for branch in branches:
            if isinstance(branch, dict) and isinstance(branch.get("items"), dict):
                fields += record_fields(branch["items"])
    return fields


def python_type(kind: Any) -> Any:
    """The Python annotation that an Avro type calls for."""
    if isinstance(kind, list):
        (branch,) = (branch for branch in kind if branch != "null")
        return python_type(branch) | None
    if isinstance(kind, dict):
        if kind["type"] == "map":
            values: Any = python_type(kind["values"])
            return Mapping[str, values]
        if kind["type"] == "array":
            items: Any = python_type(kind["items"])
            return Sequence[items]
        if kind["type"] == "record":
            return WindowSummaryRow
        return python_type(kind["type"])
    return {
        "string": str,
        "int": int,
        "long": int,
        "double": float,
        "boolean": bool,
        "bytes": bytes,
    }[kind]


def plain(value: Any) -> Any:
    """Rows as dicts, sequences as lists, so that two decoders' answers compare."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(item) for name, item in value._asdict().items()}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def test_names_are_fixed_and_every_field_has_a_doc() -> None:
    assert set(NAMES) == set(ROWS) == set(FULL_NAMES)
    for name in NAMES:
        schema = load_schema(name)
        assert f"{schema['namespace']}.{schema['name']}" == FULL_NAMES[name]
        assert schema["doc"]
        for field in record_fields(schema):
            assert field["doc"].endswith("."), field["name"]


def test_a_published_estimate_begins_as_an_estimate() -> None:
    estimate = load_schema("estimate")["fields"]
    published = load_schema("published_estimate")["fields"]
    assert published[: len(estimate)] == estimate
    added = [field["name"] for field in published[len(estimate) :]]
    assert added == ["collection", "reports", "pane_order"]


def test_times_are_longs_with_timestamp_micros() -> None:
    times = [
        (name, field["name"], field["type"])
        for name in NAMES
        for field in record_fields(load_schema(name))
        if field["name"] in ("event_time", "window_start", "window_end")
    ]
    assert len(times) == 10
    for _, _, kind in times:
        branch = kind[1] if isinstance(kind, list) else kind
        assert branch == {"type": "long", "logicalType": "timestamp-micros"}


@pytest.mark.parametrize("name", NAMES)
def test_rows_have_the_fields_and_types_of_the_schema(name: str) -> None:
    hints = typing.get_type_hints(ROWS[name])
    fields = load_schema(name)["fields"]
    assert list(hints) == [field["name"] for field in fields]
    for field in fields:
        assert hints[field["name"]] == python_type(field["type"]), field["name"]
    if name == "summary":
        (windows,) = (field for field in fields if field["name"] == "windows")
        nested = typing.get_type_hints(WindowSummaryRow)
        assert nested == {
            field["name"]: python_type(field["type"])
            for field in windows["type"][1]["items"]["fields"]
        }


@pytest.mark.parametrize("name", NAMES)
def test_arrow_schema_matches(name: str) -> None:
    schema = arrow_schema(name)
    hints = typing.get_type_hints(ROWS[name])
    assert schema.names == list(hints)
    for field in schema:
        optional = isinstance(hints[field.name], types.UnionType)
        assert field.nullable == optional, field.name
    table = pa.Table.from_pylist([plain(row) for row in EXAMPLES[name]], schema)
    assert table.num_rows == 2


@pytest.mark.parametrize("name", NAMES)
def test_round_trip_by_fastavro(name: str) -> None:
    file = io.BytesIO()
    rows = [plain(row) for row in EXAMPLES[name]]
    fastavro.writer(file, load_schema(name), rows)
    file.seek(0)
    read = list(fastavro.reader(file))
    arrow = pa.Table.from_pylist(read, arrow_schema(name))
    assert arrow == pa.Table.from_pylist(rows, arrow_schema(name))


@pytest.mark.parametrize("name", NAMES)
def test_round_trip_by_the_row_coder(name: str) -> None:
    coder = registry.get_coder(ROWS[name])
    assert isinstance(coder, RowCoder)
    for row in EXAMPLES[name]:
        assert plain(coder.decode(coder.encode(row))) == plain(row)


def test_rows_pass_through_a_pipeline() -> None:
    with TestPipeline(runner="FnApiRunner") as pipeline:
        names = (
            pipeline
            | beam.Create(EXAMPLES["estimate"]).with_output_types(EstimateRow)
            | beam.Map(lambda row: (row.value, row)).with_output_types(tuple[str, EstimateRow])
            | beam.GroupByKey()
            | beam.MapTuple(lambda value, rows: (value, [row.count for row in rows]))
        )
        assert_that(names, equal_to([("a", [0.0]), ("ü", [1.5])]))


def test_a_schema_may_be_changed_by_who_loaded_it() -> None:
    load_schema("report")["fields"].clear()
    assert load_schema("report")["fields"]


def test_an_unknown_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="no schema named 'reports'; there are report, "):
        load_schema("reports")
