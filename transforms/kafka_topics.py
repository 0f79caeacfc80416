"""What reading and writing Kafka share: names of topics, options of clients, the part in Java."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..mechanisms.errors import ParameterError

#: How a topic is written.
FORM = "kafka:HOST:PORT[,HOST:PORT]/TOPIC"
_TOPIC = re.compile(r"kafka:([^/\s,]+:[0-9]+(?:,[^/\s,]+:[0-9]+)*)/([A-Za-z0-9._-]{1,249})")


class KafkaTopic(NamedTuple):
    """A topic.

    Attributes:
      servers: ``HOST:PORT[,HOST:PORT]``, brokers that are asked first.
      topic: its name.
    """

    servers: str
    topic: str

    def same_as(self, other: KafkaTopic) -> bool:
        """Whether both are surely one topic: with one name and a broker in common."""
        servers, others = (set(found.servers.lower().split(",")) for found in (self, other))
        return self.topic == other.topic and bool(servers & others)


def kafka_topic(text: str) -> KafkaTopic | None:
    """The topic that a text names, or None if it is written otherwise.

    Raises:
      ParameterError: if no topic can have the name.
    """
    found = _TOPIC.fullmatch(text)
    if found is None:
        return None
    if found[2] in (".", ".."):
        raise ParameterError("a Kafka topic cannot be called . or ..")
    return KafkaTopic(*found.groups())


def check_options(options: Mapping[str, str], codec: str) -> None:
    """Refuses options of a Kafka client that would undo what the source or sink says.

    Args:
      options: as they are given.
      codec: what turns its keys and values into bytes, "serializer" or "deserializer".

    Raises:
      ParameterError: names the option.
    """
    if "bootstrap.servers" in options:
        raise ParameterError(f"leave bootstrap.servers out: brokers are given as {FORM}")
    for part in ("key", "value"):
        if f"{part}.{codec}" in options:
            raise ParameterError(f"leave {part}.{codec} out: messages are bytes")


@contextlib.contextmanager
def java_part() -> Iterator[None]:
    """Explains, where KafkaIO is put on a pipeline, that its part in Java is missing.

    Raises:
      ParameterError: says what to do, if Beam cannot download it.
    """
    try:
        yield
    except RuntimeError as error:
        if not str(error).startswith("Unable to fetch"):
            raise
        raise ParameterError(
            "Beam cannot download the Java part of its KafkaIO; start an expansion service "
            "that has it, and name it with --kafka_expansion HOST:PORT"
        ) from error
