"""Named relations: the streams and tables that queries read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eddyline.errors import QueryError

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


def checked_frame(what: str, given: Any) -> DataFrame:
    """Return a value that is a DataFrame, of a batch or streaming.

    Raises:
        QueryError: it is something else.
    """
    if not hasattr(given, "isStreaming"):
        msg = f"{what} must be a DataFrame, got {given!r:.60}"
        raise QueryError(msg, got=type(given).__name__)
    frame: DataFrame = given
    return frame
