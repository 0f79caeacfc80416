"""The folder source in a pipeline, on a runner that drains it: every format, what is refused."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from notes import noted

from hadabeam.mechanisms import Domain, OneBitHadamard, ParameterError
from hadabeam.testing import seeded_keys
from hadabeam.transforms.encode import RecordEncoder
from hadabeam.transforms.fields import RecordFields
from hadabeam.transforms.folder_tracker import FolderProvider, FolderTracker
from hadabeam.transforms.follow import Progress, Task, look, take_piece
from hadabeam.transforms.privatize import report_batch
from hadabeam.transforms.randomness import ReportKeys
from hadabeam.transforms.receive import ReceiveReports
from hadabeam.transforms.records import DEAD_LETTERS, TALLIES, add_tallies, record_batch
from hadabeam.transforms.reports import packed_rows, report_rows
from hadabeam.transforms.watch import WatchRecords, _Watch
from hadabeam.transforms.windows import WindowSpec

FIELDS = RecordFields("user", "page", "time")


class _Keep(beam.DoFn):
    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def process(self, element: Any, timestamp: Any = beam.DoFn.TimestampParam) -> None:
        with open(self._path, "ab") as file:
            file.write(pickle.dumps((element, int(timestamp.micros))))


def watch(out: Path, source: WatchRecords, *then: Any) -> dict[str, list[Any]]:
    """Everything that a source gives until it stops, with the timestamps."""
    out.mkdir()
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        found = pipeline | source
        for step in then:
            found = step(found)
        for name, part in found.items():
            part | f"Keep{name}" >> beam.ParDo(_Keep(out / str(name)))
    return {str(name): noted(out / str(name)) for name in (None, TALLIES, DEAD_LETTERS)}


def line(user: str, page: str | None, time: float) -> str:
    return json.dumps({"user": user, "page": page, "time": time}) + "\n"


def test_every_format_is_followed_and_counted(tmp_path, monkeypatch):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.jsonl").write_text(
        "\ufeff" + line("u1", "home", 10) + "canary is no JSON\n" + line("u2", None, 20) + "{half"
    )
    (logs / "b.csv").write_text('time,page,user\n30,"two\nlines",u3\n40,home,\nnever,home,u4\n')
    (logs / "c.jsonl.gz").write_bytes(
        gzip.compress(line("u5", "home", 50).encode()) + gzip.compress(line("u6", "x", 60).encode())
    )
    pq.write_table(pa.table({"user": ["u7"], "page": ["home"], "time": [70]}), logs / "d.parquet")
    (logs / "e.jsonl.gz").write_bytes(gzip.compress(line("u8", "home", 80).encode())[:-9])
    for path in logs.iterdir():
        os.utime(path, (1e9, 1e9))
    monkeypatch.chdir(logs)
    os.utime(logs / "a.jsonl", None)  # still being written: its half line waits
    found = watch(
        tmp_path / "out",
        # In the folder at hand, patterns and names need no folder.
        WatchRecords(["*", "d.parquet", str(tmp_path / "later/*")], FIELDS, stop_after=0, poll=0.1),
    )
    rows = Counter(tuple(row.values()) for batch, _ in found["None"] for row in batch.to_pylist())
    second = 1_000_000
    assert rows == Counter(
        {
            ("u1", "home", 10 * second): 1,
            ("u2", None, 20 * second): 1,
            ("u3", "two\nlines", 30 * second): 1,
            ("u5", "home", 50 * second): 1,
            ("u6", "x", 60 * second): 1,
            ("u7", "home", 70 * second): 1,
            ("u8", "home", 80 * second): 1,
        }
    )
    # The timestamp of a batch is the time of its earliest record.
    for batch, timestamp in found["None"]:
        assert timestamp == min(batch.column("event_time").to_pylist())
    tally = add_tallies(tally for (_, _, tally), _ in found[TALLIES])
    assert tally == {"bad_time": 1, "missing_user": 1, "records_read": 11, "unparseable": 2}
    letters = [letter for letter, _ in found[DEAD_LETTERS]]
    assert sorted((letter.reason, Path(letter.file).name) for letter in letters) == [
        ("bad_time", "b.csv"),
        ("missing_user", "b.csv"),
        ("unparseable", "a.jsonl"),
        ("unparseable", "e.jsonl.gz"),
    ]
    assert "canary" not in repr(letters)


def test_file_that_cannot_be_used_is_set_aside_and_told(tmp_path, caplog):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.jsonl").write_text(line("u1", "home", 10))
    whole = tmp_path / "whole.parquet"
    pq.write_table(pa.table({"user": ["u2"], "page": ["home"], "time": [70]}), whole)
    (logs / "b.parquet").write_bytes(whole.read_bytes()[:-20])
    (logs / "c.csv").write_text("time,user\n30,canary\n")
    (logs / "d.jsonl").write_text(line("u3", "home", 40))
    for path in logs.iterdir():
        os.utime(path, (1e9, 1e9))
    found = watch(
        tmp_path / "out",
        WatchRecords([str(logs / "*"), str(tmp_path / "none*")], FIELDS, stop_after=1, poll=0.1),
    )
    users = [user for batch, _ in found["None"] for user in batch.column("user").to_pylist()]
    assert sorted(users) == ["u1", "u3"]
    tally = add_tallies(tally for (_, _, tally), _ in found[TALLIES])
    assert tally == {"records_read": 4, "unparseable": 2}
    letters = [letter for letter, _ in found[DEAD_LETTERS]]
    assert sorted((Path(letter.file).name, letter.position) for letter in letters) == [
        ("b.parquet", -1),
        ("c.csv", -1),
    ]
    told = [
        record.getMessage()
        for record in caplog.records
        if record.name == "hadabeam.transforms.watch" and record.levelname == "WARNING"
    ]
    assert len(told) == 3
    assert told[0] == f"no file matches {tmp_path / 'none*'} yet; waiting for one"
    assert all("set aside" in words for words in told[1:])
    assert "canary" not in "".join(told)


def test_compressed_and_parquet_files_under_new_names_are_read_once(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.log.1.gz").write_bytes(gzip.compress(line("u1", "home", 10).encode()))
    pq.write_table(pa.table({"user": ["u2"], "page": ["home"], "time": [70]}), logs / "b.parquet")
    for path in logs.iterdir():
        os.utime(path, (1e9, 1e9))
    step = _Watch(WatchRecords(str(logs / "*"), FIELDS))
    step.setup()

    def users(progress: Progress) -> tuple[Progress, list[str]]:
        read = []
        progress = look(progress, [str(path) for path in logs.iterdir()], 1.5e9)
        while progress.todo:
            progress, piece = take_piece(progress, step._cut, 64)
            for rows, _, end in step._read_whole(piece):
                read += rows.columns[0].to_pylist()
                progress = progress.with_offset(piece.path, end)
        return progress, read

    progress, read = users(Progress())
    assert sorted(read) == ["u1", "u2"]
    (logs / "a.log.1.gz").rename(logs / "a.log.2.gz")
    os.utime(logs / "b.parquet", (1.1e9, 1.1e9))
    progress, read = users(progress)
    assert read == []
    # Compressed otherwise, and with a line more: that line only.
    text = line("u1", "home", 10) + line("u3", "home", 20)
    (logs / "a.log.2.gz").unlink()
    (logs / "a.log.2.bz2").write_bytes(bz2.compress(text.encode()))
    os.utime(logs / "a.log.2.bz2", (1.1e9, 1.1e9))
    assert users(progress)[1] == ["u3"]


def reports(oracle: OneBitHadamard, epoch: int) -> pa.RecordBatch:
    """Six users' reports, as the edge makes them."""
    loaded = seeded_keys("reports").load()
    records = record_batch([f"u{i}" for i in range(6)], ["a"] * 6)
    encoded, _ = RecordEncoder(oracle.domain, loaded.users).encode(records)
    return report_batch(oracle, loaded, encoded.to_arrow(), epoch)


def test_reports_plain_and_packed_with_ids(tmp_path):
    oracle = OneBitHadamard(Domain(["a", "b", "c"]).with_other(), 1.0)
    epoch = 60_000_000
    mine = reports(oracle, epoch)
    plain = report_rows(mine, oracle.collection_id, epoch).to_pylist()
    logs = tmp_path / "in"
    logs.mkdir()
    rows = []
    for number, row in enumerate(plain):
        row["event_time"] = "1970-01-01T00:01:00Z"
        row["nonce"] = f"id {number % 4}"  # two come twice
        rows.append(row)
    rows.append({**rows[0], "collection": "0" * 32})
    rows.append({**rows[0], "column": 0})
    (logs / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    packed = packed_rows(mine, oracle.collection_id, epoch)
    pq.write_table(pa.Table.from_batches([packed]), logs / "b.parquet")
    os.utime(logs / "b.parquet", (1e9, 1e9))

    def receive(source: dict[str | None, Any]) -> dict[str | None, Any]:
        door = ReceiveReports(oracle, WindowSpec(60_000_000), ReportKeys())
        received = source[None] | beam.ParDo(door).with_outputs(
            TALLIES, DEAD_LETTERS, main="reports"
        )
        return {
            None: received.reports | beam.Values(),
            TALLIES: (source[TALLIES], received[TALLIES]) | "Both" >> beam.Flatten(),
            DEAD_LETTERS: (source[DEAD_LETTERS], received[DEAD_LETTERS]) | "All" >> beam.Flatten(),
        }

    found = watch(
        tmp_path / "out",
        WatchRecords(str(logs / "*"), None, stop_after=0, poll=0.1, id_field="nonce"),
        receive,
    )
    batches = [batch for batch, _ in found["None"]]
    identified = [batch for batch in batches if "user" in batch.schema.names]
    alone = [batch for batch in batches if "user" not in batch.schema.names]
    assert sum(batch.num_rows for batch in identified) == 6
    names = {name for batch in identified for name in batch.column("user").to_pylist()}
    assert len(names) == 4
    assert sum(batch.num_rows for batch in alone) == 6
    assert {at for batch in batches for at in batch.column("event_time").to_pylist()} == {epoch}
    tally = add_tallies(tally for (_, _, tally), _ in found[TALLIES])
    assert tally["records_read"] == 14
    assert (tally["wrong_collection"], tally["wrong_column"]) == (1, 1)
    letters = sorted((letter.reason, Path(letter.file).name) for letter, _ in found[DEAD_LETTERS])
    assert letters == [("wrong_collection", "a.jsonl"), ("wrong_column", "a.jsonl")]


def test_tracker_hands_on_all_that_was_not_claimed():
    tracker = FolderTracker(Progress(todo=(Task("a", 1), Task("b", 2))))
    assert tracker.try_claim(Progress(todo=(Task("b", 2),)))
    assert not tracker.is_bounded()
    primary, residual = tracker.try_split(0.5)
    assert primary.todo == ()
    assert residual.todo == (Task("b", 2),)
    assert not tracker.try_claim(Progress())
    tracker.check_done()
    assert tracker.try_split(0) is None
    # While a file is read that cannot be read in parts, nobody may split it off.
    busy = FolderTracker(Progress())
    assert busy.try_claim(Progress(reading=True))
    assert busy.try_split(0) is None
    with pytest.raises(ValueError, match="without a claim"):
        busy.check_done()
    assert busy.try_claim(None)
    busy.check_done()
    provider = FolderProvider()
    assert provider.restriction_size((), residual) == 2.0
    assert isinstance(provider.create_tracker(residual), FolderTracker)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"patterns": []}, "input"),
        ({"patterns": ["a", ""]}, "input"),
        ({"fields": RecordFields("user", "page")}, "time field"),
        ({"format": "xml"}, "input_format"),
        ({"max_delay": -1}, "max_delay"),
        ({"poll": 0}, "poll"),
        ({"stop_after": -1}, "stop_after"),
    ],
)
def test_wrong_parameters_are_refused_at_once(options, words):
    with pytest.raises(ParameterError, match=words):
        WatchRecords(**{"patterns": "x", "fields": FIELDS, **options})
