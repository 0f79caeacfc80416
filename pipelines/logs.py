"""What a command says on the terminal: its own words, and warnings in a line each.

Beam writes for people who debug Beam: which optional packages are missing, every start of
a process, a traceback for every attempt of a bundle, on its loggers, on standard error, and
from its child processes. All that is kept for ``--debug``. A failure is told once, when
the command ends: see :mod:`~hadabeam.pipelines.guard`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

#: Loggers whose messages are Beam's, beginning with these names.
_BEAMS = (
    "apache_beam",
    "root",
    "__main__",
    "PrismRunner",
    "PrismJobServer",
    "JavaJarJobServer",
    "SubprocessJobServer",
    "SdkWorker",
)
#: What Beam says that is of use to who runs a command.
_USEFUL = ("If direct_num_workers is not equal to 1",)
#: Modules whose direct writes to standard error are tracebacks that are told later.
_WRITERS = ("apache_beam", "grpc", "threading")


class _Terminal(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes records to whatever standard error is at the time."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


class _Short(logging.Formatter):
    """One line for a record, without its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        lines = record.getMessage().strip().splitlines()
        return f"{record.levelname.lower()}: {lines[0] if lines else ''}"


def _wanted(record: logging.LogRecord) -> bool:
    if record.name.startswith(_BEAMS):
        # A cloud runner tells where to watch the job.
        from_cloud = record.name.startswith("apache_beam.runners.dataflow")
        return from_cloud or record.getMessage().startswith(_USEFUL)
    return record.levelno >= logging.WARNING


def set_up(debug: bool) -> None:
    """Sends log records to standard error; call it before Beam is imported.

    Args:
      debug: show every record from INFO up, with tracebacks.
    """
    root = logging.getLogger()
    for handler in list(root.handlers):
        # Beam adds a plain one wherever there is none; others are somebody's choice.
        if type(handler) in (_Terminal, logging.StreamHandler):
            root.removeHandler(handler)
    terminal = _Terminal()
    if debug:
        terminal.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    else:
        terminal.setFormatter(_Short())
        terminal.addFilter(_wanted)
    root.addHandler(terminal)
    root.setLevel(logging.INFO)


class _Sieve:
    """Standard error without what Beam's modules write to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        writer = sys._getframe(1).f_globals.get("__name__", "")
        if writer.split(".")[0] in _WRITERS:
            return len(text)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps Beam's direct writes, and all that child processes write, off standard error.

    Python code of this process still reaches it through ``sys.stderr``.
    """
    stream = sys.stderr
    saved = os.dup(2)
    own = None
    with contextlib.suppress(OSError, ValueError):
        if stream.fileno() == 2:
            own = os.fdopen(os.dup(2), "w", buffering=1, encoding=stream.encoding, errors="replace")
    silence = os.open(os.devnull, os.O_WRONLY)
    stream.flush()
    os.dup2(silence, 2)
    os.close(silence)
    sys.stderr = _Sieve(own or stream)
    try:
        yield
    finally:
        sys.stderr = stream
        os.dup2(saved, 2)
        os.close(saved)
        if own is not None:
            own.close()
