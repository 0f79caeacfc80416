"""The same records and keys give the same table, byte for byte, however the job runs."""

import bz2
import csv
import gzip
import io
import json
import os
import random

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from made_logs import jsonl, visits

RECORDS = visits(3000, 800)
TIMED = ("--time_field", "time")


def as_csv(records):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]))
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def as_parquet(records):
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records), out, row_group_size=500)
    return out.getvalue()


def as_avro(records):
    out = io.BytesIO()
    types = {"time": "long"}
    fields = [{"name": n, "type": ["null", types.get(n, "string")]} for n in records[0]]
    fastavro.writer(out, {"type": "record", "name": "v", "fields": fields}, records)
    return out.getvalue()


def test_formats_compressions_and_orders(commands):
    text = jsonl(RECORDS)
    expected = commands.batch(commands.write("log.jsonl", text), *TIMED)
    assert expected.code == 0, expected.err
    assert expected.summary["reports"] + expected.summary["dropped"]["over_limit"] == 3000
    shuffled = random.Random(1).sample(RECORDS, len(RECORDS))
    parts = [jsonl(shuffled[start::4]).encode() for start in range(4)]
    for number, part in enumerate(parts):
        commands.write(f"part-{number}.jsonl", part)
    members = b"".join(gzip.compress(part) for part in parts)
    files = {
        "log.csv": as_csv(RECORDS),
        "log.parquet": as_parquet(shuffled),
        "log.avro": as_avro(RECORDS),
        "log.jsonl.gz": members,
        "log.jsonl.bz2": bz2.compress(text.encode()),
        "log.jsonl.zst": zstandard.ZstdCompressor().compress(text.encode()),
        "crlf.jsonl": text.replace("\n", "\r\n").removesuffix("\r\n"),
    }
    for name, content in files.items():
        found = commands.batch(commands.write(name, content), *TIMED)
        assert found.table == expected.table, name
        assert found.summary == expected.summary, name
    split = commands.batch(commands.folder / "part-*.jsonl", *TIMED)
    assert split.table == expected.table
    assert split.summary == expected.summary


def test_shards_ranges_and_runs(commands, monkeypatch):
    log = commands.write("log.jsonl", jsonl(RECORDS))
    expected = commands.batch(log)
    assert expected.code == 0, expected.err
    assert commands.batch(log).table == expected.table
    assert commands.batch(log, "--shards", "3").table == expected.table
    for size in (997, 20_000):
        from hadabeam.transforms import read

        plan = read.plan_splits

        def small(*args, size=size, plan=plan, **planning):
            return plan(*args, **{**planning, "split_bytes": size})

        with monkeypatch.context() as patch:
            patch.setattr(read, "plan_splits", small)
            found = commands.batch(log)
        assert found.table == expected.table
        assert found.summary == expected.summary


@pytest.mark.parametrize("windows", [(), (*TIMED, "--window", "7d")])
def test_two_processes(commands, windows):
    names = [commands.write(f"{n}.jsonl", jsonl(RECORDS[n::3])) for n in range(3)]
    inputs = [flag for name in names[1:] for flag in ("--input", name)]
    expected = commands.batch(names[0], *inputs, *windows)
    assert expected.code == 0, expected.err
    found = commands.batch(
        names[0],
        *inputs,
        *windows,
        "--direct_running_mode=multi_processing",
        "--direct_num_workers=2",
    )
    assert found.table == expected.table
    assert found.summary == expected.summary


@pytest.mark.skipif(
    "HADABEAM_PRISM" not in os.environ, reason="set HADABEAM_PRISM to the path of a Prism binary"
)
@pytest.mark.parametrize("windows", [(), (*TIMED, "--window", "7d", "--period", "1d")])
def test_prism(commands, windows):
    log = commands.write("log.jsonl", jsonl(RECORDS))
    expected = commands.batch(log, *windows)
    found = commands.batch(
        log,
        *windows,
        "--runner=PrismRunner",
        f"--prism_location={os.environ['HADABEAM_PRISM']}",
        "--environment_type=LOOPBACK",
    )
    assert found.code == 0, found.err
    assert found.table == expected.table
    assert found.summary == expected.summary


def test_output_formats_hold_the_same_rows(commands):
    log = commands.write("log.jsonl", jsonl(RECORDS))
    tables = {}
    for format in ("csv", "jsonl", "avro", "parquet"):
        found = commands.batch(log, *TIMED, "--window", "7d", format=format)
        assert found.table == commands.batch(log, *TIMED, "--window", "7d", format=format).table
        tables[format] = found.table
    rows = pq.read_table(io.BytesIO(tables["parquet"])).to_pylist()
    assert len(rows) == 4 * 31
    assert list(fastavro.reader(io.BytesIO(tables["avro"]))) == rows
    lines = list(csv.DictReader(io.StringIO(tables["csv"].decode())))
    assert [float(line["raw"]) for line in lines] == [row["raw"] for row in rows]
    assert [line["value"] for line in lines] == [row["value"] for row in rows]


def test_without_keys_runs_differ(commands):
    log = commands.write("log.jsonl", jsonl(RECORDS))
    flags = ("--input", log, "--user_field", "user", "--value_field", "page")
    first, second = commands.run("batch", *flags), commands.run("batch", *flags)
    assert first.code == second.code == 0
    assert first.table != second.table
    assert first.summary["reports"] == second.summary["reports"]


@pytest.mark.parametrize(
    "windows",
    [
        ("--window", "7d"),
        ("--window", "2d", "--period", "1d", "--memo", "forever"),
        ("--window", "day", "--time_zone", "Europe/Berlin"),
    ],
)
def test_reports_that_travel_give_the_same_table(commands, windows):
    # Records without a key, and a day of 25 hours (29 October 2023 in Berlin).
    records = [
        {**record, "country": record["country"] if record["time"] % 5 else None}
        for record in RECORDS[:600]
    ]
    records += [{**record, "time": 1_698_530_400 + 600 * i} for i, record in enumerate(records)]
    log = commands.write("log.jsonl", jsonl(records))
    made_with, windows = windows, (*TIMED, *windows, "--key_field", "country")
    expected = commands.batch(log, *windows)
    assert expected.code == 0, expected.err
    flags = ("--input", log, "--user_field", "user", "--value_field", "page", *commands.keys)
    for packed in ((), ("--packed",)):
        prefix = commands.folder / "reports"
        made = commands.run("privatize", *flags, *windows, "--output", prefix, *packed)
        assert made.code == 0, made.err
        assert made.summary["windows"] == [
            {**window, "empty_columns": 0} for window in made.summary["windows"]
        ]
        found = commands.run("estimate", "--input", f"{prefix}-reports-*", "--per_key", *made_with)
        assert found.code == 0, found.err
        assert found.table == expected.table
        assert found.summary["reports"] == expected.summary["reports"]
        assert found.summary["epsilon_effective"] == expected.summary["epsilon_effective"]


@pytest.mark.parametrize("windows", [("--window", "7d"), ("--window", "day")])
def test_reports_of_other_windows_are_no_table(commands, windows):
    log = commands.write("log.jsonl", jsonl(RECORDS[:50]))
    flags = ("--input", log, "--user_field", "user", "--value_field", "page", *commands.keys)
    other = ((), (*TIMED, "--window", "12h"), (*TIMED, "--window", "3d", "--period", "1h"))
    for made_with in other:
        prefix = commands.folder / "reports"
        assert commands.run("privatize", *flags, *made_with, "--output", prefix).code == 0
        found = commands.run("estimate", "--input", f"{prefix}-reports-*", *windows)
        assert "as they were given to hadabeam privatize" in found.err
        if not made_with:
            # All that the first file begins with: nothing is written.
            assert found.code == 1
            assert found.table is None
            assert found.summary is None
            continue
        # Some windows start where those start, and that is all that a report tells.
        assert found.code == 0
        assert found.summary["dropped"]["wrong_window"] > found.summary["reports"] > 0
        assert len(found.letters) == found.summary["dropped"]["wrong_window"]


def reports_of(commands, log, *flags):
    """Of each sender's number its column and bit; senders are in the order of their pseudonyms."""
    prefix = commands.folder / "r"
    for old in commands.folder.glob("r-reports-*"):
        old.unlink()
    done = commands.run(
        *("privatize", "--input", log, "--user_field", "user", *commands.keys, *flags),
        *("--domain", commands.write("answers.txt", "yes\nno\n"), "--unknown", "drop"),
        *("--output", prefix),
        format="jsonl",
    )
    assert done.code == 0, done.err
    rows = [
        json.loads(line)
        for path in commands.folder.glob("r-reports-*")
        for line in path.read_text().splitlines()
    ]
    return sorted((row["epoch"], row["column"], row["bit"]) for row in rows)


def test_two_questions_share_no_coins(commands):
    """Else reports that differ would prove that the answers do.

    Everybody answers both alike. With one coin for both the reports would be the same, with two
    the 400 bits differ with probability 2 q (1 - q) = .39 each: that none does has probability
    e-87 for a random key, and the keys of this test are fixed.
    """
    rows = [{"user": f"u{n}", "smokes": "yes", "hiv": "yes", "time": 86400} for n in range(400)]
    log = commands.write("log.jsonl", jsonl(rows))
    asked = [
        ("--value_field", "smokes"),
        ("--value_field", "hiv"),
        ("--value_field", "hiv", "--time_field", "time"),
        ("--value_field", "hiv", "--key_field", "smokes"),
        ("--value_field", "hiv", "--time_field", "time", "--window", "1d"),
        ("--value_field", "hiv", "--time_field", "time", "--window", "12h"),
    ]
    found = [reports_of(commands, log, *flags) for flags in asked]
    assert reports_of(commands, log, *asked[0]) == found[0]
    bits = [[(column, bit) for _, column, bit in reports] for reports in found]
    # Columns are those of the user, and tell nothing; windows of two lengths start at one time.
    columns = [sorted(column for column, _ in pairs) for pairs in bits]
    assert all(found == columns[0] for found in columns)
    assert found[4][0][0] == found[5][0][0] == 86_400_000_000
    assert len({tuple(sorted(pairs)) for pairs in bits}) == len(asked)
