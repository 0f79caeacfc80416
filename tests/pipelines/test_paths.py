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


@pytest.mark.parametrize("flags", [[], ["--runner=DirectRunner"], ["--runner=PrismRunner"]])
def test_in_this_folder_they_stay(flags):
    args = parsed(batch, *FIELDS, *KEYS, *flags, "--input=logs/*.jsonl", "--output=out/pages")
    assert (args.input, args.output) == (["logs/*.jsonl"], "out/pages")
    assert args.assignment_key == KeyFile("keys/a.key")
