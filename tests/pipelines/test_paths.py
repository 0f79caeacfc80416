"""Relative paths: they mean the same on workers that run in folders of their own."""

from __future__ import annotations

import os

import pytest

from hadabeam.mechanisms.keys import KeyFile
from hadabeam.pipelines import batch, estimate, job_flags, stream

FLINK = ["--runner=FlinkRunner", "--flink_master=127.0.0.1:1"]
WHAT = ["--domain=pages.txt", "--epsilon=1"]
FIELDS = ["--user_field=u", "--value_field=v"]
KEYS = ["--assignment_key=keys/a.key", "--coin_key=/keys/c.key"]


def parsed(command, *flags):
    return job_flags.parse_args(command.parser(), [*WHAT, *flags])[0]


def test_on_flink_they_are_absolute():
    here = os.getcwd()
    inputs = ["--input=logs/*.jsonl", "--input=/logs/a.jsonl"]
    args = parsed(batch, *FIELDS, *KEYS, *FLINK, *inputs, "--output=out/pages")
    assert args.input == [f"{here}/logs/*.jsonl", "/logs/a.jsonl"]
    assert args.output == f"{here}/out/pages"
    assert args.assignment_key == KeyFile(f"{here}/keys/a.key")
    assert args.coin_key == KeyFile("/keys/c.key")
    args = parsed(estimate, *FLINK, "--input=r-*", "--output=/out/p", "--output=kafka:h:1/topic")
    assert (args.input, args.output) == ([f"{here}/r-*"], "/out/p")
    assert [sink.name for sink in args.sinks] == ["kafka:h:1/topic"]


@pytest.mark.parametrize("name", ["kafka:h:9092/visits", "kafak:h:9092/visits", "hdfs://h/logs"])
def test_what_is_no_path_stays(name, monkeypatch):
    monkeypatch.setattr("hadabeam.pipelines.extras.has", lambda module: True)
    args = parsed(stream, *FIELDS, *FLINK, f"--input={name}", "--output=out/pages")
    assert args.input == [name]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--input=logs/*.jsonl"], "--input logs/*.jsonl is on this machine"),
        (["--input=/logs/a.jsonl"], "gs://BUCKET/"),
        (["--output=/tmp/out"], "--output /tmp/out is on this machine"),
        (["--assignment_key=a.key"], "give gcpsecret:projects/PROJECT/secrets/NAME/versions/N"),
        (["--coin_key=c.key"], "--coin_key c.key is on this machine"),
    ],
)
def test_dataflow_sees_none_of_this_machines_files(change, words, monkeypatch, capsys):
    monkeypatch.setattr("hadabeam.pipelines.extras.has", lambda module: True)
    runner = "--runner=DataflowRunner"
    secret = "gcpsecret:projects/p/secrets/s/versions"
    good = ["--input=gs://b/l", "--output=gs://b/o", f"--assignment_key={secret}/1"]
    good.append("--coin_key=/image/coin.key")
    names = {flag.partition("=")[0] for flag in change}
    rest = [flag for flag in good if flag.partition("=")[0] not in names]
    assert parsed(batch, *FIELDS, runner, *good).input == ["gs://b/l"]
    with pytest.raises(SystemExit) as ended:
        parsed(batch, *FIELDS, runner, *rest, *change)
    assert ended.value.code == 2
    assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("flags", [[], ["--runner=DirectRunner"], ["--runner=PrismRunner"]])
def test_in_this_folder_they_stay(flags):
    args = parsed(batch, *FIELDS, *KEYS, *flags, "--input=logs/*.jsonl", "--output=out/pages")
    assert (args.input, args.output) == (["logs/*.jsonl"], "out/pages")
    assert args.assignment_key == KeyFile("keys/a.key")
