"""Makes examples/visits.jsonl.gz, a week of visits to a made-up site, and pages.txt.

Nobody's data: users and visits are drawn with a fixed seed. Run it as
``python examples/make_log.py`` to make the files again.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SEED = 2019
USERS = 50_000
#: Shares of users by their page. The last is in no domain: it becomes "other".
PAGES = {
    "/home": 0.27,
    "/search": 0.19,
    "/product": 0.14,
    "/cart": 0.09,
    "/blog": 0.075,
    "/checkout": 0.06,
    "/account": 0.05,
    "/help": 0.04,
    "/returns": 0.03,
    "/careers": 0.02,
    "/press": 0.01,
    "/easter-egg": 0.0,
    "/old/landing-page": 0.025,
}
START = 1_767_571_200  # Monday, 5 January 2026, 00:00 UTC
WEEK = 7 * 86_400


def page(draw: float) -> str:
    """The page at a point of [0, 1)."""
    for name, share in PAGES.items():
        draw -= share
        if draw < 0:
            return name
    return "/home"


def lines() -> Iterator[str]:
    """The log's lines in the order of their times."""
    chance = random.Random(SEED)
    visits = []
    for user in range(USERS):
        # A third of the users come back, mostly for the same page.
        usual = page(chance.random())
        visits.append((chance.random(), user, usual))
        while chance.random() < 0.25:
            again = usual if chance.random() < 0.7 else page(chance.random())
            visits.append((chance.random(), user, again))
    for when, user, where in sorted(visits):
        record = {"time": START + int(when * WEEK), "user": f"u{user:05d}", "page": where}
        if chance.random() < 0.0005:
            record["user"] = ""
        text = json.dumps(record)
        # Now and then a writer was stopped within a line.
        yield text[: len(text) // 2] if chance.random() < 0.0003 else text


def main() -> None:
    """Writes both files."""
    text = "".join(f"{line}\n" for line in lines())
    with (FOLDER / "visits.jsonl.gz").open("wb") as file:
        file.write(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    names = [name for name in PAGES if name != "/old/landing-page"]
    (FOLDER / "pages.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


if __name__ == "__main__":
    main()
