"""The output columns of a query, as the last operator of its chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from pyspark.errors import AnalysisException

from eddyline.errors import QueryError
from eddyline.spark.operator import Laid, Operator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from eddyline.query.steps import ProjectStep
    from eddyline.spark.operator import Batch, Site


class ProjectOperator(Operator):
    """Computes output columns.

    Args:
        query: name of the query, for errors.
        name: of the operator.
        projections: the columns, as SQL.
    """

    def __init__(self, query: str, name: str, projections: tuple[str, ...]) -> None:
        self.query = query
        self.name = name
        self.projections = projections

    @classmethod
    def of(cls, step: ProjectStep, site: Site) -> Self:
        """Return the operator of a step."""
        return cls(site.query, f"project {step.output}", step.projections)

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002 - the same for every batch
        """Compute the columns."""
        return Laid(self.shape(df))

    def shape(self, df: DataFrame) -> DataFrame:
        """Return the columns.

        Raises:
            QueryError: one of them cannot be computed.
        """
        try:
            return df.selectExpr(*self.projections)
        except AnalysisException as error:
            msg = f"query {self.query!r}: {error.getMessage() or error}"
            raise QueryError(msg, query=self.query) from error
