"""What is packed, and that every way of installing it gives a package that works."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

import pytest

import hadabeam

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = ("mechanisms", "schemas", "transforms", "pipelines")
OUTSIDE = {"setup.py", "conftest.py"}
#: What a clone has besides files of the project.
IGNORED = shutil.ignore_patterns(
    ".git", "*.egg-info", "build", "dist", "out", ".venv", "__pycache__", ".*_cache", ".hypothesis"
)


def expected_modules() -> set[str]:
    """The files of the package as they are named in a wheel."""
    files = {f"hadabeam/{path.name}" for path in ROOT.glob("*.py") if path.name not in OUTSIDE}
    for part in PARTS:
        files |= {f"hadabeam/{part}/{path.name}" for path in (ROOT / part).glob("*.py")}
    files |= {f"hadabeam/schemas/{path.name}" for path in (ROOT / "schemas").glob("*.avsc")}
    return files | {"hadabeam/py.typed"}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A copy of the repository in a folder of another name: builds leave files behind."""
    folder = tmp_path_factory.mktemp("clone") / "some-name"
    shutil.copytree(ROOT, folder, ignore=IGNORED)
    return folder


def run(*command: str | os.PathLike[str], cwd: pathlib.Path) -> str:
    """Runs a command without what this process's environment would add to it."""
    environment = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
    done = subprocess.run(
        [os.fspath(part) for part in command],
        cwd=cwd,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def build(kind: str, source: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
    """Builds ``--wheel`` or ``--sdist`` with the setuptools that is installed."""
    run(
        *(sys.executable, "-m", "build", "--no-isolation", kind, "--outdir", target, source),
        cwd=target,
    )
    (made,) = target.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(copy: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return build("--wheel", copy, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(copy: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return build("--sdist", copy, tmp_path_factory.mktemp("sdist"))


@pytest.fixture
def environment(tmp_path: pathlib.Path) -> pathlib.Path:
    """A virtual environment with this one's dependencies, but without hadabeam."""
    folder = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=tmp_path)
    inside = sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)})
    # Of a folder named so, packages are found but .pth files (an editable hadabeam) are not.
    pathlib.Path(inside, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def install(environment: pathlib.Path, *what: str | os.PathLike[str]) -> None:
    run(
        *(sys.executable, "-m", "pip", "--python", environment / "bin" / "python", "install"),
        *("--quiet", "--no-deps", "--no-build-isolation", *what),
        cwd=environment,
    )


PROGRAM = """
import pathlib, sys
import hadabeam
print(hadabeam.__version__)
print(pathlib.Path(hadabeam.__file__).parent)
assert not {"apache_beam", "numpy", "pyarrow"} & set(sys.modules)
import hadabeam.mechanisms
assert not {"apache_beam", "pyarrow"} & set(sys.modules)
from hadabeam.schemas.avro import NAMES, load_schema
assert all(load_schema(name)["doc"] for name in NAMES)
import hadabeam.transforms, hadabeam.pipelines.cli, hadabeam.testing
import importlib.metadata
assert importlib.metadata.version("hadabeam") == hadabeam.__version__
"""


def check(environment: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """Uses an installed hadabeam from elsewhere; returns where it was found."""
    version, place = run(environment / "bin" / "python", "-c", PROGRAM, cwd=tmp_path).split("\n")[
        :2
    ]
    assert version == hadabeam.__version__
    command = environment / "bin" / "hadabeam"
    assert run(command, "--version", cwd=tmp_path) == f"hadabeam {hadabeam.__version__}\n"
    run(command, "keygen", tmp_path / "new.key", cwd=tmp_path)
    return pathlib.Path(place)


def test_the_wheel_holds_the_package_and_nothing_else(wheel: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (info,) = {name.split("/")[0] for name in names if ".dist-info/" in name}
        metadata = archive.read(f"{info}/METADATA").decode()
        scripts = archive.read(f"{info}/entry_points.txt").decode()
    assert {name for name in names if not name.startswith(f"{info}/")} == expected_modules()
    assert f"{info}/licenses/LICENSE" in names
    assert "hadabeam = hadabeam.pipelines.cli:main" in scripts
    assert "Requires-Python: >=3.10,<3.14" in metadata.replace("<3.14,>=3.10", ">=3.10,<3.14")
    assert "License-Expression: Apache-2.0" in metadata


def test_the_source_distribution_can_be_built_from(sdist: pathlib.Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {name.removeprefix("hadabeam/") for name in expected_modules()}
    assert wanted <= names
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= names


@pytest.mark.slow
def test_a_wheel_works(
    wheel: pathlib.Path, environment: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    install(environment, wheel)
    assert environment in check(environment, tmp_path).parents


@pytest.mark.slow
def test_a_wheel_made_of_the_source_distribution_is_the_same(
    wheel: pathlib.Path, sdist: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    target = tmp_path / "wheel"
    target.mkdir()
    again = build("--wheel", source, target)
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert set(first.namelist()) == set(second.namelist())
        for name in expected_modules():
            assert first.read(name) == second.read(name)


@pytest.mark.slow
def test_a_source_distribution_installs(
    sdist: pathlib.Path, environment: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    install(environment, sdist)
    assert environment in check(environment, tmp_path).parents


@pytest.mark.slow
def test_a_clone_installs(
    copy: pathlib.Path, environment: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    install(environment, copy)
    assert environment in check(environment, tmp_path).parents


@pytest.mark.slow
def test_a_clone_installs_in_place(
    copy: pathlib.Path, environment: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    install(environment, "--editable", copy)
    assert check(environment, tmp_path) == copy


@pytest.mark.slow
@pytest.mark.parametrize("given", ["./setup.py", "absolute"])
def test_beam_makes_a_package_of_the_setup_file(
    given: str, copy: pathlib.Path, environment: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """As with ``--setup_file ./setup.py``: built here, installed by pip on each worker."""
    staged = tmp_path / "staged"
    staged.mkdir()
    program = (
        "import sys\n"
        "from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions\n"
        "from apache_beam.runners.portability.stager import Stager\n"
        "options = PipelineOptions(['--setup_file', sys.argv[1]])\n"
        "resources = Stager.create_job_resources(options, sys.argv[2])\n"
        "print([r for r in resources if 'workflow.tar.gz' in str(r)])\n"
    )
    setup = str(copy / "setup.py") if given == "absolute" else given
    said = run(sys.executable, "-c", program, setup, staged, cwd=copy)
    assert "workflow.tar.gz" in said
    (package,) = staged.glob("*.tar.gz")
    install(environment, package)
    assert environment in check(environment, tmp_path).parents
