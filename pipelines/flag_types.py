"""Types of flags: each turns a flag's text into its value, or says what to write instead.

All raise ``ArgumentTypeError``, whose sentence ``argparse`` shows after the flag's name.
"""

from __future__ import annotations

import argparse
import os
import re
from fractions import Fraction
from typing import TYPE_CHECKING

from ..mechanisms.errors import ParameterError

if TYPE_CHECKING:
    from ..mechanisms.keys import KeyFile
    from .cloud_keys import CloudKey

_MICROSECONDS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_UNIT_NAMES = {
    "microsecond": "us",
    "millisecond": "ms",
    "sec": "s",
    "second": "s",
    "min": "m",
    "minute": "m",
    "hour": "h",
    "day": "d",
    "week": "w",
}
_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)?\s*([a-z]+)\s*", re.ASCII)
#: Beam's times are int64 microseconds; a century is far from their end.
_LONGEST = 100 * 366 * _MICROSECONDS["d"]


def epsilon(text: str) -> float:
    """A privacy parameter: a number in [2**-20, 50]."""
    from ..mechanisms.oracle import check_epsilon

    try:
        return check_epsilon(float(text))
    except ValueError as error:
        message = str(error) if _is_number(text) else f"{text!r} is no number such as 1.0"
        raise argparse.ArgumentTypeError(message) from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def duration(text: str) -> int:
    """A length of time in microseconds: ``7d``, ``1h``, ``90m``, ``1h30m``, ``day``, ``week``."""
    wanted = "write a length of time as 30s, 90m, 1h, 7d, day or week"
    rest = text.strip().lower()
    total = Fraction(0)
    position = 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None:
            raise argparse.ArgumentTypeError(f"{text!r} is no length of time; {wanted}")
        number, unit = part.groups()
        unit = _UNIT_NAMES.get(unit.removesuffix("s") if len(unit) > 2 else unit, unit)
        if unit not in _MICROSECONDS:
            raise argparse.ArgumentTypeError(f"{text!r} has no unit that is known; {wanted}")
        if number is None and part.span() != (0, len(rest)):
            raise argparse.ArgumentTypeError(f"{text!r} has a unit without a number; {wanted}")
        total += Fraction(number or 1) * _MICROSECONDS[unit]
        position = part.end()
    if total.denominator != 1 or not 0 < total <= _LONGEST:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not between a microsecond and a century; {wanted}"
        )
    return int(total)


def duration_or_zero(text: str) -> int:
    """As :func:`duration`, and 0 for ``0`` or ``0s``."""
    return 0 if text.strip() in ("0", "0s") else duration(text)


def duration_or_none(text: str) -> int | None:
    """As :func:`duration`, and None for ``none``."""
    return None if text.strip().lower() == "none" else duration(text)


def format_duration(microseconds: int) -> str:
    """The shortest text that :func:`duration` reads as ``microseconds``."""
    for unit in ("w", "d", "h", "m", "s", "ms", "us"):
        if microseconds % _MICROSECONDS[unit] == 0:
            return f"{microseconds // _MICROSECONDS[unit]}{unit}"
    raise AssertionError("every whole number is a number of microseconds")


def positive_int(text: str) -> int:
    """A whole number from 1 up; ``_`` may group its digits."""
    return _whole(text, least=1)


def non_negative_int(text: str) -> int:
    """A whole number from 0 up; ``_`` may group its digits."""
    return _whole(text, least=0)


def _whole(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} up")
    return number


def key_file(text: str) -> KeyFile | CloudKey:
    """A reference to a key: a file, or ``gcpsecret:`` and the name of a secret's version.

    It is read where it is used: on the workers.
    """
    from ..mechanisms.keys import KeyFile
    from .cloud_keys import BEGINNING, CloudKey

    if not text:
        raise argparse.ArgumentTypeError("name a file made by: hadabeam keygen FILE")
    if not text.startswith(BEGINNING):
        return KeyFile(text)
    try:
        return CloudKey(text.removeprefix(BEGINNING))
    except ParameterError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def option(text: str) -> tuple[str, str]:
    """An option of another program, ``NAME=VALUE``, as ``(name, value)``."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError("an option is written NAME=VALUE")
    return name, value


def message_schema(text: str) -> tuple[int | None, str]:
    """A schema's file, ``FILE`` or ``ID=FILE``, as ``(id, file)``."""
    match = re.fullmatch(r"(?:([0-9]{1,10})=)?(.+)", text, re.ASCII | re.DOTALL)
    if match is None:
        raise argparse.ArgumentTypeError("name a file with an Avro schema, e.g. visit.avsc")
    return None if match[1] is None else int(match[1]), match[2]


def files(text: str) -> str:
    """A path or pattern of files; brokers are for streams."""
    if text.startswith(("kafka:", "pubsub:")):
        raise argparse.ArgumentTypeError(
            f"{text} has no end, and this command reads all of its input first; "
            "read it with hadabeam stream, or give files"
        )
    return text


def folder(text: str) -> str:
    """A folder that output goes to, e.g. ``out/pages``. It may exist."""
    name = text.rstrip("/" + os.sep)
    if not name:
        raise argparse.ArgumentTypeError("name a folder, e.g. out/pages")
    if os.path.exists(name) and not os.path.isdir(name):
        raise argparse.ArgumentTypeError(f"{text!r} is a file; name a folder for the windows")
    return name


def prefix(text: str) -> str:
    """What the names of output files begin with, e.g. ``out/pages``."""
    if not text or text.endswith(("/", os.sep)):
        raise argparse.ArgumentTypeError(
            f"{text!r} names a folder; add what file names begin with, e.g. {text or 'out/'}pages"
        )
    if os.path.isdir(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is a folder; add what file names begin with, e.g. {text}/pages"
        )
    return text
