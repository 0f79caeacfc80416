"""Running: which runner, how failures are told, and that a signal leaves nothing behind.

Most of it is about whole processes, so the tests start some.
"""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from hadabeam.mechanisms.errors import InputError, ParameterError
from hadabeam.pipelines import guard, runner

CANARY = "canary-7f3a"
PROLOGUE = """
import sys, time
from hadabeam.pipelines.guard import guarded
from hadabeam.pipelines.runner import run
from hadabeam.mechanisms.errors import InputError, ParameterError

def prepare():
    pass

def job(*beam_args):
    def build(pipeline):
        import apache_beam as beam
        elements = pipeline | beam.Create([1, 2]) | beam.Reshuffle()
        _ = elements | "Work" >> beam.Map(work)
    def body():
        prepare()
        run(build, beam_args)
        print("done")
        return 0
    return guarded("hadabeam test", body, debug="--debug" in sys.argv)
"""
MULTI = '"--direct_running_mode=multi_processing", "--direct_num_workers=2"'


def prism() -> str:
    """The Prism binary that the environment names."""
    return os.environ["HADABEAM_PRISM"]


def script(folder: pathlib.Path, text: str) -> list[str]:
    path = folder / "job.py"
    path.write_text(PROLOGUE + text)
    return [sys.executable, str(path)]


def execute(folder: pathlib.Path, text: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Runs a job to its end, which must leave no temporary files."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    run = subprocess.run(
        [*script(folder, text), *flags],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert list(temporary.iterdir()) == []
    return run


def processes_that_mention(mark: str) -> list[str]:
    """Command lines and environments of other processes that hold a mark."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            content = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if mark.encode() in content and state != "Z":
            found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], FnApiRunner),
        (["--runner=DirectRunner"], FnApiRunner),
        (["--runner=directrunner"], FnApiRunner),
        (["--runner", "FnApiRunner"], FnApiRunner),
        (["--runner=PrismRunner"], str),
        (["--runner=FlinkRunner"], str),
    ],
)
def test_the_choice_of_a_runner(flags: list[str], expected: type) -> None:
    assert isinstance(runner.choose(PipelineOptions(flags)), expected)
    assert runner.is_local(flags) == (expected is FnApiRunner)


def test_a_run_returns_its_metrics() -> None:
    def count(element: int) -> int:
        beam.metrics.Metrics.counter("test", "elements").inc()
        return element

    result = runner.run(lambda pipeline: pipeline | beam.Create([1, 2, 3]) | beam.Map(count), [])
    (counter,) = result.metrics().query()["counters"]
    assert counter.committed == 3


def test_an_unknown_runner_is_a_parameter_error() -> None:
    with pytest.raises(ParameterError, match="NoSuchRunner"):
        runner.run(lambda pipeline: None, ["--runner=NoSuchRunner"])


def test_done(tmp_path: pathlib.Path) -> None:
    run = execute(tmp_path, "work = str\nsys.exit(job())")
    assert (run.returncode, run.stdout, run.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("mode", ["", MULTI])
@pytest.mark.parametrize(("kind", "code"), [("InputError", 1), ("ParameterError", 2)])
def test_our_errors_from_a_worker_are_one_line(
    mode: str, kind: str, code: int, tmp_path: pathlib.Path
) -> None:
    text = f"def work(x):\n    raise {kind}('cannot read x: no such file')\nsys.exit(job({mode}))"
    run = execute(tmp_path, text)
    assert run.returncode == code
    assert run.stderr == "hadabeam test: error: cannot read x: no such file\n"


@pytest.mark.parametrize("mode", ["", MULTI])
def test_other_errors_tell_type_and_step_but_no_content(mode: str, tmp_path: pathlib.Path) -> None:
    text = f"def work(x):\n    return int('{CANARY}')\nsys.exit(job({mode}))"
    run = execute(tmp_path, text)
    assert run.returncode == 1
    assert run.stderr == (
        "hadabeam test: error: the run failed: ValueError in the step 'Work'\n"
        "(--debug shows where, in full)\n"
    )
    if not mode:
        shown = execute(tmp_path, text, "--debug")
        assert shown.returncode == 1
        assert "Traceback (most recent call last)" in shown.stderr
        assert shown.stderr.endswith(
            "hadabeam test: error: the run failed: ValueError in the step 'Work'\n"
        )


def test_errors_before_a_run() -> None:
    assert guard.explain(InputError("no file matches x")) == ("no file matches x", 1)
    assert guard.explain(ParameterError("k must be 2 or more")) == ("k must be 2 or more", 2)
    assert guard.explain(OSError("job server\n  did not start")) == ("job server", 1)
    assert guard.explain(RuntimeError()) == ("RuntimeError", 1)
    rpc = '<Error of RPC:\n\tstatus = StatusCode.UNAVAILABLE\n\tdetails = "at 127.0.0.1:1"\n\tmore'
    message, code = guard.explain(RuntimeError(rpc))
    assert (message, code) == ("a service that the job needs does not answer: at 127.0.0.1:1", 1)
    chained = RuntimeError("outer")
    chained.__cause__ = InputError("inner [while running 'A/B']")
    assert guard.explain(chained) == ("inner", 1)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("mode", ["", MULTI])
def test_a_signal_ends_a_run_and_its_workers(
    number: signal.Signals, code: int, mode: str, tmp_path: pathlib.Path
) -> None:
    mark = f"hadabeam-test-{os.getpid()}-{time.monotonic_ns()}"
    text = f"""
def work(x):
    open({str(tmp_path / "started")!r}, "w").close()
    time.sleep(300)
def prepare():
    from hadabeam.transforms import files
    prefix = files.check_prefix({str(tmp_path / "pages")!r})
    open(files.temporary_name(prefix + "-estimates.avro"), "w").close()
    from hadabeam.transforms.spill import private_folder
    globals()["kept"] = private_folder()
    kept.__enter__()
sys.exit(job({mode}))
"""
    check_ending(tmp_path, text, mark, number, code)
    assert not list(tmp_path.glob(".pages*"))


def check_ending(
    folder: pathlib.Path, text: str, mark: str, number: signal.Signals, code: int
) -> None:
    """Starts a job, sends it a signal once it works, and looks at what is left."""
    temporary = folder / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "HADABEAM_TEST_MARK": mark, "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        script(folder, text),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    started = folder / "started"
    try:
        while not started.exists():
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.05)
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    how = "interrupted" if number == signal.SIGINT else "stopped by a signal"
    left = "what was published stays, what was unfinished is gone"
    assert errors == f"hadabeam test: {how}; {left}\n"
    assert output == ""
    assert process.returncode == code
    assert processes_that_mention(mark) == []
    assert list(temporary.iterdir()) == []


@pytest.mark.prism
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_prism(number: signal.Signals, code: int, tmp_path: pathlib.Path) -> None:
    mark = f"hadabeam-test-{os.getpid()}-{time.monotonic_ns()}"
    text = f"""
def work(x):
    open({str(tmp_path / "started")!r}, "w").close()
    time.sleep(300)
sys.exit(job("--runner=PrismRunner", "--prism_location={prism()}", "--environment_type=LOOPBACK"))
"""
    check_ending(tmp_path, text, mark, number, code)


@pytest.mark.prism
def test_failures_on_prism_are_one_line(tmp_path: pathlib.Path) -> None:
    flags = f'"--runner=PrismRunner", "--prism_location={prism()}", "--environment_type=LOOPBACK"'
    text = f"def work(x):\n    raise InputError('cannot read x')\nsys.exit(job({flags}))"
    run = execute(tmp_path, text)
    assert run.returncode == 1
    assert run.stderr == "hadabeam test: error: cannot read x\n"


@pytest.mark.parametrize("name", ["DirectRunner", "PrismRunner", "FlinkRunner"])
def test_a_dry_run_runs_nothing(name: str) -> None:
    def build(pipeline: Any) -> None:
        raise AssertionError("nothing is built")

    with pytest.raises(ParameterError, match="--dry_run is for --runner=DataflowRunner"):
        runner.run(build, [f"--runner={name}", "--dry_run=True"])


def test_jobs_elsewhere_may_take_their_time() -> None:
    assert runner.patient(["--runner=FlinkRunner"])[0].startswith("--job_server_timeout=")
    given = ["--job_server_timeout=60", "--runner=FlinkRunner"]
    assert runner.patient(given) == given


_LATE = """\
import atexit, os, signal, sys, threading, time
from hadabeam.pipelines.guard import guarded

def write():
    print("a worker complains", file=sys.stderr)

def complain():
    thread = threading.Thread(target=write)
    thread.start()
    thread.join()

# Runners stop their servers in exit functions, and workers lose them then.
atexit.register(complain)

def body():
    complain()
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    finally:
        print("the job is told", file=sys.stderr)
        complain()

guarded("hadabeam test", body, debug=DEBUG)
"""


@pytest.mark.parametrize("debug", [False, True])
def test_workers_that_lose_their_runner_to_a_signal_say_nothing(debug: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LATE.replace("DEBUG", str(debug))],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 130
    assert done.stderr.splitlines() == [
        "a worker complains",
        "the job is told",
        "hadabeam test: interrupted; what was published stays, what was unfinished is gone",
    ]


def test_a_flink_cluster_that_is_not_there_is_named() -> None:
    with socket.socket() as taken:
        # Bound, and not listening: nobody answers, and nobody else gets the port.
        taken.bind(("127.0.0.1", 0))
        master = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = [
            "--runner=FlinkRunner",
            f"--flink_master={master}",
            "--flink_job_server_jar=no.jar",
        ]
        with pytest.raises(InputError, match=f"no Flink cluster answers at http://{master} "):
            runner.run(lambda pipeline: pipeline | beam.Create([1]), flags)
