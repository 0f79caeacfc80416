"""Why a job on Flink is tried again is told, without what a worker had in hand."""

import http.server
import json
import threading
import time

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from hadabeam.pipelines import flink_watch

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


@pytest.fixture
def cluster():
    """A REST service that answers as Flink's does; gives its address and the answers."""
    answers = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = json.dumps(answers[self.path]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}", answers
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("checkpoints", [None, 0, 3], ids=["batch", "none", "some"])
def test_each_reason_is_told_once(cluster, monkeypatch, checkpoints):
    address, answers = cluster
    jobs = [
        {"jid": "old", "name": "mine", "state": "FAILED"},
        {"jid": "other", "name": "other", "state": "RUNNING"},
        {"jid": "job", "name": "mine", "state": "RESTARTING"},
    ]
    answers["/jobs/overview"] = {"jobs": jobs}
    history = [{"stacktrace": trace} for trace in (FLINK, PYTHON, PYTHON)]
    answers["/jobs/job/exceptions"] = {"exceptionHistory": {"entries": history}}
    answers["/jobs/job/checkpoints"] = {"counts": {"completed": checkpoints or 0}}
    wanted = 3 if checkpoints == 0 else 2
    told, enough = [], threading.Event()

    def look(*words, **_):
        told.append(" ".join(words))
        if len(told) == wanted:
            enough.set()

    monkeypatch.setattr(flink_watch, "EVERY", 0.01)
    monkeypatch.setattr("builtins.print", look)
    flags = ["--flink_master", address, "--job_name", "mine"]
    options = PipelineOptions(flags + ["--streaming"] * (checkpoints is not None))
    with flink_watch.watched(options):
        assert enough.wait(30)
        # What is told already is not told at the next looks.
        time.sleep(0.2)
    if checkpoints == 0:
        assert "before its first checkpoint" in told.pop(0)
    assert told == [
        "the job failed on the cluster, which tries again: ValueError in the step 'Parse/Parse'",
        f"the job failed on the cluster, which tries again: {FLINK.splitlines()[0]}",
    ]
