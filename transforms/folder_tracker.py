"""How Beam hands on the reading of a folder from one bundle to the next."""

from __future__ import annotations

from dataclasses import replace

from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker
from apache_beam.transforms.core import RestrictionProvider

from .follow import Progress


class FolderTracker(RestrictionTracker):
    """Claims each piece by the progress that there is once it was read.

    A split leaves nothing more to the bundle at hand, and the rest of the round, and all
    rounds to come, to the next.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._ended = False

    def current_restriction(self) -> Progress:
        return self._progress

    def try_claim(self, position: Progress | None) -> bool:
        """Claims what leads to ``position``; None claims the end of everything."""
        if self._ended:
            return False
        if position is None:
            self._ended = True
        else:
            self._progress = position
        return True

    def try_split(self, fraction_of_remainder: float) -> tuple[Progress, Progress] | None:
        del fraction_of_remainder
        if self._ended or self._progress.reading:
            return None
        self._ended = True
        return replace(self._progress, todo=()), self._progress

    def check_done(self) -> None:
        if not self._ended:
            raise ValueError("the folder source ended without a claim of its end")

    def current_progress(self) -> RestrictionProgress:
        done = 1.0 if self._ended else 0.0
        return RestrictionProgress(completed=done, remaining=1.0 - done)

    def is_bounded(self) -> bool:
        return False


class FolderProvider(RestrictionProvider):
    """One restriction for all that the patterns match: the progress through it."""

    def initial_restriction(self, element: tuple[str, ...]) -> Progress:
        del element
        return Progress()

    def create_tracker(self, restriction: Progress) -> FolderTracker:
        return FolderTracker(restriction)

    def restriction_size(self, element: tuple[str, ...], restriction: Progress) -> float:
        del element
        return 1.0 + len(restriction.todo)

    def truncate(self, element: tuple[str, ...], restriction: Progress) -> None:
        """On a drain nothing more is read."""
