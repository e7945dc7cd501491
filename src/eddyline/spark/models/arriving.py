"""What comes to the buckets of entities: the rows of streams, and segments that are there at once.

Rows of several streams are one DataFrame: ``SIDE`` says which input a row is of, keys and times are
in common columns, the others in columns of their input.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING

from eddyline.models.tasks import SIDE
from eddyline.spark.event_time import micros_of
from eddyline.spark.models.laying import read_columns
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from eddyline.spark.models.laying import Source

TIME, MICROS = "__time", "__micros"
"""The time of a row of any stream, as it is and as its instant (µs)."""


@dataclass(frozen=True)
class Arriving:
    """The inputs of a graph as one DataFrame: the streams, then the others."""

    sources: tuple[Source, ...]
    names: tuple[str, ...]

    @property
    def streams(self) -> DataFrame:
        """The rows of the streams."""
        found = [self._rows(at) for at, each in enumerate(self.sources) if each.maker]
        return _united(found)

    @cached_property
    def static(self) -> DataFrame | None:
        """The segments of the inputs that are no streams; None if there are none."""
        found = [self._segments(at) for at, each in enumerate(self.sources) if not each.maker]
        return _united(found) if found else None

    @property
    def columns(self) -> tuple[dict[str, str], ...]:
        """The columns of each input besides its keys: in common, and by itself."""
        return tuple(map(self._columns, range(len(self.sources))))

    def _columns(self, at: int) -> dict[str, str]:
        source = self.sources[at]
        if source.maker is None:
            names = [each for each in source.shape.layout.columns if each not in source.shape.keys]
            return {f"__{at}_{each}": each for each in names}
        return {TIME: source.maker.time} | {f"__{at}_{each}": each for each in source.maker.columns}

    def _rows(self, at: int) -> DataFrame:
        source = self.sources[at]
        assert source.maker is not None
        micros = micros_of(source.df, source.maker.time, self.names[at])
        rows = read_columns(source.df.withColumn(MICROS, micros), source.maker, MICROS)
        return self._tagged(rows, at, MICROS)

    def _segments(self, at: int) -> DataFrame:
        return self._tagged(self.sources[at].segments, at)

    def _tagged(self, df: DataFrame, at: int, *more: str) -> DataFrame:
        keys = map(quoted, self.sources[at].shape.keys)
        own = (f"{quoted(name)} AS {quoted(common)}" for common, name in self._columns(at).items())
        return df.selectExpr(f"{at} AS {SIDE}", *keys, *own, *more)


def _united(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
