"""Starts Python workers for an engine that asks for them, on loopback only.

Two things differ from Beam's own ``worker_pool_main``. That one serves one task manager.
Here several share a pool, and they call their workers by the same names: to stop "1-1" for
the one that is done would end the other one's "1-1" in mid-work. So workers are not stopped
by name: each ends by itself when its task manager hangs up, or dies.

And a batch job starts new workers for each of its parts, each of which would spend seconds
on importing Beam. Here they are forked from a process that has imported it already. That
process has no threads, and no channel or server of gRPC, which do not survive a fork.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import threading
import traceback
from typing import Any

from apache_beam.runners.worker import sdk_worker

#: What workers of our jobs import. What is not installed is not needed.
_IMPORTS = (
    "apache_beam.io.filesystems",
    "hadabeam.mechanisms.registry",
    "hadabeam.pipelines.batch",
    "hadabeam.pipelines.log_jobs",
    "hadabeam.pipelines.stream",
    "hadabeam.transforms.estimate",
    "hadabeam.transforms.read",
    "pyarrow.compute",
    "pyarrow.csv",
    "pyarrow.json",
    "pyarrow.parquet",
)


def fork_workers(requests: int) -> None:
    """Forks a worker for each line ``endpoint worker_id`` that comes through a pipe."""
    # Whatever ends needs no waiting for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with os.fdopen(requests) as lines:
        for line in lines:
            endpoint, worker_id = line.split()
            print(f"worker {worker_id} for {endpoint}", flush=True)
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                code = 1
                with contextlib.suppress(SystemExit):
                    try:
                        sdk_worker.SdkHarness(endpoint, worker_id=worker_id).run()
                        code = 0
                    except Exception:
                        # Mostly a task manager that is gone.
                        traceback.print_exc()
                os._exit(code)


def serve(port: int, requests: int) -> None:
    """Takes an engine's requests and passes them on, until SIGTERM."""
    import grpc
    from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
    from apache_beam.utils.thread_pool_executor import shared_unbounded_instance

    class Pool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
        def StartWorker(self, request: Any, context: Any) -> Any:  # noqa: N802
            # One write of a short line is atomic.
            os.write(requests, f"{request.control_endpoint.url} {request.worker_id}\n".encode())
            return beam_fn_api_pb2.StartWorkerResponse()

        def StopWorker(self, request: Any, context: Any) -> Any:  # noqa: N802
            return beam_fn_api_pb2.StopWorkerResponse()

    server = grpc.server(shared_unbounded_instance())
    server.add_insecure_port(f"127.0.0.1:{port}")
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(Pool(), server)
    server.start()
    print(f"starting workers on demand at 127.0.0.1:{port}", flush=True)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    stop.wait()
    server.stop(0)


def main(port: int) -> None:
    """Imports, forks, serves; whoever ends the process group ends the workers as well."""
    for name in _IMPORTS:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(writing)
        fork_workers(reading)
        os._exit(0)
    os.close(reading)
    serve(port, writing)


if __name__ == "__main__":
    main(int(sys.argv[1]))
