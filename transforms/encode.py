"""From record batches to arrays: pseudonyms, value indexes, times and keys.

This is where ids and values leave the pipeline: what is shuffled after it holds the
16-byte pseudonym of a user and the index of a value.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..mechanisms.domain import Domain
from ..mechanisms.errors import InputError, ParameterError
from ..mechanisms.oracle import Array
from ..mechanisms.prf import Prf
from .records import Tally
from .texts import to_text
from .times import to_micros

#: What becomes of a missing value, or one outside the domain.
UNKNOWN_CHOICES = ("other", "drop", "fail")

#: Rows, width of a value, what there is besides, bytes of names, width of the payload.
_HEADER = struct.Struct("<IBBII")


@dataclass(frozen=True)
class EncodedRecords:
    """Records as arrays, one row each.

    Attributes:
      users: uint8[n, 16], the pseudonyms.
      values: int32[n], indexes into the domain.
      times: int64[n] in microseconds, or None.
      keys: int32[n], indexes into ``key_names``, or None where there are no keys.
      key_names: the keys' canonical texts.
      payload: uint8[n, w], what else goes with a record (of received reports), or None.
    """

    users: Array
    values: Array
    times: Array | None = None
    keys: Array | None = None
    key_names: tuple[str, ...] = ()
    payload: Array | None = None

    def __len__(self) -> int:
        return len(self.users)

    def take(self, rows: Array | slice) -> EncodedRecords:
        """The rows asked for, in that order."""
        # 16 bytes move as one item of a 16-byte type, several times faster than as a row.
        users = self.users.view(np.complex128).ravel()[rows]
        return EncodedRecords(
            users.view(np.uint8).reshape(-1, 16),
            self.values[rows],
            None if self.times is None else self.times[rows],
            None if self.keys is None else self.keys[rows],
            self.key_names,
            None if self.payload is None else self.payload[rows],
        )

    def to_arrow(self) -> pa.RecordBatch:
        """The batch that leaves ``LimitContributions``: ``user``, ``value``, ``key`` if any."""
        columns: dict[str, Any] = {
            "user": pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(16), len(self), [None, pa.py_buffer(np.ascontiguousarray(self.users))]
            ),
            "value": pa.array(self.values),
        }
        if self.keys is not None:
            columns["key"] = pa.DictionaryArray.from_arrays(
                pa.array(self.keys), pa.array(self.key_names, pa.string())
            )
        return pa.RecordBatch.from_pydict(columns)


class RecordEncoder:
    """Turns record batches into :class:`EncodedRecords`.

    Args:
      domain: the values that can be reported.
      prf: of the assignment key (or of the job's salt).
      unknown: "other" (a missing or unknown value becomes the domain's other value),
        "drop" or "fail".

    Raises:
      ParameterError: if ``unknown`` is no choice, or is "other" and the domain has none.
    """

    def __init__(self, domain: Domain, prf: Prf, unknown: str = "other") -> None:
        check_unknown(domain, unknown)
        self._domain = domain
        self._prf = prf
        self._unknown = unknown
        self._index = {value: row for row, value in enumerate(domain.values)}

    def encode(self, batch: pa.RecordBatch) -> tuple[EncodedRecords, Tally]:
        """Encodes the valid records of a batch, and tallies the others.

        Raises:
          InputError: if ``unknown`` is "fail" and a value is missing or unknown.
          ParameterError: if the batch has no ``user`` or ``value`` column.
        """
        for name in ("user", "value"):
            if name not in batch.schema.names:
                raise ParameterError(f"a batch of records needs a column {name!r}")
        tally: Tally = {}
        batch = self._with_users(_with_texts(batch), tally)
        if "event_time" in batch.schema.names and batch.column("event_time").null_count:
            tally["bad_time"] = batch.column("event_time").null_count
            batch = batch.filter(batch.column("event_time").is_valid())
        values = self._values(batch.column("value"))
        kept = values >= 0
        if not kept.all():
            missing = batch.column("value").null_count
            unknown = int(len(kept) - kept.sum()) - missing
            if self._unknown == "fail":
                raise InputError(
                    f"{missing} missing and {unknown} unknown values in one batch of "
                    f"{len(kept)} records; add them to the domain, or pass --unknown other"
                )
            tally["missing_value"] = missing
            tally["unknown_value"] = unknown
            batch, values = batch.filter(pa.array(kept)), values[kept]
        users = self._prf.pseudonyms_arrow_buffers(*_string_buffers(batch.column("user")))
        times = keys = None
        names: tuple[str, ...] = ()
        if "event_time" in batch.schema.names:
            times = batch.column("event_time").cast(pa.int64()).to_numpy(zero_copy_only=False)
        if "key" in batch.schema.names:
            encoded = batch.column("key").fill_null("").dictionary_encode()
            keys = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32)
            names = tuple(encoded.dictionary.to_pylist())
        return EncodedRecords(users, values, times, keys, names), {
            name: number for name, number in tally.items() if number
        }

    @staticmethod
    def _with_users(batch: pa.RecordBatch, tally: Tally) -> pa.RecordBatch:
        users = batch.column("user")
        # Null lengths are null, and a null is no user: both become False.
        present = pc.fill_null(pc.greater(pc.binary_length(users), 0), False)
        missing = len(present) - present.true_count
        if not missing:
            return batch
        tally["missing_user"] = missing
        return batch.filter(present)

    def _values(self, column: pa.Array) -> Array:
        """int32[n]: the index of each value, -1 where it is to be dropped."""
        other = self._domain.other_index if self._unknown == "other" else -1
        # Distinct values are looked up once each; a batch holds few of them.
        encoded = column.dictionary_encode()
        lookup = np.array(
            [self._index.get(value, other) for value in encoded.dictionary.to_pylist()] + [other],
            dtype=np.int32,
        )
        codes = encoded.indices
        if codes.null_count:
            codes = codes.fill_null(len(lookup) - 1)
        found: Array = lookup[codes.to_numpy(zero_copy_only=False)]
        return found


def _with_texts(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with users, values and keys as texts, and times as whole microseconds.

    Batches of other people's making hold numbers, dictionaries or timestamps.
    """
    for name in ("user", "value", "key", "event_time"):
        if name not in batch.schema.names:
            continue
        place = batch.schema.get_field_index(name)
        column = batch.column(place)
        if name == "event_time":
            # Also whole numbers: what lies outside the calendar becomes null.
            batch = batch.set_column(place, name, to_micros(column, "us"))
        elif not (
            pa.types.is_string(column.type)
            or (name == "user" and pa.types.is_large_string(column.type))
        ):
            batch = batch.set_column(place, name, to_text(column))
    return batch


def check_unknown(domain: Domain, unknown: str) -> None:
    """Raises ParameterError unless ``unknown`` is a choice that the domain allows."""
    if unknown not in UNKNOWN_CHOICES:
        raise ParameterError(f"unknown must be one of {', '.join(UNKNOWN_CHOICES)}")
    if unknown == "other" and domain.other_index is None:
        raise ParameterError(
            "the domain has no place for unknown values: make it with "
            "Domain(...).with_other(), or pass unknown='drop' if it is known to be closed"
        )


def _string_buffers(column: pa.Array) -> tuple[Array, Array]:
    """Offsets (int32 or int64 [n + 1]) and bytes of a string column without nulls."""
    if len(column) == 0:
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    wide = pa.types.is_large_string(column.type)
    _, offsets, data = column.buffers()
    offset_type = np.int64 if wide else np.int32
    found = np.frombuffer(offsets, offset_type)[column.offset : column.offset + len(column) + 1]
    return found, np.frombuffer(data, np.uint8)


def pack(parts: list[EncodedRecords]) -> bytes:
    """One byte string of many parts, to be shuffled or spilled; see :func:`unpack`.

    Bytes, because pickling a slice of an Arrow batch would carry the whole batch with it.
    All parts have times or none has, and the same for keys and payload.
    """
    first = parts[0]
    for part in parts:
        if _layout(part) != _layout(first):
            raise ParameterError(_MIXED)
    names: dict[str, int] = {}
    codes = []
    if first.keys is not None:
        for part in parts:
            table = np.array([names.setdefault(name, len(names)) for name in part.key_names])
            codes.append(table[part.keys].astype("<i4").tobytes() if len(part) else b"")
    text = json.dumps(list(names)).encode() if first.keys is not None else b""
    rows = sum(len(part) for part in parts)
    largest = max((int(part.values.max()) for part in parts if len(part)), default=0)
    width = 2 if largest < 2**16 else 4
    flags = (first.times is not None) + 2 * (first.keys is not None)
    payload_width = 0 if first.payload is None else first.payload.shape[1]
    chunks = [_HEADER.pack(rows, width, flags, len(text), payload_width), text]
    chunks += [np.ascontiguousarray(part.users).tobytes() for part in parts]
    chunks += [part.values.astype(f"<u{width}").tobytes() for part in parts]
    if first.times is not None:
        chunks += [part.times.astype("<i8").tobytes() for part in parts if part.times is not None]
    chunks += codes
    chunks += [part.payload.tobytes() for part in parts if part.payload is not None]
    return b"".join(chunks)


_MIXED = "batches with an event_time or a key and batches without cannot be mixed in one collection"


def _layout(records: EncodedRecords) -> tuple[bool, bool, int]:
    width = 0 if records.payload is None else int(records.payload.shape[1])
    return records.times is not None, records.keys is not None, width


def unpack(segments: list[bytes | memoryview]) -> EncodedRecords:
    """The records of packed segments, one after another.

    Raises:
      ParameterError: if there is no segment, or segments hold different columns.
    """
    if not segments:
        raise ParameterError("there must be at least one segment")
    users, values, times, keys, payloads = [], [], [], [], []
    names: dict[str, int] = {}
    for segment in segments:
        rows, width, flags, text, payload_width = _HEADER.unpack_from(segment)
        if (flags, payload_width) != _HEADER.unpack_from(segments[0])[2::2]:
            raise ParameterError(_MIXED)
        at = _HEADER.size
        table = [
            names.setdefault(name, len(names))
            for name in (json.loads(bytes(segment[at : at + text])) if text else [])
        ]
        at += text
        users.append(np.frombuffer(segment, np.uint8, rows * 16, at).reshape(rows, 16))
        at += rows * 16
        values.append(np.frombuffer(segment, f"<u{width}", rows, at))
        at += rows * width
        if flags & 1:
            times.append(np.frombuffer(segment, "<i8", rows, at))
            at += rows * 8
        if flags & 2:
            codes = np.frombuffer(segment, "<i4", rows, at)
            at += rows * 4
            keys.append(np.array(table, np.int32)[codes] if rows else codes)
        if payload_width:
            payload = np.frombuffer(segment, np.uint8, rows * payload_width, at)
            payloads.append(payload.reshape(rows, payload_width))
    return EncodedRecords(
        np.concatenate(users),
        np.concatenate(values).astype(np.int32),
        np.concatenate(times) if times else None,
        np.concatenate(keys) if keys else None,
        tuple(names),
        np.concatenate(payloads) if payloads else None,
    )
