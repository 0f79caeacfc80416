"""Speed and memory of ``hadabeam batch``, against three rivals, each a whole process.

All read the same synthetic JSONL log (about 90 bytes a record):

* ``hadabeam batch``: contribution limit, one bit per user, estimates, files written;
* ``pyarrow.json.read_json`` alone: one thread, a schema of the two columns;
* Beam's ``ReadFromText | Count.Globally``;
* the same job as ``hadabeam batch`` written record by record.

Usage::

    python benchmarks/batch.py             # 10 million records; the last two on 1 million
    python benchmarks/batch.py --short     # 200,000 records each, for a quick look
    python benchmarks/batch.py --users 1000000   # ten records for each user
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

PAGES = 1000

ARROW = """
import sys
import pyarrow as pa
import pyarrow.json as pj
schema = pa.schema([("user", pa.string()), ("page", pa.string())])
table = pj.read_json(
    sys.argv[1],
    read_options=pj.ReadOptions(use_threads=False),
    parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
)
print(table.num_rows)
"""

COUNT = """
import sys
import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
with beam.Pipeline(runner=FnApiRunner()) as pipeline:
    pipeline | beam.io.ReadFromText(sys.argv[1]) | beam.combiners.Count.Globally() | beam.Map(print)
"""

NAIVE = """
import hashlib, json, random, sys
import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
K, q = 1024, 0.7310585786300049
pages = {line.rstrip(): row for row, line in enumerate(open(sys.argv[2]))}
def parse(line):
    record = json.loads(line)
    return record["user"], pages.get(record["page"], len(pages))
def privatize(element):
    user, values = element
    value = min(values)
    digest = hashlib.blake2b(user.encode(), digest_size=8).digest()
    column = 1 + int.from_bytes(digest, "big") % (K - 1)
    bit = 1 - bin(value & column).count("1") % 2
    return column, bit if random.random() < q else 1 - bit
with beam.Pipeline(runner=FnApiRunner()) as pipeline:
    (pipeline | beam.io.ReadFromText(sys.argv[1]) | beam.Map(parse) | beam.GroupByKey()
     | beam.Map(privatize) | beam.CombinePerKey(sum) | beam.combiners.ToList() | beam.Map(len)
     | beam.Map(print))
"""


def write_log(path: Path, records: int, users: int, seed: int = 7) -> None:
    """Writes a log of about 90 bytes a record; pages follow a Zipf law."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, PAGES + 1)
    with path.open("wb") as file:
        for start in range(0, records, 500_000):
            n = min(500_000, records - start)
            # With as many users as records each has one; else they are drawn at random.
            user = np.arange(start, start + n) if users >= records else rng.integers(0, users, n)
            page = rng.choice(PAGES, n, p=weights / weights.sum())
            file.write(
                b"".join(
                    b'{"user": "u%09d", "page": "/page/%d", "ms": %d, "agent": "browser/%d.0"}\n'
                    % (u, p, 1_700_000_000_000 + i, i % 97)
                    for i, (u, p) in enumerate(
                        zip(user.tolist(), page.tolist(), strict=True), start
                    )
                )
            )


def head(source: Path, target: Path, records: int) -> None:
    """Copies the first records."""
    with source.open("rb") as lines, target.open("wb") as file:
        for _ in range(records):
            file.write(lines.readline())


def measure(command: list[str]) -> tuple[float, float]:
    """Seconds and peak resident megabytes of a whole process.

    Raises:
      SystemExit: if the process fails.
    """
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - begin
        if process.returncode:
            errors.seek(0)
            sys.exit(f"{command[:3]} failed:\n{errors.read().decode()[-2000:]}")
    return seconds, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="hadabeam batch against three rivals")
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--users", type=int, help="distinct users; default: as many as records")
    parser.add_argument("--rival_records", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=1, help="the best of so many runs")
    parser.add_argument("--short", action="store_true", help="200,000 records")
    args = parser.parse_args()
    if args.short:
        args.records = args.rival_records = 200_000
    users = args.users or args.records
    with tempfile.TemporaryDirectory() as folder:
        log, few = Path(folder, "log.jsonl"), Path(folder, "few.jsonl")
        pages = Path(folder, "pages.txt")
        pages.write_text("".join(f"/page/{page}\n" for page in range(PAGES)))
        write_log(log, args.records, users)
        rivals = min(args.rival_records, args.records)
        head(log, few, rivals)
        for name in ("assignment", "coin"):
            Path(folder, f"{name}.key").write_bytes(os.urandom(32))
            Path(folder, f"{name}.key").chmod(0o600)
        size = log.stat().st_size
        print(f"{args.records:,} records, {size / args.records:.0f} bytes each, {users:,} users")
        hadabeam = [
            *(sys.executable, "-m", "hadabeam.pipelines.batch", "--input", str(log)),
            *("--user_field", "user", "--value_field", "page", "--domain", str(pages)),
            *("--epsilon", "1", "--output", f"{folder}/out"),
            *("--assignment_key", f"{folder}/assignment.key", "--coin_key", f"{folder}/coin.key"),
        ]
        jobs = [
            ("pyarrow read_json alone", [sys.executable, "-c", ARROW, str(log)], args.records),
            ("hadabeam batch", hadabeam, args.records),
            ("ReadFromText | Count", [sys.executable, "-c", COUNT, str(few)], rivals),
            ("record by record", [sys.executable, "-c", NAIVE, str(few), str(pages)], rivals),
        ]
        rates = {}
        for name, command, records in jobs:
            runs = [measure(command) for _ in range(args.repeats)]
            seconds, megabytes = min(runs)
            rates[name] = records / seconds
            print(
                f"{name:24s} {records:>11,} records {seconds:7.2f} s "
                f"{rates[name]:>11,.0f} records/s {megabytes:7.0f} MB peak",
                flush=True,
            )
        ours = rates["hadabeam batch"]
        for name, rate in rates.items():
            if name != "hadabeam batch":
                print(f"hadabeam batch / {name}: {ours / rate:.2f}")


if __name__ == "__main__":
    main()
