"""gs:// and s3://, against emulators: the same bytes, and no half of a table."""

from __future__ import annotations

import threading
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from engines import installed, reach
from made_logs import jsonl, visits

from hadabeam.pipelines.cli import main
from hadabeam.transforms import files

pytestmark = pytest.mark.engines


class Store(NamedTuple):
    """A bucket of the test's own, as ``gs://name``, and Beam's flags to reach it."""

    url: str
    flags: list[str]


@pytest.fixture(params=["gcs", "s3"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    env = reach(request.param)
    installed(*{"gcs": ("google.cloud.storage", "gcp"), "s3": ("boto3", "aws")}[request.param])
    name = f"bucket-{uuid.uuid4().hex[:8]}"
    if request.param == "gcs":
        host = env["STORAGE_EMULATOR_HOST"]
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", host)
        _send("POST", f"{host}/storage/v1/b?project=tests", b'{"name": "%s"}' % name.encode())
        found = Store(f"gs://{name}", ["--no_auth"])
    else:
        for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(variable, "tests")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        _send("PUT", f"{env['HADABEAM_S3']}/{name}", b"")
        found = Store(f"s3://{name}", [f"--s3_endpoint_url={env['HADABEAM_S3']}"])
    FileSystems.set_options(PipelineOptions(found.flags))
    yield found
    FileSystems.set_options(PipelineOptions([]))


def _send(method: str, url: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, body, headers, method=method)
    with urllib.request.urlopen(request, timeout=30):
        pass


def _names(store: Store) -> list[str]:
    found = FileSystems.match([f"{store.url}/**"])[0].metadata_list
    return sorted(metadata.path.removeprefix(store.url) for metadata in found)


def _put(path: str, content: bytes) -> None:
    with files.create(path) as file:
        file.write(content)


def _get(path: str) -> bytes:
    with FileSystems.open(path, compression_type="uncompressed") as file:
        return file.read()


def test_a_job_from_store_to_store(store: Store, job_flags: list[str], tmp_path: Path) -> None:
    for number in range(2):
        text = jsonl(visits(2000, 700, seed=number))
        (tmp_path / f"log-{number}.jsonl").write_text(text)
        _put(f"{store.url}/in/log-{number}.jsonl", text.encode())
    domain = job_flags[job_flags.index("--domain") + 1]
    _put(f"{store.url}/domain.txt", Path(domain).read_bytes())

    local = str(tmp_path / "log-*.jsonl")
    out = str(tmp_path / "local")
    assert main(["batch", "--input", local, *job_flags, "--output", out]) == 0
    there = [flag if flag != domain else f"{store.url}/domain.txt" for flag in job_flags]
    input = f"{store.url}/in/log-*.jsonl"
    output = f"{store.url}/out/pages"
    assert main(["batch", "--input", input, *there, "--output", output, *store.flags]) == 0

    for name in ("estimates.avro", "summary.json"):
        assert _get(f"{output}-{name}") == Path(f"{out}-{name}").read_bytes()
    assert [name for name in _names(store) if name.startswith("/out")] == [
        "/out/pages-estimates.avro",
        "/out/pages-summary.json",
    ]


def test_a_writer_that_fails_leaves_what_was_there(store: Store) -> None:
    path = f"{store.url}/table"

    def fail(file):
        file.write(b"half")
        raise RuntimeError("in mid-write")

    with pytest.raises(RuntimeError, match="mid-write"):
        files.write_file(path, fail)
    assert _names(store) == []
    files.write_file(path, lambda file: file.write(b"whole"))
    with pytest.raises(RuntimeError, match="mid-write"):
        files.write_file(path, fail)
    assert _get(path) == b"whole"
    assert _names(store) == ["/table"]


def test_a_reader_never_meets_half_a_table(store: Store) -> None:
    path = f"{store.url}/table"
    # Written in many small pieces, and larger than one part of an upload.
    versions = [letter * (6 * 2**20) for letter in (b"a", b"b")]

    def write(content: bytes) -> None:
        pieces = [content[at : at + 2**18] for at in range(0, len(content), 2**18)]
        files.write_file(path, lambda file: file.writelines(pieces))

    write(versions[0])
    done, strange, seen = threading.Event(), [], set()

    def read() -> None:
        while not done.is_set():
            found = _get(path)
            if found in versions:
                seen.add(found[:1])
            else:
                strange.append(len(found))

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(1, 9):
        write(versions[turn % 2])
    done.set()
    reader.join()
    assert not strange
    assert seen
