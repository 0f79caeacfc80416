"""From record batches to arrays, and to bytes and back."""

import numpy as np
import pyarrow as pa
import pytest

from hadabeam.mechanisms.domain import Domain
from hadabeam.mechanisms.errors import InputError, ParameterError
from hadabeam.mechanisms.prf import Prf
from hadabeam.transforms.encode import RecordEncoder, pack, unpack
from hadabeam.transforms.records import record_batch

PRF = Prf(bytes(32))
CLOSED = Domain(["home", "search", "cart"])
OPEN = CLOSED.with_other()


def test_users_become_pseudonyms_and_values_indexes():
    encoded, tally = RecordEncoder(OPEN, PRF).encode(
        record_batch(["ann", "bob"], ["cart", "home"], [5, 6], ["de", None])
    )
    assert (encoded.users == PRF.pseudonyms(["ann", "bob"])).all()
    assert encoded.values.tolist() == [2, 0]
    assert encoded.times.tolist() == [5, 6]
    assert [encoded.key_names[code] for code in encoded.keys] == ["de", ""]
    assert tally == {}


def test_missing_and_unknown_values_become_other():
    encoded, tally = RecordEncoder(OPEN, PRF).encode(record_batch("abc", ["home", None, "x"]))
    assert encoded.values.tolist() == [0, 3, 3]
    # An exact number of unknown values would tell what the noise is there to hide.
    assert tally == {}


def test_dropped_values_are_tallied_by_reason():
    encoded, tally = RecordEncoder(CLOSED, PRF, "drop").encode(
        record_batch("abcd", ["home", None, "x", "y"])
    )
    assert encoded.values.tolist() == [0]
    assert (encoded.users == PRF.pseudonyms(["a"])).all()
    assert tally == {"missing_value": 1, "unknown_value": 2}


def test_fail_stops_without_naming_the_value():
    with pytest.raises(InputError, match="1 missing and 1 unknown") as error:
        RecordEncoder(CLOSED, PRF, "fail").encode(record_batch("abc", ["home", None, "canary"]))
    assert "canary" not in str(error.value)


def test_a_missing_or_empty_user_is_no_user():
    batch = record_batch([None, "", float("nan"), 7], ["home"] * 4, [1, 2, 3, 4])
    encoded, tally = RecordEncoder(OPEN, PRF).encode(batch)
    assert (encoded.users == PRF.pseudonyms(["7"])).all()
    assert encoded.times.tolist() == [4]
    assert tally == {"missing_user": 3}


def test_a_missing_time_is_a_bad_time():
    batch = record_batch(["a", "b"], ["home", "cart"], [None, 9])
    encoded, tally = RecordEncoder(OPEN, PRF).encode(batch)
    assert encoded.times.tolist() == [9]
    assert tally == {"bad_time": 1}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_users_of_every_text_type_are_the_same(kind):
    batch = record_batch(["skipped", "ann", "bob"], ["home"] * 3).slice(1)
    users = batch.column("user").cast(kind)
    encoded, _ = RecordEncoder(OPEN, PRF).encode(
        pa.RecordBatch.from_arrays([users, batch.column("value")], ["user", "value"])
    )
    assert (encoded.users == PRF.pseudonyms(["ann", "bob"])).all()


def test_numbers_dictionaries_and_timestamps_are_taken_by_their_text():
    codes = Domain(["200", "404"]).with_other()
    batch = pa.RecordBatch.from_pydict(
        {
            "user": pa.array([7, 8, None, 9]),
            "value": pa.array([200, 404, 200, None], pa.int16()),
            "key": pa.array(["x", "y", "x", None]).dictionary_encode(),
            "event_time": pa.array([1_000, 2_000, 3_000, 4_999], pa.timestamp("ns")),
        }
    )
    encoded, tally = RecordEncoder(codes, PRF).encode(batch)
    assert (encoded.users == PRF.pseudonyms(["7", "8", "9"])).all()
    assert encoded.values.tolist() == [0, 1, 2]
    assert encoded.times.tolist() == [1, 2, 4]
    assert [encoded.key_names[code] for code in encoded.keys] == ["x", "y", ""]
    assert tally == {"missing_user": 1}


def test_batches_with_and_without_times_do_not_mix():
    timed, plain = encode("a", ["home"], [1]), encode("b", ["home"])
    with pytest.raises(ParameterError, match="cannot be mixed"):
        pack([timed, plain])
    with pytest.raises(ParameterError, match="cannot be mixed"):
        unpack([pack([timed]), pack([plain])])


def test_an_empty_batch_is_encoded():
    encoded, tally = RecordEncoder(OPEN, PRF).encode(record_batch([], [], [], []))
    assert len(encoded) == 0
    assert tally == {}


def test_a_batch_without_the_columns_is_refused():
    with pytest.raises(ParameterError, match="'value'"):
        RecordEncoder(OPEN, PRF).encode(pa.RecordBatch.from_pydict({"user": ["a"]}))


def test_other_needs_a_place_in_the_domain():
    with pytest.raises(ParameterError, match="with_other"):
        RecordEncoder(CLOSED, PRF, "other")
    with pytest.raises(ParameterError, match="other, drop, fail"):
        RecordEncoder(OPEN, PRF, "ignore")


def encode(users, values, times=None, keys=None, domain=OPEN):
    return RecordEncoder(domain, PRF).encode(record_batch(users, values, times, keys))[0]


@pytest.mark.parametrize("times", [False, True])
@pytest.mark.parametrize("keys", [False, True])
def test_packed_records_come_back(times, keys):
    first = encode("ab", ["home", "cart"], [1, -2] if times else None, "xy" if keys else None)
    empty = encode("", [], [] if times else None, [] if keys else None)
    second = encode("cd", ["search", "?"], [3, 2**57] if times else None, "zx" if keys else None)
    found = unpack([pack([first, empty]), memoryview(pack([second]))])
    assert (found.users == PRF.pseudonyms(list("abcd"))).all()
    assert found.values.tolist() == [0, 2, 1, 3]
    assert (found.times.tolist() == [1, -2, 3, 2**57]) if times else (found.times is None)
    if keys:
        assert [found.key_names[code] for code in found.keys] == list("xyzx")
    else:
        assert found.keys is None


def test_large_domains_are_packed_in_four_bytes():
    domain = Domain([str(value) for value in range(70_000)]).with_other()
    records = encode(["a", "b"], [65_535, 65_536], domain=domain)
    assert unpack([pack([records])]).values.tolist() == [65_535, 65_536]
    few = encode(["a", "b"], [1, 2], domain=domain)
    assert len(pack([few])) < len(pack([records]))
    assert unpack([pack([few]), pack([records])]).values.tolist() == [1, 2, 65_535, 65_536]


def test_taken_rows_are_the_rows_asked_for():
    records = encode("abcd", ["home", "cart", "search", "home"], [1, 2, 3, 4], "xyxy")
    some = records.take(np.array([3, 1]))
    assert (some.users == PRF.pseudonyms(["d", "b"])).all()
    assert some.values.tolist() == [0, 2]
    assert some.times.tolist() == [4, 2]
    assert [some.key_names[code] for code in some.keys] == ["y", "y"]
