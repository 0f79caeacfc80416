"""The folder source: logs that arrive, grow and rotate, read as they do."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from ..mechanisms.errors import InputError, ParameterError
from .blocks import Block, read_blocks
from .checks import as_patterns
from .element_types import typed
from .extract import Extractor
from .fields import RecordFields
from .file_identity import file_size
from .folder_tracker import FolderProvider
from .follow import Piece, Progress, look, take_piece
from .limit import WindowTally
from .reading import read_split, skip_bytes
from .records import DEAD_LETTERS, TALLIES, DeadLetter
from .report_files import whole_numbers
from .report_form import report_form
from .rows import Rows
from .splits import Split, check_format, detect, list_files, plan_splits
from .streams import open_source
from .times import check_time_unit
from .watch_text import FollowedText, report_rows_batch

#: Text that is read and parsed at a time.
PIECE_BYTES = 4 << 20
#: After so many seconds of reading, what was read is handed on.
TURN_SECONDS = 0.5
_ID = "report_id"

_logger = logging.getLogger(__name__)


@dataclass
class WatchRecords(beam.PTransform):
    """Reads the logs that a pattern matches, now and as they come.

    Only whole lines are read, each once: a growing file goes on where it was; a renamed or
    compressed one is known by its start, and so is a copy whose original was then cut short
    (:mod:`hadabeam.transforms.file_identity`); one that was cut short or replaced is read from
    its new start. A copy beside its original is a file of its own. Give a pattern that matches the
    names that logs are rotated to, as ``'logs/access.log*'``, or the lines between the last look
    and the rotation are lost.
    Compressed files, Parquet and Avro are read when they have not changed for 5 s; the watermark
    waits for them. A file that cannot be used (damaged Parquet, a CSV file without a field) is set
    aside until it changes: it is one dead letter at position -1, and a warning.

    The watermark is the greatest event time less ``max_delay``, and it moves only when everything
    that was there at a look has been read, so that the order of files never makes a record
    late. While the newest record was younger than ``max_delay`` when it was read, the
    logs are live, and the watermark follows the clock, less ``max_delay``, even while
    nothing comes. An event from the future does not move it beyond the clock.

    Takes a pipeline; gives ``None``: a PCollection of record batches with ``event_time`` (or,
    where ``fields`` is None, of batches with the columns of ``report.avsc``), ``TALLIES``
    and ``DEAD_LETTERS``.

    Attributes:
      patterns: a path or glob, or several. They need not match anything yet.
      fields: which fields make up a record, with a time; None reads reports.
      format: "auto", "jsonl", "csv", "combined", "parquet" or "avro".
      time_unit: of numbers in the time field.
      max_delay: how long after its event a line may come, in microseconds.
      poll: seconds from the end of one round to the next look.
      stop_after: seconds after which the source ends, and the job with it: what was read
        is then published as it stands. None goes on for ever.
      raw_dead_letters: whether dead letters carry the record itself.
      id_field: of reports: the field with their id; default ``report_id``.

    Raises:
      ParameterError: if a parameter is out of range.
      InputError: when it runs, if a pattern is a folder or its filesystem cannot be reached.
    """

    patterns: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    fields: RecordFields | None
    format: str = "auto"
    time_unit: str = "auto"
    max_delay: int = 30_000_000
    poll: float = 0.5
    stop_after: float | None = None
    raw_dead_letters: bool = False
    id_field: str | None = None

    def __post_init__(self) -> None:
        super().__init__()
        self.patterns = tuple(as_patterns(self.patterns))
        check_format(self.format)
        check_time_unit(self.time_unit)
        if self.fields is not None and self.fields.time is None:
            raise ParameterError("a stream needs a time field: which field says when it happened?")
        if self.max_delay < 0:
            raise ParameterError("max_delay must not be negative")
        if not self.poll > 0:
            raise ParameterError("poll must be more than 0 seconds")
        if self.stop_after is not None and self.stop_after < 0:
            raise ParameterError("stop_after must not be negative")

    def expand(self, pipeline: Any) -> dict[str | None, beam.PCollection]:
        watched = (
            pipeline
            | "Patterns" >> beam.Create([self.patterns])
            | "Watch"
            >> beam.ParDo(_Watch(self)).with_outputs(TALLIES, DEAD_LETTERS, main="batches")
        )
        found: dict[str | None, beam.PCollection] = {
            None: typed(watched.batches, pa.RecordBatch),
            TALLIES: typed(watched[TALLIES], WindowTally),
            DEAD_LETTERS: typed(watched[DEAD_LETTERS], DeadLetter),
        }
        for part in found.values():
            # Beam takes the outputs of a DoFn with several for as bounded as its input.
            part.is_bounded = False
        return found


_TRACKER = beam.DoFn.RestrictionParam(FolderProvider())
_WATERMARK = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider())


@beam.DoFn.unbounded_per_element()
class _Watch(beam.DoFn):
    def __init__(self, options: WatchRecords) -> None:
        self._fields = options.fields
        self._format = options.format
        self._unit = options.time_unit
        self._raw = options.raw_dead_letters
        self._max_delay = options.max_delay
        self._poll = options.poll
        self._stop_after = options.stop_after

        self._id_field = options.id_field
        #: The fields of records; those of reports differ from file to file.
        self._names = None if self._fields is None else self._fields.columns

    def setup(self) -> None:
        self._texts: dict[str, FollowedText] = {}

    def process(
        self,
        patterns: tuple[str, ...],
        tracker: Any = _TRACKER,
        watermark: Any = _WATERMARK,
    ) -> Iterator[Any]:
        progress: Progress = tracker.current_restriction()
        begun = time.monotonic()
        if progress.deadline is None and self._stop_after is not None:
            deadline = int((time.time() + self._stop_after) * 1_000_000)
            progress = replace(progress, deadline=deadline)
        if not progress.todo:
            progress = look(progress, _matched(patterns, not progress.started), time.time())
            if not tracker.try_claim(progress):
                return
        while progress.todo:
            path = progress.todo[0].path
            outputs: list[Any] = []
            try:
                ahead, piece = take_piece(progress, self._cut, PIECE_BYTES)
                if piece is not None and piece.whole:
                    # Its parts cannot be claimed one by one, so nobody may split it off meanwhile.
                    if not tracker.try_claim(replace(ahead, reading=True)):
                        return
                    for rows, fields, end in self._read_whole(piece):
                        found, latest = self._outputs(piece.path, rows, fields)
                        yield from found
                        ahead = ahead.with_time(latest).with_offset(path, end)
                elif piece is not None:
                    outputs, latest = self._parse(piece)
                    ahead = ahead.with_time(latest)
            except InputError as error:
                ahead, outputs = progress.set_aside(path), self._unusable(path, error)
            if not tracker.try_claim(ahead):
                return
            yield from outputs
            progress = ahead
            if time.monotonic() - begun > TURN_SECONDS:
                tracker.defer_remainder(Duration(0))
                return
        if progress.fresh and progress.greatest is not None:
            age = progress.started - progress.greatest
            progress = replace(progress, live=age <= self._max_delay)
        mark = progress.watermark(self._max_delay)
        if mark is not None:
            reached = Timestamp(micros=mark)
            watermark.set_watermark(max(reached, watermark.current_watermark() or reached))
        if progress.deadline is not None and progress.started >= progress.deadline:
            tracker.try_claim(None)
        elif tracker.try_claim(progress):
            tracker.defer_remainder(Duration(self._poll))

    def _fields_of(self, split: Split) -> tuple[str, ...]:
        """What is read of a file."""
        if self._names is not None:
            return self._names
        found = report_form(split)
        if found.packed or self._id_field is None:
            return found.fields
        return (*(name for name in found.fields if name != _ID), self._id_field)

    def _text(self, path: str) -> FollowedText:
        """How a text file is cut and parsed; the file has a whole line."""
        if path not in self._texts:
            self._texts[path] = FollowedText.of(path, self._format, self._fields_of)
        return self._texts[path]

    def _cut(self, path: str, data: bytes) -> int:
        return int(self._text(path).cutter.cut(bytearray(data)))

    def _parse(self, piece: Piece) -> tuple[list[Any], int | None]:
        if piece.offset == 0:
            # A new file, or an old name with new content.
            self._texts.pop(piece.path, None)
        text = self._text(piece.path)
        skipped = max(text.start - piece.offset, 0)
        block = Block(piece.offset + skipped, bytearray(piece.data[skipped:]))
        return self._outputs(piece.path, text.parse(block), text.fields)

    def _unusable(self, path: str, error: InputError) -> list[Any]:
        """What is told of a file that is set aside; nothing of one that is gone."""
        self._texts.pop(path, None)
        try:
            file_size(path)
        except FileNotFoundError:
            return []
        _logger.warning(
            "%s; it is set aside until it changes (touch it, if only its permissions do)", error
        )
        tally = {"records_read": 1, "unparseable": 1}
        for name, number in tally.items():
            Metrics.counter("hadabeam", name).inc(number)
        letter = DeadLetter("unparseable", path, -1)
        return [TaggedOutput(DEAD_LETTERS, letter), TaggedOutput(TALLIES, (None, None, tally))]

    def _read_whole(self, piece: Piece) -> Iterator[tuple[Rows, tuple[str, ...], int]]:
        """The rows of a compressed, Parquet or Avro file, and up to where its text was read."""
        format, compression = detect(piece.path, self._format)
        if format in ("parquet", "avro"):
            for split in plan_splits(piece.path, file_size(piece.path), format=format):
                fields = self._fields_of(split)
                for rows in read_split(split, fields, lambda rows: rows, threads=0):
                    yield rows, fields, 0
            return
        text = FollowedText.of(piece.path, self._format, self._fields_of)
        source = open_source(piece.path, compression)
        try:
            end = skip_bytes(source, max(piece.offset, text.start))
            for block in read_blocks(source, text.cutter, name=piece.path, offset=end):
                end = block.offset + len(block.data)
                yield text.parse(block), text.fields, end
            if source.damaged:
                yield Rows([], np.zeros(0, np.int64), np.array([-1])), text.fields, end
        finally:
            source.close()

    def _outputs(
        self, path: str, rows: Rows, names: tuple[str, ...]
    ) -> tuple[list[Any], int | None]:
        """What a block gives, and its greatest event time."""
        if self._fields is not None:
            found = Extractor(self._fields, path, self._unit, self._raw)(rows)
            batch, letters, tally = found.records, found.dead_letters, found.tally
            times = batch.column("event_time")
        else:
            names = tuple(_ID if name == self._id_field else name for name in names)
            batch, letters, tally = report_rows_batch(path, rows, names)
            times = whole_numbers(batch.column("epoch")) if batch.num_rows else pa.array([])
        outputs: list[Any] = [TaggedOutput(DEAD_LETTERS, letter) for letter in letters]
        for name, number in tally.items():
            Metrics.counter("hadabeam", name).inc(number)
        if tally:
            outputs.append(TaggedOutput(TALLIES, (None, None, tally)))
        latest = None
        if batch.num_rows:
            bounds = pc.min_max(times)
            earliest, latest = bounds["min"].as_py(), bounds["max"].as_py()
            outputs.append(TimestampedValue(batch, Timestamp(micros=earliest or 0)))
        return outputs, latest


def _matched(patterns: Sequence[str], first: bool) -> list[str]:
    """The files that the patterns match now; at the ``first`` look, warns of those without any.

    Raises:
      InputError: if a pattern is a folder.
    """
    found: list[str] = []
    for pattern in patterns:
        if "://" not in pattern and os.path.isdir(pattern):
            raise InputError(
                f"{pattern} is a directory; to follow the files in it, give "
                f"'{os.path.join(pattern, '*')}'"
            )
        if "://" not in pattern and os.path.isfile(pattern):  # even with a bracket in its name
            paths = [pattern]
        else:
            paths = [path for path, _ in list_files(pattern)]
        if first and not paths:
            _logger.warning("no file matches %s yet; waiting for one", pattern)
        found.extend(paths)
    return found
