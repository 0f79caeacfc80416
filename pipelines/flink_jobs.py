"""Ending a job on a Flink cluster, which Beam's own cancelling does not reach.

Beam interrupts the client that waits for the job; the cluster goes on with it. So jobs get
a name of their own, by which the cluster is asked to cancel them.
"""

from __future__ import annotations

import json
import urllib.request
import uuid
from typing import Any

from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
)

#: Seconds that the cluster gets to answer.
_TIMEOUT = 4.0


def give_name(options: PipelineOptions) -> None:
    """Names the job, if ``--job_name`` does not."""
    named = options.view_as(GoogleCloudOptions)
    if not named.job_name:
        named.job_name = f"hadabeam-{uuid.uuid4().hex}"


def cancel(options: PipelineOptions) -> None:
    """Asks the cluster to cancel the job of that name, if it has it.

    Raises:
      OSError: if the cluster does not answer.
    """
    master = str(options.view_as(FlinkRunnerOptions).flink_master)
    if master.startswith("["):
        # "[local]" and "[auto]": within the job server, which ends with this process.
        return
    address = master if "://" in master else f"http://{master}"
    name = options.view_as(GoogleCloudOptions).job_name
    for job in _ask(f"{address}/jobs/overview")["jobs"]:
        if job["name"] == name and job["state"] in ("CREATED", "RUNNING", "RESTARTING"):
            _ask(f"{address}/jobs/{job['jid']}?mode=cancel", "PATCH")


def _ask(url: str, method: str = "GET") -> Any:
    with urllib.request.urlopen(
        urllib.request.Request(url, method=method), timeout=_TIMEOUT
    ) as answer:
        return json.loads(answer.read() or b"{}")
