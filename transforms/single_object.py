"""Avro's single-object encoding: one datum, and which schema it is of.

A message is two marker bytes, the 8-byte fingerprint of the schema (CRC-64-AVRO of its parsing
canonical form, little-endian), and the datum in Avro's binary encoding.
"""

from __future__ import annotations

from typing import Any

import fastavro.schema

#: What every message begins with; the second byte is the version of the encoding.
MARKER = b"\xc3\x01"
#: Bytes before the datum.
HEADER_BYTES = len(MARKER) + 8


def fingerprint(schema: Any) -> bytes:
    """The 8 bytes by which a message names its schema.

    Docs, defaults and logical types are not part of it: schemas that differ in these alone have
    the same bytes on the wire.

    Args:
      schema: an Avro schema, as ``json.loads`` gives it.

    Raises:
      fastavro.schema.SchemaParseException: if it is none.
    """
    canonical = fastavro.schema.to_parsing_canonical_form(schema)
    return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))


def frame(name: bytes, datum: bytes) -> bytes:
    """A message.

    Args:
      name: the :func:`fingerprint` of the datum's schema.
      datum: a value in Avro's binary encoding.
    """
    return MARKER + name + datum


def unframe(message: bytes) -> tuple[bytes, bytes] | None:
    """A message's fingerprint and datum, or None if it is not framed so.

    A bare datum may begin with the marker by chance: only a fingerprint that is known tells.
    """
    if len(message) < HEADER_BYTES or not message.startswith(MARKER):
        return None
    return message[len(MARKER) : HEADER_BYTES], message[HEADER_BYTES:]
