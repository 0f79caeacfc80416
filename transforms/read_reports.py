"""Reads files of reports as a Beam pipeline: what is counted, once, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput

from ..mechanisms.limit import PUBLIC_KEY, least_per_user, priorities
from ..mechanisms.oracle import FrequencyOracle
from ..mechanisms.prf import Prf
from . import windows
from .checks import (
    as_patterns,
    check_oracle,
    check_report_keys,
    check_whole,
    check_windowing,
)
from .element_types import typed
from .encode import EncodedRecords, pack, unpack
from .limit import key_pseudonyms
from .randomness import ReportKeys
from .read import PlanSplits
from .reading import read_split
from .records import DEAD_LETTERS, TALLIES, DeadLetter, Tally, add_tallies
from .report_files import ReportParser
from .report_form import report_form
from .reports import ReportArrays
from .splits import SPLIT_BYTES, Split, check_format, match_files

_IDENTIFIED = "identified"
#: Groups in which repeated reports are looked for.
SHARDS = 64

_EPOCH_REPORTS = beam.typehints.KV[
    beam.typehints.Tuple[int, beam.typehints.Optional[str]], pa.RecordBatch
]


class ReadReportsResult(NamedTuple):
    """What :class:`ReadReports` gives.

    Attributes:
      reports: PCollection of ``((epoch, key), report batch)``; the key is None where
        reports have none.
      dead_letters: PCollection of ``DeadLetter``, one for each row that is refused.
      tallies: PCollection of tallies.
    """

    reports: beam.PCollection
    dead_letters: beam.PCollection
    tallies: beam.PCollection


@dataclass
class ReadReports(beam.PTransform):
    """Reads reports of one collection from files.

    A report of another collection is refused (``wrong_collection``), and so is one of no window
    of the collection (``wrong_window``) or one that the oracle cannot have sent
    (``wrong_column``). Where reports name their sender, only one of a sender and window counts;
    with the assignment key those without a sender (packed ones name none) are refused
    (``missing_sender``), and those whose column is not the sender's (``wrong_column``). Where
    reports have ids, an id counts once (``duplicate``). Of several the one with the least hash
    counts, so that the order of files does not matter.

    Attributes:
      patterns: a path or glob, or several.
      oracle: the mechanism, as it was when the reports were made.
      format: "auto", "avro", "parquet", "csv" or "jsonl".
      keys: the assignment key by reference, if the collector has it.
      raw_dead_letters: whether dead letters carry the text of the row.
      split_bytes: how much of a file one worker reads at a time.
      windowing: the windows that the reports were made with, or None for none.

    Raises:
      ParameterError: if an attribute is wrong.
      InputError: when it runs, if nothing matches or a file holds no reports.
    """

    patterns: str | PathLike[str] | Iterable[str | PathLike[str]]
    oracle: FrequencyOracle
    format: str = "auto"
    keys: ReportKeys = field(default_factory=ReportKeys)
    raw_dead_letters: bool = False
    split_bytes: int = SPLIT_BYTES
    windowing: windows.Windowing | None = None

    def __post_init__(self) -> None:
        super().__init__()
        self.patterns = tuple(as_patterns(self.patterns))
        check_oracle(self.oracle)
        check_format(self.format)
        check_report_keys(self.keys)
        check_whole("split_bytes", self.split_bytes, 1)
        if self.windowing is not None:
            check_windowing(self.windowing)

    def expand(self, pipeline: Any) -> ReadReportsResult:
        planning = {"format": self.format, "split_bytes": self.split_bytes}
        read = (
            pipeline
            | "Patterns" >> beam.Create([self.patterns])
            | "Match" >> beam.FlatMap(match_files).with_output_types(tuple[str, int])
            | "Spread" >> beam.Reshuffle()
            | "Plan" >> beam.ParDo(PlanSplits(planning))
            | "Balance" >> beam.Reshuffle()
            | "Parse"
            >> beam.ParDo(
                _ParseReports(self.oracle, self.keys, self.raw_dead_letters, self.windowing)
            ).with_outputs(DEAD_LETTERS, TALLIES, _IDENTIFIED, main="reports")
        )
        identified = read[_IDENTIFIED]
        identified.element_type = beam.typehints.KV[int, bytes]
        once = (
            identified
            | "GroupByIdentity" >> beam.GroupByKey()
            | "CountOnce" >> beam.ParDo(_CountOnce()).with_outputs(TALLIES, main="reports")
        )
        read.reports.element_type = once.reports.element_type = _EPOCH_REPORTS
        return ReadReportsResult(
            (read.reports, once.reports) | "AllReports" >> beam.Flatten(),
            typed(read[DEAD_LETTERS], DeadLetter),
            [typed(part[TALLIES], Tally) for part in (read, once)] | "AllTallies" >> beam.Flatten(),
        )


class _ParseReports(beam.DoFn):
    """A split to its reports, dead letters and tally."""

    def __init__(
        self,
        oracle: FrequencyOracle,
        keys: ReportKeys,
        raw: bool,
        windowing: windows.Windowing | None,
    ) -> None:
        self._oracle = oracle
        self._keys = keys
        self._raw = raw
        self._windowing = windowing

    def setup(self) -> None:
        self._prf = self._keys.load()

    def process(self, split: Split) -> Iterator[Any]:
        if split.end is not None and split.end <= split.start:
            return
        form = report_form(split)
        parser = ReportParser(
            self._oracle,
            split.path,
            form,
            self._prf,
            self._keys.assigned,
            self._windowing,
            self._raw,
        )
        blocks = read_split(split, form.fields, parser)
        tally: Tally = {}
        try:
            for found in blocks:
                tally = add_tallies([tally, found.tally])
                for letter in found.dead_letters:
                    yield TaggedOutput(DEAD_LETTERS, letter)
                if found.identified is not None:
                    for element in _scatter(found.identified):
                        yield TaggedOutput(_IDENTIFIED, element)
                for reports in found.reports:
                    yield (reports.epoch, reports.key), reports.to_batch()
        finally:
            blocks.close()
        for name, number in tally.items():
            Metrics.counter("hadabeam", name).inc(number)
        if tally:
            yield TaggedOutput(TALLIES, tally)


def _scatter(records: EncodedRecords) -> Iterator[tuple[int, bytes]]:
    shards = records.users[:, 0] % SHARDS
    for shard in np.unique(shards).tolist():
        yield shard, pack([records.take(np.flatnonzero(shards == shard))])


class _CountOnce(beam.DoFn):
    """The identified reports of one shard to one for each sender and epoch, or id."""

    def process(self, shard: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        records = unpack(list(shard[1]))
        prf = Prf(PUBLIC_KEY)
        rest = key_pseudonyms(prf, records)
        if records.payload is not None:
            # All that a report says takes part in the choice, so that order never does.
            rest = prf.blocks(prf.context("payload"), np.hstack([rest, records.payload]))
        # Senders are grouped under a secret or a salt, but not ranked by it: the collector's
        # answer is to be the same in every run.
        nobody = np.zeros_like(records.users)
        ranks = priorities(prf, nobody, records.values, records.times, rest)
        kept = least_per_user(records.users, ranks.__getitem__)
        refused = len(records) - len(kept)
        if refused:
            Metrics.counter("hadabeam", "duplicate").inc(refused)
            yield TaggedOutput(TALLIES, {"duplicate": refused})
        records = records.take(np.sort(kept))
        if records.times is None or records.keys is None:
            raise RuntimeError("identified reports have an epoch and a key")
        pairs = np.stack([records.times, records.keys], axis=1)
        groups, member = np.unique(pairs, axis=0, return_inverse=True)
        for number, (epoch, code) in enumerate(groups.tolist()):
            mine = records.take(np.flatnonzero(member.ravel() == number))
            reports = ReportArrays(
                epoch,
                mine.key_names[code] or None,
                mine.values >> 1,
                (mine.values & 1).astype(np.uint8),
                mine.payload,
            )
            yield (epoch, reports.key), reports.to_batch()
