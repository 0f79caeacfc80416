"""How late a pane is, and how much a stream takes: on a live Prism, at a steady rate.

    python benchmarks/stream.py latency --rate 20000 --seconds 60
    python benchmarks/stream.py rate --seconds 40

Needs Prism: ``--prism_location FILE``, or the one that Beam downloads. The ``latency`` command
writes records with the time of the moment to a log that ``hadabeam stream`` follows, with windows
of a few seconds, and reports how long after the end of each window its on-time pane is there, that
all that was sent was counted, and how the memory went. ``rate`` doubles the rate until the job
falls behind.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

#: A window, and how long after an event its line may be written.
WINDOW, MAX_DELAY = 5.0, 1.0
#: The log is written so often, and begun anew so often.
TICK, ROTATE = 0.1, 20.0


@dataclass
class Outcome:
    """What a run gave.

    Attributes:
      sent: records written.
      summary: the summary of the run.
      published: reports in the panes that hold at the end, over all windows.
      latencies: seconds from the end of each window (plus ``MAX_DELAY``) to its on-time pane.
      memory: resident bytes of the job and its children, once a second.
    """

    sent: int = 0
    summary: dict[str, object] = field(default_factory=dict)
    published: int = 0
    latencies: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)


def run(folder: Path, rate: int, seconds: float, users: int, prism: str | None) -> Outcome:
    """Sends ``rate`` records a second for so long, and waits until the job has ended."""
    from hadabeam.mechanisms.keys import generate_key_file
    from hadabeam.transforms.write_panes import current_panes

    (folder / "logs").mkdir()
    (folder / "domain.txt").write_text("".join(f"page {number}\n" for number in range(100)))
    for name in ("assignment", "coin"):
        generate_key_file(folder / f"{name}.key")
    command = [
        *(sys.executable, "-m", "hadabeam.pipelines.stream"),
        f"--input={folder}/logs/*",
        *("--user_field=u", "--value_field=p", "--time_field=t"),
        f"--window={int(WINDOW)}s",
        f"--max_delay={int(MAX_DELAY)}s",
        *("--early=none", "--allowed_lateness=10s", "--poll=100ms", "--epsilon=1"),
        f"--domain={folder}/domain.txt",
        f"--assignment_key={folder}/assignment.key",
        f"--coin_key={folder}/coin.key",
        f"--output={folder}/out",
        f"--stop_after={int(seconds + 8)}s",
    ]
    if prism:
        command.append(f"--prism_location={prism}")
    found = Outcome()
    job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    watcher = threading.Thread(target=_watch, args=(job, folder / "out", found), daemon=True)
    try:
        watcher.start()
        found.sent = _send(folder / "logs", rate, seconds, users)
        job.wait(timeout=seconds * 4 + 120)
    finally:
        if job.poll() is None:
            job.send_signal(signal.SIGINT)
            job.wait(timeout=30)
    watcher.join(timeout=5)
    found.summary = json.loads((folder / "out/summary.json").read_text())
    panes = current_panes(str(folder / "out"))
    found.published = sum(int(Path(path).stem.split("-")[0]) for path in panes.values())
    return found


def _send(logs: Path, rate: int, seconds: float, users: int) -> int:
    """Writes records with the time of the moment, and rotates the log now and then."""
    per_tick = max(int(rate * TICK), 1)
    # Lines are made ahead, but for the time: making them would take a core.
    heads = [f'{{"u":"user {n % users}","p":"page {n * 7 % 100}","t":' for n in range(per_tick)]
    begun, ticks, number = time.time(), 0, 0
    while (elapsed := time.time() - begun) < seconds:
        now = f"{time.time():.3f}}}\n"
        offset = ticks * per_tick
        text = "".join(
            head.replace("user ", f"user {(offset + place) % users}.", 1) + now
            for place, head in enumerate(heads)
        )
        with (logs / "app.jsonl").open("a") as file:
            file.write(text)
        ticks += 1
        if int(elapsed / ROTATE) > number:
            number = int(elapsed / ROTATE)
            (logs / "app.jsonl").rename(logs / f"app.jsonl.{number}")
        time.sleep(max(begun + ticks * TICK - time.time(), 0))
    return ticks * per_tick


def _watch(job: subprocess.Popen[str], out: Path, found: Outcome) -> None:
    """Notes when panes appear, and the memory."""
    import datetime

    seen: set[str] = set()
    next_look = 0.0
    while job.poll() is None:
        for path in out.glob("*/*-on_time-*.avro"):
            if path.parent.name not in seen:
                seen.add(path.parent.name)
                end = datetime.datetime.strptime(
                    path.parent.name.split("_")[1], "%Y-%m-%dT%H%M%SZ"
                ).replace(tzinfo=datetime.timezone.utc)
                found.latencies.append(path.stat().st_mtime - end.timestamp() - MAX_DELAY)
        if time.monotonic() > next_look:
            next_look = time.monotonic() + 1
            found.memory.append(_resident(job.pid))
        time.sleep(0.05)


def _resident(root: int) -> int:
    """Resident bytes of a process and its descendants."""
    parents: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path(f"/proc/{name}/stat").read_text()
            parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
        except OSError:
            continue
    family, total = {root}, 0
    while True:
        more = {child for child, parent in parents.items() if parent in family} - family
        if not more:
            break
        family |= more
    for process in family:
        try:
            pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        except OSError:
            continue
        total += pages * os.sysconf("SC_PAGE_SIZE")
    return total


def describe(rate: int, found: Outcome) -> str:
    """A line of Markdown: rate, sent, counted, latency, memory."""
    dropped = found.summary["dropped"]
    assert isinstance(dropped, dict)
    late = sorted(found.latencies[2:-2])  # without the start and the end
    middle = late[len(late) // 2] if late else float("nan")
    worst = late[-1] if late else float("nan")
    half = len(found.memory) // 2
    memory = [max(part, default=0) / 2**20 for part in (found.memory[:half], found.memory[half:])]
    return (
        f"| {rate:,} | {found.sent:,} | {found.published:,} | "
        f"{sum(dropped.values()):,} | {middle:.2f} s | {worst:.2f} s | "
        f"{memory[0]:.0f} / {memory[1]:.0f} MB |"
    )


HEADER = (
    "| records/s | sent | published | dropped | latency, median | largest | memory by halves |\n"
    "|---|---|---|---|---|---|---|"
)


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark; returns 0, or 1 if something was lost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("latency", "rate"))
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--users", type=int, default=10**9)
    parser.add_argument("--most", type=int, default=1_000_000)
    parser.add_argument("--prism_location")
    args = parser.parse_args(argv)
    rate, code = args.rate, 0
    print(HEADER, flush=True)
    while True:
        with tempfile.TemporaryDirectory() as folder:
            found = run(Path(folder), rate, args.seconds, args.users, args.prism_location)
        print(describe(rate, found), flush=True)
        dropped = found.summary["dropped"]
        assert isinstance(dropped, dict)
        reports = found.summary["reports"]
        assert isinstance(reports, int)
        lost = abs(found.sent - reports - sum(dropped.values())) + abs(reports - found.published)
        if lost:
            print(f"lost: {lost}", file=sys.stderr)
            code = 1
        late = sorted(found.latencies[2:-2])
        behind = not late or late[len(late) // 2] > WINDOW
        if args.what == "latency" or behind or lost or rate * 2 > args.most:
            return code
        rate *= 2


if __name__ == "__main__":
    sys.exit(main())
