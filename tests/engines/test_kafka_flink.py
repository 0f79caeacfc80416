"""Streaming from a real Kafka broker on a Flink cluster, of which a part dies meanwhile."""

from __future__ import annotations

import itertools
import json
import random
import signal
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import fastavro
import pytest
from engines import PATIENCE, Flink, cluster, hadabeam, installed, reach

pytestmark = pytest.mark.engines

#: Records a second, and for how many seconds they go on after the blow was survived.
RATE, SECONDS = 50, 15
WINDOW = 10


class Producer(threading.Thread):
    """Sends records at a steady rate: late ones, duplicates and poison among them.

    Args:
      servers: the broker.
      topic: where to.

    Attributes:
      records: the distinct records that were sent.
      poison: how many messages were no records.
      repeated: how many were sent once more.
    """

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__()
        confluent_kafka = installed("confluent_kafka", "engines")
        self._producer = confluent_kafka.Producer({"bootstrap.servers": servers})
        self._topic = topic
        self._enough = threading.Event()
        self.records: list[dict[str, Any]] = []
        self.poison = self.repeated = 0

    def run(self) -> None:
        rng = random.Random(7)
        begun = time.time()
        for number in itertools.count():
            if self._enough.is_set():
                break
            pause = begun + number / RATE - time.time()
            if pause > 0:
                time.sleep(pause)
            # Up to three seconds after its time, so that events are out of order.
            at = time.time() - rng.random() * 3
            page = f"/page/{min(int(rng.expovariate(0.2)), 29)}"
            record = {"user": f"u{number}", "page": page, "time": round(at, 3)}
            self.records.append(record)
            self._send(json.dumps(record).encode(), at)
            if number % 10 == 0:
                self.repeated += 1
                again = rng.choice(self.records[-200:])
                self._send(json.dumps(again).encode(), again["time"])
            if number % 100 == 0:
                self.poison += 1
                self._send(b"no record", at)
        self._producer.flush(30)

    def stop(self) -> None:
        """Waits until all that was produced has been sent."""
        self._enough.set()
        self.join()

    def _send(self, message: bytes, at: float) -> None:
        self._producer.produce(self._topic, message, timestamp=int(at * 1000))
        self._producer.poll(0)


def holding(out: Path) -> dict[str, dict[str, Any]]:
    """The summary of the pane that holds, by window: the greatest name."""
    found = {}
    for folder in out.glob("*_*"):
        names = sorted(path.name for path in folder.glob("*.json"))
        if names:
            found[folder.name] = json.loads((folder / names[-1]).read_text())
    return found


def rows(path: Path) -> list[dict[str, Any]]:
    with path.open("rb") as file:
        return [{**row, "pane": None} for row in fastavro.reader(file)]


def test_nothing_is_lost_or_counted_twice(
    flink: Flink, job_flags: list[str], tmp_path: Path
) -> None:
    kafka = reach("kafka")
    topic = f"visits-{uuid.uuid4().hex[:8]}"
    name = f"hadabeam-stream-{uuid.uuid4().hex[:8]}"
    out = tmp_path / "out"
    flags = list(job_flags)
    flags[flags.index("--window") + 1] = f"{WINDOW}s"
    producer = Producer(kafka["HADABEAM_KAFKA"], topic)
    producer.start()

    job = hadabeam(
        *("stream", "--input", f"kafka:{kafka['HADABEAM_KAFKA']}/{topic}", *flags),
        *("--kafka_expansion", kafka["HADABEAM_KAFKA_EXPANSION"], "--output", out),
        *("--early", "5s", "--allowed_lateness", "10m", *flink.flags, "--job_name", name),
        *("--", "--checkpointing_interval=2000"),
        wait=False,
    )
    try:
        id = flink.wait(name, lambda job: holding(out), "the first pane")
        before = len(producer.records)
        flink.kill_busy(id)
        flink.wait(name, lambda job: job["timestamps"]["RESTARTING"], "the restart")
        flink.wait(name, _runs, "the job's recovery")
        time.sleep(SECONDS)
        producer.stop()
        assert len(producer.records) - before > SECONDS * RATE / 2, "nothing came after the blow"
        wanted = {(r["user"], int(r["time"] // WINDOW)) for r in producer.records}
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and job.poll() is None:
            found = holding(out)
            if sum(pane["reports"] for pane in found.values()) == len(wanted):
                break
            time.sleep(1)
        else:
            raise AssertionError(f"{sum(p['reports'] for p in found.values())} of {len(wanted)}")
        _await_summary(out, producer)
    finally:
        producer.stop()
        job.send_signal(signal.SIGTERM)
        job.wait(60)
        cluster("up", "flink")
        left = flink.find(name)
        if left is not None:
            flink.cancel(left)

    log = tmp_path / "sent.jsonl"
    log.write_text("".join(json.dumps(record) + "\n" for record in producer.records))
    hadabeam("batch", "--input", log, *flags, "--output", tmp_path / "batch")
    expected: dict[int, list[dict[str, Any]]] = {}
    for row in rows(tmp_path / "batch-estimates.avro"):
        expected.setdefault(row["window_start"], []).append(row)
    tables = [sorted(folder.glob("*.avro"))[-1] for folder in out.glob("*_*")]
    assert len(tables) == len(expected)
    for table in tables:
        found = rows(table)
        assert found == expected[found[0]["window_start"]], table


def _runs(job: dict[str, Any]) -> bool:
    tasks = sum(vertex["tasks"]["RUNNING"] for vertex in job["vertices"])
    return job["state"] == "RUNNING" and tasks >= len(job["vertices"])


def _await_summary(out: Path, producer: Producer) -> None:
    """Waits until the run's numbers say that all that was sent was read, and balance."""
    sent = len(producer.records) + producer.repeated + producer.poison
    deadline = time.monotonic() + PATIENCE
    while True:
        summary = json.loads((out / "summary.json").read_text())
        dropped = summary["dropped"]
        counted = summary["reports"] + sum(dropped.values())
        # What was read is told before what became of it.
        if (summary["records_read"], counted) == (sent, sent) or time.monotonic() > deadline:
            break
        time.sleep(1)
    assert summary["records_read"] == counted == sent, summary
    assert dropped["unparseable"] == producer.poison
    assert summary["reports"] == len(producer.records)
