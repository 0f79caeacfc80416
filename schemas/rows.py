"""The rows of the Avro schemas as types that Beam's row coder knows.

For pipelines that want one element per row (SQL, cross-language transforms, sinks of
their own). hadabeam itself moves arrays. Times are microseconds since 1970 UTC; every
field means what the ``.avsc`` file of the same name says.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from apache_beam.coders import registry


class ReportRow(NamedTuple):
    """One report (``report.avsc``)."""

    collection: str
    epoch: int
    column: int
    bit: int
    event_time: int
    key: str | None = None
    payload: bytes | None = None
    sender: str | None = None
    report_id: str | None = None


class PackedReportsRow(NamedTuple):
    """Many reports with one header (``packed_reports.avsc``)."""

    collection: str
    epoch: int
    event_time: int
    key: str | None
    reports: int
    columns: bytes
    bits: bytes
    payload: bytes | None = None


class EstimateRow(NamedTuple):
    """The estimate of one value (``estimate.avsc``)."""

    window_start: int | None
    window_end: int | None
    pane: str | None
    key: str | None
    value: str
    raw: float
    standard_error: float
    low: float
    high: float
    frequency: float
    count: float  # type: ignore[assignment]  # a column name, not tuple.count
    detected: bool


class PublishedEstimateRow(NamedTuple):
    """The estimate of one value as it is sent out (``published_estimate.avsc``)."""

    window_start: int | None
    window_end: int | None
    pane: str | None
    key: str | None
    value: str
    raw: float
    standard_error: float
    low: float
    high: float
    frequency: float
    count: float  # type: ignore[assignment]  # a column name, not tuple.count
    detected: bool
    collection: str
    reports: int
    pane_order: str


class WindowSummaryRow(NamedTuple):
    """The numbers of one window of a batch job (``windows`` in ``summary.avsc``)."""

    window_start: int
    window_end: int
    reports: int
    dropped: Mapping[str, int]
    empty_columns: int


class SummaryRow(NamedTuple):
    """What a run or a pane read, counted and dropped (``summary.avsc``)."""

    window_start: int | None
    window_end: int | None
    pane: str | None
    records_read: int
    reports: int
    dropped: Mapping[str, int]
    empty_columns: int
    epsilon: float
    epsilon_effective: float
    oracle: str
    domain_size: int
    domain_fingerprint: str
    collection: str
    windows: Sequence[WindowSummaryRow] | None
    notes: Sequence[str]


#: Schema name to row type.
ROWS = {
    "report": ReportRow,
    "packed_reports": PackedReportsRow,
    "estimate": EstimateRow,
    "published_estimate": PublishedEstimateRow,
    "summary": SummaryRow,
}

for _row in (*ROWS.values(), WindowSummaryRow):
    registry.register_row(_row)
