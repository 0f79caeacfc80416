"""Rows as messages of Google's Pub/Sub server: what a job sends is what its files hold."""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from engines import PATIENCE, hadabeam, installed, prism_flags, reach
from sent_rows import estimates, held, holding, hourly, lines, records, stop

from hadabeam.transforms.write_panes import current_panes

pytestmark = pytest.mark.engines


class PubSub:
    """The server for tests, and a topic with a subscription."""

    def __init__(self, name: str) -> None:
        client = installed("google.cloud.pubsub_v1", "gcp")
        self._publisher, self._subscriber = client.PublisherClient(), client.SubscriberClient()
        unique = f"{name}-{uuid.uuid4().hex[:8]}"
        self.topic = self._publisher.topic_path("test-project", unique)
        self.subscription = self._subscriber.subscription_path("test-project", unique)
        self._publisher.create_topic(name=self.topic)
        self._subscriber.create_subscription(name=self.subscription, topic=self.topic)

    def send(self, messages: list[tuple[bytes, float]]) -> None:
        for message, at in messages:
            self._publisher.publish(self.topic, message, at=str(int(at * 1000))).result(30)

    def read(self) -> list[tuple[dict[str, str], bytes]]:
        """Attributes and data of the messages that wait."""
        found: list[tuple[dict[str, str], bytes]] = []
        for _ in range(100):
            answer = self._subscriber.pull(
                subscription=self.subscription, max_messages=1000, return_immediately=True
            )
            if not answer.received_messages:
                break
            ids = [message.ack_id for message in answer.received_messages]
            self._subscriber.acknowledge(subscription=self.subscription, ack_ids=ids)
            found += [
                (dict(message.message.attributes), message.message.data)
                for message in answer.received_messages
            ]
        return found


@pytest.fixture
def pubsub(monkeypatch: pytest.MonkeyPatch) -> type[PubSub]:
    """Makes topics on Google's server for tests."""
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", reach("pubsub")["PUBSUB_EMULATOR_HOST"])
    return PubSub


def check_attributes(found: list[tuple[dict[str, str], bytes]]) -> list[dict[str, Any]]:
    """The rows; their attributes say the same."""
    rows = []
    for attributes, data in found:
        row = json.loads(data)
        names = ("window_start", "window_end", "key", "pane_order", "collection")
        assert attributes == {name: row[name] for name in names if row[name] is not None}
        rows.append(row)
    return rows


@pytest.mark.parametrize("runner", ["local"], indirect=True)
def test_a_batch_jobs_table_by_pubsub(
    pubsub: type[PubSub], runner: list[str], job_flags: list[str], log: Path, tmp_path: Path
) -> None:
    topic = pubsub("batch")
    out = tmp_path / "out"
    hadabeam(
        *("batch", "--input", log, *job_flags, "--key_field", "country", *runner),
        *("--output", out, "--output_format", "jsonl", "--output", f"pubsub:{topic.topic}"),
    )
    rows = check_attributes(topic.read())
    assert estimates(rows) == estimates(lines(f"{out}-estimates.jsonl"))
    assert rows


def test_a_streams_panes_by_pubsub(
    pubsub: type[PubSub], job_flags: list[str], tmp_path: Path
) -> None:
    topic = pubsub("panes")
    out = tmp_path / "out"
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "log.jsonl").write_bytes(b"".join(record + b"\n" for record, _ in records(90)))
    hadabeam(
        *("stream", "--input", f"{logs}/*", *hourly(job_flags), *prism_flags()),
        *("--output", out, "--output_format", "jsonl", "--output", f"pubsub:{topic.topic}"),
        *("--early", "2s", "--allowed_lateness", "2d", "--stop_after", "20s"),
    )
    rows = check_attributes(topic.read())
    assert estimates(holding(rows)) == estimates(held(out))
    reports = {row["window_start"]: row["reports"] for row in holding(rows)}
    assert sum(reports.values()) == 91


def test_from_pubsub_to_pubsub(pubsub: type[PubSub], job_flags: list[str], tmp_path: Path) -> None:
    """On Beam's Python runner, whose watermark is the clock: the window stays open."""
    source, topic = pubsub("visits"), pubsub("panes")
    out = tmp_path / "out"
    flags = [*hourly(job_flags), "--timestamp_attribute", "at", "--project", "test-project"]
    place = flags.index("--time_field")
    del flags[place : place + 2]
    job = hadabeam(
        *("stream", "--input", f"pubsub:{source.subscription}", *flags, "--early", "1s"),
        *("--output", out, "--output_format", "jsonl", "--output", f"pubsub:{topic.topic}"),
        *("--allowed_lateness", "2d", "--runner", "BundleBasedDirectRunner"),
        wait=False,
    )
    found: list[tuple[dict[str, str], bytes]] = []
    try:
        hour = int(time.time()) // 3600 * 3600
        source.send([(record, hour) for record, _ in records(60)[:-1]])
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and job.poll() is None:
            found += topic.read()
            rows = holding(check_attributes(found))
            if sum({row["window_start"]: row["reports"] for row in rows}.values()) == 60:
                break
            time.sleep(0.5)
        else:
            raise AssertionError(f"{len(found)} messages, {current_panes(str(out))}")
    finally:
        stop(job)
    written = held(out)
    assert estimates(rows) == estimates(written)
