"""What ``hadabeam stream`` refuses of a broker before anything runs, and who sends one there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hadabeam.mechanisms.errors import ParameterError
from hadabeam.pipelines import batch, estimate, job_flags, privatize, stream, stream_flags
from hadabeam.pipelines.broker_source import (
    check_messages,
    check_runner,
    from_broker,
    read_schemas,
)
from hadabeam.testing import seeded_key_files

VISIT = {
    "type": "record",
    "name": "Visit",
    "fields": [{"name": "user", "type": "string"}, {"name": "page", "type": "string"}],
}


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, Any]:
    seeded_key_files(tmp_path)
    (tmp_path / "domain.txt").write_text("a\nb\n")
    (tmp_path / "visit.avsc").write_text(json.dumps(VISIT))
    (tmp_path / "bad.avsc").write_text('{"type": "record"}')
    (tmp_path / "latin.avsc").write_bytes(b"\xff{}")
    return {
        "input": "kafka:localhost:1/t",
        "user_field": "user",
        "value_field": "page",
        "window": "1h",
        "domain": str(tmp_path / "domain.txt"),
        "epsilon": "1",
        "assignment_key": str(tmp_path / "assignment.key"),
        "coin_key": str(tmp_path / "coin.key"),
        "output": str(tmp_path / "out"),
    }


def argv_of(given: dict[str, Any], folder: Path) -> list[str]:
    return [
        f"--{name}={str(text).replace('FOLDER', str(folder))}"
        for name, value in given.items()
        for text in (value if isinstance(value, list) else [value])
        if text is not None
    ]


def parse(arguments: dict[str, Any], change: dict[str, Any], folder: Path) -> Any:
    return job_flags.parse_args(stream_flags.parser(), argv_of({**arguments, **change}, folder))[0]


AVRO = {"input_format": "avro", "message_schema": "FOLDER/visit.avsc"}
NO_LOG = dict.fromkeys(("user_field", "value_field", "coin_key"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"input": "Kafka:localhost:1/t"}, "'Kafka:localhost:1/t' is no topic or subscription"),
        ({"input": "pub-sub:projects/p/subscriptions/s"}, "pubsub:projects/PROJECT/subscr"),
        ({"input": "kafka:localhost/t"}, "read from kafka:HOST:PORT"),
        ({"input": "kafka:a,b:1/t"}, "read from kafka:HOST:PORT"),
        ({"output": ["FOLDER/out", "kafka:localhost:1/t"]}, "would read its own rows"),
        ({"output": ["FOLDER/out", "kafka:h:2,LOCALHOST:1/t"]}, "would read its own rows"),
        ({"consumer_option": "bootstrap.servers=h:1"}, "leave bootstrap.servers out"),
        ({"consumer_option": "value.deserializer=x"}, "leave value.deserializer out"),
        ({"input_format": "csv"}, "messages are not csv: leave --input_format out"),
        ({"input_format": "parquet"}, "messages are not parquet"),
        ({"input_format": "combined"}, "give --input_format avro or reports"),
        ({"input_format": "avro"}, "needs --message_schema"),
        ({"message_schema": "FOLDER/visit.avsc"}, "--message_schema is for --input_format avro"),
        ({"input": "logs/*", "time_field": "t", **AVRO}, "is for --input kafka:"),
        ({**AVRO, "message_schema": "FOLDER/none.avsc"}, "none.avsc does not exist"),
        ({**AVRO, "message_schema": "FOLDER/bad.avsc"}, "bad.avsc is no Avro schema"),
        ({**AVRO, "message_schema": "FOLDER/latin.avsc"}, "not UTF-8"),
        ({**AVRO, "message_schema": "5000000000=FOLDER/visit.avsc"}, "does not fit in 4 bytes"),
        ({**AVRO, "message_schema": ["7=FOLDER/visit.avsc"] * 2}, "7 is given twice"),
        ({**AVRO, "message_schema": ""}, "name a file"),
        ({**AVRO, "user_field": "usr"}, "did you mean 'user'?"),
        ({**AVRO, "time_field": "at"}, "has no field 'at'"),
        ({"stop_after": "3s"}, "ends when it is cancelled"),
        ({"poll": "1s"}, "--poll is for files"),
        ({"max_delay": "0"}, "--max_delay is for files; the broker tells"),
        ({"input_format": "reports"}, "--user_field is for logs"),
        ({**NO_LOG, **AVRO, "input_format": "reports"}, "is for --input_format avro"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(
    arguments: dict[str, Any], tmp_path: Path, change: dict[str, Any], words: str, capsys: Any
) -> None:
    try:
        code = stream.main(argv_of({**arguments, **change}, tmp_path))
    except SystemExit as error:
        code = int(str(error.code))
    said = capsys.readouterr().err
    assert words in said.replace("\n", " ")
    assert "Traceback" not in said
    assert code in (1, 2)
    assert not (tmp_path / "out").exists()


def test_what_fits(arguments: dict[str, Any], tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"input_format": "jsonl"},
        AVRO,
        {**AVRO, "message_schema": ["1=FOLDER/visit.avsc", "2=FOLDER/visit.avsc"]},
        {**NO_LOG, "input_format": "reports", "per_key": None, "id_field": "nonce"},
    ]
    for change in changes:
        args = parse(arguments, change, tmp_path)
        assert from_broker(args)
        check_messages(args)
    args = parse(arguments, changes[3], tmp_path)
    assert [found.id for found in read_schemas(args)] == [1, 2]
    assert {json.dumps(found.schema) for found in read_schemas(args)} == {json.dumps(VISIT)}


@pytest.mark.parametrize("command", [batch, privatize, estimate])
@pytest.mark.parametrize("source", ["kafka:h:1/t", "pubsub:projects/p/subscriptions/s"])
def test_other_commands_name_the_one_that_reads_brokers(
    command: Any, source: str, capsys: Any
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--input", source])
    assert ended.value.code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert source in said
    assert "has no end" in said
    assert "hadabeam stream" in said


def test_prism_does_not_read_pubsub(arguments: dict[str, Any], tmp_path: Path) -> None:
    pubsub = parse(
        arguments, {"input": "pubsub:projects/my-project/subscriptions/visits"}, tmp_path
    )
    with pytest.raises(ParameterError, match="does not read Pub/Sub; pass --runner=Dataflow"):
        check_runner(pubsub, stream.streaming_args([]))
    check_runner(pubsub, stream.streaming_args(["--runner=DataflowRunner"]))
    check_runner(pubsub, stream.streaming_args(["--runner=BundleBasedDirectRunner"]))
    check_runner(parse(arguments, {}, tmp_path), stream.streaming_args([]))
