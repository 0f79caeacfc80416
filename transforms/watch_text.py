"""How the text of a followed file is cut and parsed, and what is made of rows of reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from .blocks import Block
from .csv_format import read_header
from .reading import text_parser
from .records import DeadLetter, Tally
from .rows import Rows
from .splits import Split, detect
from .streams import open_source, strip_compression

_BOM = b"\xef\xbb\xbf"


@dataclass
class FollowedText:
    """How the text of one file is cut and parsed.

    Attributes:
      parse: a block to rows of the fields.
      cutter: knows where records end.
      fields: what is read.
      start: where the first record starts: after a CSV header or a byte order mark.
    """

    parse: Callable[[Block], Rows]
    cutter: Any
    fields: tuple[str, ...]
    start: int

    @staticmethod
    def of(path: str, format: str, fields_of: Callable[[Split], tuple[str, ...]]) -> FollowedText:
        """Looks at the start of a file, which must hold a whole line.

        Raises:
          InputError: if its format cannot be told, or it lacks a field.
        """
        format, compression = detect(path, format)
        split = Split(path, format, compression)
        start = 0
        source = open_source(path, compression)
        try:
            if format == "csv":
                header = read_header(source, strip_compression(path)[0])
                split = split._replace(header=header)
                start = header.end if header is not None else 0
            elif _read_start(source) == _BOM:
                start = len(_BOM)
        finally:
            source.close()
        names = fields_of(split)
        parse, cutter = text_parser(split, names)
        return FollowedText(parse, cutter, names, start)


def _read_start(source: Any) -> bytes:
    buffer = bytearray(len(_BOM))
    with memoryview(buffer) as view:
        return bytes(buffer[: source.readinto(view)])


def report_rows_batch(
    path: str, rows: Rows, names: tuple[str, ...]
) -> tuple[pa.RecordBatch, list[DeadLetter], Tally]:
    """Rows of reports as they are, for ``ReceiveReports``, and those that could not be parsed."""
    bad = len(rows.bad_positions)
    letters = [DeadLetter("unparseable", path, int(at)) for at in rows.bad_positions]
    tally = {"records_read": bad, "unparseable": bad} if bad else {}
    columns = dict(zip(names, rows.columns, strict=False))
    if not columns:
        return pa.RecordBatch.from_pydict({}), letters, tally
    columns["position"] = pa.array(rows.positions)
    batch = pa.RecordBatch.from_pydict(columns)
    return batch.replace_schema_metadata({"file": path}), letters, tally
