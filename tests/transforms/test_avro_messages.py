"""Avro messages: framings, damage, and the same records as from JSON and from an Avro file."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import resource
import uuid
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hadabeam.mechanisms.errors import InputError, ParameterError
from hadabeam.transforms.avro_messages import AvroMessages, MessageSchema
from hadabeam.transforms.extract import Extractor
from hadabeam.transforms.fields import RecordFields
from hadabeam.transforms.json_messages import JsonMessages
from hadabeam.transforms.reading import read_split
from hadabeam.transforms.single_object import fingerprint, frame
from hadabeam.transforms.splits import plan_splits

MOMENT = datetime.datetime(2024, 3, 1, 10, 30, 5, 250_000, tzinfo=datetime.timezone.utc)


def record(name: str, **fields: Any) -> dict[str, Any]:
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


VISIT = record("Visit", user="string", page=["null", "string"], n="long")
OTHER = record("Other", n="long", page="string", user="long")


def schema(content: Any, id: int | None = None) -> MessageSchema:
    return MessageSchema("visit.avsc", json.dumps(content), id)


def encode(content: Any, row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(content), row)
    return out.getvalue()


def varint(number: int) -> bytes:
    """A zigzag varint, of any size."""
    number = 2 * number if number >= 0 else -2 * number - 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def parse(parser: Any, messages: list[bytes]) -> dict[int, Any]:
    """What each message gave: ``(user, page)``, or None where it could not be parsed."""
    found: dict[int, Any] = {}
    for rows in parser(messages):
        columns = [column.to_pylist() for column in rows.columns]
        records = zip(*columns, strict=True) if columns else []
        places = [*rows.positions.tolist(), *rows.bad_positions.tolist()]
        assert not set(places) & set(found)
        found.update(dict.fromkeys(rows.bad_positions.tolist()))
        found.update(zip(rows.positions.tolist(), records, strict=True))
    assert sorted(found) == list(range(len(messages)))
    return found


ROW = {"user": "ada", "page": "home", "n": 3}


def test_single_objects_are_told_by_their_fingerprint() -> None:
    parser = AvroMessages([schema(VISIT), schema(OTHER)], ["user", "page"])
    datum = encode(VISIT, ROW)
    other = encode(OTHER, {"n": 1, "page": "cart", "user": 7})
    messages = [
        frame(fingerprint(OTHER), other),
        frame(fingerprint(VISIT), datum),
        frame(b"nobody's", datum),
        frame(fingerprint(VISIT), datum + b"\0"),
        frame(fingerprint(VISIT), datum[:-1]),
        frame(fingerprint(VISIT), b""),
        datum,  # of which schema?
        b"",
        b"\xc3\x01",
    ]
    assert parse(parser, messages) == {
        0: (7, "cart"),
        1: ("ada", "home"),
        **dict.fromkeys(range(2, 9)),
    }


def test_schemas_of_a_registry_are_told_by_their_id() -> None:
    parser = AvroMessages(
        [schema(VISIT, 7), schema(OTHER, 2**32 - 1), schema(VISIT, 9)], ["user", "page"]
    )
    datum = encode(VISIT, ROW)
    messages = [
        b"\0\0\0\0\x07" + datum,
        b"\0\xff\xff\xff\xff" + encode(OTHER, {"n": 1, "page": "cart", "user": 7}),
        b"\0\0\0\0\x09" + datum,
        frame(fingerprint(VISIT), datum),
        b"\0\0\0\0\x08" + datum,
        b"\0\0\0\0\x07" + datum + b"x",
        b"\0\0\0\0\x07",
        b"\0\0",
        b"\x01\0\0\0\x07" + datum,
    ]
    expected = dict.fromkeys((0, 2, 3), ("ada", "home")) | {1: (7, "cart")}
    assert parse(parser, messages) == expected | dict.fromkeys(range(4, 9))


def test_bare_data_are_read_where_one_schema_is_given_without_id() -> None:
    datum = encode(VISIT, ROW)
    assert parse(AvroMessages([schema(VISIT)], ["user", "page"]), [datum]) == {0: ("ada", "home")}
    assert parse(AvroMessages([schema(VISIT, 1)], ["user", "page"]), [datum]) == {0: None}
    # Bytes that a framing begins with, in bare data: the numbers -98 and 0.
    numbers = record("Numbers", n="long", user="string")
    messages = [encode(numbers, {"n": n, "user": "u" * 9}) for n in (-98, 0)]
    assert messages[0].startswith(b"\xc3\x01")
    found = parse(AvroMessages([schema(numbers)], ["n"]), messages)
    assert found == {0: (-98,), 1: (0,)}


TYPES = record(
    "Types",
    user=["null", "long", "string"],
    page={"type": "enum", "name": "Page", "symbols": ["home", "cart"]},
    ms={"type": "long", "logicalType": "timestamp-millis"},
    us=["null", {"type": "long", "logicalType": "timestamp-micros"}],
    day={"type": "int", "logicalType": "date"},
    id={"type": "string", "logicalType": "uuid"},
    price={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    ratio="double",
    raw="bytes",
    on="boolean",
    a=["null", record("A", b=["null", "string", "long"], at=["null", "long"])],
    unread={"type": "map", "values": "string"},
)


def typed_row(number: int) -> dict[str, Any]:
    return {
        "user": [None, 7, "u7", 2**60][number % 4],
        "page": ["home", "cart"][number % 2],
        "ms": MOMENT,
        "us": None if number % 3 == 0 else MOMENT,
        "day": MOMENT.date(),
        "id": uuid.UUID(int=number),
        "price": decimal.Decimal(["7.50", "-0.05"][number % 2]),
        "ratio": [7.0, 0.1][number % 2],
        "raw": b"bytes",
        "on": number % 2 == 0,
        "a": [None, {"b": "x", "at": 5}, {"b": 9, "at": None}][number % 3],
        "unread": {"x": "y"},
    }


def as_json(row: dict[str, Any]) -> bytes:
    """The same record as somebody writes it in JSON."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            return value.strftime("%Y-%m-%dT%H:%M:%S.%f").rstrip("0") + "Z"
        if isinstance(value, decimal.Decimal):
            return float(value)
        if isinstance(value, bytes):
            return value.decode()
        return str(value)

    return json.dumps(row, default=plain).encode()


@pytest.mark.parametrize(
    "fields",
    [
        RecordFields("user", "page", "ms", "a.b"),
        RecordFields("id", "price", "us", "day"),
        RecordFields("ratio", "raw", "day", "on"),
        RecordFields("us", "ms", "a.at"),
    ],
)
def test_json_avro_files_and_avro_messages_give_the_same(
    tmp_path: Path, fields: RecordFields
) -> None:
    data = [typed_row(number) for number in range(60)]
    path = tmp_path / "rows.avro"
    with path.open("wb") as file:
        fastavro.writer(file, TYPES, data)

    extract = Extractor(fields, "x")
    (split,) = plan_splits(str(path), path.stat().st_size)
    from_file = list(read_split(split, fields.columns, extract, threads=0))
    avro = AvroMessages([schema(TYPES)], fields.columns)([encode(TYPES, row) for row in data])
    from_avro = [extract(rows) for rows in avro]
    from_json = [extract(rows) for rows in JsonMessages(fields.columns)(list(map(as_json, data)))]
    expected = [row for found in from_file for row in found.records.to_pylist()]
    assert expected
    for parsed in (from_avro, from_json):
        assert [row for found in parsed for row in found.records.to_pylist()] == expected
        assert parsed[0].tally == from_file[0].tally
        reasons = [letter.reason for letter in parsed[0].dead_letters]
        assert reasons == [letter.reason for letter in from_file[0].dead_letters]


@given(st.lists(st.binary(max_size=60), max_size=5), st.data())
def test_any_bytes_are_a_record_or_a_dead_letter(messages: list[bytes], data: Any) -> None:
    parser = AvroMessages([schema(TYPES), schema(VISIT, 7)], ["user", "page"])
    bare = AvroMessages([schema(TYPES)], ["day", "price", "us", "a.b"])
    datum = bytearray(encode(TYPES, typed_row(data.draw(st.integers(0, 11)))))
    for _ in range(data.draw(st.integers(0, 3))):
        datum[data.draw(st.integers(0, len(datum) - 1))] = data.draw(st.integers(0, 255))
    body = bytes(datum[: data.draw(st.integers(0, len(datum)))])
    messages = [*messages, body, frame(fingerprint(TYPES), body), b"\0\0\0\0\7" + body]
    for parse_all in (parser, bare):
        names = ("user", "page") if parse_all is parser else ("day", "price", "us", "a.b")
        extract = Extractor(RecordFields(*names), "x")
        read = 0
        for rows in parse_all(messages):
            found = extract(rows)
            read += found.records.num_rows + len(found.dead_letters)
        assert read == len(messages)


@given(st.binary(max_size=200), st.integers(0, 3))
def test_a_record_is_all_of_its_message(extra: bytes, cut: int) -> None:
    datum = encode(VISIT, ROW)
    damaged = datum + extra if not cut else datum[:-cut]
    found = parse(AvroMessages([schema(VISIT)], ["user", "page"]), [damaged])
    assert (found[0] is not None) == (damaged == datum)


def test_fields_that_are_not_read_are_whole_too() -> None:
    wide = record("Wide", user="string", **{f"f{number}": "string" for number in range(30)})
    datum = encode(wide, {name["name"]: "text" for name in wide["fields"]})
    parser = AvroMessages([schema(wide)], ["user"])
    cut = [datum[:-size] for size in (1, 3, 4, 5, 7)]
    assert parse(parser, [datum, *cut]) == {0: ("text",)} | dict.fromkeys(range(1, 6))


def test_lengths_that_no_message_has_take_no_memory() -> None:
    many = record(
        "Many",
        user="string",
        list={"type": "array", "items": "long"},
        map={"type": "map", "values": "null"},
        price={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    messages = [
        varint(2**60) + b"ada",
        varint(-(2**60)) + b"ada",
        b"\xff" * 100,
        b"\x02u" + varint(2**60) + b"\x02",
        b"\x02u" + varint(-(2**60)) + varint(2**60) + b"\x02",
        b"\x02u\0" + varint(2**60) + b"\x02k",
        b"\x02u\0\0" + varint(2**60) + b"\x07",
        # Python would take minutes for such a number.
        b"\x02u\0\0" + varint(1_000_000) + b"\x7f" * 1_000_000,
    ]
    parser = AvroMessages([schema(many)], ["user", "price"])
    assert parse(parser, messages) == dict.fromkeys(range(len(messages)))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100_000, f"{grown} kB"
    good = b"\x02u\0\0\x04\x02\xee"
    assert parse(parser, [good])[0] == ("u", "7.5")


def test_dates_and_times_that_python_cannot_hold_are_missing() -> None:
    times = record("Times", day=TYPES["fields"][4]["type"], us=TYPES["fields"][3]["type"])
    data = [
        varint(day) + b"\x02" + varint(us)
        for day, us in [
            (0, 0),
            (2**31 - 1, 2**62),
            (-(2**62), -(2**62)),
            (2**62, 5),
            (3, 2**63 - 1),
        ]
    ]
    (rows,) = AvroMessages([schema(times)], ["day", "us"])(data)
    texts = Extractor(RecordFields("day", "us"), "x")(rows)
    assert [letter.reason for letter in texts.dead_letters] == ["missing_user"] * 3
    assert texts.records.to_pylist() == [
        {"user": "1970-01-01", "value": "1970-01-01T00:00:00Z"},
        {"user": "1970-01-04", "value": None},
    ]
    found = Extractor(RecordFields("us", "us", "day"), "x")(rows)
    assert found.tally == {"records_read": 5, "missing_user": 3, "bad_time": 1}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "no Avro schema"),
        ('{"type": "record"}', "no Avro schema"),
        ('{"type": "record", "name": "R", "fields": 3}', "no Avro schema"),
        (json.dumps(record("R", a="Unknown")), "no Avro schema: Unknown"),
        ('"string"', "must be records"),
        ("[]", "must be records"),
        (json.dumps(record("R", next=["null", "R"])), "nests R in itself"),
        (json.dumps(record("R", a={"type": "array", "items": "null"})), "take no bytes"),
        (
            json.dumps(record("R", a={"type": "array", "items": record("E", b="null")})),
            "take no bytes",
        ),
        (
            json.dumps(record("R", a={"type": "fixed", "name": "F", "size": -1})),
            "no whole number",
        ),
    ],
)
def test_bad_schemas_say_so(content: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        MessageSchema("visit.avsc", content)
    assert str(caught.value).startswith("visit.avsc ")


def test_types_that_are_named_again_are_no_nesting() -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["a"]}
    content = record("R", user=enum, page="E", all={"type": "array", "items": "E"})
    row = {"user": "a", "page": "a", "all": ["a", "a"]}
    found = parse(AvroMessages([schema(content)], ["user", "page"]), [encode(content, row)])
    assert found == {0: ("a", "a")}


def test_fields_and_ids_are_checked() -> None:
    with pytest.raises(InputError, match="has no field 'usr'; did you mean 'user'"):
        AvroMessages([schema(VISIT)], ["usr"])
    with pytest.raises(ParameterError, match="7 is given twice"):
        AvroMessages([schema(VISIT, 7), schema(OTHER, 7)], ["user"])
    with pytest.raises(ParameterError, match="4 bytes"):
        schema(VISIT, 2**32)
    with pytest.raises(ParameterError, match="need a schema"):
        AvroMessages([], ["user"])
