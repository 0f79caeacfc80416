"""Starts Python workers for an engine that asks for them, on loopback only.

Beam's own ``worker_pool_main`` does the same on all addresses of the machine.
"""

from __future__ import annotations

import signal
import sys
import threading

import grpc
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
from apache_beam.utils.thread_pool_executor import shared_unbounded_instance


def main(port: int) -> None:
    """Serves until SIGTERM; each worker is a process of its own."""
    server = grpc.server(shared_unbounded_instance())
    if server.add_insecure_port(f"127.0.0.1:{port}") != port:
        raise SystemExit(f"port {port} is taken")
    pool = BeamFnExternalWorkerPoolServicer(use_process=True)
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.start()
    print(f"starting workers on demand at 127.0.0.1:{port}", flush=True)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    stop.wait()
    server.stop(0)
    for worker in list(pool._worker_processes.values()):
        worker.terminate()


if __name__ == "__main__":
    main(int(sys.argv[1]))
