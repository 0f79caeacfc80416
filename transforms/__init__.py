"""Beam transforms over batches of records.

From log files to estimates: :class:`ReadRecords`, :class:`LimitContributions`,
:class:`Privatize`, :class:`CountReports`, :class:`EstimateCounts`; or all but the reading in
one: :class:`EstimateFrequencies`. From a live source: :class:`StreamEstimates`.
"""

from .count import CountFn, CountReports
from .estimate import EstimateCounts, EstimateFrequencies, estimate_table
from .fields import RecordFields
from .limit import LimitContributions
from .privatize import Privatize
from .randomness import ReportKeys, UserKeys
from .read import ReadRecords
from .read_reports import ReadReports
from .records import DEAD_LETTERS, TALLIES, DeadLetter, Tally, record_batch
from .reports import FormatReports
from .stream import Pane, StreamEstimates
from .summary import Summarize
from .tables import EstimateTable
from .windows import CalendarDays, WindowSpec
from .write import WriteDeadLetters, WriteEstimates, WriteSummary
from .write_reports import WriteReports

__all__ = [
    "DEAD_LETTERS",
    "TALLIES",
    "CalendarDays",
    "CountFn",
    "CountReports",
    "DeadLetter",
    "EstimateCounts",
    "EstimateFrequencies",
    "EstimateTable",
    "FormatReports",
    "LimitContributions",
    "Pane",
    "Privatize",
    "ReadRecords",
    "ReadReports",
    "RecordFields",
    "ReportKeys",
    "StreamEstimates",
    "Summarize",
    "Tally",
    "UserKeys",
    "WindowSpec",
    "WriteDeadLetters",
    "WriteEstimates",
    "WriteReports",
    "WriteSummary",
    "estimate_table",
    "record_batch",
]
