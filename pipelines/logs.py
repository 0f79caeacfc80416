"""What a command says on the terminal: its own words, warnings, errors in a line each.

Beam logs for people who debug Beam: warnings about optional packages, a traceback for
every attempt of a bundle. A person who runs a command gets one line for a warning, and a
failure is told once, by :mod:`~hadabeam.pipelines.guard`. ``--debug`` shows everything.
"""

from __future__ import annotations

import logging
import sys

#: Beginnings of messages that ask for nothing from anybody.
_NOISE = (
    "apitools not found",
    "Discarding unparseable args",
    "Discarding flag ",
    "Unparseable argument",
    "Make sure that locally built Python SDK docker image",
    "Waiting for grpc channel to be ready",
    "severity: WARN",
)


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
    from_beam = record.name == "root" or record.name.startswith("apache_beam")
    if record.levelno < logging.WARNING:
        # A cloud runner tells where to watch the job.
        return record.name.startswith("apache_beam.runners.dataflow")
    if from_beam and record.levelno >= logging.ERROR:
        # Told again, with the reason, when the run ends; may quote data.
        return False
    return not (from_beam and record.getMessage().startswith(_NOISE))


def set_up(debug: bool) -> None:
    """Sends log records to standard error; call it before Beam is imported.

    Args:
      debug: show every record from INFO up, with tracebacks.
    """
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Terminal)]:
        root.removeHandler(handler)
    handler = _Terminal()
    if debug:
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    else:
        handler.setFormatter(_Short())
        handler.addFilter(_wanted)
    root.addHandler(handler)
    root.setLevel(logging.INFO)
