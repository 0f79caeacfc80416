"""Batch jobs on a Flink cluster give the table of this machine, whoever dies meanwhile."""

from __future__ import annotations

import signal
import uuid
from pathlib import Path

import pytest
from engines import Flink, cluster, finish, hadabeam
from made_logs import jsonl, visits

pytestmark = pytest.mark.engines

#: Files, and records in each: enough that both task managers get some.
FILES, RECORDS = 8, 25_000


@pytest.fixture
def logs(tmp_path: Path) -> str:
    for number in range(FILES):
        records = visits(RECORDS, 60_000, seed=number)
        (tmp_path / f"log-{number}.jsonl").write_text(jsonl(records))
    return str(tmp_path / "log-*.jsonl")


def outputs(prefix: Path) -> list[bytes]:
    """The bytes of the table, and of the summary."""
    names = (f"{prefix}-estimates.avro", f"{prefix}-summary.json")
    return [Path(name).read_bytes() for name in names]


def test_same_bytes_though_a_task_manager_dies(
    flink: Flink, logs: str, job_flags: list[str], tmp_path: Path
) -> None:
    hadabeam("batch", "--input", logs, *job_flags, "--output", tmp_path / "local")
    expected = outputs(tmp_path / "local")

    name = f"hadabeam-quiet-{uuid.uuid4().hex[:8]}"
    flags = ["batch", "--input", logs, *job_flags, *flink.flags]
    hadabeam(*flags, "--output", tmp_path / "quiet", "--job_name", name)
    assert outputs(tmp_path / "quiet") == expected
    job = flink.find(name)
    assert job is not None
    assert len(flink.busy(job)) == 2, "one task manager did all the work"
    assert not flink.get(f"/jobs/{job}")["timestamps"]["RESTARTING"]

    name = f"hadabeam-killed-{uuid.uuid4().hex[:8]}"
    running = hadabeam(*flags, "--output", tmp_path / "killed", "--job_name", name, wait=False)
    try:
        # The stage that reads holds most of the work; it runs while its vertex does.
        job = flink.wait(name, _is_reading, "the job's reading")
        dead = flink.kill_busy(job)
        finish(running)
    finally:
        running.kill()
        cluster("up", "flink")
    assert outputs(tmp_path / "killed") == expected
    assert flink.get(f"/jobs/{job}")["timestamps"]["RESTARTING"], f"{dead} died unnoticed"


def test_a_signal_cancels_the_job_on_the_cluster(
    flink: Flink, logs: str, job_flags: list[str], tmp_path: Path
) -> None:
    name = f"hadabeam-signal-{uuid.uuid4().hex[:8]}"
    flags = ["--input", logs, *job_flags, *flink.flags, "--output", tmp_path / "out"]
    running = hadabeam("batch", *flags, "--job_name", name, wait=False)
    job = None
    try:
        job = flink.wait(name, _is_reading, "the job's reading")
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)
        assert running.returncode == 128 + signal.SIGTERM
        flink.wait(name, lambda job: job["state"] == "CANCELED", "the end of the job")
    finally:
        running.kill()
        if job is not None:
            flink.cancel(job)
    assert not list(tmp_path.glob("out*"))


def test_why_a_job_is_tried_again_is_told(
    flink: Flink, logs: str, job_flags: list[str], tmp_path: Path
) -> None:
    name = f"hadabeam-wrong-{uuid.uuid4().hex[:8]}"
    flags = ["--input", logs, *job_flags, *flink.flags, "--output", tmp_path / "out"]
    (tmp_path / "coin.key").unlink()
    running = hadabeam("batch", *flags, "--job_name", name, wait=False)
    try:
        flink.wait(name, lambda job: job["timestamps"]["RESTARTING"], "a restart")
        # What is told is looked up every five seconds.
        assert running.stdout is not None
        told = next(line for line in running.stdout if "tries again" in line)
    finally:
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=60)
        job = flink.find(name)
        if job is not None:
            flink.cancel(job)
    assert "coin.key" in told


def _is_reading(job: dict) -> bool:
    return any(
        "Limit" in vertex["name"] and vertex["tasks"]["RUNNING"] for vertex in job["vertices"]
    )
