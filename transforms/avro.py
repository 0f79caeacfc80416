"""Reads Avro: groups of blocks, of which only the fields that are asked for are decoded."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import fastavro
import numpy as np

from ..mechanisms.errors import InputError
from .avro_container import (
    DAMAGE,
    MAGIC,
    SYNC_BYTES,
    Header,
    Stream,
    decompress,
    one_block,
    plan_blocks,
    read_header,
)
from .avro_fields import AvroFields
from .rows import Rows
from .streams import open_source

__all__ = ["MAGIC", "AvroReader", "Group", "plan_blocks"]

_logger = logging.getLogger(__name__)

_ROWS = 1 << 15
_BYTES = 4 << 20
_COUNTED = 1 << 20  # a damaged block that claims more rows than this counts as one


class Group(NamedTuple):
    """Some blocks of a file, still compressed.

    Attributes:
      first_row: the number of the first row.
      blocks: rows and compressed bytes of each.
      lost: how many rows after them are lost, because the file is damaged there.
    """

    first_row: int
    blocks: list[tuple[int, bytes]]
    lost: int = 0


class AvroReader:
    """Reads one split of a file. Several threads may decode groups.

    Args:
      path: the file.
      compression: of the file as a whole (blocks have a codec of their own).
      fields: names or paths.

    Raises:
      InputError: if the file cannot be opened, is no Avro file, or lacks a field.
    """

    def __init__(self, path: str, compression: str, fields: Sequence[str]) -> None:
        self._path = path
        self._compression = compression
        source = open_source(path, compression)
        try:
            self._header: Header = read_header(Stream(source), path)
        finally:
            source.close()
        self._fields = AvroFields(path, self._header.schema, fields)
        self._schema = self._fields.schema
        self._reader_schema = _project(self._schema, {names[0] for names in self._fields.paths})
        try:
            self._decode(0, b"")
        except DAMAGE:
            raise InputError(f"{path} has a schema that fastavro cannot read") from None

    def groups(self, start: int, end: int | None, first_row: int) -> Iterator[Group]:
        """The blocks in ``[start, end)``. They end where the file is cut or damaged."""
        plain = self._compression == "none"
        start = max(start, self._header.size)
        source = open_source(self._path, self._compression, start if plain else 0, end)
        try:
            stream = Stream(source)
            if not plain:
                stream.read(start)
            blocks: list[tuple[int, bytes]] = []
            rows = size = lost = 0
            while not lost:
                position = stream.position
                number = 1
                try:
                    number = stream.read_long()
                    length = stream.read_long()
                    data = stream.read(length)
                    if stream.read(SYNC_BYTES) != self._header.sync or number < 0:
                        raise ValueError
                except (EOFError, ValueError):
                    at_end = stream.position == position and stream.exhausted
                    if source.damaged or not at_end:
                        lost = _plausible(number)
                        _logger.warning(
                            "%s is cut or damaged from row %d on", self._path, first_row + rows
                        )
                    break
                blocks.append((number, data))
                rows += number
                size += length
                if rows >= _ROWS or size >= _BYTES:
                    yield Group(first_row, blocks)
                    first_row += rows
                    blocks, rows, size = [], 0, 0
            if blocks or lost:
                yield Group(first_row, blocks, lost)
        finally:
            source.close()

    def parse(self, group: Group) -> Rows:
        """The columns of a group, of the types that its values have.

        Rows of a block that cannot be decoded are unparseable, all of them.
        """
        total = sum(rows for rows, _ in group.blocks)
        try:
            data = b"".join(decompress(self._header.codec, data) for _, data in group.blocks)
            records = self._decode(total, data)
            good = np.ones(total, bool)
        except DAMAGE:
            records, good = self._decode_each(group)
        columns = self._fields.columns(records)
        numbers = group.first_row + np.arange(total)
        lost = group.first_row + total + np.arange(group.lost)
        return Rows(columns, numbers[good], np.concatenate([numbers[~good], lost]))

    def _decode(self, rows: int, data: bytes) -> list[Any]:
        file = io.BytesIO(one_block(self._schema, rows, data))
        records = list(fastavro.reader(file, self._reader_schema))
        if len(records) != rows:
            raise ValueError
        return records

    def _decode_each(self, group: Group) -> tuple[list[Any], Any]:
        records: list[Any] = []
        good: list[bool] = []
        for rows, data in group.blocks:
            try:
                found = self._decode(rows, decompress(self._header.codec, data))
            except DAMAGE:
                found = []
            records += found
            good += [bool(found)] * rows
        return records, np.array(good, bool)


def _plausible(rows: int) -> int:
    return rows if 0 < rows <= _COUNTED else 1


def _project(schema: Any, names: set[str]) -> Any:
    """The schema to decode with: of few fields among many these alone, else all.

    fastavro matches two schemas at a price for each field, so it must save many.
    """
    if len(schema["fields"]) <= 4 * len(names):
        return None
    reader = {**schema, "fields": [f for f in schema["fields"] if f["name"] in names]}
    try:
        fastavro.parse_schema(reader)
    except DAMAGE:
        return None  # a type that is needed is defined in a field that is not
    return reader
