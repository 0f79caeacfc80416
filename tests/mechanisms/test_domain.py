import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hadabeam.mechanisms import Domain, InputError, ParameterError
from hadabeam.mechanisms import domain as domain_module


def write(tmp_path, data):
    path = tmp_path / "pages.txt"
    path.write_bytes(data)
    return path


def test_keeps_the_order():
    domain = Domain(["home", "search", "cart"])
    assert domain.values == ("home", "search", "cart")
    assert domain.size == len(domain) == 3
    assert domain.other_index is None


def test_index_gives_minus_one_for_what_is_unknown_or_missing():
    domain = Domain(["home", "search", "cart"])
    found = domain.index(["cart", None, "home", "Home", "", "home "])
    assert found.dtype == np.int64
    assert found.tolist() == [2, -1, 0, -1, -1, -1]
    assert domain.index([]).tolist() == []


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=2))
def test_index_inverts_values(values):
    values = list(dict.fromkeys(values))
    if len(values) < 2:
        values = ["a", "b"]
    domain = Domain(values)
    assert domain.index(values).tolist() == list(range(len(values)))
    copied = pickle.loads(pickle.dumps(domain))
    assert copied == domain
    assert hash(copied) == hash(domain)
    assert copied.fingerprint == domain.fingerprint


def test_other_is_appended_last_or_is_the_domains_own():
    appended = Domain(["a", "b"]).with_other()
    assert appended.values == ("a", "b", "other")
    assert appended.other_index == 2
    own = Domain(["other", "b"]).with_other()
    assert own.values == ("other", "b")
    assert own.other_index == 0
    assert Domain(["a", "b"], other="rest").values == ("a", "b", "rest")
    assert appended.with_other() is appended
    with pytest.raises(ParameterError, match="already"):
        appended.with_other("rest")


def test_one_value_and_other_are_two():
    assert Domain(["a"], other="other").size == 2


def test_fingerprint_is_that_of_the_values():
    first = Domain(["a", "b"])
    assert len(first.fingerprint) == 64
    assert first.fingerprint == Domain(["a", "b"]).fingerprint
    others = [["b", "a"], ["ab", "c"], ["a", "bc"], ["a", "b", "c"], ["a", "\x00b"]]
    prints = {Domain(values).fingerprint for values in others} | {first.fingerprint}
    assert len(prints) == 6
    # Fixed: a change would make the reports of existing collections foreign.
    assert first.fingerprint == "18e494d62a1ff1d08faefe85e3c9ff61b103e6041cd5eaa2cdc60dd8f611d940"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "at least two values, not 0"),
        (["a"], "at least two values, not 1"),
        (["a", "b", "a"], "values 0 and 2"),
        (["a", ""], "value 1 of the domain is empty"),
        (["a", 7], "value 1 of the domain is int"),
        (["a", None], "value 1"),
        ("ab", "a list"),
        (b"ab", "a list"),
        (["a", "\ud800"], "surrogate"),
    ],
)
def test_bad_values(values, message):
    with pytest.raises(ParameterError, match=message):
        Domain(values)


def test_bad_other():
    with pytest.raises(ParameterError, match="other must be a text"):
        Domain(["a", "b"], other=7)
    with pytest.raises(ParameterError, match="empty"):
        Domain(["a", "b"], other="")


def test_too_many_values():
    class Endless(list):
        def __len__(self):
            return 2**30 + 1

    with pytest.raises(ParameterError, match=r"2\*\*30"):
        Domain(Endless())
    assert domain_module.MAX_SIZE == 2**30


@pytest.mark.parametrize(
    "data",
    [
        "home\nsearch\nzoë\n".encode(),
        "home\nsearch\nzoë".encode(),
        "home\r\nsearch\r\nzoë\r\n".encode(),
        "\ufeffhome\r\nsearch\nzoë".encode(),
        "\nhome\n\n \t\nsearch\nzoë\n\n\n".encode(),
    ],
)
def test_files(tmp_path, data):
    assert Domain.from_file(write(tmp_path, data)).values == ("home", "search", "zoë")


def test_whitespace_and_unusual_separators_belong_to_a_value(tmp_path):
    data = " a\nb \nc\u2028d\ne\x0bf\n".encode()
    assert Domain.from_file(write(tmp_path, data)).values == (" a", "b ", "c\u2028d", "e\x0bf")


def test_file_with_other(tmp_path):
    domain = Domain.from_file(write(tmp_path, b"a\n"), other="other")
    assert domain.values == ("a", "other")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "at least two values, not 0"),
        (b"a\n", "at least two values, not 1"),
        (b"a\n\nb\na\r\n", "lines 1 and 4 .* 'a'"),
        (b"a\nb\n\xff\n", "line 3 .* UTF-8"),
        ("a\nb\n".encode("utf-16"), "line 1 .* UTF-8"),
    ],
)
def test_bad_files(tmp_path, data, message):
    path = write(tmp_path, data)
    with pytest.raises(InputError, match=message) as caught:
        Domain.from_file(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["missing.txt", "."])
def test_files_that_cannot_be_read(tmp_path, name):
    with pytest.raises(InputError, match="cannot read"):
        Domain.from_file(tmp_path / name)


def test_a_million_values():
    values = [f"/page/{i}" for i in range(1_000_000)]
    domain = Domain(values)
    assert domain.index(values[::-1])[0] == 999_999
    # The lookup table and the fingerprint are made where they are needed, not sent there.
    data = pickle.dumps(domain)
    assert len(data) < 20_000_000
    assert pickle.loads(data).size == 1_000_000


def test_the_repr_is_short():
    assert repr(Domain([f"v{i}" for i in range(1000)])) == (
        "Domain(['v0', 'v1', 'v2', ...], size=1000)"
    )
