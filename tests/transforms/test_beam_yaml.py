"""The transforms of Beam YAML, on rows; the YAML itself is run by tests of engines."""

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that
from apache_beam.typehints.row_type import RowTypeConstraint
from made_logs import PAGES, visits

from hadabeam.mechanisms import Domain, OneBitHadamard
from hadabeam.mechanisms.errors import ParameterError
from hadabeam.testing import seeded_key_files
from hadabeam.transforms import EstimateFrequencies
from hadabeam.transforms.beam_yaml import HadabeamEstimate, HadabeamPrivatize
from hadabeam.transforms.randomness import UserKeys, question_of

BASE = {"user_field": "user", "value_field": "page", "domain": PAGES, "epsilon": 1.0}


def pipeline():
    return beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([]))


def rows(p, records):
    return (
        p
        | beam.Create(records)
        | beam.Map(lambda record: beam.Row(**record)).with_output_types(
            RowTypeConstraint.from_fields([("user", str), ("page", str | None), ("country", str)])
        )
    )


def test_the_same_rows_as_the_transforms_behind_them(tmp_path):
    assignment, coin = seeded_key_files(tmp_path, "yaml")
    keys = {"assignment_key": assignment.path, "coin_key": coin.path}
    records = visits(2000, 500)
    domain = Domain(PAGES).with_other()
    oracle = OneBitHadamard(domain, 1.0)

    def same(found):
        kinds = {}
        for kind, row in found:
            kinds.setdefault(kind, []).append(row)
        assert sorted(kinds["yaml"]) == sorted(kinds["direct"])
        assert len(kinds["yaml"]) == len(domain.values)
        assert {row.key for row in kinds["keyed"]} == {"de", "fr"}
        users = {record["user"] for record in records}
        assert len(kinds["reports"]) == len(users)
        assert {row.collection for row in kinds["reports"]} == {oracle.collection_id}
        assert {row.bit for row in kinds["reports"]} == {0, 1}

    with pipeline() as p:
        read = rows(p, records)
        direct = EstimateFrequencies.Globally(
            oracle, UserKeys(assignment, coin, question_of("page"))
        )
        results = {
            "direct": read | beam.Map(lambda row: (row.user, row.page)) | direct,
            "yaml": read | "Yaml" >> HadabeamEstimate(**BASE, **keys),
            "keyed": read | "Keyed" >> HadabeamEstimate(**BASE, **keys, key_field="country"),
            "reports": read | "Reports" >> HadabeamPrivatize(**BASE, **keys),
        }
        named = [
            found | f"Name{kind}" >> beam.Map(lambda row, kind: (kind, row), kind)
            for kind, found in results.items()
        ]
        assert_that(named | beam.Flatten(), same)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"user_field": "usr"}, "user_field is 'usr'.*did you mean 'user'"),
        ({"value_field": "zzz"}, "value_field is 'zzz'.*Its fields are: user, page, country"),
        ({"key_field": "land"}, "key_field is 'land'"),
        ({"epsilon": -1}, "epsilon"),
        ({"oracle": "magic"}, "magic"),
        ({"domain": ["a"], "unknown": "drop"}, "domain"),
        ({"post": "best"}, "post"),
        ({"assignment_key": "only.key"}, "key"),
    ],
)
def test_errors_name_the_parameter(changed, words):
    with pytest.raises(ParameterError, match=words):
        rows(beam.Pipeline(), visits(3, 3)) | HadabeamEstimate(**{**BASE, **changed})
