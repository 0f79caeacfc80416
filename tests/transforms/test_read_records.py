"""ReadRecords in pipelines: splits, counters, errors; threads end; nothing private escapes."""

from __future__ import annotations

import json
import pickle
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that

from hadabeam.mechanisms.errors import InputError, ParameterError
from hadabeam.transforms.fields import RecordFields
from hadabeam.transforms.read import ReadRecords
from hadabeam.transforms.reading import ahead, ordered_map, read_split
from hadabeam.transforms.records import DeadLetter, add_tallies
from hadabeam.transforms.splits import plan_splits

FIELDS = RecordFields("user", "page")


def is_counter(expected: Any, name: str) -> Callable[[list[Any]], None]:
    def check(found: list[Any]) -> None:
        if Counter(found) != Counter(expected):
            raise AssertionError(f"{name} differ")

    return check


def rows_of(batch: Any) -> list[tuple[Any, ...]]:
    return list(zip(*batch.to_pydict().values(), strict=True))


def _tally_check(expected: dict[str, int]) -> Callable[[list[Any]], None]:
    def check(found: list[Any]) -> None:
        if add_tallies(found) != expected:
            raise AssertionError(f"tallies are {add_tallies(found)}")

    return check


@pytest.mark.parametrize("split_bytes", [100, 10**6])
def test_a_pipeline(files: Any, split_bytes: int) -> None:
    for name in ("b", "a"):
        lines = [json.dumps({"user": f"{name}{i}", "page": "x"}) for i in range(20)]
        lines[7] = "broken"
        lines[9] = '{"page": "x"}'
        files.write_bytes(f"{name}.jsonl", "\n".join(lines).encode())
    files.write_bytes("c.csv", b"user,page\nc0,x\n")
    files.write_bytes("empty.jsonl", b"")
    folder = str(files.folder)
    expected = [(f"{name}{i}", "x") for name in "ab" for i in range(20) if i not in (7, 9)]
    position = {"unparseable": 7, "missing_user": 9}
    whole = (files.folder / "a.jsonl").read_bytes().split(b"\n")
    letters = [
        DeadLetter(reason, f"{folder}/{name}.jsonl", len(b"\n".join(whole[:line])) + 1)
        for name in "ab"
        for reason, line in position.items()
    ]
    tally = {"records_read": 41, "unparseable": 2, "missing_user": 2}
    pipeline = beam.Pipeline(runner=FnApiRunner())
    read = pipeline | ReadRecords(f"{folder}/*", FIELDS, split_bytes=split_bytes, block_bytes=64)
    rows = read.records | beam.FlatMap(rows_of)
    assert_that(rows, is_counter([*expected, ("c0", "x")], "rows"), label="rows")
    assert_that(read.dead_letters, is_counter(letters, "letters"), label="letters")
    assert_that(read.tallies, _tally_check(dict(sorted(tally.items()))), label="tallies")
    result = pipeline.run()
    result.wait_until_finish()
    counters = {
        metric.key.metric.name: metric.committed
        for metric in result.metrics().query(
            beam.metrics.MetricsFilter().with_namespace("hadabeam")
        )["counters"]
    }
    assert counters == tally


def test_columns_and_raw_dead_letters(files: Any) -> None:
    path = files.write_bytes("log.jsonl", b'{"u": 1, "t": 5, "k": "de"}\nbroken\n')
    pipeline = beam.Pipeline(runner=FnApiRunner())
    fields = RecordFields("u", "p", "t", "k")
    read = pipeline | ReadRecords([path], fields, raw_dead_letters=True, time_unit="ms")
    columns = read.records | beam.Map(lambda batch: tuple(batch.to_pydict().items()).__repr__())
    wanted = {"user": ["1"], "value": [None], "event_time": [5000], "key": ["de"]}
    assert_that(columns, is_counter([repr(tuple(wanted.items()))], "columns"), label="columns")
    letter = DeadLetter("unparseable", path, 28, b"broken")
    assert_that(read.dead_letters, is_counter([letter], "letters"), label="letters")
    pipeline.run().wait_until_finish()


@pytest.mark.parametrize(
    ("pattern", "message"),
    [("none-*", "no file matches"), ("", "is a directory"), ("log.csv", "has no field 'page'")],
)
def test_errors_name_what_to_change(files: Any, pattern: str, message: str) -> None:
    files.write_bytes("log.csv", b"user,value\ncanary-user,canary-value\n")
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | ReadRecords(f"{files.folder}/{pattern}", FIELDS)
    with pytest.raises(Exception, match=message) as caught:
        pipeline.run().wait_until_finish()
    error: BaseException | None = caught.value
    while error is not None:
        assert "canary" not in str(error)
        error = error.__context__


CANARIES = ("canary-user", "canary-value")


@pytest.mark.parametrize(
    "data",
    [
        b'{"user": "canary-user", "page": "canary-value"',
        b'{"user": "canary-user", "page": "canary-value"}}\n{"user": 1}',
        b'{"user": "canary-user", "page": "canary-value\xff"}\n' * 3,
        b'{"user": {"canary-user": "canary-value"}}',
        b'{"user": ["canary-user"], "user": "canary-value\\ud800"}',
    ],
)
def test_nothing_private_in_letters_logs_or_metrics(files: Any, data: bytes, caplog: Any) -> None:
    path = files.write_bytes("log.jsonl", data)
    with caplog.at_level(0):
        found = files.read(path, FIELDS)
    assert found.letters
    assert not found.rows or ("1", None) in found.rows
    for canary in CANARIES:
        assert canary not in repr((found.letters, found.tally, caplog.text))


def test_labels_are_not_private_and_splits_pickle(files: Any) -> None:
    path = files.write_bytes("log.csv", b"user,page\na,b\n")
    splits = plan_splits(path, 15)
    assert pickle.loads(pickle.dumps(splits)) == splits


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"patterns": []}, "at least one input path"),
        ({"patterns": ""}, "at least one input path"),
        ({"fields": "user"}, "fields must be RecordFields"),
        ({"format": "xml"}, "input_format must be one of"),
        ({"compression": "rar"}, "compression must be one of"),
        ({"delimiter": "ab"}, "delimiter must be"),
        ({"time_unit": "h"}, "time_unit must be one of"),
        ({"block_bytes": 0}, "block_bytes must be a whole number from 1 up"),
        ({"split_bytes": 0}, "split_bytes must be a whole number from 1 up"),
        ({"threads": -1}, "threads must be a whole number from 0 up"),
    ],
)
def test_bad_parameters(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        ReadRecords(**{"patterns": "x", "fields": FIELDS, **arguments})


def reading_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("hadabeam-read")]


@pytest.mark.parametrize("threads", [0, 1, 2, 3])
@pytest.mark.parametrize("mapping", [ordered_map, ahead])
def test_maps_are_in_order_and_leave_no_thread(mapping: Any, threads: int) -> None:
    def swap(*args: Any) -> Any:
        return mapping(*args) if mapping is ordered_map else mapping(args[1], args[0], args[2])

    assert list(swap(str, iter(range(20)), threads)) == [str(n) for n in range(20)]
    assert list(swap(str, iter(()), threads)) == []
    assert not reading_threads()
    closed = []

    def items() -> Iterator[int]:
        try:
            yield from range(10**6)
        finally:
            closed.append(True)

    early = swap(str, items(), threads)
    assert [next(early) for _ in range(3)] == ["0", "1", "2"]
    early.close()
    assert not reading_threads()
    assert closed

    def fail(number: int) -> int:
        return number if number < 5 else 1 // 0

    found = []
    with pytest.raises(ZeroDivisionError):
        found.extend(swap(fail, iter(range(10)), threads))
    assert not reading_threads()

    def failing_items() -> Iterator[int]:
        yield 1
        raise KeyError("source")

    with pytest.raises(KeyError):
        list(swap(str, failing_items(), threads))
    assert not reading_threads()


def test_few_items_are_in_flight() -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    for done, _ in enumerate(ordered_map(str, items(), 2)):
        assert len(taken) <= done + 4


def test_a_local_file_that_vanishes_is_named(files: Any) -> None:
    path = Path(files.write_bytes("log.jsonl", b"{}\n"))
    splits = plan_splits(str(path), 3)
    path.unlink()
    assert splits
    with pytest.raises(InputError, match="does not exist"):
        list(read_split(splits[0], ["user"], lambda rows: rows))
