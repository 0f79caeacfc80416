"""One report per user and window: the set of digests, its bound, and ready-made reports."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from apache_beam.transforms.window import TimestampedValue
from hypothesis import given
from hypothesis import strategies as st

from hadabeam.mechanisms import InputError
from hadabeam.testing import seeded_keys
from hadabeam.transforms.count import count_batch
from hadabeam.transforms.encode import RecordEncoder
from hadabeam.transforms.lateness import AFTERWARDS, PLACE
from hadabeam.transforms.once import OnePerUser, first_of_each
from hadabeam.transforms.privatize import report_batch
from hadabeam.transforms.records import record_batch
from hadabeam.transforms.reports import report_rows
from hadabeam.transforms.stream import StreamEstimates
from hadabeam.transforms.windows import WindowSpec

S = 1_000_000
DIGESTS = st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 5), max_size=60)


@given(st.lists(DIGESTS, max_size=6))
def test_first_arrivals_are_found_as_a_set_would(batches):
    seen: set[int] = set()
    state = np.zeros(0, np.uint64)
    for batch in batches:
        expected = []
        for row, digest in enumerate(batch):
            if digest not in seen:
                expected.append(row)
                seen.add(digest)
        rows, state = first_of_each(np.array(batch, np.uint64), state)
        assert rows.tolist() == expected
        assert state.tolist() == sorted(seen)
        state = np.frombuffer(state.tobytes(), "<u8")


class _Cell:
    """The state of one key."""

    value: bytes | None = None

    def read(self) -> bytes | None:
        return self.value

    def write(self, value: bytes) -> None:
        self.value = value


class _Timer:
    def set(self, at: object) -> None:
        self.at = at


def test_a_group_that_grows_beyond_its_bound_is_an_error(oracle):
    step = OnePerUser(oracle, seeded_keys(1), "window", 0, most_users=10)
    step.setup()
    records = record_batch([f"canary {i}" for i in range(8)], ["a"] * 8)
    encoded, _ = RecordEncoder(oracle.domain, seeded_keys(1).load().users).encode(records)
    cell, timer = _Cell(), _Timer()
    place = PLACE.pack(0, 10 * S, 0)
    assert len(list(step.process((place, encoded.to_arrow()), cell, timer))) == 2
    assert timer.at.micros == 10 * S + AFTERWARDS
    more = record_batch([f"canary more {i}" for i in range(8)], ["a"] * 8)
    encoded, _ = RecordEncoder(oracle.domain, seeded_keys(1).load().users).encode(more)
    with pytest.raises(InputError, match="--shards") as error:
        list(step.process((place, encoded.to_arrow()), cell, timer))
    assert "canary" not in str(error.value)


def test_reports_count_once_by_their_id_and_in_the_window_of_their_epoch(run_stream, begin, oracle):
    loaded = seeded_keys("edge").load()
    records = record_batch([f"u{i}" for i in range(30)], list("abcde" * 6))
    encoded, _ = RecordEncoder(oracle.domain, loaded.users, "other").encode(records)
    made = report_batch(oracle, loaded, encoded.to_arrow(), 20 * S)
    rows = report_rows(made, oracle.collection_id, 20 * S)
    ids = pa.array([f"id {number}" for number in range(30)])
    place = rows.schema.get_field_index("report_id")
    rows = rows.set_column(place, "report_id", ids)
    foreign = report_rows(made.slice(0, 3), "0" * 32, 20 * S)
    stream = (
        begin()
        .add_elements([TimestampedValue(rows.slice(0, 20), 20)])
        .add_elements([TimestampedValue(rows.slice(10, 20), 20), TimestampedValue(foreign, 20)])
        .add_elements([TimestampedValue(rows, 20)])
        .advance_watermark_to(41)
        .advance_watermark_to_infinity()
    )
    found = run_stream(
        stream,
        # Windows of 20 s that start every 10 s: a report is in the one that its epoch starts.
        StreamEstimates.Globally(oracle, WindowSpec(20 * S, 10 * S), early=None, from_reports=True),
    )
    assert found.story() == [(20, "on_time-0", 30)]
    expected = oracle.estimate(count_batch(oracle, made))
    np.testing.assert_array_equal(found.panes[0].tables[0].estimate.raw, expected.raw)
    assert found.tally["duplicate"] == 40
    assert found.tally["wrong_collection"] == 3
    assert found.tally["reports"] == 30
    assert found.tally["records_read"] == 73
