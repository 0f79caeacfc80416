"""Fixtures for the services that ``deploy/cluster up`` starts.

Where a service is down, its tests are skipped and say so; with HADABEAM_ENGINES=required,
as CI sets it, they fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bigquery_emulator import Database, databases
from engines import Flink, prism_flags, reach
from made_logs import PAGES, jsonl, visits

from hadabeam.testing import seeded_key_files


@pytest.fixture
def flink() -> Flink:
    """The Flink cluster."""
    return Flink(reach("flink"))


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> list[str]:
    """The flags of a runner by its name: Beam's own, Prism or the Flink cluster."""
    if request.param == "local":
        return []
    if request.param == "prism":
        return prism_flags()
    cluster: Flink = request.getfixturevalue("flink")
    return cluster.flags


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three weeks of records, as a file."""
    path = tmp_path / "log.jsonl"
    path.write_text(jsonl(visits(3000, 1000)))
    return path


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A dataset of the emulator of BigQuery, for workers within this process."""
    yield from databases(monkeypatch)


@pytest.fixture
def job_flags(tmp_path: Path) -> list[str]:
    """The flags of a job on ``made_logs``, with keys, but for input and output."""
    seeded_key_files(tmp_path, "engines")
    domain = tmp_path / "domain.txt"
    domain.write_text("".join(f"{page}\n" for page in PAGES))
    return [
        *("--user_field", "user", "--value_field", "page", "--domain", str(domain)),
        *("--time_field", "time", "--window", "7d", "--epsilon", "1"),
        *("--assignment_key", str(tmp_path / "assignment.key")),
        *("--coin_key", str(tmp_path / "coin.key")),
    ]
