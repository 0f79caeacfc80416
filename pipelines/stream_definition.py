"""What a stream's folder holds: one definition for all its runs.

A restart publishes into the folder of the run before, and the greatest name wins there. Runs
with another domain, epsilon or windows would mix their tables, so they are refused.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from apache_beam.io.filesystems import FileSystems

from ..mechanisms.errors import InputError, ParameterError
from ..mechanisms.oracle import FrequencyOracle
from ..transforms import files
from ..transforms.write import write_json
from ..transforms.write_panes import stream_folder

_NAME = "definition.json"
#: Flags that decide what a pane of the folder means.
_FLAGS = ("window", "period", "time_zone", "memo", "min_reports", "output_format", "post")


def claim_folder(args: argparse.Namespace, oracle: FrequencyOracle, keyed: bool) -> None:
    """Notes the stream's definition in its folder, or compares it with the one that is there.

    Args:
      args: the flags of ``hadabeam stream``.
      oracle: what they describe.
      keyed: whether there is a table for each key.

    Raises:
      ParameterError: if the folder belongs to a stream of another definition.
      InputError: if the folder cannot be read or written.
    """
    ours: dict[str, Any] = {name: getattr(args, name) for name in _FLAGS}
    ours |= {"collection": oracle.collection_id, "per_key": keyed}
    path = FileSystems.join(stream_folder(args.output), _NAME)
    with files.explained(path):
        known = FileSystems.exists(path)
        content = FileSystems.open(path).read() if known else b""
    if not known:
        write_json(ours, path)
        return
    try:
        theirs = json.loads(content)
    except ValueError:
        raise InputError(f"{path} is damaged; give another --output") from None
    differing = [name for name, value in ours.items() if theirs.get(name) != value]
    if differing:
        raise ParameterError(
            f"{args.output} holds a stream with another {', '.join(differing)}; give another "
            "--output, so that tables of two streams do not mix"
        )
