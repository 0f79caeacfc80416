"""``--output`` several times: what is a file, what is a sink, and what is neither."""

from __future__ import annotations

import argparse
from contextlib import nullcontext

import pytest

from hadabeam.mechanisms.errors import ParameterError
from hadabeam.pipelines import (
    batch,
    estimate,
    extras,
    flag_types,
    job_flags,
    log_jobs,
    privatize,
    sinks,
    stream,
)

PLACE = "out/pages"
GOOD = [
    "kafka:broker-1:9092/pages",
    "kafka:a.example:9092,[::1]:9093/pages.by-hour_2",
    "pubsub:projects/my-project/topics/pages",
    "pubsub:projects/example.com:project/topics/pages",
    "bigquery:my-project.numbers.pages",
]
NEEDED = {
    batch: ["--user_field=u", "--value_field=v"],
    privatize: ["--user_field=u", "--value_field=v"],
    estimate: [],
    stream: ["--user_field=u", "--value_field=v", "--time_field=t", "--window=1h"],
}


@pytest.fixture(autouse=True)
def all_extras(monkeypatch):
    """As if every extra were installed: nothing here gets as far as using one."""
    monkeypatch.setattr(extras, "has", lambda module: True)


def _outputs(names):
    return [f"--output={name}" for name in names]


def parse(command, *flags):
    argv = ["--input=logs/*", "--domain=d.txt", "--epsilon=1", *NEEDED[command], *flags]
    return job_flags.parse_args(command.parser(), argv)[0]


def refusal(command, *flags, capsys):
    with pytest.raises(SystemExit) as stop:
        parse(command, *flags)
    assert stop.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("command", NEEDED)
def test_one_place_and_any_number_of_sinks(command):
    assert parse(command, f"--output={PLACE}").sinks == []
    names = GOOD if command is not privatize else GOOD[:-1]
    args = parse(command, f"--output={names[0]}", "--output", PLACE, *_outputs(names[1:]))
    assert args.output == PLACE
    assert [sink.name for sink in args.sinks] == names
    assert {sink.kind for sink in args.sinks} <= set(sinks.FORMS)


def test_a_place_is_needed_for_what_is_no_row(capsys):
    said = refusal(batch, "--output", GOOD[0], capsys=capsys)
    assert "add --output and a place for files, e.g. --output out/pages" in said
    assert "the summary, the dead letters" in said


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--output=a/b", "--output=c/d"], "a/b and c/d are two"),
        ([f"--output={PLACE}", *_outputs(GOOD[:1] * 2)], f"--output {GOOD[0]} is given twice"),
        ([f"--output={PLACE}", "--message_format=avro"], "--message_format is for --output kafka"),
        ([f"--output={PLACE}", "--producer_option=a=b"], "--producer_option is for --output kafka"),
        (
            [f"--output={PLACE}", f"--output={GOOD[2]}", "--producer_option=a=b"],
            "--producer_option is for --output kafka",
        ),
        ([f"--output={PLACE}", "--kafka_expansion=h:1"], "is for kafka: inputs and outputs"),
        (
            [f"--output={PLACE}", f"--output={GOOD[0]}", "--bigquery_write=truncate"],
            "--bigquery_write is for --output bigquery",
        ),
        ([f"--output={PLACE}", f"--output={GOOD[0]}", "--producer_option=acks"], "NAME=VALUE"),
        (
            [f"--output={PLACE}", *_outputs(GOOD[:1]), "--producer_option=bootstrap.servers=h:1"],
            "leave bootstrap.servers out",
        ),
        (
            [f"--output={PLACE}", *_outputs(GOOD[:1]), "--producer_option=max.request.size=2MB"],
            "max.request.size is a number of bytes",
        ),
    ],
)
def test_what_does_not_fit_together(flags, words, capsys):
    assert words in refusal(batch, *flags, capsys=capsys)
    assert words in refusal(stream, *flags, capsys=capsys)


def test_what_a_kind_of_job_cannot_do(capsys):
    outputs = _outputs([PLACE, GOOD[-1]])
    said = refusal(stream, *outputs, "--bigquery_write=truncate", capsys=capsys)
    assert "truncate" in said
    assert "reports go to files and topics" in refusal(privatize, *outputs, capsys=capsys)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("kafka:host/topic", "kafka:HOST:PORT"),
        ("kafka:host:9092", "kafka:HOST:PORT"),
        ("kafka:host:9092/a/b", "kafka:HOST:PORT"),
        ("kafka:host:9092/..", "cannot be called"),
        ("kafka://host:9092/topic", "kafka:HOST:PORT"),
        ("Kafka:host:9092/topic", "kafka:HOST:PORT"),
        ("kafak:host:9092/topic", "kafka:HOST:PORT"),
        ("kafka:", "kafka:HOST:PORT"),
        ("pubsub:projects/my-project/subscriptions/s", "pubsub:projects/PROJECT/topics/NAME"),
        ("pubsub:pages", "pubsub:projects/PROJECT/topics/NAME"),
        ("pub-sub:projects/my-project/topics/pages", "pubsub:projects/PROJECT/topics/NAME"),
        ("bigquery:a.b", "bigquery:PROJECT.DATASET.TABLE"),
        ("bigquery:my-project:numbers.pages", "bigquery:PROJECT.DATASET.TABLE"),
        ("bq:my-project.numbers.pages", "bigquery:PROJECT.DATASET.TABLE"),
    ],
)
def test_a_misspelt_sink_never_becomes_a_file(name, form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in (flag_types.folder, flag_types.prefix):
        with pytest.raises(argparse.ArgumentTypeError) as refused:
            sinks.output_type(place)(name)
        assert form in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["out/kafka", "kafka", "out:1/pages", "gs://b/kafka", "C:/out"])
def test_files_stay_files(name):
    assert sinks.output_type(str)(name) == name


KEYS = ["--assignment_key=a.key", "--coin_key=c.key"]


@pytest.mark.parametrize("command", [batch, privatize])
@pytest.mark.parametrize(
    ("runner", "keys", "sink", "refused"),
    [
        ("FlinkRunner", [], GOOD[0], True),
        ("DataflowRunner", [], GOOD[2], True),
        ("FlinkRunner", KEYS, GOOD[0], False),
        ("PrismRunner", [], GOOD[0], False),
        ("DirectRunner", [], GOOD[2], False),
        ("FlinkRunner", [], None, False),
    ],
)
def test_what_is_sent_may_be_sent_again_only_with_keys(
    command, runner, keys, sink, refused, monkeypatch, tmp_path
):
    """Else a retry would send a user's second bit, of fresh coins."""
    # Where the output's folder is made, and there is something to read.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/a.jsonl").touch()
    # There is no such broker.
    monkeypatch.setattr(log_jobs, "check_brokers", lambda *given: None)
    args = parse(command, *_outputs([PLACE] + [sink] * (sink is not None)), *keys)
    with pytest.raises(ParameterError, match="spend epsilon") if refused else nullcontext():
        log_jobs.check_run(args, [f"--runner={runner}"])
