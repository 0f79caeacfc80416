"""A stream's folder belongs to one definition."""

import argparse

import pytest

from hadabeam.mechanisms.domain import Domain
from hadabeam.mechanisms.errors import InputError, ParameterError
from hadabeam.mechanisms.one_bit import OneBitHadamard
from hadabeam.pipelines.stream_definition import claim_folder

ORACLE = OneBitHadamard(Domain(["a", "b", "c"]), 1.0)


def flags(folder, **changed):
    given = {
        "output": str(folder / "out"),
        "window": 3_600_000_000,
        "period": None,
        "time_zone": None,
        "memo": "window",
        "min_reports": 1,
        "output_format": "avro",
        "post": "simplex",
    }
    return argparse.Namespace(**{**given, **changed})


def test_a_restart_goes_on(tmp_path):
    claim_folder(flags(tmp_path), ORACLE, False)
    claim_folder(flags(tmp_path), ORACLE, False)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["definition.json"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("window", 60_000_000), ("period", 60_000_000), ("memo", "forever"), ("min_reports", 50)],
)
def test_other_flags_are_refused(tmp_path, name, value):
    claim_folder(flags(tmp_path), ORACLE, False)
    with pytest.raises(ParameterError, match=f"another {name}; give another --output"):
        claim_folder(flags(tmp_path, **{name: value}), ORACLE, False)


def test_another_collection_is_refused(tmp_path):
    claim_folder(flags(tmp_path), ORACLE, False)
    for oracle in (OneBitHadamard(ORACLE.domain, 2.0), OneBitHadamard(Domain(["a", "b"]), 1.0)):
        with pytest.raises(ParameterError, match="another collection"):
            claim_folder(flags(tmp_path), oracle, False)
    with pytest.raises(ParameterError, match="another per_key"):
        claim_folder(flags(tmp_path), ORACLE, True)


def test_a_damaged_definition_is_an_error(tmp_path):
    claim_folder(flags(tmp_path), ORACLE, False)
    (tmp_path / "out" / "definition.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        claim_folder(flags(tmp_path), ORACLE, False)
