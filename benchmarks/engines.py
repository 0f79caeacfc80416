"""The same job on every engine at hand: records a second, whole process and all.

    deploy/cluster up flink
    HADABEAM_PRISM=$(deploy/cluster install prism) python benchmarks/engines.py

Makes records of 60 bytes in several files, and runs ``hadabeam batch`` on them with the same
keys on FnApiRunner with one and with two processes, on Prism, and on Flink with two slots.
Engines that are not there are left out. The tables must be the same, byte for byte.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from hadabeam.testing import seeded_key_files

CLUSTER = Path(__file__).resolve().parent.parent / "deploy" / "cluster"
FILES = 8


def make_logs(folder: Path, records: int) -> None:
    """Writes JSON lines: a third as many users as records, 50 pages."""
    rng = np.random.default_rng(1)
    for number in range(FILES):
        users = rng.integers(0, records // 3, records // FILES).tolist()
        pages = rng.geometric(0.1, records // FILES).clip(1, 60).tolist()
        lines = (
            f'{{"user": "user-{user:09d}", "page": "/page/{page}", "status": 200}}\n'
            for user, page in zip(users, pages, strict=True)
        )
        (folder / f"log-{number}.jsonl").write_text("".join(lines))
    (folder / "domain.txt").write_text("".join(f"/page/{page}\n" for page in range(1, 51)))
    seeded_key_files(folder, "benchmark")


def engines() -> dict[str, list[str]]:
    """Name to Beam's flags, of the engines that are there."""
    found = {
        "FnApiRunner, 1 process": [],
        "FnApiRunner, 2 processes": [
            "--direct_num_workers=2",
            "--direct_running_mode=multi_processing",
        ],
    }
    if os.environ.get("HADABEAM_PRISM"):
        found["Prism"] = [
            "--runner=PrismRunner",
            f"--prism_location={os.environ['HADABEAM_PRISM']}",
            "--environment_type=LOOPBACK",
        ]
    env = dict(
        line.removeprefix("export ").split("=", 1)
        for line in subprocess.check_output([CLUSTER, "env", "flink"], text=True).splitlines()
    )
    if env:
        env = {name: value.strip("'") for name, value in env.items()}
        found["Flink, 2 task managers"] = [
            "--runner=FlinkRunner",
            f"--flink_master={env['HADABEAM_FLINK_MASTER']}",
            f"--flink_job_server_jar={env['HADABEAM_FLINK_JOB_SERVER_JAR']}",
            "--parallelism=2",
            "--environment_type=EXTERNAL",
            f"--environment_config={env['HADABEAM_FLINK_WORKERS']}",
        ]
    return found


def main() -> None:
    """Runs the job on each engine, best of a few runs, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--runs", type=int, default=2, help="the best of so many is shown")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_logs(folder, args.records)
        size = sum(path.stat().st_size for path in folder.glob("log-*.jsonl"))
        print(f"{args.records:,} records, {size / 2**20:,.0f} MB, {os.cpu_count()} cores\n")
        print(f"{'engine':26}{'seconds':>9}{'records/s':>12}")
        tables = set()
        for engine, flags in engines().items():
            command = [
                *(sys.executable, "-m", "hadabeam.pipelines.batch"),
                *("--input", str(folder / "log-*.jsonl"), "--domain", str(folder / "domain.txt")),
                *("--user_field", "user", "--value_field", "page", "--epsilon", "1"),
                *("--assignment_key", str(folder / "assignment.key")),
                *("--coin_key", str(folder / "coin.key"), "--output", str(folder / "out")),
            ]
            times = []
            for _ in range(args.runs):
                start = time.perf_counter()
                subprocess.run([*command, *flags], check=True, stdout=subprocess.DEVNULL)
                times.append(time.perf_counter() - start)
            print(f"{engine:26}{min(times):9.1f}{args.records / min(times):12,.0f}", flush=True)
            tables.add((folder / "out-estimates.avro").read_bytes())
        if len(tables) != 1:
            sys.exit("the engines gave different tables")
        print("\nall tables are the same, byte for byte")


if __name__ == "__main__":
    main()
