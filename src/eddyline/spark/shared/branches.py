"""Aggregates over a join that several queries share.

Each query has operators over its own results. The results of the join are kept while a micro-batch
runs, so that its tasks run once. The operators of each query that aggregates take its results out
of them and put their own aside (``parts``). At the end all results stand in one DataFrame: those of
the join in a struct for each input, those of a query that aggregates in a struct of its own, and
``PLACES``.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from eddyline.joins.plan import MEMBER
from eddyline.spark.operator import Laid, Operator
from eddyline.spark.parts import Trunk
from eddyline.spark.shared.scans import PLACES
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.operator import Batch, Observed


class Fork(Trunk):
    """The results of a join, from which the operators of each query take theirs.

    Args:
        shape: a DataFrame with their columns, for analysis only.
        are_few: says whether the driver has answered the batch that is laid, so that its results
            are few and need not be kept.
        names: what queries call the inputs, by the number of the query: name by common name.
    """

    name = "results"

    def __init__(
        self,
        shape: DataFrame,
        names: Mapping[int, Mapping[str, str]],
        are_few: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__([shape])
        self.source = shape
        self.are_few = are_few
        self._names = names
        self._kept: DataFrame | None = None

    def prepare(self, df: DataFrame, batch: Batch) -> None:
        """Nobody looks at the results before the job."""

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002
        """Keep the results of a batch, so that all branches read what was computed once."""
        self._let_go()
        self.laid = df
        if not self.are_few():
            self.laid = self._kept = df.persist()
        return self.whole

    @property
    def whole(self) -> Laid:
        """The results of all queries."""
        return Laid(self.laid)

    def rows(self, number: int, df: DataFrame) -> DataFrame:  # type: ignore[override]
        """Return the results of one query, under the names that it gave the inputs."""
        columns = [
            F.col(quoted(common)).alias(name) for common, name in self._names[number].items()
        ]
        return df.where(F.col(MEMBER) == number).select(*columns)

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:  # noqa: ARG002
        """Let the results go: the batch is safe."""
        self._let_go()
        return []

    def _let_go(self) -> None:
        if self._kept is not None:
            self._kept.unpersist()
            self._kept = None


class Gather(Operator):
    """All results of a batch in one DataFrame.

    Args:
        fork: of the join.
        made: a DataFrame with the columns of the results of each query that aggregates, by number,
            for analysis only.
    """

    name = "places"

    def __init__(self, fork: Fork, results: Mapping[int, DataFrame]) -> None:
        self._fork = fork
        self._made = dict(results)
        self._structs = [name for name in fork.source.columns if name != MEMBER]

    @staticmethod
    def column(number: int) -> str:
        """Return the column of the results of a query that aggregates."""
        return f"{MEMBER}{number}"

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002
        """Return the results of all queries, each with its place."""
        together = self._together(self._fork.laid, self._fork.made)
        return Laid(together, is_local=self._fork.are_few())

    def shape(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame with the columns of these."""
        return self._together(df, self._made)

    def _together(self, joined: DataFrame, results: Mapping[int, DataFrame]) -> DataFrame:
        kinds = joined.schema
        nulls = {name: F.lit(None).cast(kinds[name].dataType) for name in self._structs}
        none = {self.column(n): F.lit(None).cast(df.schema) for n, df in self._made.items()}
        is_own = ~F.col(MEMBER).isin(*self._made)
        structs: dict[str, Column] = {name: F.col(quoted(name)) for name in self._structs}
        parts = [
            joined.where(is_own).select(*_named(structs | none), F.array(MEMBER).alias(PLACES))
        ]
        for number, df in results.items():
            result = F.struct(*[F.col(quoted(name)) for name in df.columns])
            columns = nulls | none | {self.column(number): result}
            place = F.array(F.lit(number)).alias(PLACES)
            parts.append(df.select(*_named(columns), place))
        return reduce(lambda one, other: one.unionByName(other), parts)


def _named(columns: Mapping[str, Column]) -> list[Column]:
    return [column.alias(name) for name, column in columns.items()]
