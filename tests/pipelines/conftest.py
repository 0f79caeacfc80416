"""Runs the commands in this process, on logs of the tests' own making."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from made_logs import PAGES

from hadabeam.pipelines.cli import main
from hadabeam.testing import seeded_key_files


class Outcome(NamedTuple):
    """How a command ended.

    Attributes:
      code: its exit code.
      err: what it wrote to standard error.
      table: the bytes of the table it wrote, or None.
      summary: the summary it wrote, or None.
      letters: the dead letters it wrote.
    """

    code: int
    out: str
    err: str
    table: bytes | None
    summary: dict[str, Any] | None
    letters: list[dict[str, Any]]


class Commands:
    """The command line, in a folder of the test's own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys
        self._runs = 0
        seeded_key_files(folder, "commands")
        self.keys = [
            *("--assignment_key", str(folder / "assignment.key")),
            *("--coin_key", str(folder / "coin.key")),
        ]
        self.domain = folder / "domain.txt"
        self.domain.write_text("".join(f"{page}\n" for page in PAGES))

    def write(self, name: str, content: str | bytes) -> Path:
        """Writes a file of the test's."""
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def run(self, command: str, *flags: str | Path, format: str = "csv") -> Outcome:
        """Runs a command that has ``--output`` and ``--domain``, unless they are given."""
        self._runs += 1
        argv = [command, *map(str, flags)]
        if "--output" not in argv:
            argv += ["--output", str(self.folder / f"out{self._runs}")]
        prefix = argv[argv.index("--output") + 1]
        argv += ["--output_format", format]
        if "--domain" not in argv:
            argv += ["--domain", str(self.domain)]
        if "--epsilon" not in argv:
            argv += ["--epsilon", "1"]
        self._capsys.readouterr()
        try:
            code = main(argv)
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
        out, err = self._capsys.readouterr()
        table = Path(f"{prefix}-estimates.{format}")
        summary, letters = Path(f"{prefix}-summary.json"), Path(f"{prefix}-dead-letters.jsonl")
        return Outcome(
            code,
            out,
            err,
            table.read_bytes() if table.exists() else None,
            json.loads(summary.read_text()) if summary.exists() else None,
            [json.loads(line) for line in letters.read_text().splitlines()]
            if letters.exists()
            else [],
        )

    def batch(self, log: str | Path, *flags: str | Path, format: str = "csv") -> Outcome:
        """Runs ``batch`` with keys, on the fields ``user`` and ``page``."""
        fields: list[str] = []
        if "--user_field" not in flags:
            fields += ["--user_field", "user"]
        if "--value_field" not in flags:
            fields += ["--value_field", "page"]
        return self.run("batch", "--input", log, *fields, *self.keys, *flags, format=format)


@pytest.fixture
def commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    """The command line, with keys and a domain of 30 pages."""
    return Commands(tmp_path, capsys)
