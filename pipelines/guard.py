"""How a command ends: the exit code, a reason in one line, nothing left behind.

Whatever goes wrong, a person gets a sentence first. Messages of unknown errors from a
worker are not shown, because they may quote the data that the worker had in hand; the
type of the error and the step are. ``--debug`` shows the traceback.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn, TextIO, cast

from ..mechanisms.errors import InputError, ParameterError
from . import logs
from .flags import DONE, FAILED, USAGE

#: Seconds that a run gets to end after Ctrl-C or SIGTERM.
PATIENCE = 10.0

_OURS = re.compile(r"\b(InputError|ParameterError): (.*)")
_STEP = re.compile(r"\s*\[while running (['\"])(.*?)\1\]")
_TYPE_LINE = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)): ?(.*)$", re.M)
#: What Beam says of a load of rows that failed. They are published rows, so it may be shown.
_REFUSED_LOAD = re.compile(
    r"BigQuery job \S+ failed\. Error Result: <ErrorProto\b.*?\bmessage: (['\"])(.*?)\1\s",
    re.DOTALL,
)
#: What gRPC says of a service that cannot be reached: an expansion service, a job server.
_UNREACHABLE = re.compile(r'status = StatusCode\.UNAVAILABLE\s+details = "(.*?)"\s', re.DOTALL)


class Interrupted(BaseException):
    """Ctrl-C, or SIGTERM. Not an ``Exception``: nothing on the way up may swallow it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class RunError(RuntimeError):
    """A run that ended without success though nothing was raised; the message says how."""


def guarded(prog: str, body: Callable[[], int], *, debug: bool = False) -> int:
    """Runs a command's body and turns its errors into a sentence and an exit code.

    Args:
      prog: how the command is called, as ``hadabeam batch``; begins every message.
      body: does the work; returns the exit code.
      debug: show tracebacks and Beam's log.

    Returns:
      What ``body`` returns; 2 for a :class:`ParameterError`, 1 for every other error.
      After Ctrl-C or SIGTERM the process is gone, with 130 or 143.
    """
    logs.set_up(debug)
    signals = _Signals()
    try:
        with signals, contextlib.nullcontext() if debug else logs.quiet():
            code = body()
            sys.stdout.flush()
            if not debug:
                _silence_at_exit()
            return code
    except BaseException as error:
        # Beam wraps what is raised within a bundle, so the type may have changed.
        if signals.number is not None:
            _leave(prog, signals.number, signals.before)
        if not isinstance(error, Exception):
            raise
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            return DONE
        if debug:
            traceback.print_exc()
        message, code = explain(error)
        if not debug and _find_ours(error) is None:
            message += "\n(--debug shows where, in full)"
        print(f"{prog}: error: {message}", file=sys.stderr)
        _remove_leftovers()
        return code


@functools.cache
def _silence_at_exit() -> None:
    """Keeps threads of Beam's workers, which lose their runner at the end, from saying so."""
    # Exit functions run in the reverse order: before those by which runners stop their servers.
    atexit.register(_silence_threads)


def _silence_threads() -> None:
    threading.excepthook = lambda args: None


def _nobody_reads() -> bool:
    """Whether standard output was closed by its reader, who has seen enough (``| head``).

    If so, what is still to be written goes nowhere, or Python would complain at the end.
    """
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        if not poll.poll(0):
            return False
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (AttributeError, OSError, ValueError):
        # No poll on this system, or standard output is no file.
        return False
    return True


def explain(error: BaseException) -> tuple[str, int]:
    """A sentence for an error, and the exit code: see :func:`guarded`."""
    ours = _find_ours(error)
    if ours is not None:
        return ours
    text = str(error)
    refused = _REFUSED_LOAD.search(text)
    if refused is not None:
        return f"BigQuery did not load the rows: {refused.group(2)}", FAILED
    step = _STEP.search(text)
    if step is None and "Traceback (most recent call last)" not in text:
        # Not from a worker: a runner that cannot be reached, a flag that Beam refuses.
        unreachable = _UNREACHABLE.search(text)
        if unreachable is not None:
            return f"a service that the job needs does not answer: {unreachable.group(1)}", FAILED
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return (lines[0] if lines else type(error).__name__), FAILED
    kind, message = [(type(error).__name__, ""), *_TYPE_LINE.findall(text)][-1]
    kind = kind.rpartition(".")[2]
    if isinstance(error, OSError) and error.strerror:
        kind = f"{kind} ({error.strerror})"
    elif kind in ("MemoryError", "ModuleNotFoundError"):
        kind = f"{kind} ({_STEP.sub('', message)})" if message else kind
    where = f" in the step {step.group(2)!r}" if step else " in a worker"
    return f"the run failed: {kind}{where}", FAILED


def _find_ours(error: BaseException) -> tuple[str, int] | None:
    """The message of the first of our own errors in a chain, or in a worker's traceback."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if isinstance(link, (InputError, ParameterError)):
            message = _STEP.sub("", str(link)).strip()
            return message, USAGE if isinstance(link, ParameterError) else FAILED
        link = link.__cause__ or link.__context__
    found = _OURS.search(str(error))
    if found is None:
        return None
    message = _STEP.sub("", found.group(2)).strip()
    return message, USAGE if found.group(1) == "ParameterError" else FAILED


class _Signals:
    """While open: :class:`Interrupted` on the first signal, the end on the second.

    Attributes:
      before: the child processes that were there before, and are not ours to end.
      number: the signal that came, or None.
    """

    def __init__(self) -> None:
        self.before = descendants()
        self.number: int | None = None
        self._earlier: dict[signal.Signals, Any] = {}
        self._stderr: TextIO | None = None

    def __enter__(self) -> None:
        # Only the main thread can have handlers.
        if threading.current_thread() is threading.main_thread():
            # From the outset, so that who borrows standard error meanwhile gives this one back.
            self._stderr = sys.stderr
            sys.stderr = cast(TextIO, _AfterSignal(sys.stderr, self))
            for number in (signal.SIGINT, signal.SIGTERM):
                self._earlier[number] = signal.signal(number, self._handle)
            _active.append(self)

    def take(self) -> None:
        """Takes the signals back from who else took them."""
        for number in self._earlier:
            signal.signal(number, self._handle)

    def __exit__(self, *unused: object) -> None:
        if self in _active:
            _active.remove(self)
        if self.number is None:
            if self._stderr is not None:
                sys.stderr = self._stderr
            for number, handler in self._earlier.items():
                signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.number is not None:
            end(descendants() - self.before)
            os._exit(128 + number)
        self.number = number
        # Threads will fail because their peers are gone. That is no news, and Beam's workers
        # print it.
        _silence_threads()
        sys.stderr = cast(TextIO, _AfterSignal(sys.stderr, self))
        threading.Thread(target=_watch, args=(number, self.before), daemon=True).start()
        for stop in list(_first):
            stop()
        raise Interrupted(number)


class _AfterSignal:
    """A text file that, once a signal came, takes only what the main thread writes."""

    def __init__(self, file: TextIO, signals: _Signals) -> None:
        self._file = file
        self._signals = signals

    def write(self, text: str) -> int:
        """Writes, or does not; returns the number of characters."""
        main = threading.current_thread() is threading.main_thread()
        if main or self._signals.number is None:
            self._file.write(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


#: The signal handling of the commands that are running: one, or none.
_active: list[_Signals] = []


def take_signals() -> None:
    """Makes signals ours again: Beam's job servers would end the server before the job."""
    for signals in _active:
        signals.take()


#: What is done on a signal before anything is unwound.
_first: list[Callable[[], None]] = []


@contextlib.contextmanager
def first_on_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Calls ``stop`` when a signal comes, before anything is unwound.

    For workers that a runner would wait for on the way out.
    """
    _first.append(stop)
    try:
        yield
    finally:
        _first.remove(stop)


def _watch(number: int, before: set[int]) -> None:
    """Ends a process whose run does not let go: threads that wait for threads."""
    time.sleep(PATIENCE)
    end(descendants() - before)
    _remove_leftovers()
    os._exit(128 + number)


def _leave(prog: str, number: int, before: set[int]) -> NoReturn:
    """Says so, tidies up, and ends the process with 128 + the signal's number."""
    how = "interrupted" if number == signal.SIGINT else "stopped by a signal"
    print(f"{prog}: {how}; what was published stays, what was unfinished is gone", file=sys.stderr)
    # Runners stop their servers in exit functions. The interpreter itself would then wait
    # for worker threads, which may be hours from the end of their bundle.
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    end(descendants() - before)
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)
    _remove_leftovers()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(128 + number)


#: Folders of this process's runs that are to be gone when it ends.
_folders: set[str] = set()


@contextlib.contextmanager
def temporary_files() -> Iterator[None]:
    """Puts temporary files of this process and its children into a folder of their own.

    Beam stages the files of a job that runs elsewhere, and leaves them. The folder goes
    when the process ends: after Beam's own exit functions, which were registered later.
    """
    folder = tempfile.mkdtemp(prefix="hadabeam-run-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    earlier, earlier_variable = tempfile.tempdir, os.environ.get("TMPDIR")
    _folders.add(folder)
    tempfile.tempdir = os.environ["TMPDIR"] = folder
    try:
        yield
    finally:
        tempfile.tempdir = earlier
        if earlier_variable is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = earlier_variable


def _remove_leftovers() -> None:
    # Only a command that came as far as Beam can have written anything.
    if "apache_beam" in sys.modules:
        from ..transforms.files import remove_leftovers

        with contextlib.suppress(OSError):
            remove_leftovers()


def descendants() -> set[int]:
    """The ids of this process's children, and theirs."""
    parents = _parents()
    found: set[int] = set()
    wanted = {os.getpid()}
    while wanted:
        wanted = {child for child, parent in parents.items() if parent in wanted} - found
        found |= wanted
    return found


def _parents() -> dict[int, int]:
    """Each process's parent, as far as they can be seen."""
    table: dict[int, int] = {}
    if os.path.isdir("/proc/self"):
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # pid (name that may hold anything) state parent ...
                table[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
        return table
    with contextlib.suppress(OSError):
        shown = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False
        )
        for line in shown.stdout.splitlines():
            child, parent = line.split()
            table[int(child)] = int(parent)
    return table


def end(processes: set[int]) -> None:
    """Ends processes: asks, waits a second, insists."""
    for number, wait in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 0.0)):
        for process in processes:
            with contextlib.suppress(OSError):
                os.kill(process, number)
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline and any(map(_lives, processes)):
            time.sleep(0.02)


def _lives(process: int) -> bool:
    with contextlib.suppress(OSError):
        finished, _ = os.waitpid(process, os.WNOHANG)
        return finished == 0
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True
