"""How to test a pipeline that uses hadabeam: fixed keys, and intervals that hold the truth."""

import json

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that
from visitstats.pipeline import sections

from hadabeam.testing import assert_within_intervals, seeded_keys

TRUTH = {"home": 0.5, "search": 0.3, "product": 0.1, "cart": 0.05, "other": 0.05}


def lines(users=4000):
    pages = [page for page, share in TRUTH.items() for _ in range(round(100 * share))]
    for number in range(users):
        page = pages[number % 100]
        path = "/imprint" if page == "other" else f"/{page}/x"
        yield json.dumps({"user": number, "page": path})
    yield "no visit"


def test_the_intervals_hold_the_true_shares():
    with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([])) as pipeline:
        rows = sections(pipeline | beam.Create(list(lines())), 2.0, seeded_keys(1))
        # With these keys, all five hold; others may give another outcome.
        assert_that(
            rows | beam.combiners.ToList(),
            lambda found: assert_within_intervals(found[0], TRUTH, least=0.8),
        )
