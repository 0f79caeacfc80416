"""A Kafka topic that is written to while a job reads it, and what the job must make of it."""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from pathlib import Path
from typing import Any

import fastavro
from engines import PATIENCE, hadabeam, installed

#: Records a second.
RATE = 50
#: Seconds of a window.
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

    @property
    def sent(self) -> int:
        """All messages, of any kind."""
        return len(self.records) + self.repeated + self.poison

    def _send(self, message: bytes, at: float) -> None:
        self._producer.produce(self._topic, message, timestamp=int(at * 1000))
        self._producer.poll(0)


def windowed(job_flags: list[str]) -> list[str]:
    """The flags of a job on such a topic, with its windows."""
    flags = list(job_flags)
    flags[flags.index("--window") + 1] = f"{WINDOW}s"
    return flags


def holding(out: Path) -> dict[str, dict[str, Any]]:
    """The summary of the pane that holds, by window: the greatest name."""
    found = {}
    for folder in out.glob("*_*"):
        names = sorted(path.name for path in folder.glob("*.json"))
        if names:
            found[folder.name] = json.loads((folder / names[-1]).read_text())
    return found


def await_reports(out: Path, producer: Producer, job: Any) -> None:
    """Waits until the panes that hold have one report for each user and window.

    Raises:
      AssertionError: if that does not come about, or the job ends.
    """
    wanted = {(r["user"], int(r["time"] // WINDOW)) for r in producer.records}
    deadline = time.monotonic() + PATIENCE
    while (reports := sum(pane["reports"] for pane in holding(out).values())) != len(wanted):
        assert job.poll() is None, job.communicate()[0][-3000:]
        assert time.monotonic() < deadline, f"{reports} of {len(wanted)}"
        time.sleep(1)


def await_summary(out: Path, producer: Producer) -> None:
    """Waits until the run's numbers say that all that was sent was read, and balance.

    Raises:
      AssertionError: if they do not: something was lost, or read twice.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        summary = json.loads((out / "summary.json").read_text())
        dropped = summary["dropped"]
        read, counted = summary["records_read"], summary["reports"] + sum(dropped.values())
        # What was read is told before what became of it.
        if (read, counted) == (producer.sent, producer.sent) or time.monotonic() > deadline:
            break
        assert read <= producer.sent, f"{read} read of {producer.sent} sent: {summary}"
        time.sleep(1)
    assert read == counted == producer.sent, summary
    assert dropped["unparseable"] == producer.poison
    assert summary["reports"] == len(producer.records)


def same_as_batch(out: Path, producer: Producer, flags: list[str], folder: Path) -> None:
    """Holds the final tables against those of a batch job on the records that were sent.

    Args:
      out: the output of the stream.
      producer: what was sent.
      flags: the flags of the job, without input and output.
      folder: where the batch job may write.
    """
    log = folder / "sent.jsonl"
    log.write_text("".join(json.dumps(record) + "\n" for record in producer.records))
    hadabeam("batch", "--input", log, *flags, "--output", folder / "batch")
    expected: dict[int, list[dict[str, Any]]] = {}
    for row in _rows(folder / "batch-estimates.avro"):
        expected.setdefault(row["window_start"], []).append(row)
    tables = [sorted(folder.glob("*.avro"))[-1] for folder in out.glob("*_*")]
    assert len(tables) == len(expected)
    for table in tables:
        found = _rows(table)
        assert found == expected[found[0]["window_start"]], table


def _rows(path: Path) -> list[dict[str, Any]]:
    with path.open("rb") as file:
        return [{**row, "pane": None} for row in fastavro.reader(file)]
