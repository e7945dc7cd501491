"""Named relations: the streams and tables that queries read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Relation:
    """A stream or a table under its name."""

    df: DataFrame
    time: str | None = None
    """Its event-time column; None for a table, whose rows were always there."""
    lateness: str | None = None
    """Most lateness of its rows, such as ``1 minute``."""

    @property
    def rows(self) -> DataFrame:
        """The rows, with a watermark if they may be late."""
        if self.lateness is None or self.time is None:
            return self.df
        return self.df.withWatermark(self.time, self.lateness)
