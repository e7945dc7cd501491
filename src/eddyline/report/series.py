"""The batches of a run as points of a figure: thinned out where there are too many to draw."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from eddyline.report.formatting import count, finite, per_second, ratio, significant
from eddyline.report.sections import Figure, Line, Section, Tile
from eddyline.runtime.records import n_batches

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eddyline.runtime.operator import Record
    from eddyline.runtime.records import BatchRecord

RecordT = TypeVar("RecordT", bound="Record")

MAX_POINTS = 1000
"""Most points of a line: about one per pixel of a wide screen."""


@dataclass(frozen=True, slots=True)
class Point:
    """One or more consecutive batches that are drawn as one point."""

    batches: tuple[BatchRecord, ...]

    @property
    def batch_id(self) -> int:
        """The last batch of the point: where it is drawn."""
        return self.batches[-1].batch_id

    @property
    def n_batches(self) -> int:
        """How many batches these are; older records stand for several."""
        return n_batches(self.batches)

    @property
    def n_rows(self) -> int:
        """Input rows of its batches."""
        return sum(batch.n_rows for batch in self.batches)

    @property
    def seconds(self) -> float:
        """Time of its batches (s), as far as it is known."""
        return sum(known for batch in self.batches if (known := finite(batch.seconds)) is not None)

    @property
    def rows_per_s(self) -> float | None:
        """Input rows per second over its batches."""
        return per_second(self.n_rows, self.seconds)

    def records(self, kind: type[RecordT]) -> Iterator[RecordT]:
        """Yield what its batches recorded of one kind, the newest first."""
        for batch in reversed(self.batches):
            yield from (each for each in reversed(batch.operators) if isinstance(each, kind))


def points_of(batches: Sequence[BatchRecord], max_points: int = MAX_POINTS) -> tuple[Point, ...]:
    """Return at most ``max_points`` points of equally many consecutive records each."""
    size = max(1, math.ceil(len(batches) / max_points))
    return tuple(
        Point(tuple(batches[start : start + size])) for start in range(0, len(batches), size)
    )


def work_section(what: str, points: Sequence[Point], made: Sequence[int]) -> list[Section]:
    """Return the work that the rows took, where that was counted.

    Args:
        what: the work, such as ``evaluations``.
        points: the batches.
        made: how much of it each point took ((P,)).
    """
    if not any(made):
        return []
    per_row = ratio(sum(made), sum(point.n_rows for point in points))
    detail = "" if per_row is None else f"{significant(per_row)} per row"
    pairs = list(zip(made, points, strict=True))
    drawn = Line(
        f"{what} per row",
        tuple(ratio(n, point.n_rows) for n, point in pairs),
        details=tuple(f"{count(n / point.n_batches)} per batch" for n, point in pairs),
    )
    batch_ids = tuple(point.batch_id for point in points)
    name = what.capitalize()
    figure = Figure(f"{name} per row", batch_ids, (drawn,), "number")
    return [Section(what, (figure,), (Tile(name, sum(made), "count", detail),))]
