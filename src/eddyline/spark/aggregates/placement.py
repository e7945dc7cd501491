"""The way of rows to their buckets: as they are, or as cells before or after the shuffle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from eddyline.spark.aggregates.grouping import CHECK, CODE
from eddyline.spark.aggregates.lifting import MICROS
from eddyline.spark.aggregates.task import START
from eddyline.spark.arrow_tasks import BUCKET
from eddyline.sql.parsing import quoted

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

    def coded(self, rows: DataFrame) -> DataFrame:
        """Return rows with their groups, the codes of these, and their buckets."""
        by = dict(zip(self.groups.names, self.groups.values, strict=True))
        return self.groups.coded(rows.withColumns(by), self.n_buckets)

    def grouped(self, rows: DataFrame, start: Column, reduced: Sequence[Column]) -> DataFrame:
        """Return the cells of rows; they are in their buckets if rows are shuffled first.

        Args:
            rows: with their event time.
            start: of the cell of each (µs).
            reduced: the partial aggregates of a cell.
        """
        rows = self.coded(rows.withColumn(START, start))
        if self.is_late:
            rows = rows.repartitionById(self.n_buckets, F.col(BUCKET))
        keys = [BUCKET, CODE, CHECK, START, *map(quoted, self.groups.names)]
        # Without any aggregate cells are what is distinct.
        return rows.groupBy(*keys).agg(*reduced) if reduced else rows.select(*keys).distinct()

    def placed(self, cells: DataFrame) -> DataFrame:
        """Return cells in the partitions that are their buckets."""
        return cells if self.is_late else cells.repartitionById(self.n_buckets, F.col(BUCKET))


def start_of_cell(slides: Slides) -> Column:
    """Return the start of the cell of each row (µs); see ``Slides.cell_of``."""
    micros, cut = F.col(MICROS), slides.cut
    place = F.pmod(micros - F.lit(slides.origin), F.lit(slides.slide))
    start = micros - place
    return start + F.when(place >= cut, F.lit(cut)).otherwise(F.lit(0)) if cut else start
