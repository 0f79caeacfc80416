"""The loopback cluster of ``deploy/cluster``, as tests see it."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NoReturn

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CLUSTER = ROOT / "deploy" / "cluster"
#: How long a job on the cluster may take: the machine may be busy.
PATIENCE = 420


def cluster(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs ``deploy/cluster`` in the environment of the tests."""
    env = {**os.environ, "HADABEAM_PYTHON": sys.executable}
    command = [str(CLUSTER), *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=900)


def variables(service: str) -> dict[str, str]:
    """How to reach a service; empty if it, or a part of it, does not run."""
    if cluster("status", service).returncode:
        return {}
    lines = cluster("env", service).stdout.splitlines()
    pairs = (line.removeprefix("export ").split("=", 1) for line in lines)
    return {name: value.strip("'") for name, value in pairs}


def lacking(message: str) -> NoReturn:
    """Skips the test at hand for what it lacks; where engines are required, fails it."""
    if os.environ.get("HADABEAM_ENGINES") == "required":
        pytest.fail(message)
    pytest.skip(message)


def reach(service: str) -> dict[str, str]:
    """How to reach a service that the test at hand needs."""
    env = variables(service)
    if not env:
        lacking(f"{service} is down; start it with: deploy/cluster up {service}")
    return env


def installed(module: str, extra: str) -> Any:
    """Imports a module that an extra brings, for the test at hand."""
    try:
        return importlib.import_module(module)
    except ImportError:
        lacking(f"{module} is not installed; run pip install -e '.[{extra}]'")


def prism_flags() -> list[str]:
    """The flags of Prism, Beam's runner that streams, for the test at hand."""
    place = os.environ.get("HADABEAM_PRISM")
    if not place:
        lacking("set HADABEAM_PRISM=$(deploy/cluster install prism)")
    return [f"--prism_location={place}", "--environment_type=LOOPBACK"]


class Flink:
    """The Flink cluster.

    Args:
      env: what :func:`variables` tells of it.
    """

    def __init__(self, env: dict[str, str]) -> None:
        self.master = env["HADABEAM_FLINK_MASTER"]
        self.flags = [
            "--runner=FlinkRunner",
            f"--flink_master={self.master}",
            f"--flink_job_server_jar={env['HADABEAM_FLINK_JOB_SERVER_JAR']}",
            "--parallelism=2",
            "--environment_type=EXTERNAL",
            f"--environment_config={env['HADABEAM_FLINK_WORKERS']}",
        ]

    def get(self, path: str) -> Any:
        """What the cluster's REST interface answers."""
        with urllib.request.urlopen(f"http://{self.master}{path}", timeout=30) as answer:
            return json.load(answer)

    def find(self, name: str) -> str | None:
        """The id of the job whose name begins so, or None."""
        jobs = self.get("/jobs/overview")["jobs"]
        return next((job["jid"] for job in jobs if job["name"].startswith(name)), None)

    def wait(self, name: str, ready: Any, what: str) -> str:
        """Waits until ``ready(job)`` of the job of that name; returns the job's id."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = self.find(name)
            if found is not None and ready(self.get(f"/jobs/{found}")):
                return found
            time.sleep(0.2)
        raise AssertionError(f"{what} did not come about in {PATIENCE} s")

    def busy(self, job: str) -> dict[str, int]:
        """Records read by the job's tasks, by task manager."""
        read: dict[str, int] = {}
        for vertex in self.get(f"/jobs/{job}")["vertices"]:
            path = f"/jobs/{job}/vertices/{vertex['id']}/taskmanagers"
            for manager in self.get(path)["taskmanagers"]:
                name = manager["taskmanager-id"]
                read[name] = read.get(name, 0) + manager["metrics"]["read-records"]
        return {name: number for name, number in read.items() if number}

    def await_checkpoint(self, job: str) -> None:
        """Waits until a job has a checkpoint to go on from."""
        deadline = time.monotonic() + PATIENCE
        while not self.get(f"/jobs/{job}/checkpoints")["counts"]["completed"]:
            assert time.monotonic() < deadline, f"the job {job} has no checkpoint"
            time.sleep(0.5)

    def cancel(self, job: str) -> None:
        """Cancels a job, if it has not ended, and waits until its slots are free."""
        request = urllib.request.Request(
            f"http://{self.master}/jobs/{job}?mode=cancel", method="PATCH"
        )
        with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(request):
            pass
        deadline = time.monotonic() + PATIENCE
        while self.get(f"/jobs/{job}")["state"] not in ("CANCELED", "FINISHED", "FAILED"):
            assert time.monotonic() < deadline, f"the job {job} cannot be cancelled"
            time.sleep(0.5)

    def kill_busy(self, job: str) -> str:
        """Ends a task manager of a running job with ``kill -9``; returns its name."""
        for vertex in self.get(f"/jobs/{job}")["vertices"]:
            for task in self.get(f"/jobs/{job}/vertices/{vertex['id']}")["subtasks"]:
                if task["status"] == "RUNNING":
                    name = str(task["taskmanager-id"])
                    os.kill(process_id(f"flink-{name}"), signal.SIGKILL)
                    return name
        raise AssertionError("no task of the job is running")


def all_run(job: dict[str, Any]) -> bool:
    """Whether all tasks of a job run, by what the cluster tells of it."""
    tasks = sum(vertex["tasks"]["RUNNING"] for vertex in job["vertices"])
    return job["state"] == "RUNNING" and tasks >= len(job["vertices"])


def process_id(name: str) -> int:
    """The id of a process that ``deploy/cluster status`` lists."""
    for line in cluster("status").stdout.splitlines():
        fields = line.split()
        if fields[1] == name and fields[2] != "down":
            return int(fields[2])
    raise AssertionError(f"{name} does not run")


def hadabeam(*arguments: str | Path, wait: bool = True) -> subprocess.Popen[str]:
    """Starts the command line in a process of its own.

    Raises:
      AssertionError: if ``wait`` and it fails; shows the end of what it wrote.
    """
    command = [sys.executable, "-m", "hadabeam.pipelines.cli", *map(str, arguments)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT.parent
    )
    if wait:
        finish(process)
    return process


def finish(process: subprocess.Popen[str]) -> str:
    """Waits for a process that must succeed; returns what it wrote."""
    try:
        out, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, _ = process.communicate(timeout=60)
        raise AssertionError(f"not done after {PATIENCE} s:\n{out[-3000:]}") from None
    assert process.returncode == 0, out[-3000:]
    return out
