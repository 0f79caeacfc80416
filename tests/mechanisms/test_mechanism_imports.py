import subprocess
import sys

import pytest

import hadabeam.mechanisms
from hadabeam.mechanisms import ORACLES, Domain, OneBitHadamard, ParameterError, make_oracle


@pytest.mark.parametrize("name", ["hadabeam", "hadabeam.mechanisms"])
def test_importing_loads_neither_beam_nor_arrow(name):
    code = (
        f"import sys, {name}; "
        "print([m for m in ('apache_beam', 'pyarrow', 'fastavro', 'scipy', 'numba') "
        "if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    assert done.stdout.strip() == "[]"


def test_public_names_exist_and_are_sorted_out():
    for name in hadabeam.mechanisms.__all__:
        assert getattr(hadabeam.mechanisms, name) is not None
    assert len(set(hadabeam.mechanisms.__all__)) == len(hadabeam.mechanisms.__all__)


def test_the_registry_makes_oracles_by_name():
    domain = Domain(["a", "b", "c"])
    oracle = make_oracle("one_bit_hadamard", domain, 1.5, collection="pages", version=2)
    assert isinstance(oracle, OneBitHadamard)
    assert (oracle.epsilon, oracle.collection, oracle.version) == (1.5, "pages", 2)
    for name, kind in ORACLES.items():
        assert kind.name == name
        assert make_oracle(name, domain, 1.0).name == name


@pytest.mark.parametrize(
    ("name", "message"),
    [("one_bit_hadamrd", "did you mean one_bit_hadamard"), ("zzz", "no oracle 'zzz'"), (7, "7")],
)
def test_unknown_oracles(name, message):
    with pytest.raises(ParameterError, match=message):
        make_oracle(name, Domain(["a", "b"]), 1.0)
