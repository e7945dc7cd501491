"""Sources that eddyline reads without a connector of the JVM: Kafka, Delta and Iceberg.

In: options, offsets and splits. Out: offsets, splits and Arrow batches. A source is one class in
one file and one line of ``SOURCES``. It imports its package when it is used. Read ``source`` first.
``spark.sources`` makes a data source of Spark's of each. Workers import the room, so it has no
pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddyline.registry import look_up
from eddyline.sources.delta import Delta
from eddyline.sources.iceberg import Iceberg
from eddyline.sources.kafka import Kafka
from eddyline.sources.source import Source

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCES: dict[str, type[Source]] = {"delta": Delta, "iceberg": Iceberg, "kafka": Kafka}
"""Sources by name."""

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
    source = look_up("source", SOURCES, kind, group=GROUP)(options)
    source.function = function
    return source


__all__ = ["SOURCES", "Source", "source_of"]
