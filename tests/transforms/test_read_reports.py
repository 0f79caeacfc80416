"""Reading reports back: every format, packed or not, and who is refused."""

import base64
import json

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.test_pipeline import TestPipeline

from hadabeam.mechanisms.domain import Domain
from hadabeam.mechanisms.errors import InputError
from hadabeam.mechanisms.keys import KeyFile
from hadabeam.mechanisms.one_bit import OneBitHadamard
from hadabeam.mechanisms.prf import Prf
from hadabeam.testing import SeededKey
from hadabeam.transforms.encodings import FORMATS
from hadabeam.transforms.randomness import ReportKeys
from hadabeam.transforms.read_reports import ReadReports
from hadabeam.transforms.records import add_tallies
from hadabeam.transforms.reports import packed_rows, report_rows
from hadabeam.transforms.windows import CalendarDays, WindowSpec
from hadabeam.transforms.write import write_table

DOMAIN = Domain([f"v{i}" for i in range(20)])
ORACLE = OneBitHadamard(DOMAIN, 1.0)
KEY = SeededKey("collector")
DAY = 86_400_000_000


def reports(n, seed=0):
    rng = np.random.default_rng(seed)
    return pa.RecordBatch.from_pydict(
        {
            "column": pa.array(rng.integers(1, 32, n), pa.int32()),
            "bit": pa.array(rng.integers(0, 2, n), pa.uint8()),
        }
    )


def counts(batch):
    return ORACLE.count(batch.column("column").to_numpy(), batch.column("bit").to_numpy())


def run(pattern, tmp_path, **options):
    """Counts for each (epoch, key), the tally, and the dead letters."""
    out = tmp_path / "found.json"

    def note(reports, tallies, letters):
        total = {}
        for place, batch in reports:
            total[place] = total.get(place, 0) + counts(batch)
        found = {
            "counts": [[list(place), array.tolist()] for place, array in total.items()],
            "tally": add_tallies(tallies),
            "letters": sorted([letter.reason, letter.position] for letter in letters),
        }
        out.write_text(json.dumps(found))

    with TestPipeline(runner=FnApiRunner()) as pipeline:
        read = pipeline | ReadReports(str(pattern), ORACLE, **options)
        _ = (
            pipeline
            | beam.Create([None])
            | beam.Map(
                lambda _, *lists: note(*lists),
                beam.pvalue.AsList(read.reports),
                beam.pvalue.AsList(read.tallies),
                beam.pvalue.AsList(read.dead_letters),
            )
        )
    found = json.loads(out.read_text())
    found["counts"] = {tuple(place): np.array(array) for place, array in found["counts"]}
    return found


def write_lines(path, rows):
    base = {"collection": ORACLE.collection_id, "epoch": 0, "column": 1, "bit": 1}
    path.write_text("".join(json.dumps({**base, **row}) + "\n" for row in rows))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("packed", [False, True])
def test_what_was_written_is_counted(format, packed, tmp_path):
    schema = "packed_reports" if packed else "report"
    batches = [reports(1000, 1), reports(300, 2)]
    make = packed_rows if packed else report_rows
    tables = [
        make(batch, ORACLE.collection_id, epoch)
        for batch, epoch in zip(batches, (DAY, 2 * DAY), strict=True)
    ]
    for index, table in enumerate(tables):
        path = str(tmp_path / f"x-{index}.{format}")
        write_table(pa.Table.from_batches([table]), path, format, schema)
    found = run(tmp_path / "x-*", tmp_path, windowing=WindowSpec(DAY))
    assert (found["counts"][DAY, None] == counts(batches[0])).all()
    assert (found["counts"][2 * DAY, None] == counts(batches[1])).all()
    assert found["tally"] == {
        "records_read": 1300,
        "unchecked_columns": 1300,
        "unchecked_duplicates": 1300,
    }
    assert found["letters"] == []


def test_packed_rows_hold_at_most_a_pack(monkeypatch):
    monkeypatch.setattr("hadabeam.transforms.reports.PACK", 100)
    rows = packed_rows(reports(250), ORACLE.collection_id, 5, "de")
    assert rows.column("reports").to_pylist() == [100, 100, 50]
    assert rows.column("key").to_pylist() == ["de"] * 3
    assert [len(row) for row in rows.column("columns").to_pylist()] == [400, 400, 200]
    assert [len(row) for row in rows.column("bits").to_pylist()] == [13, 13, 7]


def test_the_order_of_written_reports_tells_nothing():
    batch = reports(500)
    shuffled = batch.take(pa.array(np.random.default_rng(5).permutation(500)))
    for make in (report_rows, packed_rows):
        first, second = (make(found, "c", 0) for found in (batch, shuffled))
        assert first.equals(second)


def test_reports_are_refused_with_a_reason(tmp_path):
    rows = [
        {},
        {"collection": "another"},
        {"column": 0},
        {"column": 32},
        {"column": -1},
        {"column": 2**40},
        {"bit": 2},
        {"bit": None},
        {"column": "one"},
        {"column": 1.5},
        {"epoch": None},
        {"payload": base64.b64encode(b"xx").decode()},
        {"key": "de"},
        {"column": "7", "bit": "0", "epoch": "0"},
    ]
    write_lines(tmp_path / "r.jsonl", rows)
    with (tmp_path / "r.jsonl").open("a") as file:
        file.write('{"cut": \n')
    found = run(tmp_path / "r.jsonl", tmp_path)
    assert found["tally"] == {
        "records_read": 15,
        "wrong_collection": 1,
        "wrong_column": 5,
        "unparseable": 6,
        "unchecked_columns": 3,
        "unchecked_duplicates": 3,
    }
    assert {place: int(array[1].sum()) for place, array in found["counts"].items()} == {
        (0, None): 2,
        (0, "de"): 1,
    }
    assert found["counts"][0, None][1, 7] == 1
    assert len(found["letters"]) == 12


def test_broken_packs_are_refused(tmp_path):
    good = packed_rows(reports(9), ORACLE.collection_id, 0).to_pylist()[0]
    rows = [
        good,
        {**good, "columns": good["columns"][:-1]},
        {**good, "bits": b""},
        {**good, "reports": -1},
        {**good, "payload": b"x"},
        {**good, "collection": "another"},
        {**good, "columns": np.array([0, 32, *range(1, 8)], "<i4").tobytes()},
    ]
    table = pa.Table.from_pylist(rows, schema=packed_rows(reports(1), "c", 0).schema)
    for format in ("avro", "jsonl"):
        path = tmp_path / f"p.{format}"
        write_table(table, str(path), format, "packed_reports")
        found = run(path, tmp_path)
        assert found["tally"] == {
            "records_read": 9 + 4 + 9 + 9,
            "unparseable": 4,
            "wrong_collection": 9,
            "wrong_column": 2,
            "unchecked_columns": 16,
            "unchecked_duplicates": 16,
        }
        assert int(found["counts"][0, None][1].sum()) == 16
        assert len(found["letters"]) == 5


def test_one_report_of_a_sender_and_epoch_counts(tmp_path):
    rows = [
        {"sender": "ann", "column": 3, "bit": 1},
        {"sender": "ann", "column": 3, "bit": 0},
        {"sender": "ann", "column": 5, "bit": 0, "key": "de"},
        {"sender": "ann", "epoch": 2 * DAY},
        {"sender": "bob", "report_id": "r1"},
        {"report_id": "r1"},
        {"report_id": "r1"},
        {"report_id": "r2"},
        {},
    ]
    tables = []
    for name, order in (("a", rows), ("b", rows[::-1])):
        write_lines(tmp_path / f"{name}.jsonl", [{"epoch": DAY, **row} for row in order])
        found = run(tmp_path / f"{name}.jsonl", tmp_path, windowing=WindowSpec(DAY))
        assert found["tally"] == {
            "records_read": 9,
            "duplicate": 3,
            "unchecked_columns": 9,
            "unchecked_duplicates": 1,
        }
        assert sum(int(array[1].sum()) for array in found["counts"].values()) == 6
        tables.append({place: array.tolist() for place, array in found["counts"].items()})
    assert tables[0] == tables[1]


def test_a_column_that_is_not_the_senders_is_refused(tmp_path):
    prf = Prf(KEY.get_secret_bytes())
    senders = [f"s{i}" for i in range(50)]
    own = ORACLE.assign(prf.pseudonyms(senders), prf)
    rows = [{"sender": s, "column": int(c)} for s, c in zip(senders, own, strict=True)]
    wrong = own % 31 + 1
    rows += [{"sender": f"x{s}", "column": int(c)} for s, c in zip(senders, wrong, strict=True)]
    write_lines(tmp_path / "r.jsonl", rows)
    found = run(tmp_path / "r.jsonl", tmp_path, keys=ReportKeys(KEY))
    wrong = found["tally"]["wrong_column"]
    # A wrong guess hits the sender's column once in 31.
    assert 40 <= wrong <= 50
    assert found["tally"] == {"records_read": 100, "wrong_column": wrong}
    assert sum(int(array[1].sum()) for array in found["counts"].values()) == 100 - wrong


def test_payloads_take_part_in_the_choice(tmp_path):
    class WithPayload(OneBitHadamard):
        payload_bytes = 2

    oracle = WithPayload(DOMAIN, 1.0)
    rows = [
        {"sender": "ann", "payload": base64.b64encode(bytes([i, i + 1])).decode()} for i in range(4)
    ]
    found = []
    for order in (rows, rows[::-1], rows[2:] + rows[:2]):
        base = {"collection": oracle.collection_id, "epoch": 0, "column": 1, "bit": 1}
        path = tmp_path / "p.jsonl"
        path.write_text("".join(json.dumps({**base, **row}) + "\n" for row in order))
        out = tmp_path / "payload"
        with TestPipeline(runner=FnApiRunner()) as pipeline:
            read = pipeline | ReadReports(str(path), oracle)
            _ = read.reports | beam.Map(
                lambda item, out=out: out.write_text(repr(item[1].column("payload").to_pylist()))
            )
        found.append(out.read_text())
    assert found[0] == found[1] == found[2]


def test_files_that_hold_no_reports_are_an_error(tmp_path):
    (tmp_path / "log.csv").write_text("user,page\na,b\n")
    with pytest.raises(Exception, match=r"holds no reports.*'collection'"):
        run(tmp_path / "log.csv", tmp_path)
    (tmp_path / "empty.jsonl").write_text("")
    assert run(tmp_path / "empty.jsonl", tmp_path)["counts"] == {}


def test_a_key_may_be_called_anything(tmp_path):
    rows = [{"key": "columns"}, {"sender": '"columns":', "key": "a"}]
    write_lines(tmp_path / "r.jsonl", rows)
    found = run(tmp_path / "r.jsonl", tmp_path)
    assert set(found["counts"]) == {(0, "columns"), (0, "a")}
    assert found["tally"]["records_read"] == 2


@pytest.mark.parametrize(
    ("windowing", "good", "bad"),
    [
        (None, 0, [DAY, 1, -DAY]),
        (WindowSpec(DAY), 3 * DAY, [0, 1, DAY + 1]),
        (WindowSpec(2 * DAY, DAY), 3 * DAY, [0, DAY // 2]),
        # Midnight in Berlin is 23:00 UTC in winter.
        (CalendarDays("Europe/Berlin"), DAY - DAY // 24, [0, DAY]),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_reports_of_no_window_are_refused_and_stop_nothing(windowing, good, bad, packed, tmp_path):
    for number, epoch in enumerate([good, *bad]):
        path = str(tmp_path / f"r{number}.jsonl")
        make, name = (packed_rows, "packed_reports") if packed else (report_rows, "report")
        rows = make(reports(3), ORACLE.collection_id, epoch)
        write_table(pa.Table.from_batches([rows]), path, "jsonl", name)
    found = run(tmp_path / "r*", tmp_path, windowing=windowing)
    assert list(found["counts"]) == [(good, None)]
    assert found["tally"]["wrong_window"] == 3 * len(bad)
    assert found["tally"]["records_read"] == 3 + 3 * len(bad)
    letters = {reason for reason, _ in found["letters"]}
    assert letters == {"wrong_window"}
    assert len(found["letters"]) == len(bad) * (1 if packed else 3)


@pytest.mark.parametrize("windowing", [None, WindowSpec(DAY), CalendarDays("Europe/Berlin")])
def test_epochs_beyond_all_calendars_are_refused(windowing, tmp_path):
    far = [2**62, -(2**62), 2**63 - 1, -(2**63)]
    write_lines(tmp_path / "r.jsonl", [{"epoch": epoch} for epoch in far])
    assert run(tmp_path / "r.jsonl", tmp_path, windowing=windowing)["tally"]["wrong_window"] == 4


def test_with_the_assignment_key_reports_need_a_sender(tmp_path):
    """Who may leave the sender out could choose any column, any number of times."""
    prf = Prf(KEY.get_secret_bytes())
    own = int(ORACLE.assign(prf.pseudonyms(["ann"]), prf)[0])
    rows = [{"sender": "ann", "column": own}, {}, {"sender": None}, {"sender": ""}]
    write_lines(tmp_path / "r.jsonl", rows)
    packed = packed_rows(reports(7), ORACLE.collection_id, 0)
    packs = str(tmp_path / "r2.jsonl")
    write_table(pa.Table.from_batches([packed]), packs, "jsonl", "packed_reports")
    found = run(tmp_path / "r*", tmp_path, keys=ReportKeys(KEY))
    assert found["tally"] == {"records_read": 11, "missing_sender": 10}
    assert sum(int(array[1].sum()) for array in found["counts"].values()) == 1
    assert [reason for reason, _ in found["letters"]] == ["missing_sender"] * 4


def test_the_collectors_key_is_a_reference(tmp_path):
    with pytest.raises(InputError, match="keygen"):
        ReportKeys(KeyFile(str(tmp_path / "none"))).load()
