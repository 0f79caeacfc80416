"""Reports in messages: JSON or Avro, packed or not, count as the same reports do from files."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import fastavro
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import given
from hypothesis import strategies as st

from hadabeam.mechanisms.domain import Domain
from hadabeam.mechanisms.errors import ParameterError
from hadabeam.mechanisms.one_bit import OneBitHadamard
from hadabeam.schemas.avro import load_schema
from hadabeam.testing import SeededKey
from hadabeam.transforms.avro_messages import MessageSchema
from hadabeam.transforms.fields import RecordFields
from hadabeam.transforms.messages import ParseMessages
from hadabeam.transforms.randomness import ReportKeys
from hadabeam.transforms.receive import ReceiveReports
from hadabeam.transforms.records import DEAD_LETTERS, TALLIES, add_tallies
from hadabeam.transforms.report_messages import ReportMessages
from hadabeam.transforms.reports import packed_rows, report_rows
from hadabeam.transforms.single_object import fingerprint, frame
from hadabeam.transforms.windows import WindowSpec
from hadabeam.transforms.write import write_table

DOMAIN = Domain([f"v{i}" for i in range(20)])
ORACLE = OneBitHadamard(DOMAIN, 1.0)
KEYS = ReportKeys(SeededKey("collector"))
DAY = 86_400_000_000


def reports(n: int, seed: int) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    columns = {
        "column": pa.array(rng.integers(1, 32, n), pa.int32()),
        "bit": pa.array(rng.integers(0, 2, n), pa.uint8()),
    }
    return pa.RecordBatch.from_pydict(columns)


def messages_of(rows: pa.RecordBatch, name: str, format: str, folder: Path) -> list[bytes]:
    """A message for each row, as a line of a file has it, or as Avro."""
    if format == "jsonl":
        path = folder / f"{name}.jsonl"
        write_table(pa.Table.from_batches([rows]), str(path), "jsonl", name)
        return path.read_bytes().splitlines()
    schema = load_schema(name)
    found = []
    for row in rows.to_pylist():
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(load_schema(name)), row)
        found.append(frame(fingerprint(schema), out.getvalue()))
    return found


@pytest.fixture
def receive(tmp_path: Path) -> Any:
    """Reads messages as a stream does, up to the windows."""

    def note(batches: Any, tallies: Any, letters: Any) -> None:
        rows = [row for _, batch in batches for row in batch.to_pylist()]
        total: dict[str, int] = {}
        for row in rows:
            place = f"{row['event_time']} {row.get('column')} {row['bit']}"
            total[place] = total.get(place, 0) + 1
        found = {
            "rows": total,
            "tally": add_tallies(tally for _, _, tally in tallies),
            "letters": sorted(
                [letter.reason, letter.file, letter.position, (letter.raw or b"").decode()]
                for letter in letters
            ),
            "users": len({row["user"] for row in rows if "user" in row}),
        }
        (tmp_path / "found.json").write_text(json.dumps(found))

    def run(messages: list[bytes], keys: ReportKeys | None = None, **options: Any) -> Any:
        with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([])) as pipeline:
            parsed = (
                pipeline
                | beam.Create(messages)
                | ParseMessages(None, "kafka:h:1/reports", **options)
            )
            received = parsed[None] | "Receive" >> beam.ParDo(
                ReceiveReports(ORACLE, WindowSpec(DAY), keys or ReportKeys())
            ).with_outputs(TALLIES, DEAD_LETTERS, main="batches")
            tallies = (parsed[TALLIES], received[TALLIES]) | "Tallies" >> beam.Flatten()
            letters = (parsed[DEAD_LETTERS], received[DEAD_LETTERS]) | "Letters" >> beam.Flatten()
            parts = [received.batches, tallies, letters]
            _ = (
                pipeline
                | "One" >> beam.Create([None])
                | beam.Map(
                    lambda _, *lists: note(*lists), *[beam.pvalue.AsList(part) for part in parts]
                )
            )
        return json.loads((tmp_path / "found.json").read_text())

    return run


def test_four_kinds_of_messages_are_the_same_reports(receive: Any, tmp_path: Path) -> None:
    batches = [(reports(300, 1), DAY), (reports(200, 2), 2 * DAY)]
    expected: dict[str, int] = {}
    for batch, epoch in batches:
        for row in batch.to_pylist():
            place = f"{epoch} {row['column']} {row['bit']}"
            expected[place] = expected.get(place, 0) + 1
    for name, make in (("report", report_rows), ("packed_reports", packed_rows)):
        for format in ("jsonl", "avro"):
            messages = [
                message
                for batch, epoch in batches
                for message in messages_of(
                    make(batch, ORACLE.collection_id, epoch), name, format, tmp_path
                )
            ]
            assert len(messages) == (500 if name == "report" else 2)
            found = receive(messages)
            assert found["rows"] == expected, (name, format)
            assert found["tally"]["records_read"] == 500
            assert not found["letters"]


def test_all_kinds_and_poison_in_one_topic(receive: Any, tmp_path: Path) -> None:
    kinds = [
        messages_of(make(reports(40, seed), ORACLE.collection_id, DAY), name, format, tmp_path)
        for seed, (name, make) in enumerate(
            [("report", report_rows), ("packed_reports", packed_rows)]
        )
        for format in ("jsonl", "avro")
    ]
    poison = [
        b"",
        b"no report",
        b"{}",
        kinds[1][0] + b"\0",
        kinds[1][0][:-1],
        kinds[3][0][:40],
        frame(b"another.", b"xx")[:-2],
    ]
    other = report_rows(reports(1, 1), "another", 0)
    refused = messages_of(other, "report", "avro", tmp_path)
    good = [message for kind in kinds for message in kind]
    found = receive([*good, *poison, *refused])
    assert sum(found["rows"].values()) == 160
    assert found["tally"]["records_read"] == 160 + len(poison) + 1
    assert found["tally"]["unparseable"] == len(poison)
    assert found["tally"]["wrong_collection"] == 1
    assert found["letters"] == sorted(
        [["unparseable", "kafka:h:1/reports", -1, ""]] * len(poison)
        + [["wrong_collection", "kafka:h:1/reports", -1, ""]]
    )


@pytest.mark.parametrize("said", [-5, 0, 7, 2**40, 2**62])
def test_a_pack_of_another_collection_counts_as_what_it_holds(receive: Any, said: int) -> None:
    rows = packed_rows(reports(9, 1), "another", 0).to_pylist()[0]
    columns = base64.b64encode(rows["columns"]).decode()
    pack = {"collection": "another", "epoch": 0, "reports": said, "columns": columns, "bits": ""}
    tally = receive([json.dumps(pack).encode(), json.dumps({**pack, "reports": 9}).encode()])[
        "tally"
    ]
    assert tally == {"records_read": 10, "wrong_collection": 10}


def test_ids_and_senders(receive: Any) -> None:
    base = {"collection": ORACLE.collection_id, "epoch": DAY, "column": 3, "bit": 1}
    lines = [{"nonce": "r1"}, {"nonce": "r1"}, {"nonce": "r2"}, {}]
    messages = [json.dumps({**base, **line}).encode() for line in lines]
    assert receive(messages, id_field="nonce")["users"] == 2
    assert receive(messages)["users"] == 0
    # Without the sender's column: with the assignment key it is known to be another's.
    sent = [json.dumps({**base, "sender": f"s{n}"}).encode() for n in range(20)]
    found = receive(sent, KEYS)
    assert found["tally"]["wrong_column"] > 10
    assert found["tally"]["records_read"] == 20


def test_what_cannot_count_is_refused_as_it_is_from_files(receive: Any, tmp_path: Path) -> None:
    base = {"collection": ORACLE.collection_id, "epoch": DAY, "column": 3, "bit": 1}
    later = [json.dumps({**base, "sender": "ann", "epoch": DAY + n}).encode() for n in range(5)]
    found = receive(later)
    # One of a sender and window, however its epoch is written.
    assert found["tally"]["wrong_window"] == 4
    assert sum(found["rows"].values()) == 1
    pack = messages_of(
        packed_rows(reports(9, 1), ORACLE.collection_id, DAY), "packed_reports", "jsonl", tmp_path
    )
    named = json.dumps({**json.loads(pack[0]), "sender": "ann"}).encode()
    found = receive([json.dumps(base).encode(), pack[0], named], KEYS)
    assert found["tally"] == {"records_read": 19, "missing_sender": 19}
    assert [letter[0] for letter in found["letters"]] == ["missing_sender"] * 3


def test_a_key_may_be_called_columns(receive: Any) -> None:
    base = {"collection": ORACLE.collection_id, "epoch": DAY, "column": 3, "bit": 1}
    for key in ("columns", '{"columns": 1}', '"columns":'):
        found = receive([json.dumps({**base, "key": key}).encode()])
        assert sum(found["rows"].values()) == 1, key


def test_content_of_what_is_no_report_if_asked(receive: Any) -> None:
    found = receive([b"no report"], raw=True)
    assert found["letters"] == [["unparseable", "kafka:h:1/reports", -1, "no report"]]


def test_options_belong_together() -> None:
    schema = MessageSchema("r", json.dumps(load_schema("report")))
    with pytest.raises(ParameterError, match="schemas are for records"):
        ParseMessages(None, "x", [schema])
    with pytest.raises(ParameterError, match="id field is for reports"):
        ParseMessages(RecordFields("u", "v"), "x", id_field="nonce")


@given(st.lists(st.binary(max_size=80), max_size=4), st.binary(max_size=80))
def test_any_bytes_are_rows_or_unparseable(messages: list[bytes], body: bytes) -> None:
    names = ("report", "packed_reports")
    messages = [*messages, *(frame(fingerprint(load_schema(name)), body) for name in names)]
    found = ReportMessages()(messages)
    assert all(len(rows.columns) == len(names) for names, rows in found if rows.columns)
    places = [
        place
        for _, rows in found
        for place in (*rows.positions.tolist(), *rows.bad_positions.tolist())
    ]
    assert sorted(places) == list(range(len(messages)))
