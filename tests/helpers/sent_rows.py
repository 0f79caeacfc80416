"""Rows that a job sent, held against those of its files."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

from engines import PATIENCE

from hadabeam.schemas.avro import load_schema
from hadabeam.transforms.write_panes import current_panes

#: The start of an hour that has passed.
HOUR = 1_700_002_800


def lines(path: Path | str) -> list[dict[str, Any]]:
    """The rows of a ``jsonl`` file."""
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def estimates(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with the fields of an estimate, in an order of their own."""
    names = [field["name"] for field in load_schema("estimate")["fields"]]
    return sorted(({name: row[name] for name in names} for row in rows), key=json.dumps)


def holding(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a consumer keeps: of rows of a window, key and value that of the greatest order."""
    kept: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        place = tuple(row[name] for name in ("window_start", "window_end", "key", "value"))
        if place not in kept or row["pane_order"] > kept[place]["pane_order"]:
            kept[place] = row
    return list(kept.values())


def held(out: Path) -> list[dict[str, Any]]:
    """The rows of the files that hold."""
    return [row for path in current_panes(str(out)).values() for row in lines(path)]


def records(number: int) -> list[tuple[bytes, float]]:
    """Records of three hours, and one much later that closes their windows."""
    found = []
    for user in range(number):
        at = HOUR + user % 3 * 3600 + user % 50
        record = {"user": f"u{user}", "page": f"/page/{user % 30}", "time": at}
        found.append((json.dumps(record).encode(), at))
    late = HOUR + 30 * 3600
    last = {"user": "last", "page": "/page/1", "time": late}
    return [*sorted(found, key=lambda item: item[1]), (json.dumps(last).encode(), late)]


def hourly(job_flags: list[str]) -> list[str]:
    """The flags of a job, with windows of an hour."""
    flags = list(job_flags)
    flags[flags.index("--window") + 1] = "1h"
    return flags


def await_panes(out: Path, job: Any, read: Any, number: int) -> list[dict[str, Any]]:
    """Waits until a topic has the panes that hold, of so many reports; returns all its rows."""
    deadline = time.monotonic() + PATIENCE
    rows: list[dict[str, Any]] = []
    while time.monotonic() < deadline and job.poll() is None:
        rows = read()
        current = holding(rows)
        reports = {row["window_start"]: int(row["reports"]) for row in current}
        on_time = {row["window_start"] for row in current if "-on_time-" in row["pane_order"]}
        # A pane's rows follow its files.
        written = estimates(held(out))
        if sum(reports.values()) >= number and len(on_time) >= 3 and estimates(current) == written:
            return rows
        time.sleep(1)
    raise AssertionError(f"{len(rows)} rows of {reports}, {current_panes(str(out))}")


def stop(job: Any) -> None:
    """Ends a stream."""
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60)
