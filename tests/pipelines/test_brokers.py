"""A Kafka broker that is not there is named before anything runs, where it can be known."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_logs import jsonl, visits

from hadabeam.pipelines import batch, brokers, estimate, job_flags, privatize, stream
from hadabeam.testing import seeded_key_files


@pytest.fixture
def nobody() -> Iterator[str]:
    """The address of a port that is taken, and where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def somebody() -> Iterator[str]:
    """The address of a port that takes connections."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    (tmp_path / "domain.txt").write_text("/page/1\n/page/2\n")
    seeded_key_files(tmp_path)
    return [f"--domain={tmp_path}/domain.txt", "--epsilon=1"]


def keyed(folder: Path) -> list[str]:
    names = ("assignment", "coin")
    fields = ["--user_field=user", "--value_field=page"]
    return [*fields, *(f"--{name}_key={folder}/{name}.key" for name in names)]


@pytest.mark.parametrize("command", [batch, privatize, estimate, stream])
def test_every_command_says_which_broker_does_not_answer(
    command, flags, tmp_path, nobody, capsys
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(jsonl(visits(10, 10)))
    topic = f"kafka:{nobody}/pages"
    out = tmp_path / "out/pages"
    given = [*flags, f"--output={out}"]
    if command is stream:
        given += [*keyed(tmp_path), f"--input={topic}", "--window=1h"]
    else:
        given += [f"--input={log}", f"--output={topic}"]
        given += keyed(tmp_path) if command is not estimate else []
    assert command.main(given) == 1
    assert capsys.readouterr().err == (
        f"hadabeam {command.__name__.rpartition('.')[2]}: error: no Kafka broker answers for "
        f"{topic} ({nobody}: Connection refused); is it up, and is it its address?\n"
    )
    assert not out.parent.exists()


def parsed(flags: list[str], folder: Path, topic: str):
    given = [
        *flags,
        *keyed(folder),
        f"--input={folder}/*.jsonl",
        f"--output={folder}/out",
        f"--output={topic}",
    ]
    return job_flags.parse_args(batch.parser(), given)[0]


def test_one_broker_of_several_is_enough(flags, tmp_path, nobody, somebody) -> None:
    args = parsed(flags, tmp_path, f"kafka:{nobody},{somebody}/pages")
    brokers.check_brokers(args, [])


def test_workers_elsewhere_may_reach_what_this_machine_does_not(flags, tmp_path, nobody) -> None:
    args = parsed(flags, tmp_path, f"kafka:{nobody}/pages")
    for runner in ("FlinkRunner", "DataflowRunner"):
        brokers.check_brokers(args, [f"--runner={runner}"])


def test_a_host_without_an_address_is_named(flags, tmp_path, monkeypatch) -> None:
    def lookup(address, timeout):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", lookup)
    args = parsed(flags, tmp_path, "kafka:brokr.example:9092/pages")
    with pytest.raises(brokers.InputError, match=r"brokr.example:9092: Name or service not known"):
        brokers.check_brokers(args, ["--runner=PrismRunner"])
