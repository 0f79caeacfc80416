"""Estimates as rows that say, wherever they end up, which table of a window holds.

Files have their order in their names. In a topic or a database tables of one window lie
mixed: each row carries the id of its collection, and the name that orders the tables.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import pyarrow as pa

from ..mechanisms.errors import ParameterError
from ..schemas.avro import arrow_schema
from .stream import Pane
from .summary import iso
from .tables import EstimateTable

#: The schema of the rows.
SCHEMA = "published_estimate"


def published(tables: Iterable[pa.Table], collection: str, reports: int, order: str) -> pa.Table:
    """Tables of estimates with the columns of ``published_estimate.avsc``.

    Args:
      tables: with the columns of ``estimate.avsc``.
      collection: id of the collection.
      reports: how many reports of the window were counted, over all keys.
      order: the name that orders the tables of a window. A digest of the numbers is added: a
        restored stream may give out other numbers as the same pane, and so may a batch job
        without keys that is tried again; their rows must not be taken for one table's.
    """
    schema = arrow_schema(SCHEMA)
    table = pa.concat_tables([arrow_schema("estimate").empty_table(), *tables])
    more = (collection, reports, f"{order}-{_digest(table)}")
    for field, value in zip(list(schema)[table.num_columns :], more, strict=True):
        column = pa.repeat(pa.scalar(value, field.type), table.num_rows)
        table = table.append_column(field, column)
    return table.cast(schema)


def _digest(table: pa.Table) -> str:
    """Eight hex digits that tell tables of one window, key and number of reports apart."""
    digest = hashlib.sha256()
    for name in ("raw", "count"):
        digest.update(table[name].to_numpy().tobytes())
    return digest.hexdigest()[:8]


def published_pane(pane: Pane, collection: str) -> pa.Table:
    """The rows of a stream's pane; none if it is withheld."""
    tables = [table.to_arrow() for table in pane.tables]
    return published(tables, collection, pane.info.reports, pane.info.file_name)


def batch_order(reports: int, run: str) -> str:
    """``000000168000-batch-20250106T120000.000000Z``: orders the tables of batch jobs.

    Args:
      reports: of the window, over all keys.
      run: what :func:`run_name` gave.
    """
    return f"{reports:012d}-batch-{run}"


def run_name(time: datetime.datetime | None = None) -> str:
    """A job by the time (default: now) at which it is submitted, in ISO 8601's basic form."""
    time = time or datetime.datetime.now(datetime.timezone.utc)
    return time.astimezone(datetime.timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")


@dataclass
class PublishTables(beam.PTransform):
    """A batch job's estimates as tables with the columns of ``published_estimate.avsc``.

    Takes a PCollection of :class:`~hadabeam.transforms.tables.EstimateTable` in the global
    window; gives a PCollection of ``pyarrow.Table``, one for each.

    Attributes:
      collection: id of the collection.
      run: the job's name among others, see :func:`run_name`. It is decided when the pipeline is
        built, so that whatever is tried again gives the same rows.
      keyed: whether a window may have several tables, whose reports are then added up.

    Raises:
      ParameterError: if the run has no name.
    """

    collection: str
    run: str
    keyed: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        if not self.run:
            raise ParameterError("a run needs a name that orders its tables, see run_name")

    def expand(self, tables: beam.PCollection) -> beam.PCollection:
        totals: Any = None
        if self.keyed:
            totals = beam.pvalue.AsDict(
                tables
                | "Reports" >> beam.Map(_reports).with_output_types(tuple[str, int])
                | "PerWindow" >> beam.CombinePerKey(sum)
            )
        return tables | "Publish" >> beam.Map(
            _published_table, self.collection, self.run, totals
        ).with_output_types(pa.Table)


def _window(table: EstimateTable) -> str:
    return f"{iso(table.window_start)}/{iso(table.window_end)}"


def _reports(table: EstimateTable) -> tuple[str, int]:
    return _window(table), table.estimate.n


def _published_table(
    table: EstimateTable, collection: str, run: str, totals: Mapping[str, int] | None
) -> pa.Table:
    reports = table.estimate.n if totals is None else totals[_window(table)]
    return published([table.to_arrow()], collection, reports, batch_order(reports, run))
