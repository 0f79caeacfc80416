"""Minutes at a steady rate on Prism: nothing is lost, and memory does not grow."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

#: Seconds, and records a second. Three times the rate is no trouble on two cores.
SECONDS, RATE = 330, 20_000


def benchmark() -> ModuleType:
    """The benchmark of streams, which is not part of the package."""
    path = Path(__file__).parents[2] / "benchmarks/stream.py"
    spec = importlib.util.spec_from_file_location("hadabeam_benchmark_stream", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.soak
def test_minutes_at_a_steady_rate(tmp_path):
    stream = benchmark()
    # A million users, so that each comes many times.
    found = stream.run(tmp_path, RATE, SECONDS, 1_000_000, os.environ.get("HADABEAM_PRISM"))
    summary = found.summary
    assert found.sent == summary["records_read"]
    assert found.sent == summary["reports"] + sum(summary["dropped"].values())
    assert summary["reports"] == found.published
    assert set(summary["dropped"]) <= {"over_limit"}
    assert len(found.latencies) >= SECONDS / stream.WINDOW - 3
    # Flat: the last third at most an eighth above the third before it.
    third = len(found.memory) // 3
    assert max(found.memory[2 * third :]) <= 1.125 * max(found.memory[third : 2 * third])
