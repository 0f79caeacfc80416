"""``deploy/cluster``: engines and brokers on this machine, for tests and for a first try."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import urllib.error
from pathlib import Path

from installs import Installs
from processes import ClusterError
from services import PORTS, SERVICES, Cluster

_EPILOG = f"""\
services: {" ".join(SERVICES)} (default: all)
programs: prism, and what the services need

Everything listens on 127.0.0.1 only. Ports are {", ".join(f"{k} {v}" for k, v in PORTS.items())};
another one is given as, say, HADABEAM_PORT_FLINK=8081. Programs are downloaded and built
once, with pip, mvn and go, into --cache (default $HADABEAM_CACHE, else
$XDG_CACHE_HOME/hadabeam); a running cluster lives in --state (default
$HADABEAM_CLUSTER, else <cache>/cluster): process ids in pids/, logs in logs/.

Python workers run in the environment of the python that runs this command
($HADABEAM_PYTHON, else python3): install hadabeam there first.

examples:
  deploy/cluster up flink          start Flink, or what is missing of it
  eval "$(deploy/cluster env)"     how to reach what runs, as variables of the shell
  deploy/cluster down              stop all
"""


def main() -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="deploy/cluster",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cache", type=Path, help="folder of the programs")
    parser.add_argument("--state", type=Path, help="folder of the running cluster")
    commands = parser.add_subparsers(dest="command", required=True)
    helps = {
        "up": "install and start services, and wait until they are ready",
        "down": "stop services",
        "status": "show what runs; exit 1 if anything asked for does not",
        "env": "print how to reach what runs",
    }
    for name, text in helps.items():
        command = commands.add_parser(name, help=text)
        command.add_argument("services", nargs="*", metavar="SERVICE")
    install = commands.add_parser("install", help="install programs, start nothing")
    install.add_argument("services", nargs="*", metavar="PROGRAM")
    clean = commands.add_parser("clean", help="stop all, and remove the folder of the cluster")
    clean.set_defaults(services=[])
    args = parser.parse_args()

    cache = args.cache or Path(os.environ.get("HADABEAM_CACHE") or _default_cache())
    state = args.state or Path(os.environ.get("HADABEAM_CLUSTER") or cache / "cluster")
    known = [*SERVICES, "prism"] if args.command == "install" else list(SERVICES)
    unknown = set(args.services) - set(known)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    try:
        cluster = Cluster(state.absolute(), Installs(cache.absolute()))
        return _COMMANDS[args.command](cluster, args.services or known)
    except (ClusterError, urllib.error.URLError) as error:
        print(f"deploy/cluster: {error}", file=sys.stderr)
        return 1


def _default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hadabeam"


def _up(cluster: Cluster, services: list[str]) -> int:
    for service in services:
        found = getattr(cluster, service)()
        (cluster.state / f"{service}.json").write_text(json.dumps(found))
        print(f"{service} is up")
    return 0


def _down(cluster: Cluster, services: list[str]) -> int:
    for service in services:
        for name in SERVICES[service]:
            cluster.processes.stop(name)
        (cluster.state / f"{service}.json").unlink(missing_ok=True)
        print(f"{service} is down")
    return 0


def _status(cluster: Cluster, services: list[str]) -> int:
    complete = True
    for service in services:
        for name in SERVICES[service]:
            pid = cluster.processes.pid(name)
            complete = complete and pid is not None
            print(f"{service:10}{name:22}{pid or 'down'}")
    return 0 if complete else 1


def _env(cluster: Cluster, services: list[str]) -> int:
    for service in services:
        path = cluster.state / f"{service}.json"
        if path.exists():
            for name, value in json.loads(path.read_text()).items():
                print(f"export {name}='{value}'")
    return 0


def _install(cluster: Cluster, programs: list[str]) -> int:
    needs = {
        "flink": ["flink", "job_server"],
        "kafka": ["kafka", "kafka_expansion"],
        "gcs": ["emulators"],
        "s3": ["emulators"],
        "bigquery": ["bigquery", "emulators"],
    }
    for program in programs:
        for name in needs.get(program, [program]):
            print(getattr(cluster.installs, name)())
    return 0


def _clean(cluster: Cluster, services: list[str]) -> int:
    _down(cluster, list(SERVICES))
    shutil.rmtree(cluster.state)
    return 0


_COMMANDS = {
    "up": _up,
    "down": _down,
    "status": _status,
    "env": _env,
    "install": _install,
    "clean": _clean,
}


if __name__ == "__main__":
    sys.exit(main())
