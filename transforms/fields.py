"""Which fields of a log are read, and how a nested field is named."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from ..mechanisms.errors import InputError, ParameterError

#: The names on the way from a record to a field: ``("request", "path")``.
Path = tuple[str, ...]


def parse_path(field: str) -> Path:
    r"""The names that a field such as ``request.path`` consists of.

    A dot descends into an object. ``\.`` is a dot that belongs to a name, and ``\\`` a
    backslash.

    Raises:
      ParameterError: if the field is no text, is empty, or has an empty name in it.
    """
    if not isinstance(field, str) or not field:
        raise ParameterError("a field must be a name such as 'page' or 'request.path'")
    names = [""]
    characters = iter(field)
    for character in characters:
        if character == "\\":
            following = next(characters, None)
            if following not in (".", "\\"):
                raise ParameterError(
                    f"in the field {field!r} a backslash must stand before a dot or a backslash"
                )
            names[-1] += following
        elif character == ".":
            names.append("")
        else:
            names[-1] += character
    if not all(names):
        raise ParameterError(
            f"the field {field!r} has an empty name beside a dot; write \\. for a dot in a name"
        )
    return tuple(names)


def format_path(path: Iterable[str]) -> str:
    """The inverse of :func:`parse_path`."""
    return ".".join(name.replace("\\", "\\\\").replace(".", "\\.") for name in path)


@dataclass(frozen=True)
class RecordFields:
    r"""The fields that make up a record (public).

    Attributes:
      user: the field with the user's id.
      value: the field with the private value.
      time: the field with the event time, or None where times do not matter.
      key: the field to group by (country, metric), or None for one table.

    All are names, or paths such as ``request.path`` into nested objects (JSON, Avro,
    Parquet); ``\.`` is a dot within a name. In CSV and the combined format, a field is
    the name of a column as it stands, or with its dots so escaped.

    Raises:
      ParameterError: if a field is empty or malformed.
    """

    user: str
    value: str
    time: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        for field in (self.user, self.value, self.time, self.key):
            if field is not None:
                parse_path(field)

    @property
    def columns(self) -> tuple[str, ...]:
        """The distinct fields, in the order user, value, time, key."""
        given = (self.user, self.value, self.time, self.key)
        return tuple(dict.fromkeys(field for field in given if field is not None))


def nearest(field: str, names: Iterable[str]) -> str | None:
    """The name that is most like a field, in small letters or capital ones, if any is."""
    folded = {name.casefold(): name for name in names}
    near = difflib.get_close_matches(field.casefold(), folded, n=1, cutoff=0.6)
    return folded[near[0]] if near else None


def missing_field(file: str, field: str, existing: Iterable[str]) -> InputError:
    """The error for a field that no record of a file has.

    Names the file's fields: the caller knows that they are names, and no record's values.
    """
    names = list(existing)
    near = nearest(field, names)
    hint = "." if near is None else f"; did you mean {near!r}?"
    shown = ", ".join(names[:40]) + (", ..." if len(names) > 40 else "")
    return InputError(f"{file} has no field {field!r}{hint} Its fields are: {shown}")
