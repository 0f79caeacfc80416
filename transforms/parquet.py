"""Reads Parquet: by row groups, and of those only the columns that are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..mechanisms.errors import InputError
from .fields import Path, format_path, missing_field, parse_path
from .rows import Rows
from .streams import open_file

MAGIC = b"PAR1"
_ROWS = 1 << 16


@contextmanager
def _open(path: str) -> Iterator[pq.ParquetFile]:
    """The opened file. What arrow says of a damaged one may quote it, so we do not."""
    handle = open_file(path)
    try:
        # Buffered, not pre-buffered: a row group can be far larger than what is asked of it.
        with pq.ParquetFile(handle, pre_buffer=False, buffer_size=1 << 20) as file:
            yield file
    except (pa.ArrowException, OSError):
        raise InputError(
            f"{path} is no Parquet file, or is damaged or cut; write it again, or leave it out"
        ) from None
    finally:
        handle.close()


def plan_groups(path: str, split_bytes: int) -> list[tuple[int, int, int]]:
    """Divides the row groups of a file into parts of about ``split_bytes``.

    Returns:
      First row group, the one after the last, and the number of the first row.

    Raises:
      InputError: if the file cannot be used.
    """
    parts = []
    with _open(path) as file:
        first = size = row = rows = 0
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            rows += group.num_rows
            size += sum(group.column(i).total_compressed_size for i in range(group.num_columns))
            if size >= split_bytes or number == file.metadata.num_row_groups - 1:
                parts.append((first, number + 1, row))
                first, size, row = number + 1, 0, rows
    return parts


def read_groups(
    path: str, start: int, end: int | None, first_row: int, fields: Sequence[str]
) -> Iterator[Rows]:
    """Reads fields of the row groups ``[start, end)``, some 65,000 rows at a time.

    The columns have the types that the file gives them.

    Raises:
      InputError: if the file cannot be used or lacks a field.
    """
    with _open(path) as file:
        paths = [_resolve(path, file.schema_arrow, field) for field in fields]
        leaves = list(dict.fromkeys(".".join(names) for names in paths))
        groups = range(start, file.metadata.num_row_groups if end is None else end)
        for batch in file.iter_batches(_ROWS, list(groups), leaves, use_threads=False):
            columns = [_descend(batch, names) for names in paths]
            yield Rows(columns, np.arange(first_row, first_row + batch.num_rows))
            first_row += batch.num_rows


def _resolve(path: str, schema: pa.Schema, field: str) -> Path:
    """The names of a column; the name as it stands goes before a path into a struct."""
    if schema.get_field_index(field) >= 0:
        return (field,)
    names = parse_path(field)
    level: Any = schema
    for name in names:
        if level is None or (index := level.get_field_index(name)) < 0:
            raise missing_field(path, field, _names(schema))
        kind = level.field(index).type
        level = kind if pa.types.is_struct(kind) else None
    return names


def _names(level: Any, above: Path = ()) -> Iterator[str]:
    for index in range(level.num_fields if isinstance(level, pa.DataType) else len(level)):
        field = level.field(index)
        if pa.types.is_struct(field.type):
            yield from _names(field.type, (*above, field.name))
        else:
            yield format_path((*above, field.name))


def _descend(batch: pa.RecordBatch, names: Path) -> pa.Array:
    column = batch.column(names[0])
    for name in names[1:]:
        column = pc.struct_field(column, [name])
    return column
