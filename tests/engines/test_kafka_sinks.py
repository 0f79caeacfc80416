"""Rows in real topics: what a job sends is what its files hold, and the greatest order holds."""

from __future__ import annotations

import io
import json
import time
import uuid
from pathlib import Path
from typing import Any

import fastavro
import pytest
from engines import hadabeam, installed, prism_flags, reach
from made_logs import jsonl
from sent_rows import await_panes, estimates, held, holding, hourly, lines, records, stop

from hadabeam.schemas.avro import load_schema
from hadabeam.transforms.single_object import fingerprint, unframe

pytestmark = pytest.mark.engines


class Kafka:
    """The broker, and topics of the test's own."""

    def __init__(self) -> None:
        env = reach("kafka")
        self._client = installed("confluent_kafka", "engines")
        self.servers = env["HADABEAM_KAFKA"]
        self.flags = ["--kafka_expansion", env["HADABEAM_KAFKA_EXPANSION"]]

    def topic(self, name: str) -> str:
        return f"{name}-{uuid.uuid4().hex[:8]}"

    def name(self, topic: str) -> str:
        return f"kafka:{self.servers}/{topic}"

    def send(self, topic: str, messages: list[tuple[bytes, float]]) -> None:
        producer = self._client.Producer({"bootstrap.servers": self.servers})
        for message, at in messages:
            producer.produce(topic, message, timestamp=int(at * 1000))
        assert producer.flush(60) == 0

    def read(self, topic: str) -> list[tuple[bytes | None, bytes]]:
        """Keys and values of all messages that are in a topic now."""
        settings = {"bootstrap.servers": self.servers, "group.id": uuid.uuid4().hex}
        consumer = self._client.Consumer(settings)
        try:
            found: list[tuple[bytes | None, bytes]] = []
            known = consumer.list_topics(timeout=60).topics
            if topic not in known:
                return found
            for number in known[topic].partitions:
                partition = self._client.TopicPartition(topic, number)
                low, high = consumer.get_watermark_offsets(partition, timeout=60)
                partition.offset = low
                consumer.assign([partition])
                at = low
                deadline = time.monotonic() + 60
                while at < high and time.monotonic() < deadline:
                    message = consumer.poll(1)
                    if message is not None:
                        assert not message.error(), message.error()
                        found.append((message.key(), message.value()))
                        at = message.offset() + 1
                assert at >= high, f"{topic} could not be read to its end"
            return found
        finally:
            consumer.close()


@pytest.fixture
def kafka() -> Kafka:
    """The broker."""
    return Kafka()


@pytest.mark.parametrize(
    ("runner", "format"),
    [("local", "json"), ("local", "avro"), ("flink", "json")],
    indirect=["runner"],
)
def test_a_batch_jobs_table(
    kafka: Kafka,
    runner: list[str],
    job_flags: list[str],
    log: Path,
    tmp_path: Path,
    format: str,
) -> None:
    topic = kafka.topic("batch")
    out = tmp_path / "out"
    hadabeam(
        *("batch", "--input", log, *job_flags, "--key_field", "country", *kafka.flags),
        *("--output", out, "--output_format", "jsonl", "--output", kafka.name(topic)),
        *("--message_format", format, "--producer_option", "compression.type=zstd", *runner),
    )
    found = kafka.read(topic)
    rows = [decode(value, "published_estimate", format) for _, value in found]
    table = lines(f"{out}-estimates.jsonl")
    assert len(found) == len(table) > 0
    if format == "json":
        assert estimates(rows) == estimates(table)
        keys = [[row[n] for n in ("window_start", "window_end", "key", "value")] for row in rows]
        assert [json.loads(key or b"") for key, _ in found] == keys
    else:
        assert sorted(row["raw"] for row in rows) == sorted(row["raw"] for row in table)
    assert len({row["pane_order"].split("-")[2] for row in rows}) == 1
    summary = json.loads(Path(f"{out}-summary.json").read_text())
    assert {row["collection"] for row in rows} == {summary["collection"]}
    windows = {row["window_start"]: row["reports"] for row in rows}
    assert sum(windows.values()) == summary["reports"]


def decode(message: bytes, schema: str, format: str) -> dict[str, Any]:
    if format == "json":
        return dict(json.loads(message))
    found = unframe(message)
    assert found is not None
    assert found[0] == fingerprint(load_schema(schema))
    row = fastavro.schemaless_reader(io.BytesIO(found[1]), load_schema(schema))
    assert isinstance(row, dict)
    return row


@pytest.mark.parametrize("packed", [False, True])
def test_reports_and_what_the_collector_makes_of_them(
    kafka: Kafka, job_flags: list[str], log: Path, tmp_path: Path, packed: bool
) -> None:
    topic = kafka.topic("reports")
    out = tmp_path / "out"
    hadabeam(
        *("privatize", "--input", log, *job_flags, *kafka.flags, *(["--packed"] * packed)),
        *("--output", out, "--output_format", "jsonl", "--output", kafka.name(topic)),
    )
    found = kafka.read(topic)
    rows = [json.loads(value) for _, value in found]
    written = [row for path in tmp_path.glob("out-reports-*") for row in lines(path)]
    if packed:
        assert sorted(rows, key=json.dumps) == sorted(written, key=json.dumps)
    else:
        assert {key for key, _ in found} == {None}
        assert len({row["report_id"] for row in rows}) == len(rows)
        plain = [{**row, "report_id": None} for row in rows]
        assert sorted(plain, key=json.dumps) == sorted(written, key=json.dumps)
    sent = tmp_path / "sent.jsonl"
    sent.write_bytes(b"".join(value + b"\n" for _, value in found))
    places = [tmp_path / "files", tmp_path / "topic"]
    rest = [flag for flag in job_flags if not flag.endswith("coin.key") and flag != "--coin_key"]
    for name in ("--user_field", "--value_field", "--time_field", "--assignment_key"):
        at = rest.index(name)
        del rest[at : at + 2]
    for place, source in zip(places, (f"{out}-reports-*", str(sent)), strict=True):
        hadabeam("estimate", "--input", source, *rest, "--output", place)
    tables = [Path(f"{place}-estimates.avro").read_bytes() for place in places]
    assert tables[0] == tables[1]


def test_reports_of_calendar_days(
    kafka: Kafka, job_flags: list[str], log: Path, tmp_path: Path
) -> None:
    """Windows that only Python knows, and a sink in Java."""
    topic = kafka.topic("days")
    out = tmp_path / "out"
    flags = list(job_flags)
    flags[flags.index("--window") + 1] = "day"
    hadabeam(
        *("privatize", "--input", log, *flags, "--time_zone", "Europe/Berlin", *kafka.flags),
        *("--output", out, "--output_format", "jsonl", "--output", kafka.name(topic)),
    )
    rows = [{**json.loads(value), "report_id": None} for _, value in kafka.read(topic)]
    written = [row for path in tmp_path.glob("out-reports-*") for row in lines(path)]
    assert len({row["epoch"] for row in rows}) > 7
    assert sorted(rows, key=json.dumps) == sorted(written, key=json.dumps)


@pytest.mark.parametrize("runner", ["prism", "flink"], indirect=True)
def test_a_stream_from_topic_to_topic(
    kafka: Kafka, runner: list[str], job_flags: list[str], tmp_path: Path
) -> None:
    source, topic = kafka.topic("visits"), kafka.topic("pages")
    out = tmp_path / "out"
    job = hadabeam(
        *("stream", "--input", kafka.name(source), *hourly(job_flags), *kafka.flags, *runner),
        *("--output", out, "--output_format", "jsonl", "--output", kafka.name(topic)),
        *("--early", "2s", "--allowed_lateness", "2d"),
        wait=False,
    )
    try:
        kafka.send(source, records(90)[:-1])
        # A partition that has nothing new holds nothing up; one message in each tells the time.
        late = records(0)[-1]
        for _ in range(8):
            kafka.send(source, [late])
        rows = await_panes(out, job, lambda: [json.loads(v) for _, v in kafka.read(topic)], 91)
    finally:
        stop(job)
    orders = {row["pane_order"].rpartition("-")[0] for row in rows}
    names = {path.stem for path in out.glob("*_*/*.jsonl")}
    assert orders <= names


def test_a_key_too_long_for_a_message_does_not_end_a_stream(
    kafka: Kafka, job_flags: list[str], tmp_path: Path
) -> None:
    topic = kafka.topic("long")
    out = tmp_path / "out"
    logs = tmp_path / "logs"
    logs.mkdir()
    found = [json.loads(record) for record, _ in records(90)]
    for number, record in enumerate(found):
        # It is in a message twice, as Kafka's key and in the row.
        record["country"] = "x" * 600_000 if number == 7 else "NL"
    (logs / "log.jsonl").write_text(jsonl(found))
    hadabeam(
        *("stream", "--input", f"{logs}/*", *hourly(job_flags), "--key_field", "country"),
        *(*prism_flags(), *kafka.flags, "--early", "none", "--allowed_lateness", "2d"),
        *("--output", out, "--output_format", "jsonl", "--output", kafka.name(topic)),
        *("--stop_after", "20s"),
    )
    rows = [json.loads(value) for _, value in kafka.read(topic)]
    table = held(out)
    assert len({row["key"] for row in table}) == 2
    assert estimates(holding(rows)) == estimates([row for row in table if row["key"] == "NL"])
    letters = [row for path in out.glob("dead-letters/*") for row in lines(path)]
    assert {(row["reason"], row["file"]) for row in letters} == {
        ("too_large_to_send", kafka.name(topic))
    }
    refused = [json.loads(row["raw"]) for row in letters]
    assert {row["value"] for row in refused} == {row["value"] for row in table}
