"""Rows on their way to buckets where windows count them: by partition, with their own groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from eddyline.aggregates.plan import OWN_CHECK, OWN_CODE, PASSES
from eddyline.query.select.statement import identifier
from eddyline.spark.aggregates.grouping import CHECK, CODE, START, Groups
from eddyline.spark.aggregates.lifting import MICROS
from eddyline.spark.analysis import refused, unlogged
from eddyline.spark.arrow_tasks import BUCKET
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.query.steps import AggregateStep

PART = "__part"
"""What the columns of partitions are named, with a number behind it."""


@dataclass(frozen=True)
class Counted:
    """The rows of a stream that a window counts, and what is asked of them.

    WHERE is asked of rows that are in the window. So all rows go to the buckets, and nothing but
    WHERE and the partition is computed of those of which it is not true.
    """

    partitions: Groups
    """Those in which rows are counted."""
    groups: Groups
    where: str
    """SQL; empty if all rows are kept."""
    spans: bool
    """Whether a group may have rows of several partitions."""

    @classmethod
    def of(cls, step: AggregateStep, df: DataFrame, groups: Groups, query: str) -> Self:
        """Return what a step counts of a DataFrame.

        Raises:
            QueryError: WHERE that Spark refuses.
        """
        assert step.window.counts is not None
        columns = step.window.counts.partition_by
        found = Groups.of(df, [(f"{PART}{k}", quoted(each)) for k, each in enumerate(columns)])
        try:
            with unlogged():
                if step.where:
                    df.where(step.where)
        except AnalysisException as error:
            what = f"query {query!r}: WHERE {step.where}"
            raise refused(what, error, query=query, where=step.where) from error
        texts = {text.lower() for _, text in groups.columns}
        spans = not {identifier(each).lower() for each in columns} <= texts
        return cls(found, groups, step.where, spans)

    @property
    def has_own(self) -> bool:
        """Whether groups are others than partitions."""
        return self.spans or len(self.groups.columns) > len(self.partitions.columns)

    @property
    def travelling(self) -> dict[str, str]:
        """What tasks read of rows beside aggregates and ties: SQL by the names that it has there.

        Of groups that are columns of the rows this is the column.
        """
        own = [PASSES] if self.where else []
        own += [OWN_CODE, OWN_CHECK] if self.has_own else []
        names = self.groups.names
        groups = {each: quoted(each) for each in names} if self.where else self.groups.travelling
        return {each: each for each in own} | groups

    def rows(self, rows: DataFrame, n_buckets: int, columns: Sequence[Column]) -> DataFrame:
        """Return rows with codes, their bucket, and other columns.

        Args:
            rows: with their event time.
            n_buckets: into which partitions are cut; 1 where a group may have rows of several.
            columns: that travel; see ``travelling``.
        """
        made, codes = [F.col(each) for each in (BUCKET, CODE, CHECK, START)], []
        if self.where:
            rows = rows.selectExpr("*", f"coalesce(({self.where}\n), FALSE) AS {PASSES}")
        if self.has_own:
            codes = self.groups.hashes(OWN_CODE, OWN_CHECK)
        values = [
            f"CASE WHEN {PASSES} THEN ({text}\n) END AS {quoted(name)}" if self.where else plain
            for (name, text), plain in zip(self.groups.columns, self.groups.values, strict=True)
        ]
        rows = rows.selectExpr("*", *self.partitions.values, *values, f"{MICROS} AS {START}")
        rows = rows.selectExpr("*", *self.partitions.codes(n_buckets), *codes)
        return rows.select(*made, *columns)
