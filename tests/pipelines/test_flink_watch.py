"""Why a job on Flink is tried again is told, without what a worker had in hand."""

import http.server
import json
import threading
import time

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from hadabeam.pipelines import flink_jobs, flink_watch, guard

PYTHON = """\
java.util.concurrent.ExecutionException: java.lang.RuntimeException: Error received from SDK \
harness for instruction 3: Traceback (most recent call last):
  File "worker.py", line 1, in _execute
ValueError: secret of alice [while running 'Parse/Parse']

\tat java.base/java.util.concurrent.CompletableFuture.reportGet(CompletableFuture.java:396)
"""
OURS = PYTHON.replace("ValueError: secret of alice", "InputError: cannot read the key file /k")
JAVA = """\
java.lang.RuntimeException: Error received from SDK harness for instruction 1: \
org.apache.beam.sdk.util.UserCodeException: org.apache.kafka.common.errors.TimeoutException: alice
Caused by: org.apache.kafka.common.errors.SerializationException: alice
\tat x.Y.z(Y.java:1)
"""
FLINK = """\
org.apache.flink.runtime.jobmaster.JobMasterException: TaskManager with id taskmanager-1 is gone.
\tat x.Y.z(Y.java:1)
"""


def test_reasons():
    assert list(flink_watch.reasons([PYTHON, OURS, JAVA, FLINK])) == [
        "ValueError in the step 'Parse/Parse'",
        "cannot read the key file /k",
        "SerializationException in a worker",
        FLINK.splitlines()[0],
    ]


class Cluster:
    """A REST service that answers as Flink's does.

    Attributes:
      address: where it is.
      answers: by path.
      cancelled: set when the job is cancelled.
    """

    def __init__(self, address):
        self.address = address
        self.cancelled = threading.Event()
        self.answers = {}

    def has(self, state, *traces, completed=0, restored=0):
        """Makes it a cluster with a job of the test's, and others."""
        jobs = [
            {"jid": "old", "name": "mine", "state": "FAILED"},
            {"jid": "other", "name": "other", "state": "RUNNING"},
            {"jid": "job", "name": "mine", "state": state},
        ]
        history = [{"stacktrace": trace} for trace in traces]
        self.answers |= {
            "/jobs/overview": {"jobs": jobs},
            "/jobs/job": {"state": state},
            "/jobs/job/exceptions": {"exceptionHistory": {"entries": history}},
            "/jobs/job/checkpoints": {"counts": {"completed": completed, "restored": restored}},
        }

    @property
    def options(self):
        return PipelineOptions(["--flink_master", self.address, "--job_name", "mine"])


@pytest.fixture
def cluster():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer(given.answers[self.path])

        def do_PATCH(self):
            assert self.path == "/jobs/job?mode=cancel"
            given.cancelled.set()
            self.answer({})

        def answer(self, content):
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    given = Cluster(f"127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield given
    server.shutdown()
    thread.join()
    server.server_close()


def test_each_reason_is_told_once(cluster, monkeypatch):
    cluster.has("RESTARTING", FLINK, PYTHON, PYTHON)
    told, enough = [], threading.Event()

    def look(*words, **_):
        told.append(" ".join(words))
        if len(told) == 2:
            enough.set()

    monkeypatch.setattr(flink_watch, "EVERY", 0.01)
    monkeypatch.setattr("builtins.print", look)
    with flink_watch.watched(cluster.options, from_kafka=False):
        assert enough.wait(30)
        # What is told already is not told at the next looks.
        time.sleep(0.2)
    assert told == [
        "the job failed on the cluster, which tries again: ValueError in the step 'Parse/Parse'",
        f"the job failed on the cluster, which tries again: {FLINK.splitlines()[0]}",
    ]
    assert not cluster.cancelled.is_set()


@pytest.mark.parametrize(
    ("state", "completed", "restored", "anew"),
    [
        ("RESTARTING", 0, 0, True),
        ("RUNNING", 0, 0, True),
        # A checkpoint of the new attempt, which had none to begin with.
        ("RUNNING", 1, 0, True),
        # One of the first attempt, which is about to be restored.
        ("RESTARTING", 1, 0, False),
        ("RUNNING", 1, 1, False),
        # A savepoint with which the job was started.
        ("RESTARTING", 0, 1, False),
    ],
)
def test_whether_a_failed_job_begins_anew(cluster, state, completed, restored, anew):
    cluster.has(state, FLINK, completed=completed, restored=restored)
    assert flink_jobs.begins_anew(cluster.options) == anew


@pytest.mark.parametrize("end", ["raises", "returns"])
def test_a_stream_of_a_topic_that_begins_anew_is_cancelled(cluster, monkeypatch, capsys, end):
    cluster.has("RUNNING", FLINK, completed=1)
    monkeypatch.setattr(flink_watch, "EVERY", 0.01)

    def job():
        with flink_watch.watched(cluster.options, from_kafka=True):
            assert cluster.cancelled.wait(30)
            if end == "raises":
                raise RuntimeError("the job was cancelled")

    with pytest.raises(guard.RunError, match=r"failed before its first checkpoint.*command again"):
        job()
    assert FLINK.splitlines()[0] in capsys.readouterr().err


def test_a_stream_of_a_topic_that_goes_on_is_left_alone(cluster, monkeypatch):
    looks = []

    def failures(options):
        looks.append(options)
        # Seen in between, one look in two seems to begin anew.
        cluster.has("RUNNING", FLINK, completed=1, restored=len(looks) % 2)
        return [FLINK]

    monkeypatch.setattr(flink_watch, "EVERY", 0.01)
    monkeypatch.setattr(flink_jobs, "failures", failures)
    with flink_watch.watched(cluster.options, from_kafka=True):
        while len(looks) < 10:
            time.sleep(0.01)
    assert not cluster.cancelled.is_set()
