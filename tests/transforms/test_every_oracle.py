"""Every oracle through the transforms, on Beam's local runner, and through the command."""

from __future__ import annotations

import gzip
import json

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that

from hadabeam.mechanisms.domain import Domain
from hadabeam.mechanisms.registry import ORACLES, make_oracle
from hadabeam.pipelines.batch import main
from hadabeam.testing import (
    assert_combiner_contract,
    assert_within_intervals,
    seeded_key_files,
    seeded_keys,
)
from hadabeam.transforms.batching import BatchRecords
from hadabeam.transforms.count import CountFn, CountReports, count_batch
from hadabeam.transforms.encode import EncodedRecords
from hadabeam.transforms.estimate import EstimateCounts, EstimateFrequencies
from hadabeam.transforms.limit import LimitContributions
from hadabeam.transforms.privatize import Privatize, report_batch
from hadabeam.transforms.windows import NO_WINDOW

NAMES = tuple(ORACLES)
VALUES = [f"page {i}" for i in range(15)]
DOMAIN = Domain(VALUES).with_other()
USERS = 1500


def records():
    """One record a user; page i has a share proportional to 1 / (i + 1)."""
    weights = 1 / np.arange(1, 17)
    edges = np.floor(USERS * np.cumsum(weights) / weights.sum()).astype(int)
    edges[-1] = USERS
    pages = np.repeat(np.arange(16), np.diff(edges, prepend=0)).tolist()
    return [(f"user {i}", DOMAIN.values[page]) for i, page in enumerate(pages)]


def shares(pairs):
    values = [value for _, value in pairs]
    return {value: values.count(value) / len(values) for value in DOMAIN.values}


def by_hand(oracle, pairs, keyed=False):
    """The raw values of the same keys without Beam, in one batch."""
    keys = seeded_keys().load()
    users = keys.users.pseudonyms([user for user, _ in pairs])
    values = DOMAIN.index([value for _, value in pairs])
    columns = keys.columns(oracle, users)
    coins = keys.coins(oracle, users, NO_WINDOW, keyed=keyed)
    messages = oracle.randomize(values, columns, coins)
    return oracle.estimate(oracle.count(columns, messages)).raw


@pytest.mark.parametrize("name", NAMES)
def test_steps_and_composite_give_what_the_mechanism_gives(name):
    """16 intervals of level .95 under fixed keys: at least 12 must hold the truth."""
    oracle = make_oracle(name, DOMAIN, 2.0)
    pairs = records()

    def check(found):
        assert [row.value for row in found] == list(DOMAIN.values)
        np.testing.assert_array_equal([row.raw for row in found], by_hand(oracle, pairs))
        assert_within_intervals(found, shares(pairs), least=0.75)

    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        source = pipeline | beam.Create(pairs)
        limited = (
            source
            | beam.ParDo(BatchRecords(False))
            | LimitContributions(DOMAIN, seeded_keys(), "other")
        )
        tables = (
            limited[None]
            | Privatize(oracle, seeded_keys())
            | "Count" >> CountReports.Globally(oracle)
            | EstimateCounts(oracle)
        )
        steps = tables | beam.FlatMap(lambda table: list(table.rows()))
        once = source | "Once" >> EstimateFrequencies.Globally(oracle, keys=seeded_keys())
        assert_that(steps, check, label="steps")
        assert_that(once, check, label="once")


@pytest.mark.parametrize("name", NAMES)
def test_each_key_has_its_own_table(name):
    oracle = make_oracle(name, DOMAIN, 2.0)
    pairs = records()
    keyed = [("even" if i % 2 == 0 else "odd", pair) for i, pair in enumerate(pairs)]

    def check(found):
        assert sorted({row.key for row in found}) == ["even", "odd"]
        for key in ("even", "odd"):
            own = [pair for name, pair in keyed if name == key]
            rows = [row for row in found if row.key == key]
            expected = by_hand(oracle, own, keyed=True)
            np.testing.assert_array_equal([row.raw for row in rows], expected)
            assert_within_intervals(rows, shares(own), least=0.75)

    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        found = (
            pipeline | beam.Create(keyed) | EstimateFrequencies.PerKey(oracle, keys=seeded_keys())
        )
        assert_that(found, check)


@pytest.mark.parametrize("name", NAMES)
def test_counts_combine_in_any_way(name):
    oracle = make_oracle(name, DOMAIN, 1.0)
    keys = seeded_keys().load()
    batches = []
    for part in range(3):
        users = keys.users.pseudonyms([f"{part} {i}" for i in range(40)])
        records = EncodedRecords(users, np.arange(40, dtype=np.int32) % 16)
        batches.append(report_batch(oracle, keys, records.to_arrow(), NO_WINDOW))
    total = sum(count_batch(oracle, batch) for batch in batches)
    assert_combiner_contract(CountFn(oracle), batches, total, same=np.array_equal)


@pytest.mark.parametrize("name", NAMES)
def test_batch_command_runs_it(name, tmp_path, capsys):
    log = tmp_path / "log.jsonl"
    pairs = records()
    log.write_text("".join(json.dumps({"u": u, "page": v}) + "\n" for u, v in pairs))
    pages = tmp_path / "pages.txt"
    pages.write_text("\n".join(VALUES))
    assignment, coin = seeded_key_files(tmp_path)
    output = tmp_path / "out" / name
    code = main(
        f"--input {log} --user_field u --value_field page --domain {pages} --epsilon 2 "
        f"--oracle {name} --output {output} --output_format jsonl "
        f"--assignment_key {assignment.path} --coin_key {coin.path}".split()
    )
    assert code == 0, capsys.readouterr().err
    with open(f"{output}-estimates.jsonl") as file:
        rows = [json.loads(line) for line in file]
    assert [row["value"] for row in rows] == list(DOMAIN.values)
    assert_within_intervals(rows, shares(pairs), least=0.75)
    with open(f"{output}-summary.json") as file:
        summary = json.load(file)
    assert summary["oracle"] == name
    assert summary["records_read"] == summary["reports"] == USERS
    assert summary["epsilon_effective"] <= 2.0


def flights():
    """A log as large as the flights data, made up: 105 destinations, 336,776 records.

    The largest destination has 5 % and the shares fall geometrically; a few records name
    a destination that is not in the domain.
    """
    weights = 0.965 ** np.arange(106)
    generator = np.random.default_rng(20130101)
    return generator.choice(106, size=336_776, p=weights / weights.sum())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_log_as_large_as_the_flights_data(name, tmp_path):
    """106 intervals of level .95; 92 or fewer cover with probability 1e-4 under a fixed key."""
    codes = [f"D{i:03}" for i in range(105)]
    found = flights()
    log = tmp_path / "flights.csv.gz"
    with gzip.open(log, "wt", compresslevel=1) as file:
        file.write("flight_id,dest\n")
        file.writelines(
            f"F{i:06},{codes[place] if place < 105 else 'ZZZ'}\n"
            for i, place in enumerate(found.tolist())
        )
    pages = tmp_path / "destinations.txt"
    pages.write_text("\n".join(codes))
    assignment, coin = seeded_key_files(tmp_path)
    output = tmp_path / name
    code = main(
        f"--input {log} --user_field flight_id --value_field dest --domain {pages} --epsilon 1 "
        f"--oracle {name} --output {output} --output_format jsonl "
        f"--assignment_key {assignment.path} --coin_key {coin.path}".split()
    )
    assert code == 0
    with open(f"{output}-estimates.jsonl") as file:
        rows = [json.loads(line) for line in file]
    truth = np.bincount(found, minlength=106) / len(found)
    names = [*codes, "other"]
    assert_within_intervals(rows, dict(zip(names, truth, strict=True)), least=93 / 106)
