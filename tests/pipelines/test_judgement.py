"""What a run that ended is told: that nothing, or little, of its input could be used, and why."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import Any

import pytest
from made_logs import jsonl, visits

from hadabeam.mechanisms.errors import InputError
from hadabeam.pipelines import stream
from hadabeam.pipelines.log_jobs import judge

LOGS = Namespace(user_field="user")
REPORTS = Namespace(user_field=None)


def summary(read: int, **dropped: int) -> dict[str, Any]:
    return {"records_read": read, "reports": read - sum(dropped.values()), "dropped": dropped}


@pytest.mark.parametrize(
    ("args", "dropped", "words"),
    [
        (LOGS, {"bad_time": 9, "missing_user": 1}, "check --time_field, and --time_unit"),
        (LOGS, {"missing_user": 10}, "check the field names and --input_format"),
        (LOGS, {"unparseable": 10}, "check the field names and --input_format"),
        (REPORTS, {"unparseable": 10}, "are they reports?"),
        (REPORTS, {"wrong_window": 10}, "--window, --period and --time_zone"),
        (REPORTS, {"wrong_collection": 6, "wrong_window": 4}, "--domain, --unknown, --oracle"),
        (REPORTS, {"missing_sender": 10}, "leave the key out"),
    ],
)
def test_nothing_counted_is_an_error_with_what_to_do(
    args: Namespace, dropped: dict[str, int], words: str
) -> None:
    with pytest.raises(InputError, match="of 10 records none could be counted") as refused:
        judge(summary(10, **dropped), args)
    assert words in str(refused.value)


def test_much_that_is_lost_for_one_reason_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    judge(summary(100, wrong_window=10, wrong_column=20, bad_time=9), REPORTS)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert told[0].startswith("warning: 10 of 100 records could not be used (wrong_window); give")


def test_nothing_read_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    judge(summary(0), LOGS)
    assert capsys.readouterr().err == ""


@pytest.mark.prism
@pytest.mark.skipif(
    "HADABEAM_PRISM" not in os.environ, reason="set HADABEAM_PRISM to the path of a Prism binary"
)
def test_a_stream_that_counted_nothing_says_so(
    commands: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    prism = os.environ["HADABEAM_PRISM"]
    log = commands.write("log.jsonl", jsonl(visits(50, 50)))
    flags = [f"--input={log}", "--input_format=reports", f"--domain={commands.domain}"]
    flags += ["--epsilon=1", "--window=1h", "--stop_after=1s", f"--prism_location={prism}"]
    assert stream.main([*flags, "--output", str(commands.folder / "out")]) == 1
    assert "none could be counted (50 unparseable); are they reports?" in capsys.readouterr().err
