"""What the cluster runs: downloaded and built once, by pip, Maven and Go, and kept.

Each install lies in a folder whose name has a digest of what it was made of, so that a
changed version or pom makes a new one, and a second call finds the first one's.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from processes import ClusterError, tail

DEPLOY = Path(__file__).resolve().parent.parent


def versions() -> dict[str, str]:
    """The content of ``versions.env``."""
    lines = (DEPLOY / "versions.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


VERSIONS = versions()
#: What the emulator of BigQuery has DuckDB load.
_DUCKDB_EXTENSIONS = ("icu", "ducklake", "spatial")
_INSTALL_EXTENSIONS = """
import importlib, pathlib, sys, duckdb
for name in sys.argv[1:]:
    package = pathlib.Path(importlib.import_module(f"duckdb_extension_{name}").__file__).parent
    (path,) = package.glob(f"extensions/*/{name}.duckdb_extension")
    duckdb.execute(f"INSTALL '{path}'")
"""


class Installs:
    """Installs under one folder.

    Args:
      root: the folder; it can be deleted at any time while nothing runs.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def flink(self) -> Path:
        """A folder with Flink's jars in ``pyflink/lib``."""
        package = f"apache-flink-libraries=={VERSIONS['FLINK_VERSION']}"

        def make(folder: Path, log: Path) -> None:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            run([*pip, "--target", str(folder), package], log, folder)

        return self._made("flink", [package], make)

    def job_server(self) -> Path:
        """The jar that takes Beam pipelines to Flink."""
        built = self._maven("flink-job-server", DEPLOY / "flink" / "pom.xml")
        return built / "target" / "flink-job-server.jar"

    def kafka(self) -> Path:
        """The folder of the broker's jars."""
        return self._maven("kafka-broker", DEPLOY / "kafka" / "broker" / "pom.xml") / "target/libs"

    def kafka_expansion(self) -> Path:
        """The jar with Beam's KafkaIO, its expansion service and its worker."""
        built = self._maven("kafka-expansion", DEPLOY / "kafka" / "expansion" / "pom.xml")
        return built / "target" / "kafka-expansion.jar"

    def pubsub(self) -> Path:
        """The program that is Google's Pub/Sub server for tests."""
        sources = [DEPLOY / "pubsub" / name for name in ("go.mod", "go.sum", "main.go")]

        def make(folder: Path, log: Path) -> None:
            for source in sources:
                shutil.copy(source, folder)
            run(["go", "build", "-o", "server", "."], log, folder)

        return self._made("pubsub", [path.read_text() for path in sources], make) / "server"

    def prism(self) -> Path:
        """The program that is Beam's Prism runner, of the version of Beam that is installed."""
        try:
            version = importlib.metadata.version("apache-beam")
        except importlib.metadata.PackageNotFoundError:
            version = VERSIONS["PRISM_VERSION"]
        module = f"github.com/apache/beam/sdks/v2/go/cmd/prism@v{version}"

        def make(folder: Path, log: Path) -> None:
            run(["go", "install", module], log, folder, {"GOBIN": str(folder)})

        return self._made("prism", [module], make) / "prism"

    def emulators(self) -> Path:
        """A virtual environment's ``python`` with the emulators of object stores."""
        packages = [
            f"gcp-storage-emulator=={VERSIONS['GCS_EMULATOR_VERSION']}",
            f"moto[server]=={VERSIONS['MOTO_VERSION']}",
        ]

        def make(folder: Path, log: Path) -> None:
            run([sys.executable, "-m", "venv", str(folder / "venv")], log, folder)
            pip = [str(folder / "venv/bin/python"), "-m", "pip", "install", "--quiet"]
            run([*pip, *packages], log, folder)

        # Scripts of a virtual environment hold its path; python -m does not mind a rename.
        return self._made("emulators", packages, make) / "venv/bin/python"

    def bigquery(self) -> Path:
        """A folder with the emulator of BigQuery: ``venv``, and ``home`` with what DuckDB loads."""
        duckdb = VERSIONS["DUCKDB_VERSION"]
        packages = [
            f"local-bigquery=={VERSIONS['LOCAL_BIGQUERY_VERSION']}",
            f"duckdb=={duckdb}",
            *(f"duckdb-extension-{name}=={duckdb}" for name in _DUCKDB_EXTENSIONS),
        ]

        def make(folder: Path, log: Path) -> None:
            run([_python313(), "-m", "venv", str(folder / "venv")], log, folder)
            python = str(folder / "venv/bin/python")
            run([python, "-m", "pip", "install", "--quiet", *packages], log, folder)
            (folder / "home").mkdir()
            # DuckDB would download its extensions, from a server of its own.
            home = {"HOME": str(folder / "home")}
            run([python, "-c", _INSTALL_EXTENSIONS, *_DUCKDB_EXTENSIONS], log, folder, home)

        return self._made("bigquery", [*packages, _INSTALL_EXTENSIONS], make)

    def _maven(self, name: str, pom: Path) -> Path:
        def make(folder: Path, log: Path) -> None:
            shutil.copy(pom, folder)
            properties = [f"-D{key}={value}" for key, value in VERSIONS.items()]
            run(["mvn", "-B", "-q", *properties, "package"], log, folder)

        used = [f"{key}={value}" for key, value in VERSIONS.items() if key in pom.read_text()]
        return self._made(name, [pom.read_text(), *used], make)

    def _made(self, name: str, inputs: list[str], make: Callable[[Path, Path], None]) -> Path:
        digest = hashlib.sha256("\0".join(inputs).encode()).hexdigest()[:12]
        target = self.root / f"{name}-{digest}"
        with (self.root / f"{name}.lock").open("w") as lock:
            # Two commands at once: the second one waits, and finds what the first one made.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                print(f"installing {name} ...", flush=True)
                making = self.root / f"{name}.making"
                shutil.rmtree(making, ignore_errors=True)
                making.mkdir()
                make(making, self.root / f"{name}.log")
                making.rename(target)
        return target


def run(
    command: list[str],
    log: Path,
    folder: Path | None = None,
    env: dict[str, str] | None = None,
) -> None:
    """Runs a command to its end.

    Raises:
      ClusterError: if it is not there, or fails; shows the end of its log.
    """
    if shutil.which(command[0]) is None:
        raise ClusterError(f"{command[0]} is needed and not installed, or not on the PATH")
    nice = ["nice", "-n", "10"] if shutil.which("nice") else []
    with log.open("ab") as output:
        done = subprocess.run(
            [*nice, *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
        )
    if done.returncode:
        raise ClusterError(f"{' '.join(command[:2])} failed; see {log}\n{tail(log)}")


def _python313() -> str:
    """A Python 3.13, which the emulator of BigQuery needs.

    Raises:
      ClusterError: if none is found; says how to name one.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = [sys.executable, "python3.13", *map(str, sorted(pyenv.glob("3.13.*/bin/python")))]
    named = os.environ.get("HADABEAM_PYTHON313")
    for python in [named] if named else found:
        # A shim of pyenv is on the PATH and may yet run nothing.
        check = [python, "-c", "import sys; sys.exit(sys.version_info[:2] != (3, 13))"]
        if shutil.which(python) and not subprocess.run(check, capture_output=True).returncode:
            return python
    raise ClusterError(
        "the emulator of BigQuery needs Python 3.13; put python3.13 on the PATH, or name one with "
        "HADABEAM_PYTHON313"
    )
