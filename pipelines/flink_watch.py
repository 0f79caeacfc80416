"""Says why a job on Flink does not get on, while its cluster tries it again and again."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from apache_beam.options.pipeline_options import StandardOptions

from . import flink_jobs, guard

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

#: Seconds between two looks.
EVERY = 5.0

#: Beam's KafkaIO (ReadFromKafkaDoFn, 2.73) takes the place at which a new attempt begins from a
#: consumer that a worker keeps, and a worker may outlive the attempt.
_NO_CHECKPOINT = (
    "warning: the job failed before its first checkpoint and begins anew; what had been read of a "
    "Kafka topic by then may be missing. Cancel the job (Ctrl-C) and run the command again"
)

_JAVA = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)+([\w$]+)", re.M)


@contextlib.contextmanager
def watched(options: PipelineOptions) -> Iterator[None]:
    """While open: the reasons of the job's failures are told, each once, as they come.

    A cluster tries a failed job again as its restart strategy says, perhaps for ever, and Beam
    says nothing meanwhile.

    Args:
      options: of the job, which has a name of its own.
    """
    over = threading.Event()
    streaming = options.view_as(StandardOptions).streaming

    def watch() -> None:
        told: set[str] = set()

        def tell(what: str) -> None:
            if what not in told and not over.is_set():
                told.add(what)
                print(what, file=sys.stderr, flush=True)

        while not over.wait(EVERY):
            # A cluster that does not answer now may answer later.
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                found = list(reasons(flink_jobs.failures(options)))
                if found and not told and streaming and not flink_jobs.has_checkpoint(options):
                    tell(_NO_CHECKPOINT)
                for reason in found:
                    tell(f"the job failed on the cluster, which tries again: {reason}")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def reasons(traces: list[str]) -> Iterator[str]:
    """A sentence for each of Flink's stack traces.

    Messages that come from a worker may quote the data that it had in hand, so of those there
    is what :func:`guard.explain` gives: the message if it is ours, else the error's type and
    the step.
    """
    for trace in traces:
        if "SDK harness" not in trace:
            # Of Flink itself: a task manager that is gone, a checkpoint that failed.
            yield trace.splitlines()[0]
        elif "Traceback (most recent call last)" in trace:
            yield guard.explain(RuntimeError(trace))[0].removeprefix("the run failed: ")
        else:
            kinds = _JAVA.findall(trace)
            yield f"{kinds[-1] if kinds else 'an error'} in a worker"
