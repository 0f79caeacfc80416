"""The oracles by name, as ``--oracle`` takes them."""

from __future__ import annotations

import difflib
from typing import Any

from .domain import Domain
from .errors import ParameterError
from .hadamard_response import HadamardResponse
from .one_bit import OneBitHadamard
from .oracle import FrequencyOracle
from .public_coin import PublicCoinHadamardResponse, PublicCoinRandomizedResponse
from .randomized_response import RandomizedResponse
from .rappor import Rappor
from .subset_selection import SubsetSelection

#: Name to class. Each class takes ``(domain, epsilon, *, collection, version)``.
ORACLES: dict[str, type[FrequencyOracle]] = {
    oracle.name: oracle
    for oracle in (
        OneBitHadamard,
        HadamardResponse,
        RandomizedResponse,
        Rappor,
        SubsetSelection,
        PublicCoinHadamardResponse,
        PublicCoinRandomizedResponse,
    )
}


def make_oracle(name: str, domain: Domain, epsilon: float, **kwargs: Any) -> FrequencyOracle:
    """Makes the oracle of a name.

    Args:
      name: a key of :data:`ORACLES`.
      domain: the k values (public).
      epsilon: the privacy parameter (public).
      **kwargs: further arguments of the oracle, such as ``collection`` and ``version``.

    Raises:
      ParameterError: if there is no oracle of that name, or a parameter is wrong.
    """
    if not isinstance(name, str) or name not in ORACLES:
        near = difflib.get_close_matches(str(name), ORACLES, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ParameterError(f"there is no oracle {name!r}, only {', '.join(ORACLES)}{hint}")
    return ORACLES[name](domain, epsilon, **kwargs)
