"""Broken input gives a clear error or a counted drop, never a traceback as the only word."""

import datetime
import gzip
import io

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from made_logs import jsonl, visits

LOG = jsonl(visits(50, 50))


def fails(outcome, code, *words):
    assert outcome.code == code, outcome.err
    assert "Traceback" not in outcome.err
    assert outcome.err.startswith("hadabeam batch: error: ")
    for word in words:
        assert word in outcome.err
    assert outcome.table is None


def test_an_empty_file_is_an_empty_table(commands):
    found = commands.batch(commands.write("log.jsonl", ""))
    assert found.code == 0
    assert "no records" in found.err
    assert found.table.count(b"\n") == 1
    assert found.summary["records_read"] == 0


def test_no_matching_file(commands):
    fails(commands.batch(commands.folder / "none*.jsonl"), 1, "none*.jsonl", "no file matches")


def test_a_directory(commands):
    (commands.folder / "logs").mkdir()
    fails(commands.batch(commands.folder / "logs"), 1, "is a directory", "logs/*")


def test_a_truncated_gzip_is_read_as_far_as_it_goes(commands):
    data = gzip.compress(jsonl(visits(20_000, 20_000)).encode())
    found = commands.batch(commands.write("log.jsonl.gz", data[: len(data) // 2]))
    assert found.code == 0, found.err
    assert found.summary["dropped"]["unparseable"] >= 1
    assert 1000 < found.summary["reports"] < 20_000
    assert any(letter["reason"] == "unparseable" for letter in found.letters)


@pytest.mark.parametrize("size", [11, 25])
def test_a_csv_that_is_cut_before_its_header_is_an_error(commands, size):
    data = gzip.compress(b"user,page\n" + b"a,/page/1\n" * 5000)
    commands.write("good.csv", "user,page\na,/page/1\n")
    commands.write("cut.csv.gz", data[:size])
    fails(commands.batch(commands.folder / "*.csv*"), 1, "cut.csv.gz", "header")


def test_half_a_line_nul_bytes_and_wrong_encodings_are_counted(commands):
    text = LOG.encode() + b"\0\0\0\n" + b'{"user": "\xe4", "page": "/page/1"}\n' + b'{"user": "x", '
    found = commands.batch(commands.write("log.jsonl", text))
    assert found.code == 0, found.err
    assert found.summary["dropped"]["unparseable"] == 3
    assert found.summary["records_read"] == 53


def test_a_file_in_utf_16_is_an_error(commands):
    fails(commands.batch(commands.write("log.jsonl", LOG.encode("utf-16"))), 1, "UTF-8")


def test_nothing_that_could_be_counted(commands):
    found = commands.batch(commands.write("log.jsonl", "not json\n" * 7))
    assert found.code == 1
    assert "of 7 records none could be counted (7 unparseable)" in found.err
    assert found.summary["dropped"] == {"unparseable": 7}
    wrong_field = commands.batch(commands.write("l.jsonl", LOG), "--user_field", "usr")
    assert wrong_field.code == 1
    assert "50 missing_user" in wrong_field.err


def test_a_missing_column(commands):
    log = commands.write("log.csv", "usr,page\na,/page/1\n")
    fails(commands.batch(log), 1, "no field 'user'", "did you mean 'usr'?")


def test_null_users_and_numbers_where_text_was(commands):
    text = '{"user": 7, "page": "/page/1"}\n{"user": "7", "page": "/page/2"}\n'
    text += '{"user": null, "page": 1}\n{"user": "u", "page": 404}\n{"user": {}, "page": "x"}\n'
    domain = commands.write("codes.txt", "404\n500\n")
    found = commands.batch(commands.write("log.jsonl", text), "--domain", domain)
    assert found.code == 0, found.err
    assert found.summary["dropped"] == {"missing_user": 2, "over_limit": 1}
    assert found.summary["reports"] == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["is empty", "one value a line"]),
        (b"a\nb\na\n", ["lines 1 and 3"]),
        (b"\xff\xfe\n", ["UTF-8"]),
    ],
)
def test_a_domain_that_is_none(commands, content, words):
    domain = commands.write("bad.txt", content)
    log = commands.write("log.jsonl", LOG)
    fails(commands.batch(log, "--domain", domain), 1, "bad.txt", *words)


def test_keys_that_cannot_be_read(commands):
    log = commands.write("log.jsonl", LOG)
    flags = ["--input", log, "--user_field", "user", "--value_field", "page"]
    short = commands.write("short.key", b"short")
    none = commands.folder / "none.key"
    for bad, word in ((none, "keygen"), (short, "5 bytes"), (commands.folder, "cannot read")):
        found = commands.run(
            "batch", *flags, "--assignment_key", bad, "--coin_key", commands.folder / "coin.key"
        )
        fails(found, 1, word)
    one = commands.run("batch", *flags, "--coin_key", commands.folder / "coin.key")
    fails(one, 2, "both an assignment key and a coin key")
    same = ["--assignment_key", commands.folder / "coin.key"]
    fails(commands.run("batch", *flags, *same, "--coin_key", same[1]), 2, "must differ")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--epsilon", "nan"], ["epsilon", "between"]),
        (["--epsilon", "-1"], ["epsilon", "between"]),
        (["--epsilon", "one"], ["'one'"]),
        (["--window", "7d"], ["--time_field"]),
        (["--period", "1d"], ["--window"]),
        (["--window", "1d", "--period", "7d", "--time_field", "time"], ["must not be longer"]),
        (["--window", "7 fortnights", "--time_field", "time"], ["length of time"]),
        (["--oracle", "two_bit"], ["one_bit_hadamard"]),
        (["--valu_field", "x"], ["did you mean --value_field?"]),
        (["--shards", "0"], ["whole number"]),
        (["--runner", "FlinkRuner"], ["FlinkRunner"]),
    ],
)
def test_flags_that_do_not_fit(commands, flags, words):
    fails(commands.batch(commands.write("log.jsonl", LOG), *flags), 2, *words)


def test_an_output_that_cannot_be_written(commands):
    log = commands.write("log.jsonl", LOG)
    fails(commands.batch(log, "--output", commands.folder), 2, "is a folder")
    commands.write("file", "")
    found = commands.batch(log, "--output", commands.folder / "file" / "x")
    assert found.code != 0
    assert "Traceback" not in found.err


def test_a_temporary_folder_that_is_not_there(commands):
    log = commands.write("log.jsonl", LOG)
    found = commands.batch(log, "--temp_dir", commands.folder / "nowhere")
    fails(found, 1, "--temp_dir")


@pytest.mark.parametrize("bad", [b"", b"no record\n"])
def test_beam_may_check_types_at_run_time(commands, bad):
    log = commands.write("log.jsonl", LOG.encode() + bad)
    flags = ("--key_field", "country", "--time_field", "time", "--window", "7d")
    plain = commands.batch(log, *flags)
    found = commands.batch(log, *flags, "--runtime_type_check")
    assert found.code == 0, found.err
    assert found.table == plain.table
    assert len(found.letters) == (1 if bad else 0)


def test_windows_finer_than_milliseconds_are_refused(commands):
    log = commands.write("log.jsonl", LOG)
    flags = ("--time_field", "time", "--window", "1500us")
    fails(commands.batch(log, *flags), 2, "multiples of 1,000 microseconds")


@pytest.fixture
def dated():
    """299 good records, and one of a time whose windows have no dates."""

    def make(time, format):
        records = [
            {"user": f"u{row}", "page": f"/page/{row % 30}", "t": f"2024-03-{1 + row % 28:02d}"}
            for row in range(299)
        ]
        records.insert(100, {"user": "x", "page": "/page/1", "t": time})
        out = io.BytesIO()
        if format == "jsonl":
            return jsonl(records)
        if format == "csv":
            return "user,page,t\n" + "".join(",".join(row.values()) + "\n" for row in records)
        if format == "parquet":
            table = pa.Table.from_pylist(records)
            # Without its Z, which Arrow casts to times of a zone only.
            times = pc.replace_substring(table["t"], "Z", "").cast(pa.timestamp("us"))
            pq.write_table(table.set_column(2, "t", times), out)
            return out.getvalue()
        moments = {"type": "long", "logicalType": "timestamp-micros"}
        kinds = {"user": "string", "page": "string", "t": moments}
        fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
        for record in records:
            moment = datetime.datetime.fromisoformat(record["t"].replace("Z", ""))
            record["t"] = moment.replace(tzinfo=datetime.timezone.utc)
        fastavro.writer(out, {"type": "record", "name": "v", "fields": fields}, records)
        return out.getvalue()

    return make


DAY = ("--window", "1d")


@pytest.mark.parametrize(
    ("format", "time", "windows"),
    [
        *((format, "9999-12-31T23:59:59Z", DAY) for format in ("jsonl", "csv", "parquet", "avro")),
        *((format, "0001-01-01", DAY) for format in ("jsonl", "csv", "parquet", "avro")),
        ("jsonl", "9999-12-31T23:59:59Z", ("--window", "7d")),
        ("jsonl", "0001-01-01", ("--window", "7d")),
        ("jsonl", "9999-12-31T23:59:59Z", ("--window", "day", "--time_zone", "Europe/Berlin")),
        ("jsonl", "0001-01-01", ("--window", "day", "--time_zone", "Europe/Berlin")),
        ("jsonl", "9999-12-31T23:59:59Z", ()),
    ],
)
def test_one_time_outside_the_calendar_is_a_bad_time(commands, dated, format, time, windows):
    log = commands.write(f"log.{format}", dated(time, format))
    fields = ("--user_field", "user", "--value_field", "page", "--time_field", "t")
    for command in ("batch", "privatize"):
        written = format if command == "batch" else "avro"
        found = commands.run(
            command, "--input", log, *fields, *windows, *commands.keys, format=written
        )
        assert found.code == 0, found.err
        assert found.summary["dropped"] == {"bad_time": 1}
        assert found.summary["reports"] == 299
        assert [letter["reason"] for letter in found.letters] == ["bad_time"]
