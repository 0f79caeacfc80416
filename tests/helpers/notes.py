"""What elements of a pipeline left in files, one pickle behind the other."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any


def noted(path: Path) -> list[Any]:
    """What was written to a file, in that order; nothing if there is none."""
    found = []
    if path.exists():
        with path.open("rb") as file:
            while file.tell() < os.fstat(file.fileno()).st_size:
                found.append(pickle.load(file))
    return found
