"""The example for Beam YAML runs, and errors in YAML are told in its words."""

import csv
from pathlib import Path

import pytest
from engines import ROOT, installed

pytestmark = pytest.mark.engines

EXAMPLE = ROOT / "examples" / "yaml"


def run(tmp_path: Path, *changes: tuple[str, str]) -> None:
    """Runs the example in a folder of the test's own, with changes to its text."""
    main = installed("apache_beam.yaml.main", "yaml")
    text = (EXAMPLE / "visits.yaml").read_text()
    for old, new in (("examples/yaml/", f"{EXAMPLE}/"), ("out/", f"{tmp_path}/"), *changes):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "provider.yaml").write_text((EXAMPLE / "provider.yaml").read_text())
    (tmp_path / "pipeline.yaml").write_text(text)
    main.run([f"--yaml_pipeline_file={tmp_path / 'pipeline.yaml'}", "--runner=FnApiRunner"])


def test_the_example(tmp_path: Path) -> None:
    run(tmp_path)
    (table,) = tmp_path.glob("visits.csv-*")
    with table.open() as file:
        rows = {row["page"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["/home", "/search", "/product", "/cart", "other"]
    # 1,100 users, epsilon 2: a standard error of 0.04, and 5 of 12 visits are to /home. Off
    # by 0.2 is five standard errors: less than one false alarm in a million runs.
    assert abs(float(rows["/home"]["share"]) - 5 / 12) < 0.2
    assert abs(sum(float(row["share"]) for row in rows.values()) - 1) < 1e-6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("user_field: user", "user_field: usr"), "did you mean 'user'"),
        (("epsilon: 2", "epsilon: none"), "epsilon"),
        (("epsilon: 2", "epsilno: 2"), "epsilno"),
    ],
)
def test_errors(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    with pytest.raises(Exception, match=words):
        run(tmp_path, change)
