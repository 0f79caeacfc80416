"""Types of the elements that transforms give out."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type


def typed(pcoll: beam.PCollection, kind: Any) -> beam.PCollection:
    """Declares the type of a collection's elements.

    For the outputs of a ``DoFn`` with several. Declared on the ``DoFn``, the type of the main
    output is taken for that of all when Beam checks types at run time.

    Args:
      pcoll: one of the outputs; is changed.
      kind: the type, as it is written in annotations.

    Returns:
      The collection.
    """
    pcoll.element_type = convert_to_beam_type(kind)
    return pcoll
