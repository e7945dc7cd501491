"""Sources without a JVM connector: Kafka, Delta and Iceberg.

In: options, offsets and splits. Out: offsets, splits and Arrow batches. A source is one class in
one file and one line of ``SOURCES``. It imports its package when it is used. Read ``source`` first.
``spark.sources`` makes a data source of Spark's of each. Workers import the room, so it has no
pyspark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eddyline.registry import look_up
from eddyline.sources.source import Source

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCES = {
    "delta": "eddyline.sources.delta:Delta",
    "iceberg": "eddyline.sources.iceberg:Iceberg",
    "kafka": "eddyline.sources.kafka:Kafka",
}
"""Sources by name. Spark starts workers for each batch, so they import only the class they need."""

GROUP = "eddyline.sources"
"""Entry points by which other packages offer sources."""


def source_of(kind: str, options: Mapping[str, str], function: Any = None) -> Source:
    """Return a source by its name.

    Args:
        kind: its name.
        options: its options as texts.
        function: of the user, which reads values; None: the options say how.

    Raises:
        OptionError: an unknown source or option, or a value out of range.
    """
    entry: Any = look_up("source", SOURCES, kind, group=GROUP)
    if isinstance(entry, str):
        module, _, name = entry.partition(":")
        entry = getattr(import_module(module), name)
    source: Source = entry(options)
    source.function = function
    return source


__all__ = ["SOURCES", "Source", "source_of"]
