"""The writer of reports: many workers, many files, nothing gathered but their names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from os import PathLike
from typing import IO, Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindows

from . import files
from .encodings import FORMATS, TableEncoder, check_format
from .runs import Runs
from .write import _Gathered

#: A shard is closed, and another one begun, when it holds this many bytes of rows.
SHARD_BYTES = 256 * 2**20

_SHARD = r"-reports-\d{5,}-of-\d{5,}\.(?:" + "|".join(FORMATS) + ")"


class WriteReports(beam.PTransform):
    """Writes reports as ``PREFIX-reports-00000-of-0000N.<format>``.

    Every bundle writes shards of its own under temporary names; when all are there, the
    shards of an earlier run are removed, whatever their number and format, and the new
    ones get their names. Where there are no reports, one shard without rows is written.

    Input: PCollection[pyarrow.RecordBatch] with the columns of ``report.avsc``, or of
    ``packed_reports.avsc``. Output: PCollection[str], the paths, once all are in place.

    Args:
      prefix: what the files' names begin with (public).
      format: ``avro`` (default), ``parquet``, ``csv`` or ``jsonl``.
      packed: whether rows hold many reports each.

    Raises:
      ParameterError: if the prefix is a folder or the format is unknown.
    """

    def __init__(
        self, prefix: str | PathLike[str], format: str = "avro", *, packed: bool = False
    ) -> None:
        super().__init__()
        self.prefix = files.check_prefix(prefix)
        self.format = check_format(format)
        self.schema = "packed_reports" if packed else "report"

    def expand(self, batches: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[str]:
        prefix, format, schema = self.prefix, self.format, self.schema
        runs = Runs(f"{prefix}-reports")
        return (
            batches
            | "Rewindow" >> beam.WindowInto(GlobalWindows())
            | "WriteShards" >> beam.ParDo(_WriteShards(runs, format, schema)).with_output_types(str)
            | "Gather"
            >> _Gathered(lambda names: _put_in_place(names, runs, prefix, format, schema))
            | "Paths" >> beam.FlatMap(str.splitlines).with_output_types(str)
        )


class _WriteShards(beam.DoFn):
    """Writes the batches of a bundle to runs; gives out their names."""

    def __init__(self, runs: Runs, format: str, schema: str) -> None:
        self._runs = runs
        self._format = format
        self._schema = schema
        self._open: contextlib.ExitStack | None = None

    def start_bundle(self) -> None:
        # What a failed bundle left open is not part of this one.
        self._abandon()

    def process(self, batch: pa.RecordBatch) -> Iterator[str]:
        if self._open is None:
            self._open = contextlib.ExitStack()
            self._name, file = self._open.enter_context(self._runs.new())
            self._encoder = self._open.enter_context(TableEncoder(file, self._format, self._schema))
            self._bytes = 0
        try:
            with files.explained(self._name):
                self._encoder.write(batch)
        except BaseException:
            self._abandon()
            raise
        self._bytes += batch.nbytes
        if self._bytes >= SHARD_BYTES:
            yield self._finish()

    def finish_bundle(self) -> Iterator[Any]:
        if self._open is not None:
            yield GlobalWindows.windowed_value(self._finish())

    def teardown(self) -> None:
        self._abandon()

    def _finish(self) -> str:
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()
        return self._name

    def _abandon(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            # Told of an error, the run removes itself.
            error = RuntimeError("the bundle failed")
            with contextlib.suppress(RuntimeError):
                opened.__exit__(type(error), error, None)


def _put_in_place(names: list[str], runs: Runs, prefix: str, format: str, schema: str) -> str:
    """Gives the runs their final names; returns those, one a line."""
    names = sorted(names)
    total = max(len(names), 1)
    paths = [f"{prefix}-reports-{index:05d}-of-{total:05d}.{format}" for index in range(total)]
    with files.explained(prefix):
        # Before the new ones come, so that a reader of PREFIX-reports-* never meets shards
        # of another number.
        files.remove([path for path in files.names_after(prefix, _SHARD) if path not in paths])
        for name, path in zip(names, paths, strict=False):
            # A step that is tried again finds that some have their names already.
            if files.exists(name) or not files.exists(path):
                files.move(name, path)
    if not names:
        files.write_file(paths[0], lambda file: _write_no_rows(file, format, schema))
    runs.discard()
    return "\n".join(paths)


def _write_no_rows(file: IO[bytes], format: str, schema: str) -> None:
    with TableEncoder(file, format, schema):
        pass
