"""Flags: our own parser for our own flags, Beam's for Beam's, and nothing unread.

A misspelt flag must not be ignored: a job that runs with a default in place of what was
asked for spends its users' privacy budget on the wrong numbers. So every flag has to be
one of the command's or one that Beam knows; what stands after ``--`` is passed on
unchecked, for flags that only a job server knows.

Beam's ``PipelineOptions`` subclasses share one parser in the process, and two that
declare the same name clash. hadabeam therefore declares none: it only looks at those
that exist.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from . import logs

#: Exit codes of every command.
DONE, FAILED, USAGE = 0, 1, 2

_BEAM_FLAGS_NOTE = """\
Flags of Apache Beam (--runner, --project, --direct_num_workers, ...) are passed on to it.
What follows a bare -- is passed on unchecked."""


class CommandParser(argparse.ArgumentParser):
    """An ``ArgumentParser`` without abbreviations, whose errors are two lines and exit 2.

    Args:
      name: the command, as ``batch``; "" for the command ``hadabeam`` itself.
      description: what the command does, shown first by ``--help``.
      examples: command lines with a sentence each, shown last by ``--help``.
      takes_beam_flags: whether the command runs a pipeline, and ``--help`` says so.
    """

    def __init__(
        self, name: str, description: str, examples: str = "", *, takes_beam_flags: bool = True
    ) -> None:
        parts = [f"examples:\n{examples.strip(chr(10))}"] if examples else []
        if takes_beam_flags:
            parts.append(_BEAM_FLAGS_NOTE)
        super().__init__(
            prog=f"hadabeam {name}".strip(),
            description=description,
            epilog="\n\n".join(parts),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def format_help(self) -> str:
        """The help, with the flags that are needed in its first lines and choices in words."""
        for action in self._actions:
            if action.choices is not None and action.metavar is None:
                names = [str(choice) for choice in action.choices]
                if len(" | ".join(names)) > 24:
                    action.metavar = "NAME"
                    choices = f"{', '.join(names[:-1])} or {names[-1]}"
                    action.help = f"{choices}; {action.help}" if action.help else choices
                else:
                    action.metavar = "|".join(names)
        self.usage = self._short_usage()
        return super().format_help()

    def _short_usage(self) -> str:
        parts = [self.prog]
        for action in self._actions:
            if action.required and action.option_strings:
                parts.append(f"{action.option_strings[0]} {_metavar(action)}")
            elif action.required:
                parts.append(_metavar(action))
        parts.append("[flags]")
        lines = [""]
        for part in parts:
            if lines[-1] and len(lines[-1]) + len(part) > 70:
                lines.append("         ")
            lines[-1] += f" {part}" if lines[-1].strip() else part
        return "\n".join(lines).replace("%", "%%")

    def error(self, message: str) -> NoReturn:
        """Says what is wrong and where help is, and exits with :data:`USAGE`."""
        self.exit(USAGE, f"{self.prog}: error: {message}\nSee {self.prog} --help\n")


def parse(
    argv: Sequence[str], parser: argparse.ArgumentParser
) -> tuple[argparse.Namespace, list[str]]:
    """Parses a command's own flags, and checks and hands back those of Beam.

    Flags are written ``--flag value`` or ``--flag=value``.

    Args:
      argv: the arguments after the command's name.
      parser: knows the command's own flags.

    Returns:
      ``(args, beam_args)``, the latter for ``PipelineOptions(beam_args)``.

    Raises:
      SystemExit: with code 2 and a message on standard error, if a flag is unknown, is
        given twice, lacks its value or has a bad one; with code 0 after ``--help``.
    """
    checked, unchecked = _split_at_double_dash(argv)
    ours = _options(parser)
    if any(token in ("-h", "--help") for token in checked):
        parser.parse_args(["--help"])
    own: list[str] = []
    beams: list[str] = []
    theirs: dict[str, argparse.Action] = {}
    seen: set[str] = set()
    position = 0
    while position < len(checked):
        token = checked[position]
        position += 1
        name, equals, _ = token.partition("=")
        if not _is_flag(token):
            parser.error(
                f"unexpected argument {token!r}; flags are written --flag value, and a pattern of "
                "files is quoted, or the shell writes their names in its place"
            )
        if name not in ours and not theirs:
            # Beam is imported only for a flag that may be its own.
            theirs = _options(_beam_parser(parser))
        action = ours.get(name) or theirs.get(name)
        if action is None:
            parser.error(_unknown_flag(name, ours, theirs))
        if name in seen and not _may_repeat(action):
            parser.error(f"{name} is given twice")
        seen.add(name)
        values = [] if equals else _values(action, checked[position:])
        position += len(values)
        (own if name in ours else beams).extend([token, *values])
        if not equals and not values and _needs_value(action):
            parser.error(f"{name} needs a value: {name} {_metavar(action)}")
    if beams:
        _beam_parser(parser).parse_args(beams)
    return parser.parse_args(own), beams + unchecked


def _split_at_double_dash(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    tokens = list(argv)
    if "--" not in tokens:
        return tokens, []
    place = tokens.index("--")
    return tokens[:place], tokens[place + 1 :]


def _options(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {name: action for action in parser._actions for name in action.option_strings}


def _is_flag(token: str) -> bool:
    """Whether a token is a flag. ``-1`` and ``-`` are values."""
    return len(token) > 1 and token[0] == "-" and not (token[1].isdigit() or token[1] == ".")


def _may_repeat(action: argparse.Action) -> bool:
    return not isinstance(action, argparse._StoreAction)


def _needs_value(action: argparse.Action) -> bool:
    return action.nargs not in (0, "?", "*")


def _values(action: argparse.Action, rest: Sequence[str]) -> list[str]:
    """The tokens after a flag that are its values."""
    most = {None: 1, "?": 1, "+": len(rest), "*": len(rest)}
    wanted = action.nargs if isinstance(action.nargs, int) else most[action.nargs]
    taken = []
    for token in rest[:wanted]:
        if _is_flag(token):
            break
        taken.append(token)
    return taken


def _metavar(action: argparse.Action) -> str:
    if action.choices is not None:
        return "|".join(str(choice) for choice in action.choices)
    return str(action.metavar or action.dest.upper())


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The one of ``words`` that was most likely meant by ``word``, or None."""
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return close[0] if close else None


def _unknown_flag(name: str, ours: Iterable[str], theirs: Iterable[str]) -> str:
    ours, theirs = list(ours), list(theirs)
    underscored = "--" + name.lstrip("-").replace("-", "_")
    if underscored in {*ours, *theirs}:
        return f"unknown flag {name}; it is written {underscored}"
    # A flag of the command is the likelier one, so Beam's many come second.
    meant = nearest(underscored, ours) or nearest(underscored, theirs)
    hint = f"did you mean {meant}?" if meant else "flags of a job server go after a bare --"
    return f"unknown flag {name}; {hint}"


def _beam_parser(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """A parser of all flags that Beam knows, whose errors come out as ``parser``'s."""
    if "apache_beam" not in sys.modules:
        logs.set_up(debug="--debug" in sys.argv)
    from apache_beam.options import pipeline_options

    class BeamParser(pipeline_options._BeamArgumentParser):
        def error(self, message: str) -> NoReturn:
            parser.error(message)

    beam_parser: argparse.ArgumentParser = BeamParser(
        allow_abbrev=False,
        add_help=False,
        # Two subclasses of a user's own pipelines may clash, which is not our error.
        conflict_handler="resolve",
    )
    for options in pipeline_options.PipelineOptions.__subclasses__():
        options._add_argparse_args(beam_parser)
    return beam_parser


def checked(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """Makes a flag's type of a function that raises ``ValueError`` with a sentence.

    ``argparse`` would replace the sentence by its own; it keeps that of an
    ``ArgumentTypeError``.
    """

    def convert_or_say_why(text: str) -> Any:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert_or_say_why
