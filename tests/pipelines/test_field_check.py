"""A misspelt field of JSON lines is told, with the name that it may have been."""

from __future__ import annotations

import gzip
import json
import os
import time
from typing import Any

import pytest
from made_logs import jsonl, visits

from hadabeam.mechanisms.errors import InputError
from hadabeam.pipelines import runner, stream

WARNING = "warning: no record at the start of"


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--value_field", "pagee"], ["'pagee'; did you mean 'page'?"]),
        (["--value_field", "visit.pth"], ["'visit.pth'; did you mean 'visit.path'?"]),
        (["--key_field", "contry"], ["'contry'; did you mean 'country'?"]),
        (["--value_field", "zzz", "--key_field", "yyy"], ["'zzz'", "'yyy'"]),
        (["--key_field", "country", "--time_field", "time"], []),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_what_no_record_has_is_told(
    commands: Any, flags: list[str], told: list[str], compressed: bool
) -> None:
    records = [{**record, "visit": {"path": "/page/1"}} for record in visits(300, 200)]
    text = jsonl(records).encode()
    log = commands.write("log.jsonl", gzip.compress(text) if compressed else text)
    outcome = commands.batch(log, *flags)
    assert outcome.code == 0
    warnings = [line for line in outcome.err.splitlines() if line.startswith("warning")]
    assert warnings == [f"{WARNING} {log} has the field {part}" for part in told]


def test_a_field_that_some_records_have_is_one(commands: Any) -> None:
    lines = [{"user": "a"}, {"user": "b", "page": None}, {"user": "c", "page": "/page/1"}]
    log = commands.write("log.jsonl", jsonl(lines))
    assert WARNING not in commands.batch(log).err


@pytest.mark.parametrize("value", [None, {"path": "/page/1"}, ["/page/1"]])
def test_a_field_without_texts_is_told_for_what_it_is(commands: Any, value: Any) -> None:
    log = commands.write("log.jsonl", jsonl([{"user": f"u{n}", "page": value} for n in range(9)]))
    warnings = [line for line in commands.batch(log).err.splitlines() if "warning" in line]
    assert warnings == [f"{WARNING} {log} has a text or a number in the field 'page'"]


@pytest.mark.parametrize("content", ["", "no json\n", '{"user": "a"', "[1]\n"])
def test_nothing_is_said_of_what_is_no_record(commands: Any, content: str) -> None:
    assert WARNING not in commands.batch(commands.write("log.jsonl", content)).err


def test_a_start_that_is_cut_is_no_reason_to_warn(commands: Any) -> None:
    # The field comes in the first record that is not looked at, beyond the first 64 KiB.
    first = {"user": "a", "page": "/page/1", "text": "x" * 100}
    lines = [first, *({"user": f"u{n}", "text": "x" * 1000} for n in range(100))]
    log = commands.write("log.jsonl", jsonl(lines))
    assert WARNING not in commands.batch(log).err


def test_a_stream_looks_as_well(
    commands: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*given: Any, **more: Any) -> None:
        raise InputError("it is looked at before anything runs")

    monkeypatch.setattr(runner, "run", run)
    log = commands.write("log.jsonl", jsonl(visits(50, 50)))
    os.utime(log, (time.time() - 3600,) * 2)
    flags = [f"--input={log}", "--user_field=user", "--value_field=pag", "--time_field=time"]
    flags += [f"--domain={commands.domain}", "--epsilon=1", "--window=1h", *commands.keys]
    assert stream.main([*flags, "--output", str(commands.folder / "out")]) == 1
    assert "'pag'; did you mean 'page'?" in capsys.readouterr().err
    assert json.loads((commands.folder / "out/definition.json").read_text())
