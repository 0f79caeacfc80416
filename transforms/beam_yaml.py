"""``HadabeamEstimate`` and ``HadabeamPrivatize``: the transforms for Beam YAML.

Beam YAML gives transforms rows and named parameters, and expects rows. These two pick the
fields, and turn the parameters into an oracle and keys. ``examples/yaml/`` shows their use.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.typehints.schemas import named_fields_from_element_type

from ..mechanisms.domain import Domain
from ..mechanisms.errors import ParameterError
from ..mechanisms.keys import KeyFile
from ..mechanisms.oracle import FrequencyOracle
from ..mechanisms.registry import make_oracle
from ..schemas.rows import EstimateRow, ReportRow
from .batching import BatchRecords
from .estimate import EstimateFrequencies
from .limit import LimitContributions
from .privatize import Privatize
from .randomness import UserKeys, question_of
from .records import canonical
from .reports import FormatReports


class _Rows(beam.PTransform):
    """What the two transforms share: parameters, and rows to pairs."""

    def __init__(
        self,
        *,
        user_field: str,
        value_field: str,
        domain: list[str] | str,
        epsilon: float,
        key_field: str | None = None,
        oracle: str = "one_bit_hadamard",
        unknown: str = "other",
        collection: str = "default",
        version: int = 1,
        assignment_key: str | None = None,
        coin_key: str | None = None,
        memo: str = "window",
    ) -> None:
        super().__init__()
        self._fields = {"user_field": user_field, "value_field": value_field}
        if key_field is not None:
            self._fields["key_field"] = key_field
        other = "other" if unknown == "other" else None
        if isinstance(domain, str):
            values = Domain.from_file(domain, other=other)
        else:
            # YAML has booleans and numbers, whose texts are those of the records.
            values = Domain([canonical(value) or "" for value in domain])
            values = values.with_other() if other else values
        self._oracle: FrequencyOracle = make_oracle(
            oracle, values, epsilon, collection=collection, version=version
        )
        self._keys = UserKeys(
            None if assignment_key is None else KeyFile(assignment_key),
            None if coin_key is None else KeyFile(coin_key),
            question_of(value_field),
        )
        self._unknown = unknown
        self._memo = memo

    def _pairs(self, rows: beam.PCollection) -> beam.PCollection:
        """``(user, value)``, or ``(key, (user, value))``, of each row.

        Raises:
          ParameterError: if the rows are known to lack a field.
        """
        self._check_fields(rows.element_type)
        user, value = self._fields["user_field"], self._fields["value_field"]
        key = self._fields.get("key_field")
        return rows | "PickFields" >> beam.Map(_pick, user, value, key).with_output_types(Any)

    def _check_fields(self, element_type: Any) -> None:
        try:
            names = [name for name, _ in named_fields_from_element_type(element_type)]
        except TypeError:
            # Rows of which nothing is known before the first one comes.
            return
        for parameter, name in self._fields.items():
            if name not in names:
                near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
                hint = f"; did you mean {near[0]!r}?" if near else "."
                raise ParameterError(
                    f"{type(self).__name__}: {parameter} is {name!r}, which the input has not"
                    f"{hint} Its fields are: {', '.join(names)}"
                )


def _pick(row: Any, user: str, value: str, key: str | None) -> Any:
    pair = (getattr(row, user), getattr(row, value))
    return pair if key is None else (getattr(row, key), pair)


class HadabeamEstimate(_Rows):
    """Frequencies of a field's values, each user's row leaving as one report.

    Takes rows, in any windows; gives a row for each value (of each window and key) with the
    columns of ``estimate.avsc``.

    Args:
      user_field: the field that tells users apart.
      value_field: the private field to count.
      domain: the values that can be reported, as a list, or a file with one a line.
      epsilon: the privacy parameter.
      key_field: one table for each value of this field, which is public.
      oracle: the mechanism; "one_bit_hadamard" by default.
      unknown: "other" (default), "drop" or "fail", as in ``EstimateFrequencies``.
      post: the post-processing of ``frequency``: "simplex" (default), "clip", "none" or
        "empirical_bayes".
      collection: the name of the collection.
      version: its version.
      assignment_key: a key file on all workers.
      coin_key: another one. With both, the same rows give the same table in every run.
      memo: "window" (default) or "forever", as in ``Privatize``.

    Raises:
      ParameterError: if a parameter is wrong, or the rows are known to lack a field.
      InputError: if the file of the domain cannot be used.
    """

    def __init__(
        self,
        *,
        user_field: str,
        value_field: str,
        domain: list[str] | str,
        epsilon: float,
        key_field: str | None = None,
        oracle: str = "one_bit_hadamard",
        unknown: str = "other",
        post: str = "simplex",
        collection: str = "default",
        version: int = 1,
        assignment_key: str | None = None,
        coin_key: str | None = None,
        memo: str = "window",
    ) -> None:
        # Written out once more: Beam YAML takes the names of parameters from here.
        super().__init__(
            user_field=user_field,
            value_field=value_field,
            domain=domain,
            epsilon=epsilon,
            key_field=key_field,
            oracle=oracle,
            unknown=unknown,
            collection=collection,
            version=version,
            assignment_key=assignment_key,
            coin_key=coin_key,
            memo=memo,
        )
        self._post = post

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        keyed = "key_field" in self._fields
        family = EstimateFrequencies.PerKey if keyed else EstimateFrequencies.Globally
        estimate = family(
            self._oracle, self._keys, unknown=self._unknown, post=self._post, memo=self._memo
        )
        found = self._pairs(rows) | "Estimate" >> estimate
        return found | "Rows" >> beam.Map(_same).with_output_types(EstimateRow)


class HadabeamPrivatize(_Rows):
    """Rows to reports, which can leave the edge.

    Takes rows, in any windows; gives rows with the columns of ``report.avsc``.

    Args: as of :class:`HadabeamEstimate`, but for ``post``.

    Raises: likewise.
    """

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        limited = (
            self._pairs(rows)
            | "Batch" >> beam.ParDo(BatchRecords("key_field" in self._fields))
            | "Limit" >> LimitContributions(self._oracle.domain, self._keys, self._unknown)
        )
        reports = limited[None] | "Privatize" >> Privatize(self._oracle, self._keys, self._memo)
        formatted = reports | "Format" >> FormatReports(self._oracle)
        return formatted[None] | "Rows" >> beam.FlatMap(_report_rows).with_output_types(ReportRow)


def _same(row: EstimateRow) -> EstimateRow:
    return row


def _report_rows(batch: pa.RecordBatch) -> Iterator[ReportRow]:
    columns = [column.to_pylist() for column in batch.columns]
    # Microseconds, where arrow has timestamps.
    for number, field in enumerate(batch.schema):
        if pa.types.is_timestamp(field.type):
            columns[number] = batch.column(number).cast(pa.int64()).to_pylist()
    for values in zip(*columns, strict=True):
        row: dict[str, Any] = dict(zip(batch.schema.names, values, strict=True))
        yield ReportRow._make(row.get(name) for name in ReportRow._fields)
