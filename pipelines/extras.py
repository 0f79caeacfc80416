"""What has to be installed for a path, and what to say where it is not.

The libraries of cloud services are large and come with extras of the package. They are
imported only where they are used; that they are missing is said before anything runs.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable

from ..mechanisms.errors import ParameterError

#: The beginning of a path to the module that it needs, and the extra that brings it.
_NEEDS = {
    "gs://": ("google.cloud.storage", "gcp"),
    "s3://": ("boto3", "aws"),
    "hdfs://": ("hdfs", "hdfs"),
    "azfs://": ("azure.storage.blob", "azure"),
}


def has(module: str) -> bool:
    """Whether a module can be imported; does not import it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        # The package that it would be in is missing.
        return False


def need(what: str, module: str, extra: str) -> None:
    """Checks that an extra is installed.

    Args:
      what: what needs it, as the message begins: ``"paths that begin with gs://"``.
      module: a module that it brings.
      extra: its name.

    Raises:
      ParameterError: if not; says what to run.
    """
    if not has(module):
        raise ParameterError(f"{what} need an extra: run pip install 'hadabeam[{extra}]'")


def check_paths(words: Iterable[str]) -> None:
    """Checks that the filesystems of paths among a command's words are installed.

    Raises:
      ParameterError: if one is not; says what to run.
    """
    for word in words:
        for beginning, (module, extra) in _NEEDS.items():
            # As a word of its own, as --flag=gs://..., or as [--flag=]ID=gs://...
            if re.match(f"(?:-[^=]*=)?(?:[0-9]+=)?{beginning}", word):
                need(f"paths that begin with {beginning}", module, extra)
