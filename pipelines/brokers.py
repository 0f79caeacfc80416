"""Asking whether a Kafka broker is there, where this machine's workers would look for it.

Kafka's clients try for minutes to reach one; a stream would wait without a word, and the error of
a batch job does not say which broker it was.
"""

from __future__ import annotations

import argparse
import socket
from collections.abc import Iterator, Sequence

from ..mechanisms.errors import InputError
from . import runner

#: Seconds that each broker gets to take a connection.
_TIMEOUT = 10.0


def check_brokers(args: argparse.Namespace, beam_args: Sequence[str]) -> None:
    """Checks that one broker at least of every topic takes connections.

    Only where workers are on this machine: others may reach what this one does not.

    Args:
      args: what the parser gave, settled.
      beam_args: Beam's flags.

    Raises:
      InputError: names the topic and the brokers, if none does.
    """
    if not runner.is_here(beam_args):
        return
    for name, servers in _topics(args):
        reasons = [_refused(server) for server in servers]
        if all(reasons):
            raise InputError(
                f"no Kafka broker answers for {name} ({'; '.join(filter(None, reasons))}); "
                "is it up, and is it its address?"
            )


def _topics(args: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    names = [name for name in args.input if name.startswith("kafka:")]
    names += [sink.name for sink in args.sinks if sink.kind == "kafka"]
    if names:
        from ..transforms.kafka_topics import kafka_topic

        for name in names:
            topic = kafka_topic(name)
            if topic is not None:
                yield name, topic.servers.split(",")


def _refused(server: str) -> str | None:
    """Why a broker takes no connection, or None if it does."""
    host, _, port = server.rpartition(":")
    try:
        # An address of IPv6 is written in brackets.
        socket.create_connection((host.strip("[]"), int(port)), _TIMEOUT).close()
    except (OSError, OverflowError) as error:
        return f"{server}: {getattr(error, 'strerror', None) or error}"
    return None
