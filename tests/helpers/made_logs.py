"""Logs that tests make: importable as ``made_logs`` from every test."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

PAGES = [f"/page/{number}" for number in range(30)]


def visits(records: int, users: int, seed: int = 3) -> list[dict[str, Any]]:
    """Records with repeated users, unknown and missing values, and times over three weeks."""
    rng = np.random.default_rng(seed)
    found = []
    for user, page, moment in zip(
        rng.integers(0, users, records).tolist(),
        np.minimum(rng.geometric(0.15, records) - 1, 31).tolist(),
        rng.integers(1_700_000_000, 1_701_814_400, records).tolist(),
        strict=True,
    ):
        value = f"/page/{page}" if page < 31 else None
        found.append({"user": f"u{user}", "page": value, "time": moment, "country": "de"})
        if user % 3 == 0:
            found[-1]["country"] = "fr"
    return found


def jsonl(records: list[dict[str, Any]]) -> str:
    """Records as lines of JSON."""
    return "".join(json.dumps(record) + "\n" for record in records)
