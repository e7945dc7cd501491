"""Shared models of several queries over a stream.

The segments are made once. The common output has the rows of the results of all queries.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.types import IntegerType, StructField, StructType

from eddyline.models.streams.plan import MEMBER, SharedPlan
from eddyline.spark.bucketed import REPORT
from eddyline.spark.models.graphs import fields_of
from eddyline.spark.models.laying import schema_of
from eddyline.spark.models.operator import ModelOperator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SharedModelOperator(ModelOperator):
    """Runs a ``SharedModelStep``: ``MEMBER`` says which query a result is of."""

    @cached_property
    def _schema(self) -> StructType:
        plan = self.step.plan
        assert isinstance(plan, SharedPlan)
        fields = [StructField(MEMBER, IntegerType())]
        for number, (_, node) in enumerate(plan.members):
            keys = fields_of(node, lambda part: self._sources[part.at].key_fields)
            schema = schema_of(node.shape, keys, self._sources[0].time_type)
            fields += [
                StructField(plan.column(number, field.name), field.dataType) for field in schema
            ]
        return StructType(fields)

    def results(self, returned: DataFrame) -> DataFrame:
        """Return the results in what tasks returned."""
        return returned.drop(REPORT)
