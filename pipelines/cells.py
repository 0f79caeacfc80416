"""Text that fits into a column of a terminal, whatever it holds.

Values come from logs: they may hold control characters that would recolour or clear the
screen, wide and combining letters that shift columns, and right-to-left scripts that
reorder a line.
"""

from __future__ import annotations

import unicodedata

_JOINERS = "\u200c\u200d"
_ISOLATE, _END_ISOLATE = "\u2068", "\u2069"
#: Marks that may stand on one letter; more is a tower over the lines above.
_MARKS = 3


def safe(text: str, encoding: str = "utf-8") -> str:
    """The text with all that is no visible letter written as an escape.

    Empty text, and text with spaces at an end, comes in quotes, so that they can be seen.
    """
    pieces = []
    marks = 0
    for letter in text:
        category = unicodedata.category(letter)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        shown = letter
        if (category[0] == "C" and letter not in _JOINERS) or category in ("Zl", "Zp"):
            shown = letter.encode("unicode_escape").decode("ascii")
        elif category == "Zs":
            shown = " "
        elif marks > _MARKS:
            shown = ""
        pieces.append(shown)
    found = "".join(pieces).encode(encoding, "backslashreplace").decode(encoding)
    return found if found and found == found.strip() else f'"{found}"'


def width(text: str) -> int:
    """Columns that a terminal needs for a text that is :func:`safe`."""
    columns = 0
    for letter in text:
        if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
            continue
        columns += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
    return columns


def cut(text: str, columns: int, ellipsis: str = "…") -> str:
    """The text, shortened at its end to at most so many columns."""
    if width(text) <= columns:
        return text
    found = ""
    for letter in text:
        if width(found + letter + ellipsis) > columns:
            break
        found += letter
    return found + ellipsis


def cell(text: str, columns: int, encoding: str = "utf-8") -> str:
    """A text of logs as a left-aligned cell of exactly so many columns."""
    shown = cut(safe(text, encoding), columns, "…" if can_show("…", encoding) else "...")
    padding = " " * (columns - width(shown))
    if any(unicodedata.bidirectional(letter) in ("R", "AL", "AN") for letter in shown):
        # Keeps the numbers that follow on their side of the line.
        shown = f"{_ISOLATE}{shown}{_END_ISOLATE}" if can_show(_ISOLATE, encoding) else shown
    return shown + padding


def can_show(text: str, encoding: str) -> bool:
    """Whether an encoding has the letters."""
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
