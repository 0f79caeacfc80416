"""Messages become records, poison becomes dead letters, and nothing is lost between."""

import io
import json
import pickle

import apache_beam as beam
import fastavro
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.window import TimestampedValue
from hypothesis import given
from hypothesis import strategies as st

from hadabeam.mechanisms.errors import ParameterError
from hadabeam.transforms.avro_messages import MessageSchema
from hadabeam.transforms.fields import RecordFields, parse_path
from hadabeam.transforms.json_messages import JsonMessages
from hadabeam.transforms.jsonl import JsonlParser
from hadabeam.transforms.messages import ParseMessages, ReadMessages
from hadabeam.transforms.records import DEAD_LETTERS, TALLIES, add_tallies
from hadabeam.transforms.texts import to_text

CANARY = "canary-77"
GOOD = [
    {"user": 7, "page": "a", "at": 1_700_000_000},
    {"user": "u", "page": None, "at": 1_700_000_001, "more": {"x": [1]}},
]
BAD = {
    b"": "unparseable",
    b"no json " + CANARY.encode(): "unparseable",
    b'["list"]': "unparseable",
    b"{}{}": "unparseable",
    b"\xff\xfe": "unparseable",
    b'{"page": "canary-77", "at": 1}': "missing_user",
}


@pytest.fixture
def parse(tmp_path):
    """Runs the transform on ``(seconds, message)``; gives records, letters and the tally."""

    def run(fields, messages, **options):
        with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([])) as pipeline:
            parsed = (
                pipeline
                | beam.Create(messages)
                | beam.MapTuple(lambda at, message: TimestampedValue(message, at))
                | ParseMessages(fields, "kafka:h:1/t", **options)
            )
            rows = parsed[None] | beam.FlatMap(lambda batch: batch.to_pylist())
            parts = {"rows": rows, "letters": parsed[DEAD_LETTERS], "tallies": parsed[TALLIES]}
            for name, part in parts.items():
                part | f"Keep{name}" >> beam.Map(keep, str(tmp_path / name))
        kept = [kept_in(tmp_path / name) for name in parts]
        return kept[0], kept[1], add_tallies(tally for _, _, tally in kept[2])

    return run


def keep(element, path):
    with open(path, "ab") as file:
        file.write(pickle.dumps(element))


def kept_in(path):
    found = []
    if path.exists():
        with path.open("rb") as file:
            while file.tell() < path.stat().st_size:
                found.append(pickle.load(file))
    return found


def test_times_from_a_field(parse):
    fields = RecordFields("user", "page", "at")
    messages = [(5, json.dumps(record).encode()) for record in GOOD]
    # A message may spread over lines.
    messages.append((6, json.dumps({**GOOD[0], "user": 8}, indent=1).encode()))
    records, letters, tally = parse(fields, messages)
    assert sorted((row["user"], row["value"], row["event_time"]) for row in records) == [
        ("7", "a", 1_700_000_000_000_000),
        ("8", "a", 1_700_000_000_000_000),
        ("u", None, 1_700_000_001_000_000),
    ]
    assert letters == []
    assert tally == {"records_read": 3}


def test_times_of_the_messages_and_poison(parse):
    fields = RecordFields("user", "page", key="land")
    messages = [(100 + at, json.dumps(record).encode()) for at, record in enumerate(GOOD)]
    messages += [(200, message) for message in BAD]
    records, letters, tally = parse(fields, messages)
    times = sorted((row["user"], row["event_time"]) for row in records)
    assert times == [("7", 100_000_000), ("u", 101_000_000)]
    assert sorted(letter.reason for letter in letters) == sorted(BAD.values())
    assert {(letter.file, letter.position, letter.raw) for letter in letters} == {
        ("kafka:h:1/t", -1, None)
    }
    assert CANARY not in repr(letters)
    assert tally == {"records_read": 8, "unparseable": 5, "missing_user": 1}


def test_a_bad_time_is_a_dead_letter_with_its_content_if_asked(parse):
    message = b'{"user": 1, "page": "a", "at": "soon"}'
    _, letters, tally = parse(RecordFields("user", "page", "at"), [(1, message)], raw=True)
    assert [(letter.reason, letter.raw) for letter in letters] == [("bad_time", message)]
    assert tally == {"records_read": 1, "bad_time": 1}


def test_avro_records_with_the_times_of_their_messages(parse):
    schemas = []
    for name, user in (("Old", "long"), ("New", "string")):
        fields = [{"name": "user", "type": user}, {"name": "page", "type": "string"}]
        text = json.dumps({"type": "record", "name": name, "fields": fields})
        schemas.append(MessageSchema(f"{name}.avsc", text, len(schemas)))
    messages = []
    for number in range(40):
        schema = schemas[number % 2]
        out = io.BytesIO()
        user = [number, f"u{number}"][number % 2]
        parsed = fastavro.parse_schema(schema.schema)
        fastavro.schemaless_writer(out, parsed, {"user": user, "page": "a"})
        messages.append((100 + number, bytes([0, 0, 0, 0, schema.id]) + out.getvalue()))
    messages.append((300, b"\0\0\0\0\2" + CANARY.encode()))
    records, letters, tally = parse(RecordFields("user", "page"), messages, schemas=schemas)
    assert {row["user"]: row["event_time"] for row in records} == {
        ["", "u"][number % 2] + str(number): (100 + number) * 1_000_000 for number in range(40)
    }
    assert [letter.reason for letter in letters] == ["unparseable"]
    assert tally == {"records_read": 41, "unparseable": 1}


TEXT = st.text('ab\n \ue000"', max_size=4)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT, st.just({"x": [1]}))


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=20),
            st.builds(
                lambda row, indent: json.dumps(row, indent=indent).encode(),
                st.dictionaries(st.sampled_from(["user", "a", "page"]), VALUES),
                st.sampled_from([None, 0, 1]),
            ),
            st.sampled_from([*BAD, b'{"user": "a" 1}', b' {"user": 1}\r\n', b'{}\n{"user": 2}']),
        ),
        min_size=10,
        max_size=60,
    )
)
def test_json_messages_of_a_bundle_do_not_mind_each_other(messages):
    fields = ("user", "page", "a.x")
    alone = JsonlParser([parse_path(name) for name in fields])
    expected = {number: alone.read_line(message) for number, message in enumerate(messages)}
    found = {}
    for rows in JsonMessages(fields)(messages):
        texts = [to_text(column).to_pylist() for column in rows.columns]
        places = rows.positions.tolist()
        found.update(zip(places, map(list, zip(*texts, strict=True)), strict=bool(texts)))
        found.update(dict.fromkeys(rows.bad_positions.tolist()))
    assert found == expected


@pytest.mark.parametrize(
    "source",
    ["kafka:host/topic", "kafka:host:1", "kafka:h:1/a/b", "pubsub:name", "file.jsonl", "kafka:"],
)
def test_sources_of_another_form_are_refused(source):
    with pytest.raises(ParameterError, match="HOST:PORT/TOPIC"):
        ReadMessages(source, RecordFields("u", "v"))


def test_options_belong_to_their_broker():
    fields = RecordFields("u", "v")
    with pytest.raises(ParameterError, match="kafka"):
        ReadMessages("pubsub:projects/p/subscriptions/s", fields, consumer_options={"a": "b"})
    with pytest.raises(ParameterError, match="pubsub"):
        ReadMessages("kafka:h:1,g:2/t", fields, id_attribute="id")
