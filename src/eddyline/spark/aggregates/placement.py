"""The way of rows to their buckets: as they are, or as cells before or after the shuffle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from eddyline.spark.aggregates.grouping import ROWS, START
from eddyline.spark.aggregates.lifting import MICROS
from eddyline.spark.arrow_tasks import BUCKET
from eddyline.spark.prepared import Known, Reduced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.aggregates.slides import Slides
    from eddyline.spark.aggregates.grouping import Groups


@dataclass(frozen=True, slots=True)
class Placement:
    """The buckets of groups, and whether rows are shuffled before they become cells."""

    groups: Groups
    n_buckets: int
    is_late: bool
    """Whether Spark makes cells behind the shuffle."""
    known: Known = field(default_factory=Known)
    """Steps of the operator that were laid before."""

    def coded(self, rows: DataFrame, start: str = MICROS) -> DataFrame:
        """Return rows with the start of their cells, their groups with codes, and their buckets.

        Args:
            rows: with their event time.
            start: SQL of the start of the cell of each (µs).
        """
        return self._coded(self._grouping(rows, start))

    def grouped(self, rows: DataFrame, start: str, reduced: Sequence[Column]) -> DataFrame:
        """Return the cells of rows; they are in their buckets if rows are shuffled first.

        Args:
            rows: with their event time.
            start: SQL of the start of the cell of each (µs).
            reduced: the partial aggregates of a cell.
        """
        rows = self._grouping(rows, start)
        if not self.is_late and not self.groups.are_nested:
            return self._coded(self._reduced(rows, self.groups.own_keys, reduced))
        rows = self._coded(rows)
        rows = self.in_buckets(rows) if self.is_late else rows
        return self._reduced(rows, self.groups.keys, reduced)

    def _grouping(self, rows: DataFrame, start: str) -> DataFrame:
        """Return rows with the columns that tell cells apart."""
        return self.known.selected(rows, "*", *self.groups.values, f"{start} AS {START}")

    def _coded(self, rows: DataFrame) -> DataFrame:
        """Return rows, or cells, of which there are fewer, with codes and buckets."""
        return self.known.selected(rows, "*", *self.groups.codes(self.n_buckets))

    def _reduced(
        self, rows: DataFrame, keys: Sequence[Column], reduced: Sequence[Column]
    ) -> DataFrame:
        """Return the cells of rows; of an operator, these are always reduced alike."""
        if len(keys) not in self.known.reductions:
            aggregates = [F.count(F.lit(1)).alias(ROWS), *reduced]
            self.known.reductions[len(keys)] = Reduced(keys, aggregates)
        return self.known.reductions[len(keys)].over(rows)

    def placed(self, cells: DataFrame) -> DataFrame:
        """Return rows or cells in the partitions that are their buckets."""
        return cells if self.is_late else self.in_buckets(cells)

    def in_buckets(self, rows: DataFrame) -> DataFrame:
        """Return rows or cells in the partitions that are their buckets."""
        return rows.repartitionById(self.n_buckets, BUCKET)


def start_of_cell(slides: Slides) -> str:
    """Return SQL of the start of the cell of each row (µs); see ``Slides.cell_of``."""
    place = f"pmod({MICROS} - {slides.origin}L, {slides.slide}L)"
    start = f"{MICROS} - {place}"
    return f"{start} + IF({place} >= {slides.cut}L, {slides.cut}L, 0L)" if slides.cut else start
