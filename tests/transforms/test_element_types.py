"""What the elements of every public transform's outputs are declared to be, and default labels."""

from __future__ import annotations

import json

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam import coders
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that
from apache_beam.typehints import Any, Dict, Optional, Tuple

from hadabeam.mechanisms import Domain, OneBitHadamard
from hadabeam.schemas.rows import EstimateRow
from hadabeam.testing import seeded_keys
from hadabeam.transforms import (
    DEAD_LETTERS,
    TALLIES,
    CountReports,
    DeadLetter,
    EstimateCounts,
    EstimateFrequencies,
    EstimateTable,
    FormatReports,
    LimitContributions,
    Privatize,
    ReadRecords,
    ReadReports,
    RecordFields,
    Summarize,
    WindowSpec,
    WriteDeadLetters,
    WriteEstimates,
    WriteReports,
    WriteSummary,
    record_batch,
)
from hadabeam.transforms.format_messages import FormatMessages, Message
from hadabeam.transforms.messages import ParseMessages
from hadabeam.transforms.published import PublishTables
from hadabeam.transforms.report_ids import AddReportIds
from hadabeam.transforms.split_packed import SplitPacked
from hadabeam.transforms.stream import EstimatePanes, Pane, StreamEstimates
from hadabeam.transforms.watch import WatchRecords
from hadabeam.transforms.write_messages import ConformRows, WriteMessages
from hadabeam.transforms.write_panes import SumTallies, WritePanes, WriteRunSummary

DOMAIN = Domain(["a", "b"]).with_other()
ORACLE = OneBitHadamard(DOMAIN, epsilon=1.0)
KEYS = seeded_keys()
HOURS = WindowSpec(3_600_000_000)
FIELDS = RecordFields("user", "page", "time")

BATCH = pa.RecordBatch
TALLY = Dict[str, int]
WINDOW_TALLY = Tuple[Optional[int], Optional[int], TALLY]
KEYED_REPORTS = Tuple[Tuple[int, Optional[str]], pa.RecordBatch]


@pytest.mark.parametrize(
    ("transform", "types"),
    [
        (LimitContributions(DOMAIN, KEYS), {None: BATCH, TALLIES: WINDOW_TALLY}),
        (LimitContributions(DOMAIN, windowing=HOURS), {None: BATCH, TALLIES: WINDOW_TALLY}),
        (Privatize(ORACLE, KEYS), BATCH),
        (CountReports.Globally(ORACLE), np.ndarray),
        (CountReports.Globally(ORACLE, fanout=2), np.ndarray),
        (CountReports.PerKey(ORACLE), Tuple[str, np.ndarray]),
        (CountReports.PerKey(ORACLE, fanout=2), Tuple[str, np.ndarray]),
        (EstimateCounts(ORACLE), EstimateTable),
        (EstimateCounts(ORACLE, keyed=True), EstimateTable),
        (EstimateFrequencies.Globally(ORACLE), EstimateRow),
        (EstimateFrequencies.PerKey(ORACLE), EstimateRow),
        (FormatReports(ORACLE), {None: BATCH, TALLIES: WINDOW_TALLY}),
        (
            StreamEstimates.Globally(ORACLE, HOURS, KEYS),
            {None: Pane, TALLIES: WINDOW_TALLY, DEAD_LETTERS: DeadLetter},
        ),
        (
            StreamEstimates.PerKey(ORACLE, HOURS, from_reports=True),
            {None: Pane, TALLIES: WINDOW_TALLY, DEAD_LETTERS: DeadLetter},
        ),
        (EstimatePanes(ORACLE), Pane),
        (beam.FlatMap(Pane.rows), EstimateRow),
        (beam.FlatMap(EstimateTable.rows), EstimateRow),
        (Summarize(ORACLE, 1.0), Dict[str, Any]),
        (SumTallies(), TALLY),
        (AddReportIds(), BATCH),
        (SplitPacked(1000), BATCH),
        (ConformRows("estimate"), BATCH),
        (FormatMessages("estimate"), Message),
        (PublishTables("default", "run"), pa.Table),
        (WriteMessages("pubsub:projects/project/topics/topic", "estimate"), DeadLetter),
    ],
    ids=lambda value: type(value).__qualname__ if isinstance(value, beam.PTransform) else "",
)
def test_the_types_of_outputs_are_declared(transform, types):
    found = beam.Pipeline() | beam.Create([0]).with_output_types(Any) | transform
    if isinstance(found, dict):
        found = {tag: pcoll.element_type for tag, pcoll in found.items()}
    else:
        found = found.element_type
    assert found == types


@pytest.mark.parametrize(
    ("transform", "types"),
    [
        (ReadRecords("x", FIELDS), [BATCH, DeadLetter, TALLY]),
        (ReadReports("x", ORACLE), [KEYED_REPORTS, DeadLetter, TALLY]),
        (WatchRecords("x", FIELDS), [BATCH, WINDOW_TALLY, DeadLetter]),
    ],
)
def test_the_types_of_what_is_read_are_declared(transform, types):
    found = beam.Pipeline() | transform
    outputs = found.values() if isinstance(found, dict) else found
    assert [pcoll.element_type for pcoll in outputs] == types


def test_the_types_of_messages_are_declared():
    found = beam.Pipeline() | beam.Create([b"{}"]) | ParseMessages(FIELDS, "topic")
    assert {tag: pcoll.element_type for tag, pcoll in found.items()} == {
        None: BATCH,
        TALLIES: WINDOW_TALLY,
        DEAD_LETTERS: DeadLetter,
    }


@pytest.mark.parametrize(
    ("make", "output"),
    [
        (WriteEstimates, str),
        (WriteSummary, str),
        (WriteDeadLetters, str),
        (WriteReports, str),
        (WritePanes, Pane),
        (lambda prefix: WriteRunSummary(prefix, ORACLE, 1.0), str),
    ],
)
def test_the_types_of_what_writers_give_are_declared(make, output, tmp_path):
    given = beam.Pipeline() | beam.Create([0]).with_output_types(Any)
    assert (given | make(f"{tmp_path}/x")).element_type == output


def test_what_is_grouped_or_has_state_has_a_key_whose_bytes_are_certain():
    pipeline = beam.Pipeline()
    records = pipeline | beam.Create([record_batch(["u"], ["a"])])
    limited = records | "Limit" >> LimitContributions(DOMAIN, KEYS)
    limited[None] | Privatize(ORACLE, KEYS) | "Count" >> CountReports.PerKey(ORACLE)
    found = records | "Stream" >> StreamEstimates.Globally(ORACLE, HOURS, KEYS)
    found[TALLIES] | "Sum" >> SumTallies()
    keyed = {}

    class Visitor(beam.pipeline.PipelineVisitor):
        def visit_transform(self, applied):
            transform = applied.transform
            stateful = isinstance(transform, beam.ParDo) and transform._signature
            if isinstance(transform, beam.GroupByKey) or (
                stateful and transform._signature.is_stateful_dofn()
            ):
                coder = coders.registry.get_coder(applied.inputs[0].element_type)
                keyed[applied.full_label] = coder.key_coder().is_deterministic()

    pipeline.visit(Visitor())
    assert len(keyed) >= 6
    assert all(keyed.values()), keyed


def test_rows_of_panes_are_written_as_json(tmp_path):
    pytest.importorskip("pandas", reason="Beam writes JSON by way of pandas")
    times = [1_700_000_000_000_000] * 20
    batch = record_batch([f"u{i}" for i in range(20)], ["a"] * 20, times)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        given = pipeline | beam.Create([beam.window.TimestampedValue(batch, 1_700_000_000)])
        found = given | StreamEstimates.Globally(ORACLE, HOURS, KEYS, early=None)
        found[None] | beam.FlatMap(Pane.rows) | beam.io.WriteToJson(str(tmp_path / "rows"))
    (file,) = tmp_path.glob("rows*")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert sorted(row["value"] for row in rows) == sorted(DOMAIN.values)


def test_rows_survive_the_check_of_types_at_run_time():
    def all_there(rows):
        assert sorted(row.value for row in rows) == sorted(DOMAIN.values)

    options = PipelineOptions(["--runtime_type_check"])
    with beam.Pipeline(runner=FnApiRunner(), options=options) as pipeline:
        pairs = pipeline | beam.Create([(f"u{i}", "a") for i in range(10)])
        assert_that(pairs | EstimateFrequencies.Globally(ORACLE), all_there)


def test_transforms_of_the_same_kind_stand_side_by_side_without_labels():
    given = beam.Pipeline() | beam.Create([record_batch(["u"], ["a"])])
    given | EstimateFrequencies.Globally(ORACLE)
    given | EstimateFrequencies.PerKey(ORACLE)
    given | StreamEstimates.Globally(ORACLE, HOURS, KEYS)
    given | StreamEstimates.PerKey(ORACLE, HOURS, KEYS)
    given | CountReports.Globally(ORACLE)
    given | CountReports.PerKey(ORACLE)
    given | beam.combiners.Count.Globally()
    assert StreamEstimates.PerKey(ORACLE, HOURS, KEYS).label == "StreamEstimates.PerKey"
