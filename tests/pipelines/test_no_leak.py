"""A user's id, a private value and a key never show: not in logs, errors, metrics or the job."""

import logging

import apache_beam as beam
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from made_logs import jsonl

from hadabeam.pipelines import batch, privatize
from hadabeam.testing import SeededKey

USER, VALUE, KEY_TEXT = "canary-user-5417", "canary-value-9931", "canary-key-2280"


def log_text():
    rows = [
        {"user": USER, "page": VALUE, "time": 1},
        {"user": USER, "page": "/page/1", "time": VALUE},
        {"user": None, "page": VALUE, "time": 2},
        {"user": {"id": USER}, "page": [VALUE], "time": 2},
    ]
    broken = f'{{"user": "{USER}", "page": "{VALUE}"\n"{USER}" {VALUE}\n'
    return jsonl(rows) + broken


def secrets_in(text):
    found = [name for name in (USER, VALUE, "5417", "9931") if name in text]
    for purpose in ("assignment", "coin"):
        key = SeededKey(f"{purpose} commands").get_secret_bytes()
        found += [purpose for shown in (key.hex(), repr(key)[2:-1]) if shown in text]
    return found


@pytest.mark.parametrize("unknown", ["other", "drop", "fail"])
@pytest.mark.parametrize("extra", [(), ("--debug",)])
def test_what_a_run_shows(commands, caplog, unknown, extra):
    caplog.set_level(logging.DEBUG)
    found = commands.batch(
        commands.write("log.jsonl", log_text()),
        *("--time_field", "time", "--unknown", unknown),
        *extra,
    )
    shown = found.out + found.err + caplog.text
    assert secrets_in(shown) == []
    for path in commands.folder.glob("out*"):
        assert secrets_in(path.read_bytes().decode("latin-1")) == [], path.name
    assert found.code in (0, 1)


@pytest.mark.parametrize(
    "text",
    [
        "user,page\n" + f'"{USER}"x,{VALUE}\n' + f"{USER},{VALUE},{VALUE}\n" + f'"{USER},{VALUE}\n',
        f"{USER} - {VALUE} [not a time] {VALUE}\n",
    ],
)
def test_formats_that_do_not_parse(commands, caplog, text):
    caplog.set_level(logging.DEBUG)
    format = "csv" if text.startswith("user") else "combined"
    field = ("--user_field", "host", "--value_field", "path") if format == "combined" else ()
    log = commands.write("log.txt", text)
    found = commands.batch(log, "--input_format", format, "--debug", *field)
    assert secrets_in(found.out + found.err + caplog.text) == []


def test_a_csv_without_a_header(commands, caplog):
    log = commands.write("log.csv", "canary-user,canary-value\ncanary-user,canary-value\n")
    outcome = commands.batch(log)
    assert outcome.code == 1
    assert "does the file begin with a header" in outcome.err
    assert "canary" not in outcome.err + outcome.out + caplog.text


def test_only_their_owner_reads_dead_letters(commands):
    log = commands.write("log.jsonl", '{"user": "a", "page": "/page/1"}\ncanary\n')
    outcome = commands.batch(log, "--dead_letter_content")
    assert [letter["raw"] for letter in outcome.letters] == ["canary"]
    (path,) = commands.folder.glob("*-dead-letters.jsonl")
    assert path.stat().st_mode & 0o777 == 0o600


def test_content_is_kept_only_when_asked_for(commands):
    log = commands.write("log.jsonl", log_text())
    found = commands.batch(log, "--dead_letter_content", "--unknown", "drop")
    assert any(USER in letter.get("raw", "") for letter in found.letters)


@pytest.mark.parametrize("module", [batch, privatize])
def test_the_job_holds_neither_keys_nor_data(commands, module):
    log = commands.write("log.jsonl", log_text())
    argv = [
        *("--input", str(log), "--user_field", "user", "--value_field", "page"),
        *("--domain", str(commands.domain), "--epsilon", "1", "--unknown", "drop"),
        *("--output", str(commands.folder / "proto"), *commands.keys),
    ]
    args, _ = batch.job_flags.parse_args(module.parser(), argv)
    oracle = batch.job_flags.oracle_of(args)
    pipeline = beam.Pipeline(runner=FnApiRunner())
    module.build(pipeline, args, oracle)
    proto = pipeline.to_runner_api().SerializeToString()
    for purpose in ("assignment", "coin"):
        key = SeededKey(f"{purpose} commands").get_secret_bytes()
        assert key not in proto
        assert key.hex().encode() not in proto
    assert USER.encode() not in proto
    result = pipeline.run()
    result.wait_until_finish()
    metrics = str(result.metrics().query(MetricsFilter()))
    assert secrets_in(metrics) == []
