"""The door for elements that are single records: from pairs to record batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.utils.windowed_value import WindowedValue

from ..mechanisms.errors import ParameterError
from .records import record_batch

#: Records in a batch made of single elements.
BATCH_RECORDS = 20_000


@beam.typehints.with_output_types(pa.RecordBatch)
class BatchRecords(beam.DoFn):
    """``(user, value)`` pairs, or ``(key, (user, value))``, to record batches.

    Record batches pass through as they are, so that one transform takes both. Batches
    are made within a bundle and a window, and nothing is held back longer.

    Args:
      keyed: whether elements are ``(key, (user, value))``, as Beam's keyed collections are.
      event_time: whether each record keeps its element's timestamp as ``event_time``. It
        takes part in the choice of the record that is kept.

    Raises:
      ParameterError: if an element has another form. The message does not show it.
    """

    def __init__(self, keyed: bool = False, event_time: bool = False) -> None:
        self._keyed = keyed
        self._event_time = event_time

    def start_bundle(self) -> None:
        self._held: dict[Any, list[tuple[Any, Any, int, Any]]] = {}

    def process(
        self,
        element: Any,
        window: Any = beam.DoFn.WindowParam,
        timestamp: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[pa.RecordBatch]:
        if isinstance(element, pa.RecordBatch):
            if self._keyed and "key" not in element.schema.names:
                raise ParameterError("a per-key estimate needs batches with a column 'key'")
            yield element
            return
        key, user, value = as_record(element, self._keyed)
        rows = self._held.setdefault(window, [])
        rows.append((user, value, int(timestamp.micros), key))
        if len(rows) >= BATCH_RECORDS:
            del self._held[window]
            yield self._batch(rows)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for window, rows in self._held.items():
            yield WindowedValue(self._batch(rows), window.max_timestamp(), [window])
        self._held = {}

    def _batch(self, rows: list[tuple[Any, Any, int, Any]]) -> pa.RecordBatch:
        users, values, times, keys = zip(*rows, strict=True)
        return record_batch(
            users, values, times if self._event_time else None, keys if self._keyed else None
        )


def as_record(element: Any, keyed: bool) -> tuple[Any, Any, Any]:
    """Key (None without keys), user and value of an element.

    Raises:
      ParameterError: if it is no ``(user, value)``, or ``(key, (user, value))``. The message names
        the form, not the element.
    """
    form = "(key, (user, value))" if keyed else "(user, value)"
    key, pair = _pair(element, form) if keyed else (None, element)
    user, value = _pair(pair, form)
    # What has no text is missing, whatever it is: a stream must not fail by its content. But a pair
    # in a pair tells of the wrong transform, and all of a key would be one user.
    if type(value) is tuple and len(value) == 2:
        raise ParameterError(
            f"elements must be {form}, and this one has a pair more; is the collection one with "
            "keys, or without?"
        )
    return key, user, value


def _pair(element: Any, form: str) -> tuple[Any, Any]:
    # A text of two letters would unpack as well.
    if isinstance(element, (tuple, list)) and len(element) == 2:
        return element[0], element[1]
    raise ParameterError(f"elements must be {form} or record batches, not {type(element).__name__}")
