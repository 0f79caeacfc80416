"""One bit without noise: what communication alone costs. It protects nobody."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from .coins import debias_factor
from .domain import Domain
from .errors import ParameterError
from .one_bit import OneBitHadamard
from .oracle import MAX_EPSILON


class UnperturbedOneBit(OneBitHadamard):
    """The one-bit scheme with the true bit: l = 1 in equations 6 and 7. NOT PRIVATE.

    The bits and the columns together tell the values. It serves to see what one bit of
    communication costs where nobody's privacy is at stake: ``(1 - f**2) / n`` or so a
    value, against ``f (1 - f) / n`` if values are sent as they are. It has no name in the
    registry, and no command makes it.

    Args:
      domain: the k values.
      i_accept_no_privacy: must be True, and can be given by this name only.
      collection: the name of the collection.
      version: its version, from 1 up.

    Raises:
      ParameterError: if a parameter is wrong, or ``i_accept_no_privacy`` is not True.
    """

    name: ClassVar[str] = "unperturbed_one_bit"

    def __init__(
        self,
        domain: Domain,
        *,
        i_accept_no_privacy: bool = False,
        collection: str = "default",
        version: int = 1,
    ) -> None:
        if i_accept_no_privacy is not True:
            raise ParameterError(
                "unperturbed_one_bit sends true bits and protects nobody; use one_bit_hadamard, "
                "or pass i_accept_no_privacy=True to compare with it on data that is public"
            )
        super().__init__(domain, MAX_EPSILON, collection=collection, version=version)
        self.epsilon = math.inf
        self.threshold = 0
        self.factor = debias_factor(0)

    def parameters(self) -> dict[str, Any]:
        """See :meth:`FrequencyOracle.parameters`."""
        return {"epsilon": "inf", "columns": "assigned"}

    @property
    def epsilon_effective(self) -> float:
        """Infinite."""
        return math.inf
