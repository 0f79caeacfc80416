"""Says why a job on Flink does not get on, while its cluster tries it again and again."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import flink_jobs, guard

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

#: Seconds between two looks.
EVERY = 5.0

_JAVA = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)+([\w$]+)(?:: (.*))?", re.M)


@contextlib.contextmanager
def watched(options: PipelineOptions) -> Iterator[None]:
    """While open: the reasons of the job's failures are told, each once, as they come.

    A cluster tries a failed job again as its restart strategy says, perhaps for ever, and Beam
    says nothing meanwhile.

    Args:
      options: of the job, which has a name of its own.
    """
    over = threading.Event()

    def watch() -> None:
        told: set[str] = set()
        while not over.wait(EVERY):
            # A cluster that does not answer now may answer later.
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                for reason in reasons(flink_jobs.failures(options)):
                    if reason not in told and not over.is_set():
                        told.add(reason)
                        print(
                            f"the job failed on the cluster, which tries again: {reason}",
                            file=sys.stderr,
                            flush=True,
                        )

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
            kinds = [kind for kind, _ in _JAVA.findall(trace)]
            yield f"{kinds[-1] if kinds else 'an error'} in a worker"
