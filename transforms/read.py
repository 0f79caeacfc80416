"""Reads log files as a Beam pipeline: files, splits, blocks, record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os import PathLike
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput

from ..mechanisms.errors import ParameterError
from .blocks import BLOCK_BYTES
from .checks import as_patterns, check_whole
from .csv_format import check_delimiter
from .element_types import typed
from .extract import Extractor
from .fields import RecordFields
from .reading import THREADS, read_split
from .records import DEAD_LETTERS, TALLIES, DeadLetter, Tally, add_tallies
from .splits import SPLIT_BYTES, Split, check_format, match_files, plan_splits
from .streams import check_compression
from .times import check_time_unit


class Read(NamedTuple):
    """What :class:`ReadRecords` gives.

    Attributes:
      records: PCollection of ``pa.RecordBatch`` (see :mod:`.records`).
      dead_letters: PCollection of :class:`.records.DeadLetter`, one for each record that
        is unparseable, has no user, or (if times are read) no valid time.
      tallies: PCollection of :data:`.records.Tally`: ``records_read`` and the records
        dropped by reason. All Beam metrics of the namespace ``hadabeam`` with these names
        count the same.
    """

    records: beam.PCollection
    dead_letters: beam.PCollection
    tallies: beam.PCollection


class ReadRecords(beam.PTransform):
    """Reads the records of log files on any of Beam's filesystems.

    Many workers share a large file: plain text is divided by bytes, Parquet by row groups,
    Avro by blocks. Compressed text (gzip, bzip2, zstd) is read as a whole. What is read
    does not depend on any of it.

    Args:
      patterns: a path or glob, or several. They are matched when the pipeline runs.
      fields: which fields make up a record (see :class:`.fields.RecordFields`).
      format: ``jsonl``, ``csv``, ``parquet``, ``avro``, ``combined``, or ``auto``: by the
        ending of the name, else by the content.
      compression: ``none``, ``gzip``, ``bzip2``, ``zstd``, or ``auto``: by the content.
      delimiter: between the fields of CSV, or ``auto``: by the name or header.
      time_unit: of numbers in the time field, see :mod:`.times`.
      raw_dead_letters: whether dead letters of text formats carry the record itself. It
        holds what the log holds: write it only where the log itself may lie.
      block_bytes: how much text is parsed at once. Some five blocks are in memory.
      split_bytes: how much of a plain file one worker reads at a time.
      threads: parsing threads for each split; 0 parses in Beam's own.

    Takes a pipeline, returns :class:`Read`.

    Raises:
      ParameterError: if a parameter is wrong.
      InputError: when it runs, if nothing matches, or a file cannot be used or lacks a field.
    """

    def __init__(
        self,
        patterns: str | PathLike[str] | Iterable[str | PathLike[str]],
        fields: RecordFields,
        *,
        format: str = "auto",
        compression: str = "auto",
        delimiter: str = "auto",
        time_unit: str = "auto",
        raw_dead_letters: bool = False,
        block_bytes: int = BLOCK_BYTES,
        split_bytes: int = SPLIT_BYTES,
        threads: int = THREADS,
    ) -> None:
        super().__init__()
        self._patterns = as_patterns(patterns)
        if not isinstance(fields, RecordFields):
            raise ParameterError("fields must be RecordFields, e.g. RecordFields('user', 'page')")
        for name, number in (("block_bytes", block_bytes), ("split_bytes", split_bytes)):
            check_whole(name, number, 1)
        check_whole("threads", threads, 0)
        self._fields = fields
        self._planning = {
            "format": check_format(format),
            "compression": check_compression(compression),
            "delimiter": check_delimiter(delimiter),
            "split_bytes": split_bytes,
        }
        self._time_unit = check_time_unit(time_unit)
        self._raw = raw_dead_letters
        self._block_bytes = block_bytes
        self._threads = threads

    def expand(self, pipeline: Any) -> Read:
        reader = _ReadSplit(
            self._fields, self._time_unit, self._raw, self._block_bytes, self._threads
        )
        read = (
            pipeline
            # One element, so that the files are matched, sorted and counted once.
            | "Patterns" >> beam.Create([tuple(self._patterns)])
            | "Match" >> beam.FlatMap(match_files).with_output_types(tuple[str, int])
            | "Spread" >> beam.Reshuffle()
            | "Plan" >> beam.ParDo(PlanSplits(self._planning))
            | "Balance" >> beam.Reshuffle()
            | "Parse" >> beam.ParDo(reader).with_outputs(DEAD_LETTERS, TALLIES, main="records")
        )
        return Read(
            typed(read.records, pa.RecordBatch),
            typed(read[DEAD_LETTERS], DeadLetter),
            typed(read[TALLIES], Tally),
        )


@beam.typehints.with_output_types(Split)
class PlanSplits(beam.DoFn):
    """``(path, size)`` to the splits of that file."""

    def __init__(self, planning: dict[str, Any]) -> None:
        self._planning = planning

    def process(self, file: tuple[str, int]) -> Iterator[Split]:
        yield from plan_splits(*file, **self._planning)


class _ReadSplit(beam.DoFn):
    """A split to its record batches, dead letters and tally."""

    def __init__(
        self, fields: RecordFields, time_unit: str, raw: bool, block_bytes: int, threads: int
    ) -> None:
        self._fields = fields
        self._time_unit = time_unit
        self._raw = raw
        self._block_bytes = block_bytes
        self._threads = threads

    def process(self, split: Split) -> Iterator[Any]:
        extract = Extractor(self._fields, split.path, self._time_unit, self._raw)
        blocks = read_split(
            split,
            self._fields.columns,
            extract,
            block_bytes=self._block_bytes,
            threads=self._threads,
        )
        tally: Tally = {}
        try:
            for records, letters, counted in blocks:
                tally = add_tallies([tally, counted])
                for letter in letters:
                    yield TaggedOutput(DEAD_LETTERS, letter)
                if records.num_rows:
                    yield records
        finally:
            blocks.close()
        for name, number in tally.items():
            Metrics.counter("hadabeam", name).inc(number)
        if tally:
            yield TaggedOutput(TALLIES, tally)
