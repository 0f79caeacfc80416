"""Jobs for Dataflow: what its client builds, validates and submits, without an account."""

from __future__ import annotations

import base64
import bz2
import http.server
import json
import runpy
import threading
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import translations
from engines import ROOT, installed, reach
from made_logs import PAGES

from hadabeam.pipelines import runner
from hadabeam.pipelines.cli import main
from hadabeam.testing import seeded_key_files

pytestmark = pytest.mark.engines

CANARY = "canary-9f3c"
SUBSCRIPTION = "projects/test-project/subscriptions/visits"


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    installed("google.cloud.storage", "gcp")
    seeded_key_files(tmp_path, "dataflow")
    (tmp_path / "domain.txt").write_text("".join(f"{page}\n" for page in PAGES))
    return [
        *("--user_field", "user", "--value_field", "page", "--time_field", "time"),
        *("--domain", str(tmp_path / "domain.txt"), "--epsilon", "1", "--window", "7d"),
        *("--assignment_key", str(tmp_path / "assignment.key")),
        *("--coin_key", str(tmp_path / "coin.key"), "--input", "gs://gone/logs/*.jsonl"),
        *("--runner=DataflowRunner", "--project=test-project", "--region=us-central1"),
        *("--no_auth", f"--setup_file={ROOT / 'setup.py'}"),
    ]


def build(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> beam_runner_api_pb2.Pipeline:
    """The proto of the job that a command builds with ``--dry_run``."""
    kept: list[Any] = []
    run = runner.run

    def keep(*given: Any, **more: Any) -> Any:
        kept.append(run(*given, **more))
        return kept[0]

    monkeypatch.setattr(runner, "run", keep)
    gone = ["--dry_run=True", "--staging_location=gs://gone/s", "--temp_location=gs://gone/t"]
    assert main([*command, *gone]) == 0
    return kept[0].job.proto_pipeline


def secrets(tmp_path: Path) -> list[bytes]:
    """What must not be in a job: the keys."""
    return [(tmp_path / f"{name}.key").read_bytes() for name in ("assignment", "coin")]


def test_a_batch_job(flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = build(monkeypatch, ["batch", *flags, "--output", "gs://gone/out/pages"])
    parts = proto.components
    combines = {
        transform.unique_name: transform.spec.urn
        for transform in parts.transforms.values()
        if transform.spec.urn == common_urns.composites.COMBINE_PER_KEY.urn
    }
    assert any(name.startswith("Count/") for name in combines), combines
    lifted = translations.optimize_pipeline(
        proto,
        phases=[translations.lift_combiners],
        known_runner_urns=frozenset(),
        partial=True,
    )
    precombined = [
        transform.unique_name
        for transform in lifted.components.transforms.values()
        if transform.spec.urn == common_urns.combine_components.COMBINE_PER_KEY_PRECOMBINE.urn
    ]
    assert any(name.startswith("Count/") for name in precombined), precombined
    windows = {strategy.window_fn.urn for strategy in parts.windowing_strategies.values()}
    assert common_urns.fixed_windows.urn in windows
    bounded = {pcollection.is_bounded for pcollection in parts.pcollections.values()}
    assert bounded == {beam_runner_api_pb2.IsBounded.BOUNDED}
    _assert_staged_and_secret(proto, tmp_path)


def test_a_streaming_job(flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proto = build(monkeypatch, ["stream", *flags, "--output", "gs://gone/out/pages"])
    parts = proto.components
    unbounded = [
        pcollection
        for pcollection in parts.pcollections.values()
        if pcollection.is_bounded == beam_runner_api_pb2.IsBounded.UNBOUNDED
    ]
    # All but what comes before the source: an impulse, and what it starts.
    assert len(unbounded) > len(parts.pcollections) / 2
    requirements = set(proto.requirements)
    assert common_urns.requirements.REQUIRES_SPLITTABLE_DOFN.urn in requirements
    assert common_urns.requirements.REQUIRES_STATEFUL_PROCESSING.urn in requirements
    _assert_staged_and_secret(proto, tmp_path)


@pytest.mark.parametrize("command", ["batch", "stream"])
def test_rows_to_bigquery(
    flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    outputs = ["--output", "gs://gone/out/pages", "--output", "bigquery:test-project.stats.pages"]
    proto = build(monkeypatch, [command, *flags, *outputs])
    names = [step.unique_name for step in proto.components.transforms.values()]
    loads = [name for name in names if "TriggerLoadJobs" in name]
    inserts = [name for name in names if "StreamInsertRows" in name]
    assert (bool(loads), bool(inserts)) == (command == "batch", command == "stream")
    _assert_staged_and_secret(proto, tmp_path)


def test_the_template_of_a_stream(
    flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = runpy.run_path(str(ROOT / "deploy" / "dataflow" / "template.py"))
    place = flags.index("--input")
    flags[place + 1] = f"pubsub:{SUBSCRIPTION}"
    given = [
        *("--command=stream", "--table=test-project.stats.pages", "--timestamp_attribute=at"),
        *("--id_attribute=id", "--time_field=", "--output=gs://gone/out/pages"),
    ]
    command, *words = template["command_line"](given)
    assert command == "stream"
    topic = "projects/test-project/topics/pages"
    proto = build(monkeypatch, [command, *flags, *words, "--output", f"pubsub:{topic}"])
    steps = proto.components.transforms.values()
    (read,) = [step for step in steps if SUBSCRIPTION.encode() in step.spec.payload]
    assert read.unique_name.startswith("Receive/Read/")
    assert read.spec.urn == "beam:transform:pubsub_read:v1"
    (source,) = [proto.components.pcollections[name] for name in read.outputs.values()]
    assert source.is_bounded == beam_runner_api_pb2.IsBounded.UNBOUNDED
    assert any("StreamInsertRows" in step.unique_name for step in steps)
    assert any("SendToPubsub" in step.unique_name for step in steps)
    _assert_staged_and_secret(proto, tmp_path)


def _assert_staged_and_secret(proto: beam_runner_api_pb2.Pipeline, tmp_path: Path) -> None:
    environments = proto.components.environments.values()
    staged = [
        beam_runner_api_pb2.ArtifactStagingToRolePayload.FromString(artifact.role_payload)
        for environment in environments
        for artifact in environment.dependencies
    ]
    assert "workflow.tar.gz" in {payload.staged_name for payload in staged}
    assert {environment.urn for environment in environments} == {"beam:env:docker:v1"}
    written = proto.SerializeToString()
    functions = _decoded(proto)
    assert str(tmp_path / "coin.key").encode() in functions, "the key is known by its path"
    for secret in secrets(tmp_path):
        assert secret not in written
        assert secret not in functions


def _decoded(proto: beam_runner_api_pb2.Pipeline) -> bytes:
    """The pickled functions of all ParDos, with the packing of Beam's pickler undone."""
    out = []
    for transform in proto.components.transforms.values():
        if transform.spec.urn == common_urns.primitives.PAR_DO.urn:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            out.append(bz2.decompress(base64.b64decode(payload.do_fn.payload)))
    return b"\n".join(out)


class _Service(http.server.BaseHTTPRequestHandler):
    """Takes a job, as Dataflow's service does, and keeps it."""

    jobs: list[dict[str, Any]]

    def do_POST(self) -> None:
        job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.jobs.append(job)
        self._answer({"id": "job-1", "name": job["name"], "projectId": "test-project"})

    def do_GET(self) -> None:
        self._answer({"id": "job-1", "currentState": "JOB_STATE_RUNNING", "jobs": []})

    def _answer(self, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The URL of a loopback stand-in for Dataflow's service, and the jobs it was given."""
    jobs: list[dict[str, Any]] = []
    handler = type("Handler", (_Service,), {"jobs": jobs})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://localhost:{server.server_address[1]}", jobs
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_submission_to_a_loopback_service_and_bucket(
    flags: list[str],
    tmp_path: Path,
    service: tuple[str, list[dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = reach("gcs")["STORAGE_EMULATOR_HOST"]
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", host)
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    request = urllib.request.Request(
        f"{host}/storage/v1/b?project=tests",
        json.dumps({"name": bucket}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30):
        pass
    FileSystems.set_options(PipelineOptions(["--no_auth"]))
    log = f"gs://{bucket}/logs/a.jsonl"
    with FileSystems.create(log) as file:
        file.write(f'{{"user": "{CANARY}", "page": "{CANARY}", "time": 1}}\n'.encode())
    flags[flags.index("--input") + 1] = log
    url, jobs = service
    places = [f"--staging_location=gs://{bucket}/s", f"--temp_location=gs://{bucket}/t"]
    output = ["--output", f"gs://{bucket}/out/pages", "--no_wait_until_finish"]
    assert main(["batch", *flags, *output, *places, f"--dataflow_endpoint={url}"]) == 0

    assert len(jobs) == 1
    # 1 is JOB_TYPE_BATCH.
    assert jobs[0]["type"] in (1, "JOB_TYPE_BATCH")
    assert jobs[0]["environment"]["sdkPipelineOptions"]["options"]["setup_file"]
    staged = FileSystems.match([f"gs://{bucket}/s/**"])[0].metadata_list
    names = {metadata.path.rpartition("/")[2] for metadata in staged}
    assert {"pipeline.pb", "workflow.tar.gz"} <= names, names
    for metadata in staged:
        with FileSystems.open(metadata.path, compression_type="uncompressed") as file:
            content = file.read()
        for secret in [*secrets(tmp_path), CANARY.encode()]:
            assert secret not in content, metadata.path
