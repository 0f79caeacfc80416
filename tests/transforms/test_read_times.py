"""Event times: the same instant in every notation is the same number."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hadabeam.mechanisms.errors import ParameterError
from hadabeam.transforms.times import check_time_unit, to_micros
from hadabeam.transforms.windows import END_OF_TIME, START_OF_TIME

UTC = datetime.timezone.utc
INSTANT = datetime.datetime(2000, 10, 10, 20, 55, 36, 123456, tzinfo=UTC)
MICROS = 971_211_336_123_456


def one(value: object, kind: pa.DataType | None = None, unit: str = "auto") -> Any:
    return to_micros(pa.array([value], kind), unit)[0].as_py()


@pytest.mark.parametrize(
    ("value", "micros"),
    [
        ("2000-10-10T20:55:36.123456Z", MICROS),
        ("2000-10-10t20:55:36.123456z", MICROS),
        ("2000-10-10 20:55:36.123456", MICROS),
        ("2000-10-10T20:55:36,123456", MICROS),
        ("2000-10-10T13:55:36.1234569-07:00", MICROS),
        ("2000-10-10T13:55:36.123456-0700", MICROS),
        ("2000-10-11T02:25:36.123456+0530", MICROS),
        ("2000-10-10 21:55:36.123456 +01", MICROS),
        ("[10/Oct/2000:13:55:36 -0700]", 971_211_336_000_000),
        ("10/Oct/2000:22:25:36 +0130", 971_211_336_000_000),
        ("2000-10-10T20:55Z", 971_211_300_000_000),
        ("2000-10-10", 971_136_000_000_000),
        ("971211336", 971_211_336_000_000),
        ("971211336.123456", MICROS),
        ("971211336123", 971_211_336_123_000),
        ("971211336123456", MICROS),
        ("971211336123456789", MICROS),
        ("+971211336", 971_211_336_000_000),
        ("9.71211336e8", 971_211_336_000_000),
        (".5", 500_000),
        ("-1", -1_000_000),
        (971_211_336, 971_211_336_000_000),
        (971_211_336_123, 971_211_336_123_000),
        (971_211_336.123456, MICROS),
        (971_211_336_123.456, MICROS),
        (971_211_336_123_456_789, MICROS),
        (decimal.Decimal("971211336.123456"), MICROS),
        (INSTANT, MICROS),
        (INSTANT.replace(tzinfo=None), MICROS),
        (datetime.date(2000, 10, 10), 971_136_000_000_000),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000_000),
        ("0003-01-01", START_OF_TIME),
        ("9998-11-30T23:59:59.999999Z", END_OF_TIME - 1),
    ],
)
def test_notations(value: object, micros: int) -> None:
    assert one(value) == micros


@pytest.mark.parametrize(
    "value",
    [
        "", " ", "x", "now", "2000-13-01", "2000-00-01", "2000-02-30", "1900-02-29", "0000-01-01",
        "2000-1-1", "2000-01-01T24:00:00Z", "2000-01-01T00:60:00Z", "2000-01-01T00:00:61Z",
        "2000-01-01T00:00:00+24:00", "2000-01-01T", "2000-01-01T10", "20000101", "1" * 30,
        "10/Okt/2000:13:55:36 -0700", "[10/Oct/2000:13:55:36 -0700", "10/Oct/2000:13:55:36",
        "31/Jun/2000:13:55:36 +0000", "inf", "nan", "1_000", "0x10", "１９７０-01-01", "1e400",
        "9999-12-31T23:59:59-00:01", "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59Z", "0001-01-01", "9998-12-01", "0003-01-01T00:00:00+00:01",
        float("nan"), float("inf"), 1e300, True, None,
    ],
)  # fmt: skip
def test_what_is_no_time_is_null(value: object) -> None:
    # 20000101 is a number: seconds, 1970-08-20.
    expected = 20_000_101_000_000 if value == "20000101" else None
    assert one(value) == expected


@pytest.mark.parametrize(
    ("unit", "number", "micros"),
    [("s", 5, 5_000_000), ("ms", 5, 5000), ("us", 5, 5), ("ns", 5999, 5), ("iso", 5, None)],
)
def test_unit(unit: str, number: int, micros: int | None) -> None:
    assert one(number, unit=unit) == one(str(number), unit=unit) == micros
    assert one(float(number), unit=unit) == micros
    assert one("2000-10-10", unit=unit) == (971_136_000_000_000 if unit == "iso" else None)


def test_numbers_beyond_int64() -> None:
    assert one(2**62, unit="s") is None
    assert one(-(2**63), unit="ms") is None
    # In auto, a number so large counts nanoseconds: the year 2554.
    assert one(2**64 - 1, pa.uint64()) == one(str(2**64 - 1)) == 18_446_744_073_709_552
    assert one(str(2**63)) == 9_223_372_036_854_776


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_arrow_timestamps(unit: str) -> None:
    whole = INSTANT.replace(microsecond=0)
    for zone in (None, "UTC", "Europe/Berlin"):
        assert one(whole, pa.timestamp(unit, zone)) == 971_211_336_000_000
    dictionary = pa.array([whole, None, whole], pa.timestamp(unit)).dictionary_encode()
    assert to_micros(dictionary).to_pylist() == [971_211_336_000_000, None, 971_211_336_000_000]


@given(st.datetimes(), st.sampled_from(["T", " "]), st.integers(-1439, 1439))
def test_any_instant(moment: datetime.datetime, letter: str, offset: int) -> None:
    zone = datetime.timezone(datetime.timedelta(minutes=offset))
    text = moment.replace(tzinfo=zone).isoformat(letter)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=zone)
    expected = (moment.replace(tzinfo=zone) - epoch) // datetime.timedelta(microseconds=1)
    expected -= offset * 60_000_000
    assert one(text) == (expected if START_OF_TIME <= expected < END_OF_TIME else None)


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.integers(-(2**63), 2**63 - 1).map(str),
            st.floats(allow_nan=False, allow_infinity=False).map(repr),
            st.datetimes().map(str),
            st.text(st.sampled_from("0123456789-:T.Z+ "), max_size=30),
        ),
        max_size=30,
    )
)
def test_a_time_does_not_depend_on_its_neighbours(texts: list[str | None]) -> None:
    together = to_micros(pa.array(texts, pa.string())).to_pylist()
    assert together == [one(text, pa.string()) for text in texts]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), st.sampled_from(["auto", "ms"]))
def test_integers_and_their_texts_are_one_time(numbers: list[int], unit: str) -> None:
    as_text = to_micros(pa.array(map(str, numbers), pa.string()), unit)
    assert to_micros(pa.array(numbers, pa.int64()), unit).equals(as_text)


@given(st.lists(st.floats(-1e20, 1e20), max_size=20), st.sampled_from(["auto", "s", "ns"]))
def test_floats_and_their_texts_are_one_time(numbers: list[float], unit: str) -> None:
    as_text = to_micros(pa.array(map(repr, numbers), pa.string()), unit)
    assert to_micros(pa.array(numbers, pa.float64()), unit).equals(as_text)


def test_a_column_may_be_a_slice() -> None:
    texts = pa.array(["x", "1970-01-01", None, "1970-01-02"]).slice(1)
    assert to_micros(texts).to_pylist() == [0, None, 86_400_000_000]
    numbers = pa.array(np.arange(4)).slice(2)
    assert to_micros(numbers, "us").to_pylist() == [2, 3]


def test_unknown_unit() -> None:
    with pytest.raises(ParameterError, match="time_unit must be one of auto"):
        check_time_unit("minutes")
