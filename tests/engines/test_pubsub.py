"""Messages from Google's Pub/Sub server for tests become windows; poison becomes dead letters.

Beam's Python runner for this acknowledges at once and takes the clock as watermark: what is
tested is how things are wired, not that nothing is lost when something dies.
"""

from __future__ import annotations

import json
import signal
import time
import uuid
from pathlib import Path

import pytest
from engines import PATIENCE, hadabeam, installed, reach

pytestmark = pytest.mark.engines

USERS = 60


def test_windows_of_a_subscription(
    job_flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", reach("pubsub")["PUBSUB_EMULATOR_HOST"])
    pubsub_v1 = installed("google.cloud.pubsub_v1", "gcp")

    publisher, subscriber = pubsub_v1.PublisherClient(), pubsub_v1.SubscriberClient()
    unique = uuid.uuid4().hex[:8]
    topic = publisher.topic_path("test-project", f"visits-{unique}")
    subscription = subscriber.subscription_path("test-project", f"visits-{unique}")
    publisher.create_topic(name=topic)
    subscriber.create_subscription(name=subscription, topic=topic)

    flags = list(job_flags)
    flags[flags.index("--window") + 1] = "1h"
    time_field = flags.index("--time_field")
    del flags[time_field : time_field + 2]
    out = tmp_path / "out"
    job = hadabeam(
        *("stream", "--input", f"pubsub:{subscription}", "--timestamp_attribute", "at", *flags),
        *("--output", out, "--early", "1s", "--runner", "BundleBasedDirectRunner"),
        *("--project", "test-project"),
        wait=False,
    )
    try:
        hour = int(time.time()) // 3600 * 3600
        for number in range(USERS):
            message = json.dumps({"user": f"u{number}", "page": f"/page/{number % 30}"})
            at = str((hour + (number % 2) * 60) * 1000)
            publisher.publish(topic, message.encode(), at=at).result(30)
        publisher.publish(topic, b"no record", at=str(hour * 1000)).result(30)
        folder = out / time.strftime(
            f"%Y-%m-%dT%H0000Z_{time.strftime('%Y-%m-%dT%H0000Z', time.gmtime(hour + 3600))}",
            time.gmtime(hour),
        )
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and job.poll() is None:
            names = sorted(path.name for path in folder.glob("*.avro"))
            letters = [path.read_text() for path in out.glob("dead-letters/*")]
            if names and names[-1].startswith(f"{USERS:012d}-") and letters:
                break
            time.sleep(0.5)
        else:
            raise AssertionError(f"{names}, {len(letters)} dead letters")
    finally:
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=60)
    (letter,) = [json.loads(line) for text in letters for line in text.splitlines()]
    assert letter["reason"] == "unparseable"
    assert letter["file"] == f"pubsub:{subscription}"
    assert "no record" not in letters[0]
