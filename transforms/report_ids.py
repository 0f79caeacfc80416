"""Ids for reports that are sent where a message may come twice."""

from __future__ import annotations

import os

import apache_beam as beam
import pyarrow as pa

#: Bytes of an id: two of a billion reports are alike with a chance of one in 10**20.
_BYTES = 16


class AddReportIds(beam.PTransform):
    """Gives each report a random ``report_id`` that stays its own when it is sent again.

    Ids are drawn before a reshuffle. Where a runner keeps what went through it, a bundle that is
    tried again after it has the same ids; a runner that begins anew before it draws others. Ids
    depend on nothing: neither on the user nor on the report.

    Input: PCollection[pyarrow.RecordBatch] with the columns of ``report.avsc``. Output: the same.
    """

    def expand(self, batches: beam.PCollection[pa.RecordBatch]) -> beam.PCollection[pa.RecordBatch]:
        return (
            batches
            | "Draw" >> beam.Map(with_ids).with_output_types(pa.RecordBatch)
            | "Keep" >> beam.Reshuffle()
        )


def with_ids(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, with an id of 32 hex digits for each report that has none."""
    place = batch.schema.get_field_index("report_id")
    digits = os.urandom(_BYTES * batch.num_rows).hex()
    width = 2 * _BYTES
    drawn = pa.array(
        [digits[start : start + width] for start in range(0, len(digits), width)], pa.string()
    )
    given = batch.column(place)
    return batch.set_column(place, batch.schema.field(place), given.fill_null(drawn))
