"""Asking a Flink cluster itself: whether it is there, how a job fares, and to cancel it.

Beam tries for minutes to reach a cluster, without a word. On Ctrl-C it interrupts the client that
waits for the job; the cluster goes on with it. So jobs get a name of their own, by which the
cluster is asked to cancel them.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from typing import Any

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
)

from ..mechanisms.errors import InputError

#: Seconds that the cluster gets to answer.
_TIMEOUT = 4.0


def give_name(options: PipelineOptions) -> None:
    """Names the job, if ``--job_name`` does not."""
    named = options.view_as(GoogleCloudOptions)
    if not named.job_name:
        named.job_name = f"hadabeam-{uuid.uuid4().hex}"


def check(options: PipelineOptions) -> None:
    """Checks that somebody listens where ``--flink_master`` says.

    A cluster that is slow, or answers with an error, passes; so does one that a job server
    elsewhere (``--job_endpoint``) has to reach.

    Raises:
      InputError: if not.
    """
    address = _address(options)
    if address is None or options.view_as(PortableOptions).job_endpoint:
        return
    try:
        _ask(f"{address}/overview")
    except urllib.error.HTTPError:
        return
    except urllib.error.URLError as error:
        if not isinstance(error.reason, TimeoutError):
            reason = getattr(error.reason, "strerror", None) or error.reason
            raise InputError(
                f"no Flink cluster answers at {address} ({reason}); is it up, and is "
                "--flink_master the address of its REST service?"
            ) from None
    except (OSError, ValueError):
        return


def cancel(options: PipelineOptions) -> None:
    """Asks the cluster to cancel the job of that name, if it has it.

    Raises:
      OSError: if the cluster does not answer.
    """
    for job in _alive(options):
        _ask(f"{job}?mode=cancel", "PATCH")


def failures(options: PipelineOptions) -> list[str]:
    """Stack traces of why the job of that name had to be restarted, the first one first.

    Empty where the job has ended, or the cluster is within the job server.

    Raises:
      OSError: if the cluster does not answer.
    """
    found = []
    for job in _alive(options):
        history = _ask(f"{job}/exceptions")["exceptionHistory"]["entries"]
        found += [entry["stacktrace"] for entry in reversed(history)]
    return found


def begins_anew(options: PipelineOptions) -> bool:
    """Whether the job of that name, which has failed, goes on from no checkpoint or savepoint.

    Raises:
      OSError: if the cluster does not answer.
    """
    for job in _alive(options):
        counts = _ask(f"{job}/checkpoints")["counts"]
        # A checkpoint may also be newer than the new attempt, which then restored none.
        if not counts["restored"] and (not counts["completed"] or _ask(job)["state"] == "RUNNING"):
            return True
    return False


def _alive(options: PipelineOptions) -> list[str]:
    """Where the REST service has the jobs of that name that have not ended."""
    address = _address(options)
    if address is None:
        return []
    name = options.view_as(GoogleCloudOptions).job_name
    return [
        f"{address}/jobs/{job['jid']}"
        for job in _ask(f"{address}/jobs/overview")["jobs"]
        if job["name"] == name and job["state"] in ("CREATED", "RUNNING", "RESTARTING", "FAILING")
    ]


def _address(options: PipelineOptions) -> str | None:
    """Where the cluster's REST service is, or None if the cluster is within the job server."""
    master = str(options.view_as(FlinkRunnerOptions).flink_master)
    if master.startswith("["):
        # "[local]" and "[auto]"; the job server ends with this process.
        return None
    return master if "://" in master else f"http://{master}"


def _ask(url: str, method: str = "GET") -> Any:
    with urllib.request.urlopen(
        urllib.request.Request(url, method=method), timeout=_TIMEOUT
    ) as answer:
        return json.loads(answer.read() or b"{}")
