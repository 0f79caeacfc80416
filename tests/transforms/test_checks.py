"""Wrong arguments are refused where they are given, and the message says what to pass."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pytest
from apache_beam.transforms.window import FixedWindows

from hadabeam.mechanisms import Domain, KeyFile, OneBitHadamard, ParameterError
from hadabeam.testing import seeded_keys
from hadabeam.transforms import (
    CountReports,
    EstimateCounts,
    EstimateFrequencies,
    FormatReports,
    LimitContributions,
    Privatize,
    ReadRecords,
    ReadReports,
    RecordFields,
    ReportKeys,
    UserKeys,
    WindowSpec,
    WriteDeadLetters,
    WriteEstimates,
    WriteReports,
    WriteSummary,
)
from hadabeam.transforms.stream import EstimatePanes, StreamEstimates
from hadabeam.transforms.watch import WatchRecords
from hadabeam.transforms.windows import CalendarDays
from hadabeam.transforms.write_panes import WritePanes

DOMAIN = Domain(["a", "b"]).with_other()
ORACLE = OneBitHadamard(DOMAIN, epsilon=1.0)
KEYS = seeded_keys()
HOURS = WindowSpec(3_600_000_000)
FIELDS = RecordFields("user", "page")


@pytest.mark.parametrize("keys", ["a.key", KeyFile("a.key"), None, ReportKeys()])
@pytest.mark.parametrize(
    "make",
    [
        lambda keys: EstimateFrequencies.Globally(ORACLE, keys),
        lambda keys: EstimateFrequencies.PerKey(ORACLE, keys),
        lambda keys: StreamEstimates.Globally(ORACLE, HOURS, keys),
        lambda keys: LimitContributions(DOMAIN, keys),
        lambda keys: Privatize(ORACLE, keys),
    ],
)
def test_keys_of_records_are_user_keys(make, keys):
    with pytest.raises(ParameterError, match="UserKeys") as refused:
        make(keys)
    assert "a.key" not in str(refused.value)


def test_keys_of_reports_are_report_keys():
    with pytest.raises(ParameterError, match="ReportKeys"):
        StreamEstimates.Globally(ORACLE, HOURS, "a.key", from_reports=True)
    with pytest.raises(ParameterError, match="ReportKeys"):
        ReadReports("x", ORACLE, keys="a.key")
    StreamEstimates.Globally(ORACLE, HOURS, KEYS, from_reports=True)


@pytest.mark.parametrize("given", ["secret.key", b"s" * 32, Path("secret.key"), 7])
def test_keys_are_references(given):
    for make in (
        lambda: UserKeys(given, "b.key"),
        lambda: UserKeys(KeyFile("a.key"), given),
        lambda: ReportKeys(given),
    ):
        with pytest.raises(ParameterError, match=r"KeyFile\(path\)") as refused:
            make()
        assert "secret" not in str(refused.value).replace("get_secret_bytes", "")


@pytest.mark.parametrize("windowing", [FixedWindows(3600), 3600, "1h", WindowSpec])
@pytest.mark.parametrize(
    "make",
    [
        lambda windowing: StreamEstimates.Globally(ORACLE, windowing, KEYS),
        lambda windowing: LimitContributions(DOMAIN, windowing=windowing),
        lambda windowing: ReadReports("x", ORACLE, windowing=windowing),
    ],
)
def test_windows_are_of_this_package(make, windowing):
    with pytest.raises(ParameterError, match="WindowSpec"):
        make(windowing)
    make(CalendarDays())


@pytest.mark.parametrize("oracle", [DOMAIN, None, OneBitHadamard])
@pytest.mark.parametrize(
    "make",
    [
        EstimateFrequencies.Globally,
        EstimateFrequencies.PerKey,
        lambda oracle: StreamEstimates.Globally(oracle, HOURS, KEYS),
        EstimatePanes,
        EstimateCounts,
        CountReports.Globally,
        CountReports.PerKey,
        Privatize,
        FormatReports,
        lambda oracle: ReadReports("x", oracle),
    ],
)
def test_a_mechanism_is_an_oracle(make, oracle):
    with pytest.raises(ParameterError, match="oracle must be a frequency oracle"):
        make(oracle)


def test_a_domain_is_a_domain():
    for domain in (["a", "b"], ORACLE):
        with pytest.raises(ParameterError, match="domain must be a Domain"):
            LimitContributions(domain)


@pytest.mark.parametrize("number", [-1, 0, "x", 2.0, True])
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda number: CountReports.Globally(ORACLE, number), "fanout"),
        (lambda number: CountReports.PerKey(ORACLE, number), "fanout"),
        (lambda number: LimitContributions(DOMAIN, shards=number), "shards"),
        (lambda number: StreamEstimates.Globally(ORACLE, HOURS, KEYS, shards=number), "shards"),
        (lambda number: StreamEstimates.Globally(ORACLE, HOURS, KEYS, lanes=number), "lanes"),
        (
            lambda number: StreamEstimates.Globally(ORACLE, HOURS, KEYS, min_reports=number),
            "min_reports",
        ),
        (lambda number: EstimatePanes(ORACLE, min_reports=number), "min_reports"),
        (lambda number: ReadRecords("x", FIELDS, split_bytes=number), "split_bytes"),
        (lambda number: ReadReports("x", ORACLE, split_bytes=number), "split_bytes"),
    ],
)
def test_numbers_are_whole(make, name, number):
    with pytest.raises(ParameterError, match=f"{name} must be a whole number from 1"):
        make(number)
    make(np.int64(3))


@pytest.mark.parametrize("lateness", [-1, 5e6, "5s", datetime.timedelta(seconds=5)])
def test_lateness_is_whole(lateness):
    with pytest.raises(ParameterError, match="allowed_lateness must be a whole number from 0 up"):
        StreamEstimates.Globally(ORACLE, HOURS, KEYS, allowed_lateness=lateness)


@pytest.mark.parametrize("early", [0, -1.0, "10s", True, float("nan")])
def test_early_is_a_number_of_seconds(early):
    with pytest.raises(ParameterError, match="early must be more than 0 seconds"):
        StreamEstimates.Globally(ORACLE, HOURS, KEYS, early=early)


@pytest.mark.parametrize(
    "size", [3.6e9, True, "1h", datetime.timedelta(hours=1), np.float64(3_600_000_000)]
)
def test_windows_are_whole_numbers(size):
    for arguments in ((size,), (3_600_000_000, size)):
        with pytest.raises(ParameterError, match="whole numbers of microseconds"):
            WindowSpec(*arguments)


def test_windows_are_whole_milliseconds():
    # Beam's coder of windows keeps milliseconds: the ends of others would come out cut.
    for arguments in ((1500,), (3_000, 1_500), (1,)):
        with pytest.raises(ParameterError, match=r"multiples of 1,000 microseconds"):
            WindowSpec(*arguments)
    WindowSpec(np.int64(3_000), 1_000)


@pytest.mark.parametrize(
    "make",
    [
        lambda memo: EstimateFrequencies.Globally(ORACLE, KEYS, memo=memo),
        lambda memo: EstimateFrequencies.PerKey(ORACLE, memo=memo, from_reports=True),
        lambda memo: StreamEstimates.Globally(ORACLE, HOURS, KEYS, memo=memo),
        lambda memo: StreamEstimates.PerKey(ORACLE, HOURS, memo=memo, from_reports=True),
        lambda memo: Privatize(ORACLE, KEYS, memo),
    ],
)
def test_a_memo_is_refused_at_once(make):
    with pytest.raises(ParameterError, match="memo must be 'window' or 'forever'"):
        make("bogus")


def test_memo_forever_needs_keys_at_once():
    with pytest.raises(ParameterError, match="needs an assignment key and a coin key"):
        EstimateFrequencies.Globally(ORACLE, memo="forever")


def test_paths_may_be_path_objects(tmp_path):
    prefix = tmp_path / "pages"
    assert WriteEstimates(prefix).path == f"{prefix}-estimates.avro"
    assert WriteSummary(prefix).path == f"{prefix}-summary.json"
    assert WriteDeadLetters(prefix).path == f"{prefix}-dead-letters.jsonl"
    assert WriteReports(prefix).prefix == WritePanes(prefix).prefix == str(prefix)
    for make in (
        lambda patterns: ReadRecords(patterns, FIELDS)._patterns,
        lambda patterns: list(ReadReports(patterns, ORACLE).patterns),
        lambda patterns: list(WatchRecords(patterns, None).patterns),
    ):
        assert make(prefix) == [str(prefix)]
        assert make([prefix, "logs/*"]) == [str(prefix), "logs/*"]
        assert make(f"{prefix}*") == [f"{prefix}*"]
        for wrong in (None, 7, b"logs", [b"logs"], [prefix, None]):
            with pytest.raises(ParameterError, match="must be texts or paths"):
                make(wrong)
        for wrong in ([], "", [prefix, ""]):
            with pytest.raises(ParameterError, match="at least one input path"):
                make(wrong)
