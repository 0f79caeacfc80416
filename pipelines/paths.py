"""Paths that mean the same on workers elsewhere."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence

from ..mechanisms.keys import KeyFile
from . import runner

#: Runners whose workers run in this process, or in its folder, or on machines without our files.
_UNCHANGED = {"prismrunner", "dataflowrunner"}
#: A filesystem (gs://...), a broker (kafka:...), or a misspelt one.
_NAMED = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*:")


def settle(args: argparse.Namespace, beam_args: Sequence[str]) -> None:
    """Makes relative paths absolute where workers run in folders of their own.

    A worker would look for ``logs/*.jsonl`` in its own folder, and leave the output there, where
    nobody looks for it. Changes ``input``, ``output`` and the key files of ``args``.

    Args:
      args: what the parser gave; ``output`` is one place.
      beam_args: Beam's flags.
    """
    if not beam_args or runner.is_local(beam_args):
        return
    if runner.runner_name(beam_args).lower() in _UNCHANGED:
        return
    args.input = [_absolute(path) for path in args.input]
    args.output = _absolute(args.output)
    for name in ("assignment_key", "coin_key"):
        key = getattr(args, name, None)
        if isinstance(key, KeyFile):
            setattr(args, name, KeyFile(_absolute(key.path)))


def _absolute(path: str) -> str:
    return path if _NAMED.match(path) else os.path.abspath(path)
