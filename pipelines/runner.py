"""Choosing a runner, and running to the end.

Without ``--runner``, and with ``--runner=DirectRunner``, jobs run on Beam's
``FnApiRunner`` in this process or, with ``--direct_running_mode=multi_processing``, in
workers beside it. Beam's own choice for these would be Prism, which it may have to
download first. Every other name is Beam's.

Beam is imported by the functions that need it, so that ``--help`` is quick.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..mechanisms.errors import ParameterError
from . import guard
from .guard import Interrupted, RunError

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.runner import PipelineResult, PipelineRunner

#: Names for running on this machine without anything else.
_LOCAL = {"directrunner", "fnapirunner"}
#: Ten years, in seconds.
_YEARS = 315_360_000
#: Runners whose jobs live in a service of their own, and outlive this process on purpose.
_MANAGED = {"dataflowrunner"}


def runner_name(beam_args: Sequence[str]) -> str:
    """The name that ``--runner`` gives, without its module; ``DirectRunner`` if none."""
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

    name = PipelineOptions(list(beam_args)).view_as(StandardOptions).runner or "DirectRunner"
    return str(name).rpartition(".")[2]


def is_local(beam_args: Sequence[str]) -> bool:
    """Whether a job runs in this process and its children, on this machine's files."""
    return runner_name(beam_args).lower() in _LOCAL


def is_here(beam_args: Sequence[str]) -> bool:
    """Whether workers run on this machine, and nothing of the job is tried again."""
    return is_local(beam_args) or runner_name(beam_args).lower() == "prismrunner"


def is_managed(beam_args: Sequence[str]) -> bool:
    """Whether a job lives in a service of its own, on machines that have none of our files."""
    return runner_name(beam_args).lower() in _MANAGED


def is_flink(beam_args: Sequence[str]) -> bool:
    """Whether a job goes to Flink, through a job server."""
    return runner_name(beam_args).lower() == "flinkrunner"


def choose(options: PipelineOptions) -> PipelineRunner | str:
    """The runner for ``beam.Pipeline(runner=...)``."""
    from apache_beam.options.pipeline_options import StandardOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    name = options.view_as(StandardOptions).runner
    if name is None or name.rpartition(".")[2].lower() in _LOCAL:
        return FnApiRunner()
    return str(name)


def waits(beam_args: Sequence[str]) -> bool:
    """Whether :func:`run` waits for the job's end: not where it is only built or submitted."""
    from apache_beam.options.pipeline_options import (
        GoogleCloudOptions,
        PipelineOptions,
        StandardOptions,
        TestOptions,
    )

    options = PipelineOptions(list(beam_args))
    return is_local(beam_args) or not (
        options.view_as(StandardOptions).no_wait_until_finish
        # The launcher of a Flex Template wants a job that is built and not run.
        or options.view_as(GoogleCloudOptions).template_location
        or options.view_as(TestOptions).dry_run
    )


def is_dry_run(beam_args: Sequence[str]) -> bool:
    """Whether a job is only built and checked, so that nothing may be written."""
    from apache_beam.options.pipeline_options import PipelineOptions, TestOptions

    return bool(PipelineOptions(list(beam_args)).view_as(TestOptions).dry_run)


def patient(beam_args: Sequence[str]) -> list[str]:
    """Beam's flags, and one that lets a job on Prism or Flink take its time.

    Beam would wait five minutes for the end of a job, and leave it alone then.
    """
    if any(arg.startswith("--job_server_timeout") for arg in beam_args):
        return list(beam_args)
    return [f"--job_server_timeout={_YEARS}", *beam_args]


def run(
    build: Callable[[beam.Pipeline], Any], beam_args: Sequence[str], *, from_kafka: bool = False
) -> PipelineResult:
    """Builds a pipeline, runs it and waits until it has finished.

    A job that runs elsewhere may be only submitted: see :func:`waits`.
    Inside :func:`guard.guarded`, Ctrl-C and SIGTERM cancel the job, except on managed
    services, where it goes on.

    Args:
      build: adds the transforms to the pipeline it is given.
      beam_args: flags for ``PipelineOptions``.
      from_kafka: whether the job reads a Kafka topic.

    Returns:
      Beam's result, with the metrics.

    Raises:
      ParameterError: if Beam refuses the flags or knows no such runner.
      InputError: if there is no Flink cluster where the flags say.
      RunError: if the job ended in another state than DONE.
      Exception: whatever the runner makes of an error in a worker.
    """
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.runner import PipelineState

    if is_dry_run(beam_args) and not is_managed(beam_args):
        raise ParameterError(
            "--dry_run is for --runner=DataflowRunner, whose client checks a job; other runners "
            "would run it"
        )
    options = PipelineOptions(patient(beam_args))
    local = is_local(beam_args)
    on_flink = is_flink(beam_args)
    if on_flink:
        from . import flink_jobs, flink_watch

        flink_jobs.check(options)
        flink_jobs.give_name(options)
    before = guard.descendants()
    try:
        pipeline = beam.Pipeline(runner=choose(options), options=options)
    except (ValueError, TypeError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ParameterError(f"Beam refuses its flags: {'; '.join(lines)}") from None
    result: PipelineResult | None = None
    with contextlib.ExitStack() as stack:
        stack.enter_context(_helpers(options))
        build(pipeline)
        if not local:
            stack.enter_context(guard.temporary_files())
        else:
            # The runner waits for its workers; they need not finish their bundles.
            stack.enter_context(
                guard.first_on_signal(lambda: guard.end(guard.descendants() - before))
            )
        try:
            result = pipeline.run()
            guard.take_signals()
            if waits(beam_args):
                if on_flink:
                    stack.enter_context(flink_watch.watched(options, from_kafka=from_kafka))
                state = result.wait_until_finish()
                if state not in (None, PipelineState.DONE):
                    raise RunError(f"the job ended as {state}")
        except Interrupted:
            if is_managed(beam_args):
                print("The job goes on where it runs; cancel it there.", file=sys.stderr)
            elif result is not None and not local:
                _cancel(result.cancel if not on_flink else lambda: flink_jobs.cancel(options))
            raise
    return result


@contextlib.contextmanager
def _helpers(options: PipelineOptions) -> Iterator[None]:
    """Keeps the services that Beam starts for transforms in Java until the job has ended."""
    from apache_beam.options.pipeline_options import CrossLanguageOptions
    from apache_beam.utils import subprocess_server

    services = options.view_as(CrossLanguageOptions).beam_services
    with (
        subprocess_server.JavaJarServer.beam_services(services),
        subprocess_server.SubprocessServer.cache_subprocesses(),
    ):
        yield


def _cancel(ask: Callable[[], Any]) -> None:
    """Cancels a job, and does not wait for a job service that no longer answers."""

    def cancel() -> None:
        with contextlib.suppress(Exception):
            ask()

    thread = threading.Thread(target=cancel, daemon=True)
    thread.start()
    thread.join(guard.PATIENCE / 2)
