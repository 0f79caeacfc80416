"""Which sections of a site do people visit? A line of text for each, most visited first.

    python -m visitstats.pipeline --input visits.jsonl --output sections.txt [Beam's flags]

Before hadabeam comes a DoFn that knows this site's logs, and after it one that knows what
its readers want to see. Between the two nothing but one noisy bit a user.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from hadabeam.mechanisms import Domain, OneBitHadamard
from hadabeam.schemas.rows import EstimateRow
from hadabeam.transforms import EstimateFrequencies
from hadabeam.transforms.randomness import UserKeys

SECTIONS = Domain(["home", "search", "product", "cart"]).with_other()


@beam.typehints.with_output_types(tuple[str, str])
class ParseVisit(beam.DoFn):
    """A line of the log to ``(user, section)``; lines that are no visits are counted."""

    def __init__(self) -> None:
        self._broken = beam.metrics.Metrics.counter("visitstats", "broken_lines")

    def process(self, line: str) -> Iterator[tuple[str, str]]:
        try:
            visit = json.loads(line)
            yield str(visit["user"]), str(visit["page"]).strip("/").partition("/")[0] or "home"
        except (ValueError, KeyError, TypeError):
            self._broken.inc()


def report(rows: Iterable[EstimateRow]) -> str:
    """The readers' text: a line for each section, with its share and how sure it is."""
    ordered = sorted(rows, key=lambda row: (-row.frequency, row.value))
    return "\n".join(
        f"{row.value:10}{row.frequency:7.1%}  ± {1.96 * row.standard_error:.1%}" for row in ordered
    )


def sections(
    lines: beam.PCollection, epsilon: float = 1.0, keys: UserKeys | None = None
) -> beam.PCollection:
    """Lines of the log to :class:`EstimateRow`, one for each section."""
    oracle = OneBitHadamard(SECTIONS, epsilon)
    return (
        lines
        | "ParseVisits" >> beam.ParDo(ParseVisit())
        | "Estimate" >> EstimateFrequencies.Globally(oracle, keys or UserKeys())
    )


def main(argv: list[str] | None = None, keys: UserKeys | None = None) -> None:
    """Runs the pipeline; flags that are not its own are Beam's."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    args, beam_args = parser.parse_known_args(argv)
    with beam.Pipeline(options=PipelineOptions(beam_args)) as pipeline:
        (
            sections(pipeline | beam.io.ReadFromText(args.input), keys=keys)
            | "Gather" >> beam.combiners.ToList()
            | "Report" >> beam.Map(report)
            | "Write" >> beam.io.WriteToText(args.output, shard_name_template="")
        )


if __name__ == "__main__":
    main()
