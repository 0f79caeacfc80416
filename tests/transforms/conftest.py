"""Writes the same records in every format, and reads files without a pipeline."""

from __future__ import annotations

import bz2
import csv
import datetime
import gzip
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import settings

from hadabeam.transforms.extract import Extractor
from hadabeam.transforms.fields import RecordFields
from hadabeam.transforms.reading import read_split
from hadabeam.transforms.records import DeadLetter, add_tallies
from hadabeam.transforms.splits import plan_splits

# The same examples in every run, however busy the machine is.
settings.register_profile("hadabeam", deadline=None, derandomize=True)
settings.load_profile("hadabeam")

SUFFIXES = {"none": "", "gzip": ".gz", "bzip2": ".bz2", "zstd": ".zst"}


class Log(NamedTuple):
    """What was read: rows with their numbers, dead letters sorted, and the tally."""

    rows: Counter[tuple[Any, ...]]
    letters: list[DeadLetter]
    tally: dict[str, int]


def compress(data: bytes, compression: str) -> bytes:
    return {
        "none": bytes,
        "gzip": gzip.compress,
        "bzip2": bz2.compress,
        "zstd": zstandard.ZstdCompressor().compress,
    }[compression](data)


def encode(rows: list[dict[str, Any]], format: str, **options: Any) -> bytes:
    """Rows of texts, numbers, None and datetimes (``time``, UTC) as bytes of a format."""
    names = list(rows[0]) if rows else ["user", "page", "time"]
    if format == "parquet":
        out = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), out, row_group_size=options.get("group", 100))
        return out.getvalue()
    if format == "avro":
        types = {"time": {"type": "long", "logicalType": "timestamp-micros"}}
        fields = [
            {"name": name, "type": ["null", types.get(name, "string")], "default": None}
            for name in names
        ]
        schema = {"type": "record", "name": "visit", "fields": fields}
        out = io.BytesIO()
        fastavro.writer(
            out,
            schema,
            rows,
            codec=options.get("codec", "deflate"),
            sync_interval=options.get("interval", 1000),
        )
        return out.getvalue()
    texts = [
        {k: v.isoformat() if isinstance(v, datetime.datetime) else v for k, v in row.items()}
        for row in rows
    ]
    if format == "jsonl":
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in texts).encode()
    delimiter = "\t" if format == "tsv" else ","
    text = io.StringIO()
    writer = csv.DictWriter(text, names, delimiter=delimiter, lineterminator="\n")
    writer.writeheader()
    writer.writerows(texts)
    return text.getvalue().encode()


class Files:
    """Files in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    encode = staticmethod(encode)

    def write(
        self, rows: list[dict[str, Any]], format: str, compression: str = "none", **options: Any
    ) -> str:
        data = compress(encode(rows, format, **options), compression)
        return self.write_bytes(f"log.{format}{SUFFIXES[compression]}", data)

    def write_bytes(self, name: str, data: bytes) -> str:
        path = self.folder / name
        path.write_bytes(data)
        return str(path)

    def read(
        self,
        path: str,
        fields: RecordFields,
        *,
        block_bytes: int = 1 << 20,
        threads: int = 0,
        time_unit: str = "auto",
        raw: bool = False,
        **planning: Any,
    ) -> Log:
        """Plans the file's splits and reads them all."""
        rows: Counter[tuple[Any, ...]] = Counter()
        letters: list[DeadLetter] = []
        tallies: list[dict[str, int]] = []
        for split in plan_splits(path, Path(path).stat().st_size, **planning):
            extract = Extractor(fields, path, time_unit, raw)
            for batch, lost, tally in read_split(
                split, fields.columns, extract, block_bytes=block_bytes, threads=threads
            ):
                batch.validate(full=True)
                rows.update(zip(*batch.to_pydict().values(), strict=True))
                letters += lost
                tallies.append(tally)
        letters.sort(key=lambda letter: (letter.position, letter.reason))
        return Log(rows, letters, add_tallies(tallies))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)
