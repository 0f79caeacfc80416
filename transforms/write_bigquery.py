"""Sink of tables: rows to BigQuery, by file loads in batch jobs and by inserts in streams."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import GoogleCloudOptions

from ..mechanisms.errors import ParameterError
from ..schemas.bigquery import bigquery_fields
from .encodings import as_text, conform, row_dicts
from .records import DeadLetter

#: How a table is named on a command line.
FORM = "bigquery:PROJECT.DATASET.TABLE"
#: What happens to rows that are there.
WRITES = ("append", "truncate")
#: What one partition of a table holds.
PARTITIONS = ("day", "month", "none")
#: The reason of dead letters that are rows which BigQuery did not take.
REFUSED = "refused_by_bigquery"

# A project may lie in a domain (example.com:project); a table's name may end in a partition.
_TABLE = re.compile(
    r"((?:[a-z0-9.-]+:)?[a-z][a-z0-9-]*[a-z0-9])\.([A-Za-z0-9_]{1,1024})\."
    r"([\w-]{1,1024})(\$(?:[0-9]{4}|[0-9]{6}|[0-9]{8}|[0-9]{10}|__NULL__))?"
)
# Panes are of few rows: with Beam's default, 500, most inserts would be of one row.
_STREAM_SHARDS = 16


class TableName(NamedTuple):
    """A table, or a partition of one.

    Attributes:
      project: id of the project, with its domain where it has one.
      dataset: id of the dataset.
      table: id of the table.
      partition: ``$20250106`` and the like, or "".
    """

    project: str
    dataset: str
    table: str
    partition: str


def parse_table(text: str) -> TableName:
    """The parts of ``PROJECT.DATASET.TABLE``, with ``bigquery:`` before it or without.

    Raises:
      ParameterError: if the text has another form; shows the right one.
    """
    found = _TABLE.fullmatch(text.removeprefix("bigquery:"))
    if found is None:
        raise ParameterError(
            f"{text!r} is no BigQuery table; write {FORM} (the id of a project has 6 to 30 small "
            "letters, digits and hyphens)"
        )
    return TableName(*(part or "" for part in found.groups()))


@dataclass
class WriteBigQuery(beam.PTransform):
    """Writes rows to a BigQuery table, which is made where there is none.

    Takes a PCollection of ``pyarrow.Table`` or ``RecordBatch`` with the columns of the schema, by
    name. Gives a PCollection of :class:`~hadabeam.transforms.records.DeadLetter`: of a stream, the
    rows that BigQuery did not take, with its reasons (``raw`` is a JSON object with ``row`` and
    ``errors``); of a batch job none, as there such a row fails the job.

    A batch job writes Avro files to the pipeline's ``temp_location`` and loads them in one job,
    once, however often its bundles are tried: all rows are seen at the same time, or none.
    Without any row nothing is loaded, and a table to be replaced stays. A stream inserts rows at
    least once; a bundle that is tried again may insert its rows twice.

    Attributes:
      table: ``PROJECT.DATASET.TABLE``; in batch also of one partition,
        ``PROJECT.DATASET.TABLE$20250106``.
      streaming: whether rows are inserted as they come; else they are loaded from files.
      write: "append" to the table's rows, or "truncate" (batch only): replace them.
      schema: name of the schema, as ``published_estimate``, ``estimate`` or ``report``.
      partition: "day" (default) or "month" of ``window_start`` in one partition, or "none". Rows
        without a window go to the partition for null. BigQuery takes no load whose partitioning
        is not the table's. Like the clustering (by ``key`` and ``value``) it is left out where the
        schema has no such column.

    Raises:
      ParameterError: if an attribute is none of these, or (when applied, in batch) the pipeline
        has no ``temp_location`` in a bucket.
    """

    table: str
    streaming: bool
    write: str = "append"
    schema: str = "published_estimate"
    partition: str = "day"

    def __post_init__(self) -> None:
        super().__init__()
        self._name = parse_table(self.table)
        if self.write not in WRITES:
            raise ParameterError(f"rows of BigQuery are written by {' or '.join(WRITES)}")
        if self.partition not in PARTITIONS:
            raise ParameterError(f"a BigQuery partition is one of {', '.join(PARTITIONS)}")
        if self.streaming and self.write == "truncate":
            raise ParameterError("a stream cannot replace a BigQuery table; leave truncate out")
        if self.streaming and self._name.partition:
            raise ParameterError(
                "a stream writes to the partitions that its windows belong to; leave "
                f"{self._name.partition} out"
            )
        try:
            self._fields = bigquery_fields(self.schema)
        except ValueError as error:
            raise ParameterError(str(error)) from error

    def expand(self, tables: beam.PCollection) -> beam.PCollection:
        if not self.streaming:
            _check_temp_location(tables.pipeline)
        rows = tables | "ToRows" >> beam.FlatMap(
            bigquery_rows, self.schema, self.streaming
        ).with_output_types(dict[str, Any])
        found = rows | "Write" >> self._sink(tables.pipeline)
        if not self.streaming:
            letters: beam.PCollection = tables.pipeline | "NoneRefused" >> beam.Create(
                []
            ).with_output_types(DeadLetter)
            return letters
        name = f"bigquery:{self._name.project}.{self._name.dataset}.{self._name.table}"
        return found.failed_rows_with_errors | "Refused" >> beam.Map(
            refused_row, name
        ).with_output_types(DeadLetter)

    def _sink(self, pipeline: Any) -> Any:
        kind = beam.io.WriteToBigQuery
        common = {
            "table": self._name.table + self._name.partition,
            "dataset": self._name.dataset,
            "project": self._name.project,
            "schema": {"fields": self._fields},
            "create_disposition": beam.io.BigQueryDisposition.CREATE_IF_NEEDED,
            "write_disposition": f"WRITE_{self.write.upper()}",
            "additional_bq_parameters": self._layout(),
        }
        if self.streaming:
            # A row of the wrong form is wrong forever; all else is tried again.
            retry = beam.io.gcp.bigquery_tools.RetryStrategy.RETRY_ON_TRANSIENT_ERROR
            return kind(
                method=kind.Method.STREAMING_INSERTS,
                insert_retry_strategy=retry,
                num_streaming_keys=_STREAM_SHARDS,
                **common,
            )
        return kind(
            method=kind.Method.FILE_LOADS,
            temp_file_format=beam.io.gcp.bigquery_tools.FileFormat.AVRO,
            # Who may run jobs in the job's own project need not in that of the table.
            load_job_project_id=pipeline.options.view_as(GoogleCloudOptions).project,
            **common,
        )

    def _layout(self) -> dict[str, Any]:
        """The table's partitions and clusters, as parameters of its creation."""
        names = {field["name"] for field in self._fields}
        found: dict[str, Any] = {}
        if self.partition != "none" and "window_start" in names:
            found["timePartitioning"] = {"type": self.partition.upper(), "field": "window_start"}
        clusters = [name for name in ("key", "value") if name in names]
        if clusters:
            found["clustering"] = {"fields": clusters}
        return found


def _check_temp_location(pipeline: Any) -> None:
    place = pipeline.options.view_as(GoogleCloudOptions).temp_location
    if not (place or "").startswith("gs://"):
        raise ParameterError(
            "a batch job writes to BigQuery by way of files in a bucket; add --temp_location "
            "gs://BUCKET/tmp"
        )


def bigquery_rows(
    table: pa.Table | pa.RecordBatch, schema: str, as_json: bool
) -> Iterator[dict[str, Any]]:
    """The rows of a table as BigQuery takes them.

    Args:
      table: has the columns of the schema.
      schema: its name.
      as_json: whether the rows go into JSON: times as ISO 8601, bytes as base64, and numbers that
        JSON does not have as ``NaN``, ``Infinity`` and ``-Infinity``. Else they go into Avro, with
        times as microseconds since 1970 UTC.
    """
    table = conform(table, schema)
    if as_json:
        odd = [name for name in table.column_names if _has_odd_numbers(table[name])]
        for row in row_dicts(as_text(table)):
            for name in odd:
                row[name] = _json_number(row[name])
            yield row
        return
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(index, field.name, table[index].cast(pa.int64()))
    yield from row_dicts(table)


def _has_odd_numbers(column: pa.ChunkedArray) -> bool:
    return pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py()


def _json_number(number: float | None) -> float | str | None:
    if number is None or math.isfinite(number):
        return number
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def refused_row(failed: tuple[Any, dict[str, Any], Any], name: str) -> DeadLetter:
    """A row that BigQuery did not take as a dead letter.

    Args:
      failed: destination, row and errors, as Beam gives them.
      name: of the table.
    """
    _, row, errors = failed
    Metrics.counter("hadabeam", REFUSED).inc()
    raw = orjson.dumps({"row": row, "errors": errors}, default=str)
    return DeadLetter(REFUSED, name, -1, raw)
