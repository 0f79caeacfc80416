"""Streaming from a real Kafka broker on a Flink cluster, of which a part dies meanwhile."""

from __future__ import annotations

import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from engines import PATIENCE, Flink, all_run, cluster, hadabeam, reach
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

#: For how many seconds records go on after the blow was survived.
SECONDS = 15
#: Milliseconds between checkpoints of a job that is to have none.
NEVER = 3_600_000


def test_nothing_is_lost_or_counted_twice(
    flink: Flink, job_flags: list[str], tmp_path: Path
) -> None:
    kafka = reach("kafka")
    topic = f"visits-{uuid.uuid4().hex[:8]}"
    name = f"hadabeam-stream-{uuid.uuid4().hex[:8]}"
    out = tmp_path / "out"
    flags = windowed(job_flags)
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
        flink.await_checkpoint(id)
        before = len(producer.records)
        flink.kill_busy(id)
        flink.wait(name, lambda job: job["timestamps"]["RESTARTING"], "the restart")
        flink.wait(name, all_run, "the job's recovery")
        time.sleep(SECONDS)
        producer.stop()
        assert len(producer.records) - before > SECONDS * RATE / 2, "nothing came after the blow"
        await_reports(out, producer, job)
        await_summary(out, producer)
    finally:
        producer.stop()
        job.send_signal(signal.SIGTERM)
        job.wait(60)
        cluster("up", "flink")
        left = flink.find(name)
        if left is not None:
            flink.cancel(left)

    same_as_batch(out, producer, flags, tmp_path)


def test_a_job_that_fails_before_its_first_checkpoint_is_cancelled(
    flink: Flink, job_flags: list[str], tmp_path: Path
) -> None:
    """Its next attempt could miss what was read: started again by hand, it misses nothing."""
    kafka = reach("kafka")
    topic = f"visits-{uuid.uuid4().hex[:8]}"
    out = tmp_path / "out"
    flags = windowed(job_flags)
    producer = Producer(kafka["HADABEAM_KAFKA"], topic)
    producer.start()

    def start(name: str, interval: int) -> subprocess.Popen[str]:
        return hadabeam(
            *("stream", "--input", f"kafka:{kafka['HADABEAM_KAFKA']}/{topic}", *flags),
            *("--kafka_expansion", kafka["HADABEAM_KAFKA_EXPANSION"], "--output", out),
            *("--early", "5s", "--allowed_lateness", "10m", *flink.flags, "--job_name", name),
            *("--", f"--checkpointing_interval={interval}"),
            wait=False,
        )

    names = [f"hadabeam-stream-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    job = start(names[0], NEVER)
    try:
        id = flink.wait(names[0], all_run, "all tasks")
        # Something is read by then.
        time.sleep(SECONDS)
        flink.kill_busy(id)
        said, _ = job.communicate(timeout=PATIENCE)
        assert job.returncode == 1, said
        assert "the job failed before its first checkpoint and was cancelled" in said
        flink.wait(names[0], lambda job: job["state"] == "CANCELED", "the job's end")
        cluster("up", "flink")

        job = start(names[1], 2000)
        flink.wait(names[1], lambda job: holding(out), "the first pane")
        time.sleep(SECONDS)
        producer.stop()
        await_reports(out, producer, job)
        await_summary(out, producer)
    finally:
        producer.stop()
        job.send_signal(signal.SIGTERM)
        job.wait(60)
        cluster("up", "flink")
        for left in filter(None, map(flink.find, names)):
            flink.cancel(left)

    same_as_batch(out, producer, flags, tmp_path)
