"""A streaming job on a Flink cluster that is stopped as a whole, and started again."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import pytest
from engines import PATIENCE, Flink, all_run, hadabeam, reach
from live_topic import (
    RATE,
    Producer,
    await_reports,
    await_summary,
    holding,
    same_as_batch,
    windowed,
)

pytestmark = pytest.mark.engines

#: Seconds for which records go on after the job has come back.
SECONDS = 15


def post(flink: Flink, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        f"http://{flink.master}{path}",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def stop_with_savepoint(flink: Flink, job: str, folder: Path) -> str:
    """Stops a job; returns where its savepoint is."""
    asked = post(flink, f"/jobs/{job}/stop", {"targetDirectory": str(folder), "drain": False})
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = flink.get(f"/jobs/{job}/savepoints/{asked['request-id']}")
        if answer["status"]["id"] == "COMPLETED":
            return str(answer["operation"]["location"])
        assert time.monotonic() < deadline, "no savepoint"
        time.sleep(0.2)


@pytest.mark.parametrize("how", ["savepoint", "replay"])
def test_a_stopped_job_goes_on(
    how: str, flink: Flink, job_flags: list[str], tmp_path: Path
) -> None:
    kafka = reach("kafka")
    topic = f"visits-{uuid.uuid4().hex[:8]}"
    out = tmp_path / "out"
    flags = windowed(job_flags)
    producer = Producer(kafka["HADABEAM_KAFKA"], topic)

    def start(name: str, *more: str) -> subprocess.Popen[str]:
        return hadabeam(
            *("stream", "--input", f"kafka:{kafka['HADABEAM_KAFKA']}/{topic}", *flags),
            *("--kafka_expansion", kafka["HADABEAM_KAFKA_EXPANSION"], "--output", out),
            *("--early", "5s", "--allowed_lateness", "10m", *flink.flags, "--job_name", name),
            *("--", "--checkpointing_interval=2000", *more),
            wait=False,
        )

    names = [f"hadabeam-stream-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    producer.start()
    job = start(names[0])
    try:
        first = flink.wait(names[0], lambda job: len(holding(out)) > 1, "panes of two windows")
        if how == "savepoint":
            savepoint = stop_with_savepoint(flink, first, tmp_path / "savepoints")
            # The run's numbers so far are state. Others would be output on its way, which comes out
            # of the wrong stage after some submissions, and of the right one after others.
            kept = [path.read_bytes() for path in (tmp_path / "savepoints").glob("*/*")]
            assert sum(content.count(b"records_read") for content in kept) <= 1
            more = [f"--savepoint_path={savepoint}"]
        else:
            flink.cancel(first)
            # The topic is read again from its beginning.
            more = []
        job.communicate(timeout=PATIENCE)
        before = len(producer.records)
        job = start(names[1], *more)
        flink.wait(names[1], all_run, "the second job")
        time.sleep(SECONDS)
        producer.stop()
        assert len(producer.records) - before > SECONDS * RATE / 2, "nothing came after the stop"
        await_reports(out, producer, job)
        await_summary(out, producer)
    finally:
        producer.stop()
        job.terminate()
        job.wait(60)
        for name in names:
            left = flink.find(name)
            if left is not None:
                flink.cancel(left)
    same_as_batch(out, producer, flags, tmp_path)
