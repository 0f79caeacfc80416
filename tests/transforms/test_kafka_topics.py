"""How topics are named, when two names are one topic, and which options would undo a name."""

from __future__ import annotations

import pytest

from hadabeam.mechanisms.errors import ParameterError
from hadabeam.transforms.fields import RecordFields
from hadabeam.transforms.kafka_topics import check_options, java_part, kafka_topic
from hadabeam.transforms.messages import ReadMessages


def test_forms():
    assert kafka_topic("kafka:a:1,b:2/t.x_-9") == ("a:1,b:2", "t.x_-9")
    for text in ("kafka:a/t", "kafka:a,b:1/t", "kafka:a:1/t/u", "kafka:a:1/", "a:1/t", ""):
        assert kafka_topic(text) is None, text
    with pytest.raises(ParameterError, match="cannot be called"):
        kafka_topic("kafka:a:1/..")


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("kafka:a:1/t", True),
        ("kafka:b:2,A:1/t", True),
        ("kafka:a:1/T", False),
        ("kafka:a:2/t", False),
        ("kafka:c:1/t", False),
    ],
)
def test_one_topic(other, same):
    assert kafka_topic("kafka:a:1,b:1/t").same_as(kafka_topic(other)) == same


def test_options_that_would_undo_the_name():
    check_options({"group.id": "g", "key.serializer": "x"}, "deserializer")
    for name in ("bootstrap.servers", "key.deserializer", "value.deserializer"):
        with pytest.raises(ParameterError, match=f"leave {name} out"):
            check_options({name: "x"}, "deserializer")


def test_passwords_in_options_are_not_shown():
    options = {"sasl.jaas.config": 'password="hunter2"'}
    source = ReadMessages("kafka:h:1/t", RecordFields("u", "v"), consumer_options=options)
    assert "hunter2" not in repr(source)


def test_a_java_part_that_cannot_be_had():
    with pytest.raises(ParameterError, match="--kafka_expansion"), java_part():
        raise RuntimeError("Unable to fetch remote job server jar at https://repo.example")
    with pytest.raises(RuntimeError, match="another"), java_part():
        raise RuntimeError("another")
