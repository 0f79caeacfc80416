"""Paths that mean the same on workers elsewhere, or are refused there."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence

from ..mechanisms.errors import ParameterError
from ..mechanisms.keys import KeyFile
from . import runner

#: A filesystem (gs://...), a broker (kafka:...), or a misspelt one.
_NAMED = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*:")


def settle(args: argparse.Namespace, beam_args: Sequence[str]) -> None:
    """Makes relative paths absolute where workers run in folders of their own.

    A worker would look for ``logs/*.jsonl`` in its own folder, and leave the output there, where
    nobody looks for it. Changes ``input``, ``output`` and the key files of ``args``.

    Args:
      args: what the parser gave; ``output`` is one place.
      beam_args: Beam's flags.

    Raises:
      ParameterError: if workers are on machines that have none of this one's files.
    """
    if not beam_args or runner.is_here(beam_args):
        return
    if runner.is_managed(beam_args):
        _check_elsewhere(args)
        return
    args.input = [_absolute(path) for path in args.input]
    args.output = _absolute(args.output)
    for name in ("assignment_key", "coin_key"):
        key = getattr(args, name, None)
        if isinstance(key, KeyFile):
            setattr(args, name, KeyFile(_absolute(key.path)))


def _check_elsewhere(args: argparse.Namespace) -> None:
    """Refuses what only this machine has; a key may be in the image of the workers."""
    for flag, path in [*(("input", path) for path in args.input), ("output", args.output)]:
        if not _NAMED.match(path):
            raise ParameterError(
                f"--{flag} {path} is on this machine, and workers of Dataflow see none of its "
                "files; give a place in a bucket, gs://BUCKET/..."
            )
    for name in ("assignment_key", "coin_key"):
        key = getattr(args, name, None)
        if isinstance(key, KeyFile) and not os.path.isabs(key.path):
            raise ParameterError(
                f"--{name} {key.path} is on this machine, and workers of Dataflow see none of its "
                "files; give gcpsecret:projects/PROJECT/secrets/NAME/versions/N, or the absolute "
                "path of a file that is in their image"
            )


def _absolute(path: str) -> str:
    return path if _NAMED.match(path) else os.path.abspath(path)
