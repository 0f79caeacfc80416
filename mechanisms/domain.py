"""The values that can be reported: a fixed, public, ordered list of texts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import repeat

import numpy as np

from .errors import InputError, ParameterError

MAX_SIZE = 2**30


class Domain:
    """The k values of a collection, in the order of the table's rows (all public).

    Args:
      values: different, non-empty texts; at least two with ``other``.
      other: the value that stands for everything else. It is appended as the last one
        unless it is among the values already.

    Raises:
      ParameterError: if there are fewer than two values, more than 2**30, or values
        that are no text, empty, or repeated.
    """

    values: tuple[str, ...]
    other_index: int | None

    def __init__(self, values: Sequence[str], *, other: str | None = None) -> None:
        if isinstance(values, (str, bytes)):
            raise ParameterError("a domain is a list of values, not one text")
        if len(values) > MAX_SIZE:
            raise ParameterError(f"a domain has at most 2**30 values, not {len(values)}")
        self.values = tuple(values)
        for position, value in enumerate(self.values):
            if not isinstance(value, str):
                raise ParameterError(
                    f"value {position} of the domain is {type(value).__name__}; "
                    "values are text, so write numbers as '7'"
                )
        self.other_index = None
        if other is not None:
            if not isinstance(other, str):
                raise ParameterError(f"other must be a text, not {type(other).__name__}")
            try:
                self.other_index = self.values.index(other)
            except ValueError:
                self.other_index = len(self.values)
                self.values = (*self.values, other)
        if len(self.values) < 2:
            raise ParameterError(
                f"a domain needs at least two values, not {len(self.values)}; add the missing ones"
            )
        if "" in self.values:
            raise ParameterError(f"value {self.values.index('')} of the domain is empty")
        if len(set(self.values)) < len(self.values):
            first, second = _first_repeat(self.values)
            raise ParameterError(
                f"values {first} and {second} of the domain are both {self.values[first]!r}; "
                "remove one"
            )
        if len(self.values) > MAX_SIZE:
            raise ParameterError("a domain has at most 2**30 values, with the one for the others")
        try:
            "".join(self.values).encode()
        except UnicodeEncodeError:
            raise ParameterError(
                "a value of the domain has a lone surrogate, which UTF-8 cannot hold"
            ) from None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, other: str | None = None) -> Domain:
        """Reads a domain from a local text file in UTF-8, one value a line.

        See :meth:`from_bytes` for the format.

        Raises:
          InputError: if the file cannot be read or holds no domain; the message says
            which line.
        """
        name = os.fspath(path)
        try:
            with open(name, "rb") as file:
                data = file.read()
        except OSError as error:
            raise InputError(f"cannot read the domain file {name}: {error.strerror}") from None
        return cls.from_bytes(data, name, other=other)

    @classmethod
    def from_bytes(cls, data: bytes, name: str, *, other: str | None = None) -> Domain:
        """Reads a domain from the bytes of a text file in UTF-8, one value a line.

        Lines end with LF or CRLF; a byte order mark is skipped, and so are lines that
        are empty or all whitespace. Other whitespace around a value belongs to it.

        Args:
          data: the file's bytes.
          name: what messages call it.
          other: as for :class:`Domain`.

        Raises:
          InputError: if the text is not UTF-8, or has fewer than two values or one
            twice; the message says which line.
        """
        if not data:
            raise InputError(f"the domain file {name} is empty; write one value a line into it")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise InputError(
                f"line {line} of the domain file {name} is not UTF-8; save the file as UTF-8"
            ) from None
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        values = [line for line in lines if line and not line.isspace()]
        if len(set(values)) < len(values):
            first, second = _first_repeat(lines, skip_blank=True)
            raise InputError(
                f"lines {first + 1} and {second + 1} of the domain file {name} are both "
                f"{lines[first]!r}; remove one"
            )
        try:
            return cls(values, other=other)
        except ParameterError as error:
            raise InputError(f"the domain file {name}: {error}") from None

    @property
    def size(self) -> int:
        """k, the number of values."""
        return len(self.values)

    @cached_property
    def fingerprint(self) -> str:
        """64 hex digits: SHA-256 of the number, the lengths and the UTF-8 text of the values."""
        encoded = [value.encode() for value in self.values]
        digest = hashlib.sha256(b"hadabeam domain\0")
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(np.fromiter(map(len, encoded), "<i8", len(encoded)).tobytes())
        digest.update(b"".join(encoded))
        return digest.hexdigest()

    @cached_property
    def _positions(self) -> dict[str | None, int]:
        return dict(zip(self.values, range(len(self.values)), strict=True))

    def index(self, values: Sequence[str | None]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """int64[n]: the index of each value, -1 for None and for what is not in the domain."""
        return np.fromiter(map(self._positions.get, values, repeat(-1)), np.int64, len(values))

    def with_other(self, name: str = "other") -> Domain:
        """This domain with a value for everything else: last, or its own value of that name.

        Raises:
          ParameterError: if the domain has such a value already, under another name.
        """
        if self.other_index is not None:
            if self.values[self.other_index] == name:
                return self
            raise ParameterError(
                f"the domain has {self.values[self.other_index]!r} for everything else already"
            )
        return Domain(self.values, other=name)

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Domain):
            return NotImplemented
        return self.values == other.values and self.other_index == other.other_index

    def __hash__(self) -> int:
        return hash((self.values, self.other_index))

    def __repr__(self) -> str:
        shown = ", ".join(repr(value) for value in self.values[:3])
        return f"Domain([{shown}{', ...' if self.size > 3 else ''}], size={self.size})"

    def __getstate__(self) -> tuple[tuple[str, ...], int | None]:
        return self.values, self.other_index

    def __setstate__(self, state: tuple[tuple[str, ...], int | None]) -> None:
        self.values, self.other_index = state


def _first_repeat(values: Iterable[str], skip_blank: bool = False) -> tuple[int, int]:
    """The positions of the first value that comes a second time."""
    seen: dict[str, int] = {}
    for position, value in enumerate(values):
        if skip_blank and (not value or value.isspace()):
            continue
        if value in seen:
            return seen[value], position
        seen[value] = position
    raise AssertionError("no value is repeated")
