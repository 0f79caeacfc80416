"""Elements that are single records, and those that are none."""

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that

from hadabeam.mechanisms.domain import Domain
from hadabeam.mechanisms.errors import ParameterError
from hadabeam.mechanisms.one_bit import OneBitHadamard
from hadabeam.testing import seeded_keys
from hadabeam.transforms import EstimateFrequencies
from hadabeam.transforms.batching import as_record

ORACLE = OneBitHadamard(Domain(["1", "2"]).with_other(), 1.0)


@pytest.mark.parametrize(
    ("element", "keyed"),
    [
        ("ab", False),
        (("user",), False),
        (("user", "value", "more"), False),
        # A keyed collection, where none is meant: the key would be the user of all.
        (("key", ("user", "value")), False),
        (("user", "value"), True),
        (("key", ("key", ("user", "value"))), True),
    ],
)
def test_what_is_no_record_is_refused_without_showing_it(element, keyed):
    with pytest.raises(ParameterError, match=r"elements must be \(.*user, value\)") as refused:
        as_record(element, keyed)
    assert all(word not in str(refused.value) for word in ("'user'", "'value'", "'key'"))


def test_records():
    assert as_record(("u", None), False) == (None, "u", None)
    assert as_record(["u", 7], False) == (None, "u", 7)
    assert as_record((None, ("u", "v")), True) == (None, "u", "v")
    # Missing, as they are in files; they are content, and must not end a job.
    for value in ({"id": 1}, ["v", "w"], {"v"}, ("v",)):
        assert as_record(("u", value), False) == (None, "u", value)
        assert as_record((value, "v"), False) == (None, value, "v")


def test_numbers_of_numpy_are_users_values_and_keys():
    def pairs(kind):
        users, values = np.arange(600), np.arange(600) % 2 + 1
        return [
            (kind(value), (kind(user), kind(value)))
            for user, value in zip(users, values, strict=True)
        ]

    def check(found):
        assert {row.key for row in found} == {"1", "2"}
        assert sum({row.key: row.count for row in found if row.value == row.key}.values()) > 300

    tables = {}
    for kind in (np.int64, int, str, np.float64):
        with TestPipeline(runner=FnApiRunner()) as pipeline:
            rows = (
                pipeline
                | beam.Create(pairs(kind))
                | EstimateFrequencies.PerKey(ORACLE, seeded_keys(3))
            )
            assert_that(rows, check, label="check")

            def same(found, kind=kind):
                tables.setdefault("first", sorted(map(repr, found)))
                assert sorted(map(repr, found)) == tables["first"], kind

            assert_that(rows, same, label="same")
