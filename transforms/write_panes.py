"""Writers of a stream: a table and a summary for each pane, the run's numbers, dead letters.

Every pane has files of its own, so that nothing that was published changes. A file is
written under a hidden temporary name and renamed (or, on object stores, created whole), and a
pane that is written again, by a retry or a replay, is the same file.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.coders import PickleCoder
from apache_beam.io.filesystems import FileSystems
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import GlobalWindow, GlobalWindows

from ..mechanisms.errors import ParameterError
from ..mechanisms.oracle import FrequencyOracle
from . import files
from .encodings import FORMATS, check_format
from .limit import WindowTally
from .panes import TIMINGS
from .records import DeadLetter, Tally, add_tallies
from .stream import Pane
from .summary import privacy_notes, summary
from .write import letter_line, letter_order, write_json, write_table

#: Seconds of real time between two summaries of the run.
SUMMARY_SECONDS = 5.0

_PANE_FILE = re.compile(rf"(\d{{12}}-(?:{'|'.join(TIMINGS)})-\d{{6,}})\.([a-z]+)")


@dataclass
class WritePanes(beam.PTransform):
    """Writes ``PREFIX/<window>/<reports>-<timing>-<index>.<format>`` for each pane.

    Beside the table lies the pane's summary, of the same name and ending in ``.json``; it is
    there before the table is. A withheld pane has only the summary. The greatest name of a
    window's tables is its current one (:func:`current_panes`).

    Takes a PCollection of :class:`~hadabeam.transforms.stream.Pane`. Gives a PCollection of
    the panes, once they are written.

    Attributes:
      prefix: the folder of the stream's output (public).
      format: ``avro`` (default), ``parquet``, ``csv`` or ``jsonl``.
      keep_early: whether an early pane stays when the next one of its window is written.
        Without, a window has few files however long it is.

    Raises:
      ParameterError: if the format is unknown or the prefix is empty.
    """

    prefix: str | os.PathLike[str]
    format: str = "avro"
    keep_early: bool = True

    def __post_init__(self) -> None:
        super().__init__()
        self.prefix = stream_folder(self.prefix)
        check_format(self.format)

    def expand(self, panes: beam.PCollection) -> beam.PCollection:
        return panes | "Write" >> beam.Map(self._write).with_output_types(Pane)

    def _write(self, pane: Pane) -> Pane:
        folder = FileSystems.join(self.prefix, pane.info.window_name)
        base = FileSystems.join(folder, pane.info.file_name)
        write_json(pane.summary, f"{base}.json")
        if pane.tables:
            table = pa.concat_tables([table.to_arrow() for table in pane.tables])
            write_table(table, f"{base}.{self.format}", self.format)
        before = pane.previous
        if pane.tables and not self.keep_early and before and before.timing == "early":
            stale = FileSystems.join(folder, before.file_name)
            with files.explained(stale):
                files.remove([f"{stale}.{self.format}", f"{stale}.json"])
        return pane


def stream_folder(prefix: str | os.PathLike[str]) -> str:
    """The folder that a stream writes to, without a slash at its end.

    Raises:
      ParameterError: if it is empty, or neither a text nor a path.
    """
    prefix = os.fspath(prefix) if isinstance(prefix, os.PathLike) else prefix
    if not isinstance(prefix, str) or not prefix.strip("/"):
        raise ParameterError("the output of a stream must be a folder such as out/pages")
    return prefix.rstrip("/")


def current_panes(prefix: str) -> dict[str, str]:
    """The current table of each window of a stream.

    Args:
      prefix: what the stream was given as its output, on any of Beam's file systems.

    Returns:
      The windows' names, in order of time, and the path of the table with the greatest
      name in each: the one of the most reports.
    """
    matched = FileSystems.match([FileSystems.join(stream_folder(prefix), "*", "*")])[0]
    current: dict[str, tuple[str, str]] = {}
    for metadata in matched.metadata_list:
        folder, name = FileSystems.split(metadata.path)
        found = _PANE_FILE.fullmatch(name)
        if found is None or found[2] not in FORMATS:
            continue
        window = FileSystems.split(folder.rstrip("/"))[1]
        if window not in current or found[1] > current[window][0]:
            current[window] = found[1], metadata.path
    return {window: path for window, (_, path) in sorted(current.items())}


class SumTallies(beam.PTransform):
    """Tallies to the numbers of the run so far, every few seconds and at the end.

    Takes a PCollection of ``(window_start, window_end, tally)``; gives a PCollection of
    tallies, each of which supersedes those before it. Its state is one tally.

    Args:
      seconds: of real time, from the first news to the next numbers.
    """

    def __init__(self, seconds: float = SUMMARY_SECONDS) -> None:
        super().__init__()
        self._seconds = seconds

    def expand(self, tallies: beam.PCollection) -> beam.PCollection:
        return (
            tallies
            | "ToGlobal" >> beam.WindowInto(GlobalWindows())
            | "AddBundles" >> beam.ParDo(_AddBundle())
            | "AddRun" >> beam.ParDo(_AddRun(self._seconds))
        )


@beam.typehints.with_output_types(tuple[bytes, dict[str, int]])
class _AddBundle(beam.DoFn):
    """The tallies of a bundle as one."""

    def start_bundle(self) -> None:
        self._tally: Tally = {}

    def process(self, element: WindowTally) -> None:
        self._tally = add_tallies([self._tally, element[2]])

    def finish_bundle(self) -> Iterator[Any]:
        if self._tally:
            yield GlobalWindows.windowed_value((b"\0", self._tally))


@beam.typehints.with_output_types(dict[str, int])
class _AddRun(beam.DoFn):
    _CELL = ReadModifyWriteStateSpec("tally", PickleCoder())
    _SOON = TimerSpec("soon", TimeDomain.REAL_TIME)
    _END = TimerSpec("end", TimeDomain.WATERMARK)

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def process(
        self,
        element: tuple[bytes, Tally],
        cell: Any = beam.DoFn.StateParam(_CELL),
        soon: Any = beam.DoFn.TimerParam(_SOON),
        end: Any = beam.DoFn.TimerParam(_END),
    ) -> Iterator[Tally]:
        total, waiting = cell.read() or ({}, False)
        if not waiting:
            soon.set(time.time() + self._seconds)
            end.set(GlobalWindow().max_timestamp())
        cell.write((add_tallies([total, element[1]]), True))
        yield from ()

    @on_timer(_SOON)
    def soon(self, cell: Any = beam.DoFn.StateParam(_CELL)) -> Iterator[Any]:
        """Some seconds after news."""
        total, waiting = cell.read() or ({}, False)
        if waiting:
            cell.write((total, False))
            yield total

    @on_timer(_END)
    def end(self, cell: Any = beam.DoFn.StateParam(_CELL)) -> Iterator[Any]:
        """At the end of all input."""
        yield from self.soon(cell)


@dataclass
class WriteRunSummary(beam.PTransform):
    """Writes the numbers of the run so far as ``PREFIX/summary.json``.

    ``records_read`` are records; ``reports`` and the drops within windows are (record, window)
    pairs. Takes what ``SumTallies`` gives.

    Attributes:
      prefix: the folder of the stream's output (public).
      oracle: the mechanism.
      epsilon_effective: what one record costs its user over all windows.
      memo: "window" or "forever".
    """

    prefix: str | os.PathLike[str]
    oracle: FrequencyOracle
    epsilon_effective: float
    memo: str = "window"

    def __post_init__(self) -> None:
        super().__init__()
        self.prefix = stream_folder(self.prefix)

    def expand(self, tallies: beam.PCollection) -> beam.PCollection:
        return tallies | "Write" >> beam.Map(self._write).with_output_types(str)

    def _write(self, tally: Tally) -> str:
        found = summary({(None, None): tally}, self.oracle, self.epsilon_effective, False)
        found["memo"] = self.memo
        found["notes"] = [*found.get("notes", []), *privacy_notes(self.oracle, self.memo)]
        # Columns are empty window by window, not in a run.
        found.pop("empty_columns", None)
        path = str(FileSystems.join(self.prefix, "summary.json"))
        write_json(found, path)
        return path


@dataclass
class WriteStreamDeadLetters(beam.PTransform):
    """Writes dead letters as ``PREFIX/dead-letters/<digest>.jsonl``, one file a bundle.

    The name is a digest of the content: what is written again is the same file. Only its owner
    can read it.

    Attributes:
      prefix: the folder of the stream's output (public).
    """

    prefix: str | os.PathLike[str]

    def __post_init__(self) -> None:
        super().__init__()
        self.prefix = stream_folder(self.prefix)

    def expand(self, letters: beam.PCollection) -> beam.PCollection:
        return letters | "Write" >> beam.ParDo(_WriteLetters(self.prefix))


class _WriteLetters(beam.DoFn):
    def __init__(self, prefix: str | os.PathLike[str]) -> None:
        self._prefix = prefix

    def start_bundle(self) -> None:
        self._letters: list[DeadLetter] = []

    def process(self, letter: DeadLetter) -> None:
        self._letters.append(letter)

    def finish_bundle(self) -> None:
        if not self._letters:
            return
        lines = [letter_line(letter) for letter in sorted(self._letters, key=letter_order)]
        content = b"".join(lines)
        name = hashlib.sha256(content).hexdigest()[:32] + ".jsonl"
        path = FileSystems.join(self._prefix, "dead-letters", name)
        files.write_file(path, lambda file: file.writelines([content]), private=True)
        self._letters = []
