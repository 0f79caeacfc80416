"""The command ``hadabeam`` and ``hadabeam keygen``."""

from __future__ import annotations

import importlib
import os
import pathlib
import stat
import subprocess
import sys

import pytest

import hadabeam
from hadabeam.pipelines import cli, keygen


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, what in cli.commands().items():
        assert f"  {name} " in shown
        assert what in shown
    assert cli.main([]) == 2
    assert capsys.readouterr().err == shown


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"hadabeam {hadabeam.__version__}\n"


@pytest.mark.parametrize(
    ("argument", "hint"),
    [
        ("btach", "did you mean batch?"),
        ("keygn", "did you mean keygen?"),
        ("xyzzy", "there are batch, "),
        ("--input", "the command comes before the flags"),
    ],
)
def test_unknown_commands(argument: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([argument]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith(f"hadabeam: error: unknown command {argument!r}; {hint}")
    assert errors.endswith("\nSee hadabeam --help\n")


@pytest.mark.parametrize("name", sorted(cli.commands()))
def test_every_command_teaches_by_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"hadabeam.pipelines.{name}")
    with pytest.raises(SystemExit) as stop:
        module.main(["--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: hadabeam {name} ")
    assert "examples:\n" in shown
    assert f"hadabeam {name} " in shown[shown.index("examples:") :]
    assert max(map(len, shown.splitlines())) <= 100


def test_help_and_keygen_load_no_beam(tmp_path: pathlib.Path) -> None:
    program = f"""
import contextlib, io, sys
from hadabeam.pipelines import cli
with contextlib.redirect_stdout(io.StringIO()):
    cli.main(["--help"])
    for name in cli.commands():
        with contextlib.suppress(SystemExit):
            cli.main([name, "--help"])
    cli.main(["keygen", {str(tmp_path / "new.key")!r}])
print([name for name in ("apache_beam", "pyarrow") if name in sys.modules])
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout == "[]\n"
    assert (tmp_path / "new.key").stat().st_size == 32


def test_commands_run_as_modules() -> None:
    for name in ("keygen", "cli"):
        run = subprocess.run(
            [sys.executable, "-m", f"hadabeam.pipelines.{name}", "--help"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.startswith("usage: hadabeam ")


def test_keygen_makes_a_key_that_only_the_owner_reads(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "coin.key"
    assert keygen.main([str(path)]) == 0
    key = path.read_bytes()
    assert len(key) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert str(path) in capsys.readouterr().out
    assert keygen.main([str(path)]) == 1
    assert path.read_bytes() == key
    errors = capsys.readouterr().err
    assert errors.startswith(f"hadabeam keygen: error: {path} exists and is not overwritten; ")
    assert keygen.main([str(tmp_path / "other.key")]) == 0
    assert (tmp_path / "other.key").read_bytes() != key


def test_keygen_says_why_it_cannot(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing" / "coin.key"
    assert keygen.main([str(missing)]) == 1
    assert "No such file or directory" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        keygen.main([])
    assert stop.value.code == 2
    assert os.listdir(tmp_path) == []


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m hadabeam.pipelines.plan --domain_size 9 --epsilon 1 --users 99"
    found = subprocess.run(
        ["bash", "-c", f"{command} | true"], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0
    assert found.stderr == ""


def test_an_interrupt_while_modules_are_imported_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.importlib, "import_module", interrupted)
    assert cli.main(["plan"]) == 130
    assert capsys.readouterr().err == "hadabeam plan: interrupted\n"


def test_flags_of_beam_bring_no_warnings() -> None:
    command = [
        *(sys.executable, "-m", "hadabeam.pipelines.batch", "--input", "none", "--user_field", "u"),
        *("--value_field", "v", "--domain", "none", "--epsilon", "1", "--output", "x"),
        "--direct_num_workers=1",
    ]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert found.stderr.startswith("hadabeam batch: error: cannot read the domain file none")
