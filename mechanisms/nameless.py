"""A domain of which only the size matters, for plans and simulations."""

from __future__ import annotations

from .domain import MAX_SIZE, Domain
from .errors import ParameterError


class NamelessDomain(Domain):
    """k values without names: no list of texts, however large k is.

    Its estimates cannot be written as tables, and nothing can be looked up in it.

    Args:
      size: k, from 2 to 2**30.

    Raises:
      ParameterError: if the size is out of range.
    """

    def __init__(self, size: int) -> None:
        if not 2 <= size <= MAX_SIZE:
            raise ParameterError(f"a domain has 2 to 2**30 values, not {size}")
        self.values = ()
        self.other_index = None
        self._size = size

    @property
    def size(self) -> int:
        """k."""
        return self._size

    @property
    def fingerprint(self) -> str:
        """A text that no named domain has as fingerprint."""
        return f"nameless {self._size}"

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamelessDomain) and other.size == self.size

    def __hash__(self) -> int:
        return hash(("NamelessDomain", self._size))
