"""Writers of results: estimates, the summary, dead letters.

Each gathers what a finished run gives out and writes one file, whole or not at all. They
are for bounded collections; the numbers of a stream are written pane by pane elsewhere.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from os import PathLike
from typing import IO, Any

import apache_beam as beam
import orjson
import pyarrow as pa
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.window import GlobalWindows

from . import files
from .encodings import TableEncoder, check_format
from .records import DeadLetter
from .runs import Runs
from .tables import EstimateTable

#: Dead letters that are sorted in memory at a time.
_LETTERS_PER_RUN = 100_000


def write_table(table: pa.Table, path: str, format: str, schema: str = "estimate") -> None:
    """Writes a table as one file, whole or not at all, in place of an earlier one.

    Equal tables give equal files, byte for byte.

    Args:
      table: has the columns of the schema.
      path: the file, on any of Beam's file systems.
      format: ``avro``, ``parquet``, ``csv`` or ``jsonl``.
      schema: the name of the schema, as ``estimate``.

    Raises:
      ParameterError: if the format is unknown.
      InputError: if the file system refuses.
    """
    check_format(format)

    def write(file: IO[bytes]) -> None:
        with TableEncoder(file, format, schema) as encoder:
            encoder.write(table)

    files.write_file(path, write)


def write_json(content: dict[str, Any], path: str) -> None:
    """Writes an object as indented JSON with sorted names.

    Raises:
      InputError: if the file system refuses.
      ValueError: if a number is infinite or NaN, which JSON does not have.
    """
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    files.write_file(path, lambda file: _write_all(file, text.encode("utf-8") + b"\n"))


def _write_all(file: IO[bytes], content: bytes) -> None:
    file.write(content)


class _Gathered(beam.PTransform):
    """Gives all elements, as one list, to one call of a function.

    The function is called once even where there are no elements.

    Input: PCollection[T]. Output: PCollection[str], of what the function returns.
    """

    def __init__(self, function: Any) -> None:
        super().__init__()
        self._function = function

    def expand(self, pcoll: beam.PCollection[Any]) -> beam.PCollection[str]:
        everything = pcoll | "Rewindow" >> beam.WindowInto(GlobalWindows())
        return (
            pcoll.pipeline
            | "Once" >> beam.Create([None])
            | "Write"
            >> beam.Map(
                lambda _, elements, function: function(list(elements)),
                beam.pvalue.AsIter(everything),
                self._function,
            ).with_output_types(str)
        )


class WriteEstimates(beam.PTransform):
    """Writes all estimates of a job as one table, ``PREFIX-estimates.<format>``.

    Rows are sorted by window, key and domain order, so that the same estimates give the
    same file in whatever order they arrive.

    Input: PCollection[EstimateTable]. Output: PCollection[str], the path.

    Args:
      prefix: what the file's name begins with (public).
      format: ``avro`` (default), ``parquet``, ``csv`` or ``jsonl``.

    Raises:
      ParameterError: if the prefix is a folder or the format is unknown.
    """

    def __init__(self, prefix: str | PathLike[str], format: str = "avro") -> None:
        super().__init__()
        self.path = f"{files.check_prefix(prefix)}-estimates.{check_format(format)}"
        self.format = format

    def expand(self, tables: beam.PCollection[EstimateTable]) -> beam.PCollection[str]:
        path, format = self.path, self.format
        return (
            tables
            | "ToArrow" >> beam.Map(_to_arrow).with_output_types(Any)
            | "Gather" >> _Gathered(lambda found: _write_estimates(found, path, format))
        )


def _to_arrow(table: EstimateTable) -> tuple[Any, pa.Table]:
    return table.order, table.to_arrow()


def _write_estimates(found: list[tuple[Any, pa.Table]], path: str, format: str) -> str:
    from ..schemas.avro import arrow_schema

    found.sort(key=lambda item: item[0])
    tables = [table for _, table in found]
    table = pa.concat_tables(tables) if tables else arrow_schema("estimate").empty_table()
    write_table(table, path, format)
    return path


class WriteSummary(beam.PTransform):
    """Writes a job's summary as ``PREFIX-summary.json``, indented, names sorted.

    Input: PCollection[dict] with one element. Output: PCollection[str], the path.

    Args:
      prefix: what the file's name begins with (public).

    Raises:
      ParameterError: if the prefix is a folder.
      ValueError: (when run) if there is not exactly one summary.
    """

    def __init__(self, prefix: str | PathLike[str]) -> None:
        super().__init__()
        self.path = f"{files.check_prefix(prefix)}-summary.json"

    def expand(self, summaries: beam.PCollection[dict[str, Any]]) -> beam.PCollection[str]:
        path = self.path
        return summaries | "Gather" >> _Gathered(lambda found: _write_summary(found, path))


def _write_summary(found: list[dict[str, Any]], path: str) -> str:
    if len(found) != 1:
        raise ValueError(f"a job has one summary, not {len(found)}")
    write_json(found[0], path)
    return path


class WriteDeadLetters(beam.PTransform):
    """Writes dead letters, if any, as ``PREFIX-dead-letters.jsonl``, sorted by file and position.

    They may hold private content, if that was asked for; only the file's owner can read it.

    Where there are none, the file of an earlier run is removed: what stands beside a
    summary belongs to it. Millions of dead letters (a folder of the wrong files) are
    sorted in runs on the disk, not in memory.

    Input: PCollection[DeadLetter]. Output: PCollection[str], the path if there are any.

    Args:
      prefix: what the file's name begins with (public).

    Raises:
      ParameterError: if the prefix is a folder.
    """

    def __init__(self, prefix: str | PathLike[str]) -> None:
        super().__init__()
        self.path = f"{files.check_prefix(prefix)}-dead-letters.jsonl"

    def expand(self, letters: beam.PCollection[DeadLetter]) -> beam.PCollection[str]:
        runs = Runs(self.path, private=True)
        path = self.path
        return (
            letters
            | "Rewindow" >> beam.WindowInto(GlobalWindows())
            | "Sort" >> beam.ParDo(_SortLetters(runs)).with_output_types(str)
            | "Gather" >> _Gathered(lambda names: _merge_letters(names, path, runs))
            | "IfAny" >> beam.Filter(_is_any).with_output_types(str)
        )


def _is_any(path: str) -> bool:
    # Not bool itself: it has no signature, which Beam's check of types at run time asks for.
    return bool(path)


class _SortLetters(beam.DoFn):
    """Writes sorted runs of dead letters; gives out their names."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def start_bundle(self) -> None:
        self._letters: list[DeadLetter] = []

    def process(self, letter: DeadLetter) -> Iterator[str]:
        self._letters.append(letter)
        if len(self._letters) >= _LETTERS_PER_RUN:
            yield self._write()

    def finish_bundle(self) -> Iterator[Any]:
        if self._letters:
            yield GlobalWindows.windowed_value(self._write())

    def _write(self) -> str:
        letters, self._letters = self._letters, []
        letters.sort(key=letter_order)
        with self._runs.new() as (name, file):
            file.writelines(letter_line(letter) for letter in letters)
        return name


def letter_order(letter: DeadLetter) -> tuple[str, int, str, bytes]:
    """Sorts dead letters by file and position."""
    return letter.file, letter.position, letter.reason, letter.raw or b""


def letter_line(letter: DeadLetter) -> bytes:
    """A dead letter as a line of JSON."""
    content: dict[str, Any] = {
        "reason": letter.reason,
        "file": letter.file,
        "position": letter.position,
    }
    if letter.raw is not None:
        # Bytes that are no UTF-8 stay visible as \xff, so that the line is valid JSON.
        content["raw"] = letter.raw.decode("utf-8", "backslashreplace")
    return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)


def _line_order(line: bytes) -> tuple[str, int, str, str]:
    content = orjson.loads(line)
    return content["file"], content["position"], content["reason"], content.get("raw", "")


def _merge_letters(names: list[str], path: str, runs: Runs) -> str:
    """Merges sorted runs into one file; "" if there are none."""
    if not names:
        with files.explained(path):
            files.remove([path])
        runs.discard()
        return ""
    if not files.exists(names[0]) and files.exists(path):
        # An earlier try of this step came as far as removing the runs.
        return path

    def write(file: IO[bytes]) -> None:
        opened = [_open(name) for name in names]
        try:
            file.writelines(heapq.merge(*opened, key=_line_order))
        finally:
            for run in opened:
                run.close()

    files.write_file(path, write, private=True)
    runs.discard()
    return path


def _open(path: str) -> IO[bytes]:
    if files.is_local(path):
        return open(path, "rb")
    handle: IO[bytes] = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    return handle
