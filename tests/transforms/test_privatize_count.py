"""Privatize and CountReports on a runner, and the combiner's contract."""

import dataclasses
import itertools
import json

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to

from hadabeam.mechanisms.coins import KeyedCoins
from hadabeam.mechanisms.domain import Domain
from hadabeam.mechanisms.errors import ParameterError
from hadabeam.mechanisms.one_bit import OneBitHadamard
from hadabeam.testing import assert_combiner_contract, seeded_keys
from hadabeam.transforms.count import CountFn, CountReports, split_by_key
from hadabeam.transforms.limit import LimitContributions
from hadabeam.transforms.privatize import Privatize, report_batch
from hadabeam.transforms.randomness import UserKeys
from hadabeam.transforms.records import record_batch
from hadabeam.transforms.summary import AddTallies
from hadabeam.transforms.windows import WindowSpec

DOMAIN = Domain([f"v{i}" for i in range(10)])
ORACLE = OneBitHadamard(DOMAIN, 1.0)
KEYS = seeded_keys(2)
DAY = 86_400_000_000


def by_hand(users, values, epoch=0, scope=()):
    """(column, bit) of each user, with the mechanisms alone."""
    loaded = KEYS.load()
    pseudonyms = loaded.users.pseudonyms(users)
    columns = ORACLE.assign(pseudonyms, loaded.users)
    coins = KeyedCoins(
        loaded._coin, pseudonyms, collection_id=ORACLE.collection_id, epoch=epoch, scope=scope
    )
    bits = ORACLE.randomize(np.array(values), columns, coins)
    return list(zip(columns.tolist(), bits.tolist(), strict=True))


def pairs(batch):
    columns = (batch.column(name).to_pylist() for name in ("column", "bit"))
    return list(zip(*columns, strict=True))


def limited(pipeline, batches, windowing=None):
    return (pipeline | beam.Create(batches) | LimitContributions(DOMAIN, KEYS, "drop", windowing))[
        None
    ]


def test_reports_are_those_of_the_mechanism():
    users = [f"u{i}" for i in range(200)]
    values = [i % 10 for i in range(200)]
    batch = record_batch(users, [f"v{value}" for value in values])
    with TestPipeline(runner=FnApiRunner()) as pipeline:
        reports = limited(pipeline, [batch]) | Privatize(ORACLE, KEYS)
        assert_that(reports | beam.FlatMap(pairs), equal_to(by_hand(users, values)))


@pytest.mark.parametrize("memo", ["window", "forever"])
def test_coins_belong_to_the_window(memo):
    users = [f"u{i}" for i in range(100)]
    batch = record_batch(users * 2, ["v3"] * 200, [0] * 100 + [DAY] * 100)
    with TestPipeline(runner=FnApiRunner()) as pipeline:
        reports = limited(pipeline, [batch], WindowSpec(DAY)) | Privatize(ORACLE, KEYS, memo)
        places = [(0, ("timed",)), (0, ("timed",))]
        if memo == "window":
            places = [(0, ("until", DAY, "timed")), (DAY, ("until", 2 * DAY, "timed"))]
        expected = [pair for place in places for pair in by_hand(users, [3] * 100, *place)]
        assert_that(reports | beam.FlatMap(pairs), equal_to(expected))


def test_questions_windows_and_per_key_estimates_share_no_coins():
    """Of two that did, reports that differ would prove that the true bits do."""
    users = np.arange(160, dtype=np.uint8).reshape(10, 16)
    drawn = []
    for question in ("", "smokes", "hiv"):
        keys = dataclasses.replace(KEYS, question=question).load()
        for keyed, timed in itertools.product((False, True), repeat=2):
            kind = {"keyed": keyed, "timed": timed}
            words = [
                keys.coins(ORACLE, users, 0, end=end, **kind).words(10)
                for end in (None, DAY, 7 * DAY)
            ]
            words.append(keys.coins(ORACLE, users, 0, True, **kind).words(10))
            # A memo holds in all windows, of whatever length.
            memo = keys.coins(ORACLE, users, 5 * DAY, True, end=6 * DAY, **kind).words(10)
            assert (memo == words[3]).all()
            drawn += [words[1], words[2], words[3]]
            # Without windows the memo is that of a single run.
            assert (words[0] == words[3]).all()
    distinct = np.unique(np.concatenate(drawn), axis=0)
    assert len(distinct) == 10 * len(drawn) == 360


def test_without_keys_every_run_draws_anew(tmp_path):
    keys = UserKeys()
    users = [f"u{i}" for i in range(300)]
    files = [tmp_path / name for name in "12"]
    for file in files:
        with TestPipeline(runner=FnApiRunner()) as pipeline:
            records = (
                pipeline
                | beam.Create([record_batch(users, ["v1"] * 300)])
                | LimitContributions(DOMAIN, keys, "drop")
            )[None]
            found = records | Privatize(ORACLE, keys) | beam.FlatMap(pairs)
            gathered = found | beam.combiners.ToList()
            _ = gathered | beam.Map(
                lambda pairs, path: path.write_text(json.dumps(sorted(pairs))), file
            )
    first, second = (json.loads(file.read_text()) for file in files)
    assert len(first) == len(second) == 300
    assert first != second


def test_records_that_were_not_limited_are_refused():
    with (
        pytest.raises(Exception, match="LimitContributions"),
        TestPipeline(runner=FnApiRunner()) as pipeline,
    ):
        _ = pipeline | beam.Create([record_batch(["u"], ["v1"])]) | Privatize(ORACLE, KEYS)


def test_bad_choices_are_refused():
    with pytest.raises(ParameterError, match="memo"):
        Privatize(ORACLE, KEYS, "always")
    with pytest.raises(ParameterError, match="needs an assignment key"):
        Privatize(ORACLE, memo="forever")


def report_batches(number, rows=50, keys=None):
    loaded = KEYS.load()
    found = []
    for index in range(number):
        pseudonyms = loaded.users.pseudonyms([f"{index}-{row}" for row in range(rows)])
        names = None if keys is None else [keys[row % len(keys)] for row in range(rows)]
        batch = record_batch(["-"] * rows, ["-"] * rows, keys=names)
        columns = {
            "user": pa.array([row.tobytes() for row in pseudonyms], pa.binary(16)),
            "value": pa.array([row % 10 for row in range(rows)], pa.int32()),
        }
        if names is not None:
            columns["key"] = batch.column("key").dictionary_encode()
        found.append(report_batch(ORACLE, loaded, pa.RecordBatch.from_pydict(columns), 0))
    return found


def test_the_count_combiner_keeps_its_contract():
    batches = report_batches(5)
    columns = np.concatenate([batch.column("column").to_numpy() for batch in batches])
    bits = np.concatenate([batch.column("bit").to_numpy() for batch in batches])
    assert_combiner_contract(
        CountFn(ORACLE), batches, ORACLE.count(columns, bits), same=np.array_equal
    )


def test_the_tally_combiner_keeps_its_contract():
    inputs = [
        (None, None, {"records_read": 5, "missing_user": 1}),
        (0, 10, {"reports": 3}),
        (None, None, {"records_read": 2}),
        (0, 10, {"reports": 1, "over_limit": 2}),
    ]
    expected = {
        (None, None): {"records_read": 7, "missing_user": 1},
        (0, 10): {"reports": 4, "over_limit": 2},
    }
    assert_combiner_contract(AddTallies(), inputs, expected)


def test_counts_of_nothing_are_zero_without_windows():
    with TestPipeline(runner=FnApiRunner()) as pipeline:
        counts = pipeline | beam.Create([]) | CountReports.Globally(ORACLE)
        assert_that(counts | beam.Map(lambda found: int(found.sum())), equal_to([0]))


@pytest.mark.parametrize("fanout", [None, 3])
def test_counts_globally_and_per_key(fanout):
    batches = report_batches(4, keys=["de", "fr", "it"])
    plain = [batch.drop_columns(["key"]) for batch in batches]
    whole = sum(CountFn(ORACLE).add_input(ORACLE.zero(), batch) for batch in plain)
    by_key = {}
    for batch in batches:
        for key, part in split_by_key(batch):
            by_key[key] = by_key.get(key, 0) + CountFn(ORACLE).add_input(ORACLE.zero(), part)
    assert (sum(by_key.values()) == whole).all()
    with TestPipeline(runner=FnApiRunner()) as pipeline:
        created = pipeline | beam.Create(batches)
        counts = created | CountReports.Globally(ORACLE, fanout)
        assert_that(
            counts | beam.Map(lambda c: c.tolist()), equal_to([whole.tolist()]), label="all"
        )
        per_key = created | CountReports.PerKey(ORACLE, fanout)
        assert_that(
            per_key | beam.MapTuple(lambda key, c: (key, c.tolist())),
            equal_to([(key, counts.tolist()) for key, counts in by_key.items()]),
            label="keys",
        )


def test_split_batches_do_not_carry_their_parent():
    (batch,) = report_batches(1, rows=10_000, keys=[f"k{i}" for i in range(100)])
    for _, part in split_by_key(batch):
        assert part.num_rows == 100
        assert part.get_total_buffer_size() < 2_000
