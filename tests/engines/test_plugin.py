"""Somebody else's package, on hadabeam's wheel, gives the same on three runners."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from engines import ROOT, Flink, prism_flags

pytestmark = pytest.mark.engines

PLUGIN = ROOT / "examples" / "plugin"
IGNORED = shutil.ignore_patterns(".git", "build", "dist", "out", "*.egg-info", "__pycache__", ".*")

#: The pipeline with keys that are the same in every run; says whose hadabeam it is.
_RUN = """\
import sys
import hadabeam
from hadabeam.testing import seeded_keys
from visitstats.pipeline import main
print(hadabeam.__file__)
main(sys.argv[1:], seeded_keys(1))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both packages, installed from wheels."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    for source in (ROOT, PLUGIN):
        wheels, copy = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("copy") / "x"
        # Builds leave files behind.
        shutil.copytree(source, copy, ignore=IGNORED)
        build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(wheels)]
        subprocess.run([*build, str(copy)], check=True)
        (wheel,) = wheels.glob("*.whl")
        install = [*pip, "install", "-q", "--no-deps", "--target", str(folder), str(wheel)]
        subprocess.run(install, check=True)
    return folder


def python(installed: Path, folder: Path, *arguments: str) -> str:
    """What Python prints that finds the installed packages first."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_its_own_tests_pass(installed: Path, tmp_path: Path) -> None:
    tests = str(PLUGIN / "tests")
    found = python(installed, tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests)
    assert "1 passed" in found


def test_the_same_on_every_runner(installed: Path, tmp_path: Path, flink: Flink) -> None:
    # The workers of the cluster do not have the plugin; those of LOOPBACK are this process.
    elsewhere = [flag for flag in flink.flags if not flag.startswith("--environment")]
    runners = {
        "fn_api": ["--runner=FnApiRunner"],
        "prism": ["--runner=PrismRunner", *prism_flags()],
        "flink": [*elsewhere, "--environment_type=LOOPBACK"],
    }
    texts = {}
    for name, flags in runners.items():
        out = tmp_path / f"{name}.txt"
        input = str(ROOT / "examples" / "yaml" / "visits.jsonl")
        arguments = ["-c", _RUN, "--input", input, "--output", str(out), *flags]
        assert python(installed, tmp_path, *arguments).startswith(str(installed))
        texts[name] = out.read_text()
    assert texts["fn_api"] == texts["prism"] == texts["flink"]
    assert texts["fn_api"].startswith("home")
