"""Avro messages and reports from a real Kafka broker count as the same data do from files."""

from __future__ import annotations

import io
import json
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest
from engines import PATIENCE, hadabeam, installed, reach
from made_logs import jsonl, visits

from hadabeam.schemas.avro import load_schema
from hadabeam.transforms.single_object import fingerprint, frame
from hadabeam.transforms.write_panes import current_panes

pytestmark = pytest.mark.engines

WEEK = 7 * 86400
VISIT = {
    "type": "record",
    "name": "Visit",
    "fields": [
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "who",
            "type": {
                "type": "record",
                "name": "Who",
                "fields": [{"name": "user", "type": "string"}],
            },
        },
        {"name": "page", "type": ["null", "string"]},
        {
            "name": "country",
            "type": {"type": "enum", "name": "Country", "symbols": ["de", "fr"]},
        },
    ],
}
#: The same with a field more: another fingerprint.
NEWER = {**VISIT, "fields": [{"name": "agent", "type": "string"}, *VISIT["fields"]]}  # type: ignore[misc]


def encode(schema: Any, row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


class Stream:
    """``hadabeam stream``, reading a topic of its own.

    Args:
      messages: with their times in seconds; they are in the topic before the job starts.
      flags: of the job, without input and output.
      out: the output.
    """

    def __init__(self, messages: list[tuple[bytes, float]], flags: list[str], out: Path) -> None:
        kafka = reach("kafka")
        client = installed("confluent_kafka", "engines")
        topic = f"formats-{uuid.uuid4().hex[:8]}"
        producer = client.Producer({"bootstrap.servers": kafka["HADABEAM_KAFKA"]})
        for message, at in messages:
            producer.produce(topic, message, timestamp=int(at * 1000))
        assert producer.flush(60) == 0
        self.out = out
        self._job = hadabeam(
            *("stream", "--input", f"kafka:{kafka['HADABEAM_KAFKA']}/{topic}", *flags),
            *("--kafka_expansion", kafka["HADABEAM_KAFKA_EXPANSION"], "--early", "2s"),
            # A partition that was read to its end is up to date, and so is the watermark.
            *("--allowed_lateness", "520w", "--output", out),
            wait=False,
        )

    def until(self, ready: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Waits until the run's summary is as wanted; returns it."""
        deadline = time.monotonic() + PATIENCE
        summary: dict[str, Any] = {}
        while True:
            if (self.out / "summary.json").exists():
                summary = json.loads((self.out / "summary.json").read_text())
                written = [json.loads(path.read_text()) for path in self.summaries()]
                if ready(summary) and sum(w["reports"] for w in written) == summary["reports"]:
                    return summary
            assert self._job.poll() is None, self._job.communicate()[0][-3000:]
            assert time.monotonic() < deadline, f"not in {PATIENCE} s: {summary}"
            time.sleep(0.5)

    def summaries(self) -> list[Path]:
        """Of each window, the summary of the pane that holds."""
        panes = current_panes(str(self.out)).values()
        return [path for pane in panes if (path := Path(pane).with_suffix(".json")).exists()]

    def tables(self) -> dict[int, list[dict[str, Any]]]:
        """The rows that hold, by window."""
        return by_window(map(Path, current_panes(str(self.out)).values()))

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self._job.send_signal(signal.SIGTERM)
        self._job.communicate(timeout=60)


def by_window(paths: Any) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for path in paths:
        with path.open("rb") as file:
            for row in fastavro.reader(file):
                assert isinstance(row, dict)
                found.setdefault(row["window_start"], []).append({**row, "pane": None})
    return found


@pytest.mark.parametrize("runner", ["prism", "flink"], indirect=True)
def test_avro_messages_in_three_framings(
    runner: list[str], job_flags: list[str], tmp_path: Path
) -> None:
    # One of each user and window: of several a stream takes the first, a batch any.
    weekly = {(record["user"], record["time"] // WEEK): record for record in visits(2000, 600)}
    data = sorted(weekly.values(), key=lambda record: record["time"])
    schemas = {"visit": VISIT, "newer": NEWER}
    for name, schema in schemas.items():
        (tmp_path / f"{name}.avsc").write_text(json.dumps(schema))
    messages = []
    for number, record in enumerate(data):
        row = {
            "agent": "a",
            "time": record["time"] * 1_000_000,
            "who": {"user": record["user"]},
            "page": record["page"],
            "country": record["country"],
        }
        message = [
            lambda row: b"\0\0\0\0\7" + encode(VISIT, row),
            lambda row: frame(fingerprint(VISIT), encode(VISIT, row)),
            lambda row: frame(fingerprint(NEWER), encode(NEWER, row)),
        ][number % 3](row)
        messages.append((message, record["time"]))
    good = messages[0][0]
    poison = [b"", b"no record", good[:-1], good + b"\0", b"\0\0\0\0\x08" + good[5:], b"\xff" * 99]
    # The bytes of a string without end.
    poison.append(b"\0\0\0\0\7" + encode("long", 0) + encode("long", 2**60) + b"u")
    messages += [(message, data[-1]["time"]) for message in poison]

    keyed = [*job_flags, "--key_field", "country"]
    nested = ["who.user" if flag == "user" else flag for flag in keyed]
    nested += ["--input_format", "avro"]
    nested += ["--message_schema", f"7={tmp_path / 'visit.avsc'}"]
    nested += ["--message_schema", str(tmp_path / "newer.avsc")]
    with Stream(messages, [*nested, *runner], tmp_path / "out") as stream:

        def counted(summary: dict[str, Any]) -> bool:
            total = summary["reports"] + sum(summary["dropped"].values())
            return bool(summary["records_read"] == total == len(messages))

        summary = stream.until(counted)
        assert summary["dropped"]["unparseable"] == len(poison)
        tables = stream.tables()
    letters = [
        json.loads(line)
        for path in (tmp_path / "out" / "dead-letters").glob("*")
        for line in path.read_text().splitlines()
    ]
    assert [letter["reason"] for letter in letters] == ["unparseable"] * len(poison)
    assert {letter["position"] for letter in letters} == {-1}

    log = tmp_path / "sent.jsonl"
    log.write_text(jsonl(data))
    hadabeam("batch", "--input", log, *keyed, "--output", tmp_path / "batch")
    expected = by_window([tmp_path / "batch-estimates.avro"])
    assert len(expected) >= 3
    assert tables == expected


@pytest.mark.parametrize("runner", ["prism", "flink"], indirect=True)
def test_reports_of_four_kinds(runner: list[str], job_flags: list[str], tmp_path: Path) -> None:
    data = visits(1600, 600)
    kinds = [("jsonl", False), ("avro", False), ("jsonl", True), ("avro", True)]
    messages: list[bytes] = []
    repeated = reports = 0
    for number, (format, packed) in enumerate(kinds):
        log = tmp_path / f"log-{number}.jsonl"
        # No user is in two of them.
        log.write_text(jsonl([r for r in data if int(r["user"][1:]) % 4 == number]))
        prefix = tmp_path / f"edge-{number}"
        hadabeam(
            *("privatize", "--input", log, *job_flags, "--key_field", "country"),
            *("--output", prefix, "--output_format", format, *["--packed"] * packed),
        )
        summary = json.loads(Path(f"{prefix}-summary.json").read_text())
        reports += summary["reports"]
        name = "packed_reports" if packed else "report"
        schema = load_schema(name)
        for path in sorted(tmp_path.glob(f"edge-{number}-reports-*")):
            if format == "avro":
                with path.open("rb") as file:
                    messages += [
                        frame(fingerprint(schema), encode(schema, row))  # type: ignore[arg-type]
                        for row in fastavro.reader(file)
                    ]
                continue
            lines = path.read_text().splitlines()
            if not packed:
                # Ids, as an edge adds that may send twice; some have been.
                rows = [{**json.loads(line), "report_id": uuid.uuid4().hex} for line in lines]
                lines = [json.dumps(row) for row in [*rows, *rows[::10]]]
                repeated += len(rows[::10])
            messages += [line.encode() for line in lines]
    assert repeated
    poison = [b"", b"no report", messages[-1][:-1], b'{"epoch": 1}']

    rest = list(job_flags)
    for name in ("--user_field", "--value_field", "--time_field", "--assignment_key", "--coin_key"):
        at = rest.index(name)
        del rest[at : at + 2]
    now = time.time()
    flags = [*rest, "--per_key", "--input_format", "reports", *runner]
    with Stream([(message, now) for message in [*messages, *poison]], flags, tmp_path / "out") as s:
        read = reports + repeated + len(poison)

        def counted(summary: dict[str, Any]) -> bool:
            total = summary["reports"] + sum(summary["dropped"].values())
            return bool(summary["records_read"] == total == read)

        summary = s.until(counted)
        assert summary["reports"] == reports
        assert summary["dropped"]["unparseable"] == len(poison)
        assert summary["dropped"]["duplicate"] == repeated
        tables = s.tables()

    hadabeam(
        *("estimate", "--input", tmp_path / "edge-*-reports-*", *rest, "--per_key"),
        *("--output", tmp_path / "collector"),
    )
    expected = by_window([tmp_path / "collector-estimates.avro"])
    assert len(expected) >= 3
    assert tables == expected
