"""Tables: what is written, in every format, and that it is the same for the same table."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import pathlib
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hadabeam.mechanisms.domain import Domain
from hadabeam.mechanisms.errors import InputError, ParameterError
from hadabeam.mechanisms.estimate import FrequencyEstimate
from hadabeam.schemas.avro import arrow_schema, load_schema
from hadabeam.transforms import files
from hadabeam.transforms.encodings import FORMATS, TableEncoder, iso_time
from hadabeam.transforms.tables import EstimateTable
from hadabeam.transforms.write import write_json, write_table

DAY = 86_400_000_000
VALUES = ["home", "", 'quo"te', "l\ni,ne", "=1+1", "日本", "\u202eabc"]


def estimate(raw: list[float], values: list[str], n: int = 1000) -> FrequencyEstimate:
    return FrequencyEstimate(
        raw=np.array(raw),
        standard_error=np.full(len(raw), 0.01),
        null_standard_error=0.01,
        n=n,
        epsilon_effective=1.0,
        domain=Domain(values),
    )


def table(**changes: Any) -> pa.Table:
    parts: dict[str, Any] = {
        "window_start": None,
        "window_end": None,
        "pane": None,
        "key": None,
        "estimate": estimate([0.5, 1 / 3, 1e-7, -0.1, 0.1, 0.0, 0.2], ["home", "a", *VALUES[2:]]),
    }
    return EstimateTable(**{**parts, **changes}).to_arrow()


def encode(content: pa.Table, format: str, schema: str = "estimate") -> bytes:
    file = io.BytesIO()
    with TableEncoder(file, format, schema) as encoder:
        encoder.write(content)
    return file.getvalue()


def test_columns_and_rows_of_an_estimate_table() -> None:
    source = estimate([0.5, 0.2, 0.0], ["a", "b", "c"])
    arrow = EstimateTable(0, DAY, None, "NL", source).to_arrow()
    assert arrow.schema == arrow_schema("estimate")
    low, high = source.interval(0.95)
    assert arrow["value"].to_pylist() == ["a", "b", "c"]
    assert arrow["low"].to_pylist() == low.tolist()
    assert arrow["high"].to_pylist() == high.tolist()
    assert arrow["frequency"].to_pylist() == source.frequencies.tolist()
    assert arrow["count"].to_pylist() == (1000 * source.frequencies).tolist()
    assert arrow["detected"].to_pylist() == [True, True, False]
    assert low[0] == pytest.approx(0.5 - 1.959964 * 0.01)
    rows = list(EstimateTable(0, DAY, None, "NL", source).rows())
    assert rows[1].window_end == DAY
    assert rows[1]._asdict() == {**arrow.to_pylist()[1], "window_start": 0, "window_end": DAY}


def test_an_estimate_without_a_domain_is_refused() -> None:
    bare = FrequencyEstimate(np.zeros(2), np.ones(2), 1.0, 1, 1.0)
    with pytest.raises(ParameterError, match="needs its domain"):
        EstimateTable(None, None, None, None, bare).to_arrow()


def test_tables_sort_by_window_key_and_pane() -> None:
    source = estimate([0.5, 0.5], ["a", "b"])
    places = [(None, None), (None, ""), (None, "b"), (-DAY, None), (0, None), (0, "a")]
    tables = [
        EstimateTable(start, None if start is None else start + DAY, None, key, source)
        for start, key in places
    ]
    backwards = tables[::-1]
    assert sorted(backwards, key=lambda table: table.order) == tables


def test_avro_reads_back() -> None:
    content = table(window_start=7 * DAY, window_end=14 * DAY, pane="late-2", key="NL")
    reader = fastavro.reader(io.BytesIO(encode(content, "avro")))
    assert reader.writer_schema["name"] == "hadabeam.Estimate"
    assert reader.codec == "deflate"
    rows = list(reader)
    assert pa.Table.from_pylist(rows, arrow_schema("estimate")) == content


def test_parquet_reads_back() -> None:
    content = table(window_start=7 * DAY, window_end=14 * DAY)
    assert pq.read_table(io.BytesIO(encode(content, "parquet"))) == content


def test_csv_reads_back_and_tells_null_from_empty() -> None:
    content = table(key="", window_start=DAY)
    text = encode(content, "csv").decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["value"] for row in rows] == content["value"].to_pylist()
    assert [float(row["raw"]) for row in rows] == content["raw"].to_pylist()
    assert rows[0]["window_start"] == "1970-01-02T00:00:00Z"
    # No window end and no pane, an empty key.
    assert text.splitlines()[1].startswith('"1970-01-02T00:00:00Z",,,"","home",0.5,0.01,')


def test_jsonl_reads_back() -> None:
    content = table(window_start=1, window_end=DAY)
    rows = [json.loads(line) for line in encode(content, "jsonl").splitlines()]
    assert [row["raw"] for row in rows] == content["raw"].to_pylist()
    assert [row["value"] for row in rows] == content["value"].to_pylist()
    assert rows[0]["window_start"] == "1970-01-01T00:00:00.000001Z"
    assert rows[0]["window_end"] == "1970-01-02T00:00:00Z"
    assert rows[0]["key"] is None
    assert list(rows[0]) == arrow_schema("estimate").names


@pytest.mark.parametrize("format", FORMATS)
def test_infinite_errors_of_no_reports_are_written(format: str) -> None:
    nothing = FrequencyEstimate(
        np.zeros(2), np.full(2, math.inf), math.inf, 0, 1.0, domain=Domain(["a", "b"])
    )
    content = EstimateTable(None, None, None, None, nothing).to_arrow()
    encoded = encode(content, format)
    if format == "jsonl":
        assert json.loads(encoded.splitlines()[0])["standard_error"] is None
    elif format == "csv":
        assert b",inf,-inf,inf," in encoded
    elif format == "avro":
        assert next(fastavro.reader(io.BytesIO(encoded)))["high"] == math.inf
    else:
        assert pq.read_table(io.BytesIO(encoded))["low"].to_pylist() == [-math.inf] * 2


@pytest.mark.parametrize("format", FORMATS)
def test_chunks_slices_and_validity_bitmaps_do_not_show(format: str) -> None:
    whole = pa.concat_tables([table(key=key) for key in ("a", "b", "c")])
    chunked = pa.concat_tables([whole.slice(start, 5) for start in range(0, 21, 5)])
    padded = pa.concat_tables([table(key="x"), whole, table()]).slice(7, 21)
    shuffled = whole.select(list(reversed(whole.column_names)))
    with_bitmaps = pa.Table.from_pylist(whole.to_pylist(), whole.schema)
    expected = encode(whole, format)
    for same in (chunked, padded, shuffled, with_bitmaps, whole.combine_chunks()):
        assert encode(same, format) == expected
    other = pa.concat_tables([table(key=key) for key in ("a", "b", "d")])
    assert encode(other, format) != expected


def test_the_sync_marker_depends_on_the_content() -> None:
    assert encode(table(key="a"), "avro")[-16:] != encode(table(key="b"), "avro")[-16:]


@pytest.mark.parametrize("format", FORMATS)
def test_no_rows(format: str) -> None:
    content = arrow_schema("report").empty_table()
    encoded = encode(content, format, "report")
    if format == "avro":
        reader = fastavro.reader(io.BytesIO(encoded))
        assert reader.writer_schema["name"] == "hadabeam.Report"
        assert list(reader) == []
    elif format == "parquet":
        assert pq.read_table(io.BytesIO(encoded)) == content
    elif format == "csv":
        assert encoded.decode().strip().split(",") == [f'"{name}"' for name in content.schema.names]
    else:
        assert encoded == b""


def test_many_rows_make_many_blocks() -> None:
    rows = 40_000
    content = pa.table(
        {
            "collection": ["c"] * rows,
            "epoch": [0] * rows,
            "column": range(rows),
            "bit": [1] * rows,
            "event_time": pa.array([0] * rows, pa.timestamp("us", "UTC")),
            "key": [None] * rows,
            "payload": [None] * rows,
            "sender": [None] * rows,
            "report_id": [None] * rows,
        }
    )
    encoded = encode(content, "avro", "report")
    blocks = list(fastavro.block_reader(io.BytesIO(encoded)))
    assert len(blocks) == 3
    assert sum(block.num_records for block in blocks) == rows
    columns = [row["column"] for row in fastavro.reader(io.BytesIO(encoded))]
    assert columns == list(range(rows))
    assert encode(content, "jsonl", "report").count(b"\n") == rows
    assert encode(content, "csv", "report").count(b"\n") == rows + 1


@pytest.mark.parametrize("format", FORMATS)
def test_bytes(format: str) -> None:
    payload = bytes(range(256))
    row: dict[str, Any] = dict.fromkeys(arrow_schema("report").names)
    row |= {"collection": "c", "epoch": 0, "column": 1, "bit": 1, "event_time": 0}
    content = pa.Table.from_pylist([{**row, "payload": payload}], arrow_schema("report"))
    encoded = encode(content, format, "report")
    if format == "avro":
        assert next(fastavro.reader(io.BytesIO(encoded)))["payload"] == payload
    elif format == "parquet":
        assert pq.read_table(io.BytesIO(encoded))["payload"].to_pylist() == [payload]
    else:
        assert b"AAECAwQFBgcI" in encoded


@settings(max_examples=50, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_written_to_read_back(number: float) -> None:
    content = EstimateTable(None, None, None, None, estimate([number, 0.0], ["a", "b"])).to_arrow()
    content = content.set_column(5, "raw", pa.array([number, 0.0]))
    text = encode(content, "csv").decode()
    read = [float(row["raw"]) for row in csv.DictReader(io.StringIO(text))]
    assert read == [number, 0.0]
    assert json.loads(encode(content, "jsonl").splitlines()[0])["raw"] == number


def test_iso_times() -> None:
    assert iso_time(0) == "1970-01-01T00:00:00Z"
    assert iso_time(-1) == "1969-12-31T23:59:59.999999Z"
    assert iso_time(1_736_121_600_500_000) == "2025-01-06T00:00:00.500000Z"


def test_formats_are_checked() -> None:
    with pytest.raises(ParameterError, match="avro, parquet, csv, jsonl"):
        TableEncoder(io.BytesIO(), "xlsx", "estimate")


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_replaces_an_earlier_one_and_leaves_nothing_else(
    format: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "new" / f"x-estimates.{format}"
    write_table(table(key="first"), str(path), format)
    first = path.read_bytes()
    write_table(table(), str(path), format)
    assert path.read_bytes() == encode(table(), format) != first
    assert os.listdir(path.parent) == [path.name]
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask


def test_an_error_leaves_the_earlier_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x-estimates.csv"
    path.write_text("earlier")
    bad = table().set_column(4, "value", pa.array([None] * 7, pa.string()))
    with pytest.raises(ValueError, match="value"):
        write_table(bad, str(path), "csv")
    assert path.read_text() == "earlier"
    assert os.listdir(tmp_path) == [path.name]


def test_a_folder_that_cannot_be_made_is_an_input_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        InputError, match=r"cannot write .*file/x-summary.json: .*file is a file, not a folder; "
    ):
        write_json({}, str(tmp_path / "file" / "x-summary.json"))


def test_json_is_sorted_indented_and_ends_in_a_newline(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "x-summary.json"
    write_json({"b": {"z": 1, "a": 0.1}, "a": "ü"}, str(path))
    expected = '{\n  "a": "ü",\n  "b": {\n    "a": 0.1,\n    "z": 1\n  }\n}\n'
    assert path.read_text(encoding="utf-8") == expected
    with pytest.raises(ValueError, match="JSON"):
        write_json({"a": math.inf}, str(path))
    assert path.read_text(encoding="utf-8") == expected


def test_prefixes(tmp_path: pathlib.Path) -> None:
    assert files.check_prefix(f"{tmp_path}/pages") == f"{tmp_path}/pages"
    for bad, why in [
        ("", "must be a path"),
        (None, "must be a path"),
        (f"{tmp_path}/", "names a folder"),
        (str(tmp_path), "is a folder"),
    ]:
        with pytest.raises(ParameterError, match=why):
            files.check_prefix(bad)  # type: ignore[arg-type]


def test_names_after_a_prefix_with_pattern_letters(tmp_path: pathlib.Path) -> None:
    for name in ("a[1]*-x.csv", "a1-x.csv", "a[1]*-y.csv", "ba[1]*-x.csv"):
        (tmp_path / name).touch()
    found = files.names_after(str(tmp_path / "a[1]*"), r"-x\.csv")
    assert found == [str(tmp_path / "a[1]*-x.csv")]
    assert files.names_after(str(tmp_path / "missing" / "a"), ".*") == []


def test_leftovers_of_a_prefix_are_removed_and_no_other(tmp_path: pathlib.Path) -> None:
    prefix = files.check_prefix(str(tmp_path / "pages"))
    leftover = pathlib.Path(files.temporary_name(f"{prefix}-estimates.avro"))
    leftover.touch()
    folder = pathlib.Path(files.temporary_name(f"{prefix}-reports"))
    folder.mkdir()
    (folder / "run").touch()
    others = [tmp_path / ".pages2-estimates.avro.x.tmp", tmp_path / "pages-estimates.avro"]
    for other in others:
        other.touch()
    files.remove_leftovers()
    assert sorted(tmp_path.iterdir()) == sorted(others)


def test_every_column_of_the_table_is_in_the_avro_schema() -> None:
    assert table().column_names == [field["name"] for field in load_schema("estimate")["fields"]]
