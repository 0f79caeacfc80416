"""Messages hold what files hold; keys and attributes tell rows apart; the greatest order holds."""

from __future__ import annotations

import datetime
import io
import json
import pickle
import re

import apache_beam as beam
import fastavro
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pipeline import PipelineVisitor
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from hadabeam.mechanisms import Domain, OneBitHadamard, Rappor
from hadabeam.mechanisms.errors import ParameterError
from hadabeam.schemas.avro import arrow_schema, load_schema
from hadabeam.transforms.estimate import estimate_table
from hadabeam.transforms.format_messages import FormatMessages, Message, messages
from hadabeam.transforms.panes import PaneInfo
from hadabeam.transforms.published import (
    SCHEMA,
    PublishTables,
    batch_order,
    published_pane,
    run_name,
)
from hadabeam.transforms.records import DeadLetter
from hadabeam.transforms.report_ids import AddReportIds
from hadabeam.transforms.reports import packed_rows, report_rows, unpack_row
from hadabeam.transforms.single_object import fingerprint, unframe
from hadabeam.transforms.split_packed import SplitPacked, split_packed
from hadabeam.transforms.stream import Pane
from hadabeam.transforms.windows import CalendarDays
from hadabeam.transforms.write import write_table
from hadabeam.transforms.write_messages import ConformRows, Fit, WriteMessages

DAY = 86_400_000_000
ORACLE = OneBitHadamard(Domain(["a", 'b"ü\n', "c" * 2000]), 1.0)
TIME = "1970-01-02T00:00:00Z"


def table_of(n=40, window=(DAY, 2 * DAY), key=None, pane=None):
    columns = np.arange(n) % 3 + 1
    counts = ORACLE.count(columns, (columns == 1).astype(np.uint8))
    return estimate_table(ORACLE, counts, "simplex", window, key, pane)


def pane_of(n, timing="on_time", index=1, keys=(None,)):
    info = PaneInfo(DAY, 2 * DAY, timing, index, n * len(keys))
    tables = tuple(table_of(n, key=key, pane=info.name) for key in keys)
    return Pane(info, None, tables, {})


def run(build, elements, path):
    """Runs a transform on Beam's own runner; gives what came out."""
    with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([])) as pipeline:
        found = pipeline | beam.Create(elements, reshuffle=False) | build
        found | "Keep" >> beam.Map(keep, str(path))
    with path.open("rb") as file:
        kept = []
        while file.tell() < path.stat().st_size:
            kept.append(pickle.load(file))
    return kept


def keep(element, path):
    with open(path, "ab") as file:
        file.write(pickle.dumps(element))


TABLES = {
    "pane": published_pane(pane_of(40, keys=("", "NL")), ORACLE.collection_id),
    "whole": published_pane(
        Pane(PaneInfo(0, DAY, "early", 0, 7), None, (table_of(7, (None, None)),), {}), "c" * 32
    ),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_json_is_the_lines_of_the_file(table, tmp_path):
    write_table(table, str(tmp_path / "t.jsonl"), "jsonl", SCHEMA)
    lines = (tmp_path / "t.jsonl").read_bytes().split(b"\n")[:-1]
    assert [message.value for message in messages(table, SCHEMA)] == lines
    assert len(lines) == table.num_rows


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_avro_is_framed_and_any_reader_decodes_it(table):
    found = [message.value for message in messages(table, SCHEMA, "avro")]
    schema = fastavro.parse_schema(load_schema(SCHEMA))
    rows = []
    for message in found:
        name, datum = unframe(message)
        assert name == fingerprint(load_schema(SCHEMA))
        file = io.BytesIO(datum)
        rows.append(fastavro.schemaless_reader(file, schema))
        assert file.tell() == len(datum)
    assert pa.Table.from_pylist(rows, arrow_schema(SCHEMA)) == table
    # fastavro's own writer gives the same bytes.
    again = io.BytesIO()
    fastavro.schemaless_writer(again, schema, rows[0])
    assert again.getvalue() == unframe(found[0])[1]


def test_keys_and_attributes():
    found = list(messages(TABLES["pane"], SCHEMA))
    end = "1970-01-03T00:00:00Z"
    keys = [json.loads(message.key) for message in found]
    assert keys == [[TIME, end, key, value] for key in ("", "NL") for value in ORACLE.domain.values]
    assert found[-1].attributes == {
        "window_start": TIME,
        "window_end": end,
        "key": "NL",
        "pane_order": TABLES["pane"]["pane_order"][0].as_py(),
        "collection": ORACLE.collection_id,
    }
    (whole, *_) = messages(TABLES["whole"], SCHEMA)
    assert json.loads(whole.key) == [None, None, None, "a"]
    assert set(whole.attributes) == {"pane_order", "collection"}
    # Both formats have the same keys.
    avro = list(messages(TABLES["pane"], SCHEMA, "avro"))
    assert [message[::2] for message in avro] == [message[::2] for message in found]


def test_an_attribute_that_is_too_long_is_left_out():
    for length, there in ((1024, True), (1025, False)):
        table = published_pane(pane_of(9, keys=("k" * length,)), "c" * 32)
        message = next(messages(table, SCHEMA))
        assert ("key" in message.attributes) == there
        assert json.loads(message.value)["key"] == "k" * length


def test_large_tables_in_pieces():
    table = TABLES["pane"]
    many = pa.concat_tables([table] * 6000)
    for format in ("json", "avro"):
        found = [message.value for message in messages(many, SCHEMA, format)]
        assert found == [message.value for message in messages(table, SCHEMA, format)] * 6000


def test_orders_of_panes_and_runs():
    pane = pane_of(10, keys=("a", "b"))
    table = published_pane(pane, "c" * 32)
    (order,) = set(table["pane_order"].to_pylist())
    assert re.fullmatch(rf"{pane.info.file_name}-[0-9a-f]{{8}}", order)
    # The same pane has the same order again, and other numbers another one.
    assert published_pane(pane_of(10, keys=("a", "b")), "c" * 32) == table
    other = published_pane(pane._replace(tables=pane_of(11, keys=("a", "b")).tables), "c" * 32)
    assert other["pane_order"][0].as_py() != order
    assert set(table["reports"].to_pylist()) == {20}
    assert set(table["collection"].to_pylist()) == {"c" * 32}
    assert table.select(arrow_schema("estimate").names) == pa.concat_tables(
        [part.to_arrow() for part in pane.tables]
    )
    assert published_pane(pane._replace(tables=()), "c" * 32).num_rows == 0
    first = datetime.datetime(2025, 1, 6, 12, tzinfo=datetime.timezone.utc)
    names = [run_name(first + datetime.timedelta(microseconds=at)) for at in (0, 1, 10**6)]
    assert names[0] == "20250106T120000.000000Z"
    assert names == sorted(set(names))
    orders = [batch_order(9, names[1]), batch_order(10, names[0]), batch_order(10, names[1])]
    assert orders == sorted(orders)
    # A stream's pane of as many reports holds against a batch job's table.
    assert batch_order(20, names[2]) < pane.info.file_name


@pytest.mark.parametrize("keyed", [False, True])
def test_a_batch_jobs_tables_add_up_over_keys(keyed, tmp_path):
    parts = [(10, DAY, "a"), (20, DAY, "b"), (5, 3 * DAY, "a")]
    if not keyed:
        parts = [(n, start, None) for n, start, _ in parts[1:]]
    tables = [table_of(n, (start, start + DAY), key) for n, start, key in parts]
    found = run(PublishTables("c" * 32, "20250106T120000.000000Z", keyed), tables, tmp_path / "t")
    rows = pa.concat_tables(found).to_pylist()
    got = {
        (row["window_start"].day, row["key"], row["reports"], row["pane_order"][:-9])
        for row in rows
    }
    first = 30 if keyed else 20
    assert got == {
        (start // DAY + 1, key, n, f"{n:012d}-batch-20250106T120000.000000Z")
        for start, key, n in [(p[1], p[2], first if p[1] == DAY else 5) for p in parts]
    }
    assert len(rows) == 3 * len(parts)


def test_up_to_the_broker(tmp_path):
    """The transform on a runner, rows in, messages out."""
    for format in ("json", "avro"):
        found = run(FormatMessages(SCHEMA, format), list(TABLES.values()), tmp_path / format)
        expected = [m for table in TABLES.values() for m in messages(table, SCHEMA, format)]
        assert sorted(found) == sorted(expected)


def reports(n=100):
    columns = pa.array(np.arange(n, dtype=np.int32) % 3 + 1)
    bits = pa.array((np.arange(n) % 2).astype(np.uint8))
    return pa.RecordBatch.from_pydict({"column": columns, "bit": bits})


def test_reports_have_ids_that_are_drawn_once(tmp_path):
    rows = report_rows(reports(), ORACLE.collection_id, DAY)
    (found,) = run(AddReportIds(), [rows], tmp_path / "r")
    ids = found.column("report_id").to_pylist()
    assert len(set(ids)) == len(ids) == 100
    assert all(len(id) == 32 and int(id, 16) >= 0 for id in ids)
    names = [name for name in rows.schema.names if name != "report_id"]
    assert found.select(names) == rows.select(names)
    (other,) = run(AddReportIds(), [rows], tmp_path / "again")
    assert not set(ids) & set(other.column("report_id").to_pylist())
    # An id that is there already stays.
    kept = run(AddReportIds(), [found], tmp_path / "kept")[0]
    assert kept == found
    message = next(messages(found, "report"))
    assert message.key is None
    assert message.attributes == {"collection": ORACLE.collection_id}
    assert json.loads(message.value)["report_id"] == ids[0]


@pytest.mark.parametrize("width", [0, 3])
@pytest.mark.parametrize("n", [1, 8, 9, 100, 1000])
def test_packed_reports_in_parts(width, n):
    rng = np.random.default_rng(n)
    columns = {
        "column": pa.array(rng.integers(1, 100, n, np.int32)),
        "bit": pa.array(rng.integers(0, 2, n, np.uint8)),
    }
    if width:
        payload = pa.py_buffer(rng.bytes(n * width))
        columns["payload"] = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(width), n, [None, payload]
        )
    whole = packed_rows(pa.RecordBatch.from_pydict(columns), "c" * 32, DAY, "NL")
    parts = list(split_packed(whole, 2_500))
    for part in parts:
        for format in ("json", "avro"):
            (message,) = messages(part, "packed_reports", format)
            assert len(message.value) <= 2_500
    assert len(parts) == 1 if n <= 9 else len(parts) == -(-n // (n_of(parts[0])))
    unpacked = [unpack_row(part.to_pylist()[0] | {"epoch": DAY}, width) for part in parts]
    expected = unpack_row(whole.to_pylist()[0], width)
    for name in ("column", "bit", "payload")[: 3 if width else 2]:
        joined = np.concatenate([getattr(part, name) for part in unpacked])
        assert np.array_equal(joined, getattr(expected, name))


def test_packed_reports_fit_into_messages_of_the_producers_size(tmp_path):
    rows = packed_rows(reports(1000), ORACLE.collection_id, DAY)
    parts = run(SplitPacked(2_500), [rows], tmp_path / "p")
    assert sum(map(n_of, parts)) == 1000
    assert all(len(next(messages(part, "packed_reports")).value) <= 2_500 for part in parts)


def n_of(part):
    return part.column("reports")[0].as_py()


def test_packed_reports_of_any_width_fit():
    oracle = Rappor(Domain([str(i) for i in range(1000)]), 1.0)
    width = oracle.payload_bytes
    n = 1 << 14
    row = {
        "collection": "c" * 32,
        "epoch": 0,
        "event_time": 0,
        "key": None,
        "reports": n,
        "columns": bytes(4 * n),
        "bits": bytes(n // 8),
        "payload": bytes(width * n),
    }
    whole = pa.RecordBatch.from_pylist([row], arrow_schema("packed_reports"))
    sizes = []
    for part in split_packed(whole):
        (message,) = messages(part, "packed_reports")
        sizes.append(len(message.value))
    assert max(sizes) <= 512_000
    # As few as fit.
    assert min(sizes[:-1]) > 480_000


@pytest.mark.parametrize(
    "sink", ["kafka:host/topic", "kafka:host:1", "pubsub:name", "out/pages", "kafka:h:1/.."]
)
def test_sinks_of_another_form_are_refused(sink):
    with pytest.raises(ParameterError, match=r"kafka:HOST:PORT|cannot be called"):
        WriteMessages(sink, SCHEMA)


def test_options_belong_to_kafka_and_formats_are_known():
    with pytest.raises(ParameterError, match="kafka: outputs"):
        WriteMessages("pubsub:projects/my-project/topics/t-t", SCHEMA, producer_options={"a": "b"})
    with pytest.raises(ParameterError, match="json, avro"):
        WriteMessages("kafka:h:1/t", SCHEMA, "csv")


def inputs_of(pipeline, name):
    """The collections that steps of a name read."""
    found = []

    class Visitor(PipelineVisitor):
        def enter_composite_transform(self, node):
            if node.full_label.split("/")[-1] == name:
                found.extend(node.inputs)

    pipeline.visit(Visitor())
    return found


@pytest.mark.parametrize("schema", ["report", "packed_reports", "estimate"])
def test_windows_of_our_own_do_not_reach_the_broker(schema):
    """Java knows no calendar days, and refuses them."""
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([]))
    rows = pipeline | beam.Create([arrow_schema(schema).empty_table()])
    days = rows | "Days" >> beam.WindowInto(CalendarDays("Europe/Berlin").window_fn())
    days | WriteMessages("pubsub:projects/my-project/topics/t-t", schema)
    (written,) = inputs_of(pipeline, "Write")
    assert days.windowing != written.windowing
    assert written.windowing.is_default()


@pytest.mark.parametrize("name", ["report", "packed_reports"])
def test_rows_in_any_form(name, tmp_path):
    make = report_rows if name == "report" else packed_rows
    rows = make(reports(), ORACLE.collection_id, DAY)
    table = pa.Table.from_batches([rows])
    for number, form in enumerate([table, table.select(rows.schema.names[::-1])]):
        (batch,) = run(ConformRows(name), [form], tmp_path / f"{number}")
        assert batch == rows


def of_size(size):
    """A message that Kafka and Pub/Sub would both count as so many bytes."""
    return Message(b"k" * 10, b"v" * (size - 10), {"key": "k"})


def test_rows_that_are_too_large_are_dead_letters_of_a_stream(tmp_path):
    found = run(Fitting("kafka:h:1/t", True), [of_size(100), of_size(101)], tmp_path / "s")
    assert [message for message in found if isinstance(message, Message)] == [of_size(100)]
    (letter,) = (item for item in found if isinstance(item, DeadLetter))
    assert letter == DeadLetter("too_large_to_send", "kafka:h:1/t", -1, of_size(101).value)


def test_rows_that_are_too_large_fail_a_batch_job(tmp_path):
    with pytest.raises(Exception, match="a message of 101 bytes, and kafka:h:1/t takes 100"):
        run(Fitting("kafka:h:1/t", False), [of_size(101)], tmp_path / "b")


class Fitting(beam.PTransform):
    """Messages of at most 100 bytes, and dead letters, in one collection."""

    def __init__(self, sink, streaming):
        super().__init__()
        self._transform = beam.ParDo(Fit(sink, 100, streaming))

    def expand(self, messages):
        found = messages | self._transform.with_outputs("dead_letters", main="main")
        return (found.main, found.dead_letters) | beam.Flatten()


def test_passwords_in_options_are_not_shown():
    options = {"sasl.jaas.config": 'password="hunter2"'}
    assert "hunter2" not in repr(WriteMessages("kafka:h:1/t", SCHEMA, producer_options=options))
