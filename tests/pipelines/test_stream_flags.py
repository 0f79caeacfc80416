"""What ``hadabeam stream`` refuses before anything runs, and the line that it prints for a pane."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hadabeam.mechanisms import Domain, OneBitHadamard
from hadabeam.pipelines import stream
from hadabeam.pipelines.pane_lines import pane_line
from hadabeam.testing import seeded_key_files
from hadabeam.transforms.estimate import estimate_table
from hadabeam.transforms.panes import PaneInfo
from hadabeam.transforms.stream import Pane


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, str]:
    seeded_key_files(tmp_path)
    (tmp_path / "domain.txt").write_text("a\nb\n")
    return {
        "input": "logs/*",
        "user_field": "u",
        "value_field": "v",
        "time_field": "t",
        "window": "1h",
        "domain": str(tmp_path / "domain.txt"),
        "epsilon": "1",
        "assignment_key": str(tmp_path / "assignment.key"),
        "coin_key": str(tmp_path / "coin.key"),
        "output": str(tmp_path / "out"),
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"runner": "FnApiRunner"}, "reads all input before it gives anything out"),
        ({"runner": "DirectRunner"}, "--runner=PrismRunner"),
        ({"coin_key": None}, "--assignment_key and --coin_key"),
        ({"assignment_key": None, "coin_key": None}, "would spend epsilon again"),
        ({"window": None}, "--window"),
        ({"time_field": None}, "--time_field"),
        ({"user_field": None}, "--user_field"),
        ({"id_field": "nonce"}, "--id_field is for --input_format reports"),
        ({"input_format": "reports"}, "--user_field is for logs"),
        ({"time_zone": "Europe/Berlin"}, "--time_zone is for --window day"),
        ({"window": "day", "time_zone": "Mars"}, "no time zone"),
        ({"instant_epsilon": "0.5"}, "memo='forever'"),
        ({"instant_epsilon": "2", "memo": "forever"}, "instant_epsilon must be below epsilon"),
        ({"instant_epsilon": ".5", "memo": "forever", "oracle": "rappor"}, "one stage"),
        ({"period": "7m"}, "whole multiple"),
        ({"early": "soon"}, "no unit that is known"),
        ({"output": __file__}, "is a file"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(arguments, change, words, capsys):
    given = {**arguments, **change}
    argv = [f"--{name}={value}" for name, value in given.items() if value is not None]
    try:
        code = stream.main(argv)
    except SystemExit as error:
        code = int(str(error.code))
    assert code == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_a_pane_is_one_line_that_fits():
    oracle = OneBitHadamard(Domain(["home", "search", "cart"]), 40.0)
    columns = np.array([1, 2, 3] * 40)
    counts = oracle.count(columns, np.tile([1, 0, 0], 40).astype(np.uint8))
    day = 86_400_000_000
    table = estimate_table(oracle, counts, "simplex", (day, 2 * day), None, "early-0")
    info = PaneInfo(day, 2 * day, "early", 0, 120)
    line = pane_line(Pane(info, None, (table,), {}), 200)
    assert line.startswith("1970-01-02  early          120 reports  ")
    shares = [float(part.split()[-2]) for part in line.split("reports")[1].split(",")]
    assert sorted(shares, reverse=True) == shares
    assert len(pane_line(Pane(info, None, (table,) * 5, {}), 60)) == 60
    hours = PaneInfo(day, day + 3_600_000_000, "on_time", 3, 2)
    line = pane_line(Pane(hours, None, (), {}), 200)
    assert line == "1970-01-02 00:00:00 to 01:00:00Z  on_time          2 reports  withheld: too few"


def test_prism_is_the_runner_and_never_splits_stateful_bundles():
    found = stream.streaming_args(["--prism_location=x"])
    assert "--runner=PrismRunner" in found
    assert "--streaming" in found
    assert "--experiments=prism_disable_sdf_split" in found
    # Beam's own default ends a stream after five minutes.
    assert any(arg.startswith("--job_server_timeout=") for arg in found)
    given = ["--runner=PortableRunner", "--streaming", "--job_server_timeout=60"]
    assert stream.streaming_args(given) == given


def test_flink_makes_checkpoints():
    given = ["--runner=FlinkRunner", "--streaming"]
    assert "--checkpointing_interval=10000" in stream.streaming_args(given)
    given += ["--", "--checkpointing_interval=2000"]
    found = stream.streaming_args(given)
    assert [arg for arg in found if arg.startswith("--checkpointing")] == [given[-1]]
    assert not any("checkpointing" in arg for arg in stream.streaming_args([]))


def test_flink_keeps_no_output_in_its_checkpoints():
    given = ["--runner=FlinkRunner", "--streaming", "--", "--savepoint_path=x"]
    found = stream.streaming_args(given)
    flag = "--finish_bundle_before_checkpointing"
    assert flag in found[: found.index("--")]


def test_on_flink_a_stream_that_is_to_end_lets_its_sources_end():
    given = ["--runner=FlinkRunner", "--flink_master=h:1"]
    flag = "--shutdown_sources_after_idle_ms"
    assert f"{flag}=1000" in stream.streaming_args(given, ends=True)
    assert not any(arg.startswith(flag) for arg in stream.streaming_args(given))
    own = [*given, "--", f"{flag}=5"]
    assert [a for a in stream.streaming_args(own, ends=True) if a.startswith(flag)] == [f"{flag}=5"]
