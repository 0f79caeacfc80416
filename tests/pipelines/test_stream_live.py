"""``hadabeam stream`` on a live Prism: files come while it runs, it stops, and starts again."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from hadabeam.pipelines import batch
from hadabeam.schemas.avro import arrow_schema
from hadabeam.testing import seeded_key_files
from hadabeam.transforms.write import write_table
from hadabeam.transforms.write_panes import current_panes

pytestmark = pytest.mark.prism

#: Seconds to wait for something that takes one or two on an idle machine.
PATIENCE = 90


def flags(folder: Path, window: str, **others: str) -> list[str]:
    given = {
        "input": str(folder / "logs/*"),
        "user_field": "user",
        "value_field": "page",
        "time_field": "time",
        "window": window,
        "domain": str(folder / "domain.txt"),
        "epsilon": "1",
        "assignment_key": str(folder / "assignment.key"),
        "coin_key": str(folder / "coin.key"),
        "output": str(folder / "out"),
        **others,
    }
    return [f"--{name}={value}" for name, value in given.items()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    (tmp_path / "domain.txt").write_text("home\nsearch\ncart\n")
    seeded_key_files(tmp_path)
    return tmp_path


@contextlib.contextmanager
def stream(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A running job, which is ended if the test fails."""
    command = [
        sys.executable,
        "-m",
        "hadabeam.pipelines.stream",
        *arguments,
        f"--prism_location={os.environ['HADABEAM_PRISM']}",
    ]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE} s for {what}")
        time.sleep(0.1)


def names(out: Path, window: str) -> list[str]:
    """The panes of a window, in the order of their indexes."""
    found = [path.stem for path in out.glob(f"{window}/*.avro")]
    return sorted(found, key=lambda name: name.rpartition("-")[2])


def table_of(rows: list[dict[str, object]]) -> pa.Table:
    """Rows of an estimate as a table without its pane."""
    schema = arrow_schema("estimate")
    return pa.Table.from_pylist([{**row, "pane": None} for row in rows], schema=schema)


def file_bytes(rows: list[dict[str, object]], path: Path) -> bytes:
    write_table(table_of(rows), str(path), "parquet")
    return path.read_bytes()


def read(path: str | Path) -> list[dict[str, object]]:
    with open(path, "rb") as file:
        return list(fastavro.reader(file))


def lines(users: range, at: float, page: str = "home") -> str:
    return "".join(
        json.dumps({"user": f"user {user}", "page": page, "time": at + user % 10 / 10}) + "\n"
        for user in users
    )


def test_files_come_grow_and_rotate_while_the_job_runs_and_it_starts_again(folder):
    out, log = folder / "out", folder / "logs/a.jsonl"
    first, second, third = (
        f"1970-01-01T00{minute:02d}00Z_1970-01-01T00{minute + 1:02d}00Z" for minute in (10, 11, 12)
    )
    arguments = flags(
        folder, "1m", early="500ms", max_delay="5s", allowed_lateness="1m", poll="100ms"
    )
    with stream(arguments) as job:
        log.write_text(lines(range(50), 600) + lines(range(50, 60), 640)[:-5])
        until(lambda: names(out, first)[-1:] == ["000000000059-early-000000"], "the first pane")
        # The half line gets its end, some users come again, and the file is rotated.
        with log.open("a") as file:
            file.write(lines(range(50, 60), 640)[-5:] + lines(range(20), 650, "cart"))
        log.rename(folder / "logs/a.jsonl.1")
        until(lambda: names(out, first)[-1:] == ["000000000060-early-000001"], "the rotated file")
        # An event 5 s after the window's end makes it on time.
        log.write_text(lines(range(5), 665))
        until(lambda: names(out, first)[-1:] == ["000000000060-on_time-000002"], "on time")
        with log.open("a") as file:
            file.write(lines(range(60, 70), 630))
        until(lambda: names(out, first)[-1:] == ["000000000070-late-000003"], "the late pane")
        # Beyond the allowed lateness: dropped, and counted.
        with log.open("a") as file:
            file.write(lines(range(7), 735) + lines(range(7), 780))
        until(lambda: names(out, second)[-1:] != [] and "on_time" in names(out, second)[-1], "2nd")
        (folder / "logs/b.jsonl").write_text(lines(range(70, 80), 630))

        def late() -> int:
            if not (out / "summary.json").exists():
                return 0
            summary = json.loads((out / "summary.json").read_text())
            return int(summary["dropped"].get("late", 0))

        until(lambda: late() == 10, "the count of late records")
        os.kill(job.pid, signal.SIGINT)
        printed, complained = job.communicate(timeout=PATIENCE)
    assert job.returncode == 130
    assert "Traceback" not in complained
    assert not list(out.rglob("*.tmp"))
    shown = [line.split() for line in printed.splitlines()]
    assert [row[4] for row in shown if row[1] == "00:10:00"] == [
        "early",
        "early",
        "on_time",
        "late",
    ]
    published = {path: path.read_bytes() for path in out.glob("*/*.avro")}
    summary = json.loads((out / first / "000000000070-late-000003.json").read_text())
    assert summary["reports"] == 70
    assert summary["dropped"] == {"over_limit": 20}
    assert summary["window_start"] == "1970-01-01T00:10:00Z"

    # Again, over the same files and some more: a replay gives nothing twice, and supersedes.
    (folder / "logs/c.jsonl").write_text(lines(range(100, 140), 781))
    with stream([*arguments, "--stop_after=4s"]) as job:
        _, complained = job.communicate(timeout=PATIENCE)
    assert (job.returncode, complained) == (0, "")
    current = current_panes(str(out))
    # Read in one go, the records that came too late the first time are in time.
    assert [int(Path(path).stem[:12]) for path in current.values()] == [80, 5, 7, 47]
    assert list(current)[:3] == [first, second, third]
    for path, content in published.items():
        assert path.read_bytes() == content
    total = json.loads((out / "summary.json").read_text())
    assert total["records_read"] == 159
    assert total["records_read"] == total["reports"] + sum(total["dropped"].values())


def test_weeks_of_flights_equal_the_batch_job(folder, monkeypatch):
    """Flights by ``time_hour``, a flight being the user, in weekly windows."""
    generator = random.Random(7)
    carriers = ["AA", "B6", "DL", "UA", "WN"]
    places = ["ATL", "BOS", "LAX", "MIA", "ORD", "SFO"]
    (folder / "domain.txt").write_text("\n".join(places) + "\n")
    day, rows = 86_400, []
    for number in range(6000):
        at = 1_356_998_400 + generator.randrange(31 * day) // 3600 * 3600
        rows.append((at, f"F{number:06d}", generator.choice(places), generator.choice(carriers)))
    rows.sort()
    header = "flight_id,dest,carrier,time_hour\n"
    texts = [
        f"{flight},{place},{carrier},{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(at))}\n"
        for at, flight, place, carrier in rows
    ]
    (folder / "logs/a.csv").write_text(header + "".join(texts[:2500]))
    (folder / "logs/b.csv.gz").write_bytes(
        gzip.compress((header + "".join(texts[2500:4000])).encode())
    )
    os.utime(folder / "logs/b.csv.gz", (1e9, 1e9))
    named = {
        "user_field": "flight_id",
        "value_field": "dest",
        "time_field": "time_hour",
        "key_field": "carrier",
    }
    with stream(flags(folder, "7d", **named, stop_after="6s")) as job:
        # The rest comes while the job runs.
        time.sleep(2)
        (folder / "logs/c.csv").write_text(header + "".join(texts[4000:]))
        _, complained = job.communicate(timeout=PATIENCE)
    assert (job.returncode, complained) == (0, "")
    assert batch.main(flags(folder, "7d", **named, output=str(folder / "batch"))) == 0
    expected: dict[object, list[dict[str, object]]] = {}
    for row in read(folder / "batch-estimates.avro"):
        expected.setdefault(row["window_start"], []).append(row)
    current = current_panes(str(folder / "out"))
    assert len(current) == len(expected) >= 5
    for path, rows_of_week in zip(current.values(), expected.values(), strict=True):
        assert file_bytes(read(path), folder / "s") == file_bytes(rows_of_week, folder / "b")
    total = json.loads((folder / "out/summary.json").read_text())
    assert (total["records_read"], total["reports"], total["dropped"]) == (6000, 6000, {})
