"""``hadabeam COMMAND``: finds the command's module and hands its arguments on.

Modules are imported when they are asked for: ``--help`` and ``keygen`` load no Beam.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

from .. import __version__
from .flags import DONE, USAGE, nearest

#: Command to what it does, in the order of ``--help``.
COMMANDS = {
    "batch": "logs to frequency estimates, one private bit per user",
    "stream": "the same from a live source, window by window",
    "privatize": "logs to reports, to be counted elsewhere or later",
    "estimate": "reports to frequency estimates",
    "plan": "how large an error to expect, before anything is collected",
    "simulate": "the schemes compared on made-up data",
    "keygen": "a key file, so that the same records give the same reports",
}


def commands() -> dict[str, str]:
    """The commands of :data:`COMMANDS` that this installation has."""
    return {
        name: what
        for name, what in COMMANDS.items()
        if importlib.util.find_spec(f"{__package__}.{name}") is not None
    }


def _help() -> str:
    known = commands()
    width = max(map(len, known), default=0)
    lines = [f"  {name:<{width}}  {what}" for name, what in known.items()]
    return "\n".join(
        [
            "usage: hadabeam COMMAND [flags]",
            "",
            "Counts what people do without learning what any one person did.",
            "",
            "commands:",
            *lines,
            "",
            "hadabeam COMMAND --help teaches a command by example.",
            "hadabeam --version prints the version.",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Runs ``hadabeam``; returns the exit code: 0 done, 1 the run failed, 2 usage."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments:
        print(_help(), file=sys.stderr)
        return USAGE
    name, *rest = arguments
    if name in ("-h", "--help", "help"):
        if rest and rest[0] in commands():
            return _run(rest[0], ["--help"])
        print(_help())
        return DONE
    if name == "--version":
        print(f"hadabeam {__version__}")
        return DONE
    known = commands()
    if name not in known:
        meant = nearest(name, known)
        hint = f"did you mean {meant}?" if meant else f"there are {', '.join(known)}"
        kind = "the command comes before the flags" if name.startswith("-") else hint
        print(f"hadabeam: error: unknown command {name!r}; {kind}", file=sys.stderr)
        print("See hadabeam --help", file=sys.stderr)
        return USAGE
    return _run(name, rest)


def _run(name: str, arguments: list[str]) -> int:
    try:
        module = importlib.import_module(f"{__package__}.{name}")
        code: int = module.main(arguments)
    except KeyboardInterrupt:
        # Before the command's own guard is up, while modules are still being imported.
        print(f"hadabeam {name}: interrupted", file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    raise SystemExit(main())
