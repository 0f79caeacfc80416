"""Draws docs/panes.svg: a real run of ``hadabeam stream``, panes over time.

    python docs/draw_panes.py [--prism_location FILE]

Writes a log for half a minute, some lines late, follows it with windows of ten seconds, and draws
when lines were written, where the watermark was, and when which pane was there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from hadabeam.testing import seeded_key_files

SIZE, EARLY, MAX_DELAY, LATENESS = 10, 2, 2, 10
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 920, 486, 76, 30, 80, 86
COLOURS = {"early": "#4c8bbf", "on_time": "#2e7d4f", "late": "#c26a1b"}


class Mark(NamedTuple):
    """Something that was seen: when, and the event time (or the window) that it belongs to."""

    at: float
    event: float
    label: str = ""


def scenario() -> list[tuple[float, float]]:
    """When a line is written, and the event time in it, in seconds from the start."""
    generator = random.Random(3)
    lines = []
    for step in range(44):
        written = 0.4 + step * 0.5
        lines += [(written, max(written - generator.uniform(0, 1.5), 0)) for _ in range(4)]
    # One arrives after its window's end, and one after its closing.
    lines += [(15.2, 7.5)] * 3 + [(24.3, 4.0)] * 2
    return sorted(lines)


def run(folder: Path, prism: str | None) -> tuple[list[Mark], list[Mark], dict[str, int]]:
    """The lines and panes of a run, and what was dropped."""
    (folder / "logs").mkdir()
    (folder / "domain.txt").write_text("home\nsearch\ncart\n")
    seeded_key_files(folder)
    command = [
        *(sys.executable, "-m", "hadabeam.pipelines.stream", f"--input={folder}/logs/*"),
        *("--user_field=u", "--value_field=p", "--time_field=t", "--epsilon=1", "--poll=100ms"),
        *(f"--window={SIZE}s", f"--early={EARLY}s", f"--max_delay={MAX_DELAY}s"),
        *(f"--allowed_lateness={LATENESS}s", f"--domain={folder}/domain.txt"),
        *(f"--assignment_key={folder}/assignment.key", f"--coin_key={folder}/coin.key"),
        *(f"--output={folder}/out", "--stop_after=50s"),
    ]
    if prism:
        command.append(f"--prism_location={prism}")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as job:
        # The run is up before the first line is due, at a window's start.
        origin = (int(time.time()) // SIZE + 2) * SIZE
        written = []
        for number, (at, event) in enumerate(scenario()):
            time.sleep(max(origin + at - time.time(), 0))
            record = {"u": f"user {number}", "p": "home", "t": origin + event}
            with (folder / "logs/app.jsonl").open("a") as file:
                file.write(json.dumps(record) + "\n")
            written.append(Mark(time.time() - origin, event))
        time.sleep(max(origin + 34 - time.time(), 0))
        panes = []
        for path in (folder / "out").glob("*/*.avro"):
            reports, timing, _ = path.stem.split("-")
            end = time.strptime(path.parent.name.split("_")[1] + "UTC", "%Y-%m-%dT%H%M%SZ%Z")
            with contextlib.suppress(ValueError):
                import calendar

                start = calendar.timegm(end) - SIZE - origin
                panes.append(Mark(path.stat().st_mtime - origin, start, f"{timing} {int(reports)}"))
        job.wait()
    dropped = json.loads((folder / "out/summary.json").read_text())["dropped"]
    return written, sorted(panes), dropped


def draw(written: list[Mark], panes: list[Mark], dropped: dict[str, int]) -> str:
    """The picture as SVG."""
    last = 34.0
    across = (WIDTH - LEFT - RIGHT) / last
    down = (HEIGHT - TOP - BOTTOM) / 30

    def x(at: float) -> float:
        return LEFT + at * across

    def y(event: float) -> float:
        return HEIGHT - BOTTOM - event * down

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for number in range(3):
        shade = "#f3f5f7" if number % 2 == 0 else "#e7ebef"
        parts.append(
            f'<rect x="{LEFT}" y="{y((number + 1) * SIZE):.1f}" width="{WIDTH - LEFT - RIGHT}" '
            f'height="{SIZE * down:.1f}" fill="{shade}"/>'
        )
    for second in range(0, 35, 5):
        parts.append(
            f'<text x="{x(second):.1f}" y="{HEIGHT - 68}" text-anchor="middle">{second} s</text>'
        )
    for second in range(0, 31, 10):
        parts.append(
            f'<text x="{LEFT - 8}" y="{y(second) + 4:.1f}" text-anchor="end">{second} s</text>'
        )
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 50}" text-anchor="middle">real time</text>')
    parts.append(
        f'<text transform="translate(20 {HEIGHT / 2 - 28}) rotate(-90)" text-anchor="middle">'
        "event time, in windows of ten seconds</text>"
    )
    # Of live logs the watermark is the clock less max_delay.
    parts.append(
        f'<line x1="{x(MAX_DELAY):.1f}" y1="{y(0):.1f}" x2="{x(30 + MAX_DELAY):.1f}" '
        f'y2="{y(30):.1f}" stroke="#555" stroke-dasharray="5 3"/>'
    )
    parts.append(f'<text x="{x(25.4):.1f}" y="{y(22.2):.1f}" fill="#555">watermark</text>')
    for mark in written:
        parts.append(
            f'<circle cx="{x(mark.at):.1f}" cy="{y(mark.event):.1f}" r="2.4" fill="#9aa4ad"/>'
        )
    heights: dict[float, int] = {}
    for mark in panes:
        timing = mark.label.split()[0]
        row = heights[mark.event] = heights.get(mark.event, 0) + 1
        place = y(mark.event + SIZE) + 14 + (row - 1) % 5 * 19
        colour = COLOURS[timing]
        parts.append(
            f'<line x1="{x(mark.at):.1f}" y1="{y(mark.event):.1f}" x2="{x(mark.at):.1f}" '
            f'y2="{y(mark.event + SIZE):.1f}" stroke="{colour}" stroke-width="1.4"/>'
            f'<text x="{x(mark.at) + 4:.1f}" y="{place:.1f}" fill="{colour}" font-weight="bold">'
            f"{mark.label.replace('_', ' ')}</text>"
        )
    late = dropped.get("late", 0)
    caption = (
        "Each dot is a line of the log, each bar a pane and its reports: the whole window so far.",
        f"{late} lines came after the closing of their window, and were dropped and counted.",
    )
    for line, text in enumerate(caption):
        parts.append(f'<text x="{LEFT}" y="{HEIGHT - 26 + 16 * line}">{text}</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def main() -> None:
    """Runs the job and writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prism_location", default=os.environ.get("HADABEAM_PRISM"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        picture = draw(*run(Path(folder), args.prism_location))
    path = Path(__file__).with_name("panes.svg")
    path.write_text(picture)
    print(path)


if __name__ == "__main__":
    main()
