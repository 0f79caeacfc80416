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
from .two_stage import TwoStageOneBit

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


def make_oracle(
    name: str,
    domain: Domain,
    epsilon: float,
    *,
    instant_epsilon: float | None = None,
    **kwargs: Any,
) -> FrequencyOracle:
    """Makes the oracle of a name.

    Args:
      name: a key of :data:`ORACLES`.
      domain: the k values (public).
      epsilon: the privacy parameter (public).
      instant_epsilon: of a single report, where the memoised bit is flipped again in each
        epoch (:class:`TwoStageOneBit`); only ``one_bit_hadamard`` has it.
      **kwargs: further arguments of the oracle, such as ``collection`` and ``version``.

    Raises:
      ParameterError: if there is no oracle of that name, or a parameter is wrong.
    """
    if not isinstance(name, str) or name not in ORACLES:
        near = difflib.get_close_matches(str(name), ORACLES, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ParameterError(f"there is no oracle {name!r}, only {', '.join(ORACLES)}{hint}")
    if instant_epsilon is not None:
        if ORACLES[name] is not OneBitHadamard:
            raise ParameterError(
                f"instant_epsilon is for {OneBitHadamard.name} only; {name} has one stage"
            )
        return TwoStageOneBit(domain, epsilon, instant_epsilon, **kwargs)
    return ORACLES[name](domain, epsilon, **kwargs)
