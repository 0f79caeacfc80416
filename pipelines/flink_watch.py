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

#: Beam's KafkaIO (ReadFromKafkaDoFn, 2.73) takes the place at which a new attempt begins from a
#: consumer that a worker keeps, and a worker may outlive the attempt.
_NO_CHECKPOINT = (
    "the job failed before its first checkpoint and was cancelled: a new attempt on the cluster "
    "could miss what had been read of the Kafka topic by then. Run the command again"
)
#: How many looks in a row must see that a job begins anew: in one the cluster may be in between.
_LOOKS = 2

_JAVA = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)+([\w$]+)", re.M)


@contextlib.contextmanager
def watched(options: PipelineOptions, *, from_kafka: bool) -> Iterator[None]:
    """While open: the reasons of the job's failures are told, each once, as they come.

    A cluster tries a failed job again as its restart strategy says, perhaps for ever, and Beam
    says nothing meanwhile. A job that begins anew though it may have lost records is cancelled.

    Args:
      options: of the job, which has a name of its own.
      from_kafka: whether it reads a Kafka topic.

    Raises:
      RunError: on the way out, in place of how the job ended, if it was cancelled.
    """
    over, cancelled = threading.Event(), threading.Event()

    def watch() -> None:
        told: set[str] = set()

        def tell(what: str) -> None:
            if what not in told and not over.is_set():
                told.add(what)
                print(what, file=sys.stderr, flush=True)

        anew = 0
        while not over.wait(EVERY):
            # A cluster that does not answer now may answer later.
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                found = list(reasons(flink_jobs.failures(options)))
                for reason in found:
                    tell(f"the job failed on the cluster, which tries again: {reason}")
                lost = from_kafka and found and flink_jobs.begins_anew(options)
                anew = anew + 1 if lost else 0
                if anew >= _LOOKS:
                    cancelled.set()
                    flink_jobs.cancel(options)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    except Exception:
        if not cancelled.is_set():
            raise
    finally:
        over.set()
    if cancelled.is_set():
        # The job may have seemed to end before the cluster was asked.
        with contextlib.suppress(OSError):
            flink_jobs.cancel(options)
        raise guard.RunError(_NO_CHECKPOINT)


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
