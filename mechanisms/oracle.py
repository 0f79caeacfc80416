"""What every frequency oracle offers, and the identity of a collection.

A *frequency oracle* is a mechanism that turns each user's private value into a
report, and many reports into unbiased frequencies. The state in between is one
array of int64 that is added up, in any order and any grouping.
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .domain import Domain
from .errors import ParameterError

if TYPE_CHECKING:
    from .coins import Coins
    from .estimate import FrequencyEstimate
    from .prf import Prf

Array = np.ndarray[Any, Any]

MIN_EPSILON = 2.0**-20
MAX_EPSILON = 50.0


def check_epsilon(epsilon: object, name: str = "epsilon") -> float:
    """Returns ``epsilon`` as a float, or says what is wrong with it.

    Raises:
      ParameterError: if it is no real number (a bool and a text are none), not
        finite, or outside [2**-20, 50].
    """
    if isinstance(epsilon, (bool, np.bool_)) or not isinstance(epsilon, numbers.Real):
        raise ParameterError(f"{name} must be a number such as 1.0, not {type(epsilon).__name__}")
    value = float(epsilon)
    if not math.isfinite(value) or not MIN_EPSILON <= value <= MAX_EPSILON:
        raise ParameterError(
            f"{name} must lie between {MIN_EPSILON:.3g} and {MAX_EPSILON:g}, not {value}; "
            "usual choices are 0.5 to 4"
        )
    return value


class FrequencyOracle(ABC):
    """A mechanism over a :class:`Domain` with privacy parameter ``epsilon``.

    Subclasses set ``name`` and implement the abstract methods. All arrays have one
    row per user; nothing loops over users in Python.

    Attributes:
      domain: the k values that can be reported (public).
      epsilon: the privacy parameter that was asked for (public).
      collection: the name of the collection, and its version (public). They,
        the domain, the oracle and epsilon make up :attr:`collection_id`.
    """

    name: ClassVar[str]
    #: Whether a second, fresh coin is drawn in each epoch on top of a memoised one.
    two_stages: ClassVar[bool] = False

    def __init__(
        self,
        domain: Domain,
        epsilon: float,
        *,
        collection: str = "default",
        version: int = 1,
    ) -> None:
        if not isinstance(domain, Domain):
            raise ParameterError("domain must be a Domain, e.g. Domain(['home', 'cart'])")
        if not isinstance(collection, str) or not collection:
            raise ParameterError("collection must be a non-empty name")
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise ParameterError("version must be a whole number from 1 up")
        self.domain = domain
        self.epsilon = check_epsilon(epsilon)
        self.collection = collection
        self.version = version

    @property
    def collection_id(self) -> str:
        """32 hex digits that name the collection: what a report must match."""
        definition = {
            "collection": self.collection,
            "version": self.version,
            "domain": self.domain.fingerprint,
            "oracle": self.name,
            "parameters": self.parameters(),
        }
        text = json.dumps(definition, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def parameters(self) -> dict[str, Any]:
        """What, besides domain and name, makes reports of two oracles differ (JSON values)."""
        return {"epsilon": self.epsilon.hex()}

    @property
    @abstractmethod
    def epsilon_effective(self) -> float:
        """The log of the largest odds that are really delivered; at most ``epsilon``."""

    @property
    @abstractmethod
    def bits_per_report(self) -> int:
        """What a user sends, in bits, when the column is known to the receiver."""

    @property
    @abstractmethod
    def state_shape(self) -> tuple[int, ...]:
        """Shape of the additive int64 state."""

    @property
    @abstractmethod
    def columns(self) -> int:
        """Reports carry a ``column`` in ``range(columns)``."""

    @property
    def payload_bytes(self) -> int:
        """Width of the fixed-size byte row a message needs beyond its bit; 0 for one-bit."""
        return 0

    @abstractmethod
    def assign(self, users: Array, key: Prf | None) -> Array:
        """Assigns each user a column.

        Args:
          users: uint8[n, 16], the users' pseudonyms (:meth:`Prf.pseudonyms`).
          key: the assignment key's PRF, or None for fresh columns from the
            operating system.

        Returns:
          int64[n], the columns. Oracles whose users need none return zeros.
        """

    @abstractmethod
    def randomize(self, values: Array, columns: Array, coins: Coins) -> Array:
        """Turns private values into messages.

        Args:
          values: integers[n] in ``range(domain.size)`` (private).
          columns: int64[n] from :meth:`assign`.
          coins: the randomness, one draw per user.

        Returns:
          The messages, one row per user; for one-bit oracles uint8[n] of 0 and 1.

        Raises:
          ParameterError: if a value is outside the domain. It never yields a report.
        """

    @abstractmethod
    def count(self, columns: Array, messages: Array) -> Array:
        """Adds reports up: int64 of :attr:`state_shape`."""

    def zero(self) -> Array:
        """The state of no reports."""
        return np.zeros(self.state_shape, dtype=np.int64)

    @abstractmethod
    def reports(self, counts: Array) -> int:
        """How many reports a state holds."""

    def empty_columns(self, counts: Array) -> int:
        """How many columns nobody reported in; 0 for oracles that need none."""
        del counts
        return 0

    @abstractmethod
    def estimate(self, counts: Array, post: str = "simplex") -> FrequencyEstimate:
        """Turns a state into frequencies.

        Args:
          counts: int64 of :attr:`state_shape`.
          post: the post-processing that ``frequencies`` will apply.

        Raises:
          ParameterError: if the state has the wrong shape or type, is
            inconsistent, or the post-processing is unknown.
        """

    def encode(self, columns: Array, messages: Array) -> tuple[Array, Array, Array | None]:
        """Splits messages into the fields of a report.

        Returns:
          ``(column int32[n], bit uint8[n], payload uint8[n, payload_bytes] or None)``.
        """
        return columns.astype(np.int32), messages.astype(np.uint8), None

    def decode(self, column: Array, bit: Array, payload: Array | None) -> tuple[Array, Array]:
        """The inverse of :meth:`encode`: ``(columns int64[n], messages)``."""
        del payload
        return column.astype(np.int64), bit.astype(np.uint8)

    def valid(self, column: Array, bit: Array, payload: Array | None) -> Array:
        """bool[n]: whether received report fields are ones that this oracle can send."""
        del payload
        return (column >= 0) & (column < self.columns) & (bit <= 1)
