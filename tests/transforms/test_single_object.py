"""Single-object encoding: fingerprints as the specification has them, frames that come apart."""

import io
import random

import fastavro
import pytest

from hadabeam.schemas.avro import NAMES, load_schema
from hadabeam.transforms.single_object import HEADER_BYTES, fingerprint, frame, unframe

# From the tests of Avro's own implementations (share/test/data/schema-tests.txt).
KNOWN = {"null": 7195948357588979594, "int": 8247732601305521295, "string": -8142146995180207161}


def crc64(data):
    """CRC-64-AVRO bit by bit, as the specification defines it."""
    empty = 0xC15D213AA4D7A795
    found = empty
    for byte in data:
        found ^= byte
        for _ in range(8):
            found = (found >> 1) ^ (empty if found & 1 else 0)
    return found


@pytest.mark.parametrize("schema", KNOWN)
def test_known_fingerprints(schema):
    assert fingerprint(schema) == (KNOWN[schema] % 2**64).to_bytes(8, "little")


@pytest.mark.parametrize("name", NAMES)
def test_fingerprints_of_the_schemas(name):
    canonical = fastavro.schema.to_parsing_canonical_form(load_schema(name))
    assert fingerprint(load_schema(name)) == crc64(canonical.encode()).to_bytes(8, "little")


def test_docs_and_logical_types_do_not_count():
    bare = {"type": "record", "name": "R", "fields": [{"name": "t", "type": "long"}]}
    time = {"type": "long", "logicalType": "timestamp-micros"}
    full = {**bare, "doc": "A time.", "fields": [{"name": "t", "type": time, "doc": "When."}]}
    other = {**bare, "fields": [{"name": "u", "type": "long"}]}
    assert fingerprint(bare) == fingerprint(full) != fingerprint(other)


def test_frames_come_apart():
    schema = load_schema("report")
    row = {"collection": "c" * 32, "epoch": 0, "column": 5, "bit": 1, "event_time": 0}
    datum = io.BytesIO()
    fastavro.schemaless_writer(datum, fastavro.parse_schema(schema), row)
    message = frame(fingerprint(schema), datum.getvalue())
    assert message[:2] == b"\xc3\x01"
    found = unframe(message)
    assert found == (fingerprint(schema), datum.getvalue())
    read = fastavro.schemaless_reader(io.BytesIO(found[1]), schema)
    assert {name: read[name] for name in ("column", "bit", "key")} == {
        "column": 5,
        "bit": 1,
        "key": None,
    }


def test_what_is_not_framed():
    assert unframe(frame(bytes(8), b"")) == (bytes(8), b"")
    for message in (b"", b"\xc3", b"\xc3\x01", b"\xc3\x01" + bytes(7), b"\xc3\x02" + bytes(9)):
        assert unframe(message) is None
    rng = random.Random(3)
    for _ in range(200):
        message = rng.randbytes(rng.randrange(30))
        framed = len(message) >= HEADER_BYTES and message[:2] == b"\xc3\x01"
        assert (unframe(message) is not None) == framed
