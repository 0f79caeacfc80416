"""Processes that outlive the command that started them, and are ended by their id.

Each is the leader of a process group of its own. Its id is kept in a file together with
the time it began, so that an id which the system has given to another process since is
never signalled.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class ClusterError(Exception):
    """Something cannot be installed or started; the message says what to look at."""


def began(pid: int) -> str:
    """When a process began, as the system tells it; "" if there is none."""
    with contextlib.suppress(OSError, IndexError):
        # The 22nd field; the second one, in brackets, may hold spaces.
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if stat[0] == "Z" else stat[19]
    if Path("/proc/self/stat").exists():
        return ""
    shown = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True)
    return shown.stdout.strip()


class Processes:
    """The processes of one state folder.

    Args:
      state: the folder; ids go to ``pids``, output to ``logs``.
    """

    def __init__(self, state: Path) -> None:
        self.pids = state / "pids"
        self.logs = state / "logs"
        for folder in (self.pids, self.logs):
            folder.mkdir(parents=True, exist_ok=True)

    def pid(self, name: str) -> int | None:
        """The id of a process that runs, or None."""
        try:
            kept = json.loads((self.pids / name).read_text())
        except (OSError, ValueError):
            return None
        return kept["pid"] if began(kept["pid"]) == kept["began"] != "" else None

    def names(self) -> list[str]:
        """Of all processes that were started and not stopped."""
        return sorted(path.name for path in self.pids.iterdir())

    def start(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        """Starts a process in the background, unless it runs already.

        Its log is a new one; that of the process before it is kept as ``NAME.log.1``.
        """
        if self.pid(name) is not None:
            return
        path = self.logs / f"{name}.log"
        if path.exists():
            path.replace(path.with_name(f"{name}.log.1"))
        with path.open("wb") as log:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=folder,
                start_new_session=True,
            )
        kept = {"pid": process.pid, "began": began(process.pid), "command": command[0]}
        (self.pids / name).write_text(json.dumps(kept))

    def wait(self, name: str, ready: Callable[[], bool], seconds: float) -> None:
        """Waits until a process that was started is ready.

        Raises:
          ClusterError: if it ends, or is not ready in time; names its log.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            log = self.logs / f"{name}.log"
            if self.pid(name) is None:
                raise ClusterError(f"{name} ended at once; see {log}\n{tail(log)}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{name} is not ready after {seconds:.0f} s; see {log}")
            time.sleep(0.2)

    def stop(self, name: str, seconds: float = 10) -> None:
        """Ends a process and its group: asks first, and insists after a while."""
        pid = self.pid(name)
        if pid is not None:
            for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, seconds)):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, number)
                deadline = time.monotonic() + patience
                while _group_lives(pid) and time.monotonic() < deadline:
                    time.sleep(0.1)
                if not _group_lives(pid):
                    break
        with contextlib.suppress(FileNotFoundError):
            (self.pids / name).unlink()


def _group_lives(group: int) -> bool:
    """Whether a process group has a member that is no zombie."""
    if not Path("/proc/self/stat").exists():
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        return True
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group and fields[0] != "Z":
                    return True
    return False


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def listening(port: int) -> bool:
    """Whether something accepts connections on a port of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
