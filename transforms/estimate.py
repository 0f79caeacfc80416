"""Counts to frequencies, and the composite that most users want."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from ..mechanisms.estimate import check_post
from ..mechanisms.oracle import Array, FrequencyOracle
from . import windows
from .batching import BatchRecords
from .checks import check_oracle, check_user_keys
from .count import CountReports
from .encode import check_unknown
from .limit import LimitContributions
from .privatize import Privatize, check_memo, check_memo_choice
from .randomness import UserKeys
from .tables import EstimateTable


@dataclass
class EstimateCounts(beam.PTransform):
    """Counts to :class:`~hadabeam.transforms.tables.EstimateTable`, one for each window and key.

    Takes what ``CountReports`` gives: counts, or ``(key, counts)`` where ``keyed``. Counts
    of no reports give no table: nothing can be said of a window that nobody reported in.

    Attributes:
      oracle: the mechanism that the counts come from.
      post: the post-processing: "simplex", "clip", "none" or "empirical_bayes".
      keyed: whether elements are ``(key, counts)``.

    Raises:
      ParameterError: if ``post`` is unknown.
    """

    oracle: FrequencyOracle
    post: str = "simplex"
    keyed: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        check_oracle(self.oracle)
        check_post(self.post)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        if not self.keyed:
            pcoll |= "NoKey" >> beam.Map(lambda counts: (None, counts))
        return pcoll | "Estimate" >> beam.ParDo(_Estimate(self.oracle, self.post))


@beam.typehints.with_output_types(EstimateTable)
class _Estimate(beam.DoFn):
    def __init__(self, oracle: FrequencyOracle, post: str) -> None:
        self._oracle = oracle
        self._post = post

    def process(
        self, element: tuple[str | None, Array], window: Any = beam.DoFn.WindowParam
    ) -> Iterator[EstimateTable]:
        key, counts = element
        if self._oracle.reports(counts):
            Metrics.counter("hadabeam", "tables").inc()
            yield estimate_table(self._oracle, counts, self._post, windows.bounds(window), key)


def estimate_table(
    oracle: FrequencyOracle,
    counts: Array,
    post: str = "simplex",
    window: tuple[int | None, int | None] = (None, None),
    key: str | None = None,
    pane: str | None = None,
) -> EstimateTable:
    """The table of one state.

    Args:
      oracle: the mechanism that the counts come from.
      counts: int64 of ``oracle.state_shape``, of at least one report.
      post: the post-processing.
      window: start and end in microseconds, or None and None.
      key: the key of a per-key estimate.
      pane: when the numbers were given out.

    Raises:
      ParameterError: if the counts are not the oracle's.
      InputError: if the oracle cannot estimate from so few reports.
    """
    return EstimateTable(
        window_start=window[0],
        window_end=window[1],
        pane=pane,
        key=key,
        estimate=oracle.estimate(counts, post),
        empty_columns=oracle.empty_columns(counts),
    )


@dataclass
class _EstimateFrequencies(beam.PTransform):
    oracle: FrequencyOracle
    keys: UserKeys = field(default_factory=UserKeys)
    unknown: str = "other"
    post: str = "simplex"
    memo: str = "window"
    from_reports: bool = False

    _keyed = False

    def __post_init__(self) -> None:
        super().__init__()
        check_oracle(self.oracle)
        check_post(self.post)
        check_memo_choice(self.memo)
        if not self.from_reports:
            check_user_keys(self.keys)
            check_memo(self.memo, self.keys, self.oracle)
            check_unknown(self.oracle.domain, self.unknown)

    def default_label(self) -> str:
        return f"EstimateFrequencies.{type(self).__name__}"

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        reports = pcoll
        if not self.from_reports:
            limited = (
                pcoll
                | "Batch" >> beam.ParDo(BatchRecords(self._keyed))
                | "Limit" >> LimitContributions(self.oracle.domain, self.keys, self.unknown)
            )
            reports = limited[None] | "Privatize" >> Privatize(self.oracle, self.keys, self.memo)
        count = CountReports.PerKey if self._keyed else CountReports.Globally
        return (
            reports
            | "Count" >> count(self.oracle)
            | "Estimate" >> EstimateCounts(self.oracle, self.post, self._keyed)
            | "Rows" >> beam.FlatMap(EstimateTable.rows)
        )


class EstimateFrequencies:
    """Frequencies of values, each user's record leaving as one report.

    ``EstimateFrequencies.Globally(oracle)`` and ``EstimateFrequencies.PerKey(oracle)``
    limit contributions, privatize, count and estimate, in the windows of their input, and
    give a PCollection of :class:`~hadabeam.schemas.rows.EstimateRow`.

    Example::

        domain = Domain(["home", "search", "cart"]).with_other()
        rows = visits | EstimateFrequencies.Globally(OneBitHadamard(domain, epsilon=1.0))
    """

    @dataclass
    class Globally(_EstimateFrequencies):
        """One table for each window.

        Takes a PCollection of ``(user, value)`` pairs or of record batches; with
        ``from_reports``, of report batches as ``Privatize`` gives them. Pairs and batches may be
        mixed where batches have neither ``event_time`` nor ``key``. Otherwise all must be batches
        with the same of these columns: the job fails where records with and without one meet in
        a group of users, and only by chance they do not.

        Attributes:
          oracle: the mechanism, with its domain and epsilon.
          keys: an assignment key and a coin key, by reference; default: none, and fresh
            randomness in every run.
          unknown: "other", "drop" or "fail", see ``LimitContributions``.
          post: the post-processing of ``frequency``; ``raw`` is never touched.
          memo: "window" or "forever", see ``Privatize``.
          from_reports: whether the input holds reports that are already private.

        Raises:
          ParameterError: if a choice is unknown, or the domain has no other value and
            ``unknown`` is "other".
        """

    @dataclass
    class PerKey(_EstimateFrequencies):
        """One table for each key and window; keys are public.

        Takes a PCollection of ``(key, (user, value))``, or of batches with a ``key`` column.
        Each user still sends one report in a window, over all keys. Attributes as in
        ``Globally``.
        """

        _keyed = True
