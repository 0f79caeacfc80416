"""Arguments of transforms, checked where they are given and not first on a worker."""

from __future__ import annotations

import numbers
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..mechanisms.domain import Domain
from ..mechanisms.errors import ParameterError
from ..mechanisms.oracle import FrequencyOracle

# The modules of keys and windows check their own arguments here, so they are imported later.


def check_oracle(oracle: object) -> None:
    """Raises ParameterError unless a mechanism is one."""
    if not isinstance(oracle, FrequencyOracle):
        raise ParameterError(
            "oracle must be a frequency oracle such as OneBitHadamard(domain, epsilon=1.0), "
            f"not {_kind(oracle)}"
        )


def check_domain(domain: object) -> None:
    """Raises ParameterError unless a domain is one."""
    if not isinstance(domain, Domain):
        raise ParameterError(
            f"domain must be a Domain, e.g. Domain(['home', 'cart']), not {_kind(domain)}"
        )


def check_user_keys(keys: object) -> None:
    """Raises ParameterError unless keys of records are ``UserKeys``."""
    from .randomness import UserKeys

    if not isinstance(keys, UserKeys):
        raise ParameterError(
            "keys must be UserKeys, e.g. UserKeys(KeyFile('assignment.key'), "
            f"KeyFile('coin.key')), not {_kind(keys)}"
        )


def check_report_keys(keys: object) -> None:
    """Raises ParameterError unless keys of reports are ``ReportKeys``."""
    from .randomness import ReportKeys

    if not isinstance(keys, ReportKeys):
        raise ParameterError(
            "keys of reports must be ReportKeys, e.g. ReportKeys(KeyFile('assignment.key')), "
            f"not {_kind(keys)}"
        )


def check_windowing(windowing: object) -> None:
    """Raises ParameterError unless windows are of this package."""
    from .windows import Windowing

    if isinstance(windowing, type) or not isinstance(windowing, Windowing):
        raise ParameterError(
            "windowing must be WindowSpec(size, period) in microseconds, or "
            f"CalendarDays(time_zone), not {_kind(windowing)}"
        )


def is_whole(number: object) -> bool:
    """Whether a number is an integer of Python or NumPy, which ``2.0`` and ``True`` are not."""
    return isinstance(number, numbers.Integral) and not isinstance(number, bool)


def check_whole(name: str, number: Any, least: int, most: int | None = None) -> int:
    """Returns a whole number that lies in a range.

    Raises:
      ParameterError: if it is none or lies outside.
    """
    if is_whole(number):
        whole = int(number)
        if least <= whole and (most is None or whole <= most):
            return whole
    limits = f"from {least} up" if most is None else f"from {least} to {most}"
    raise ParameterError(f"{name} must be a whole number {limits}")


def is_positive(number: Any) -> bool:
    """Whether a number is a real one above 0, which ``True`` is not."""
    is_real = isinstance(number, (int, float, np.integer, np.floating)) and number is not True
    return is_real and bool(number > 0)


def check_fanout(fanout: int | None) -> int | None:
    """Returns a fanout, or None for none.

    Raises:
      ParameterError: if it is neither None nor a whole number from 1 up.
    """
    return None if fanout is None else check_whole("fanout", fanout, 1)


def as_patterns(patterns: Any) -> list[str]:
    """One or several paths or globs as texts.

    Raises:
      ParameterError: if there is none, or one is empty or no path.
    """
    one = isinstance(patterns, (str, bytes, os.PathLike)) or not isinstance(patterns, Iterable)
    found = [
        os.fspath(pattern) if isinstance(pattern, os.PathLike) else pattern
        for pattern in ([patterns] if one else patterns)
    ]
    for pattern in found:
        if not isinstance(pattern, str):
            raise ParameterError(
                f"input paths and patterns must be texts or paths, not {_kind(pattern)}"
            )
    if not found or not all(found):
        raise ParameterError("give at least one input path or pattern, and no empty one")
    return found


def _kind(value: object) -> str:
    # Never the value itself, which may be a key.
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
