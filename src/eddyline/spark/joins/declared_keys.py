"""Keys of streams that were declared, among the key classes of a join."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from eddyline.joins.unique_keys import UniqueKey
from eddyline.spark.event_time import LOCAL, time_type
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from eddyline.query.steps import JoinStep
    from eddyline.spark.joins.layout import JoinInput


def declared_keys(
    step: JoinStep, inputs: Sequence[JoinInput], rough: Collection[int]
) -> dict[str, UniqueKey]:
    """Return the declared keys by which inputs are joined, by input.

    Args:
        step: the join.
        inputs: its inputs.
        rough: key classes whose codes are hashes.
    """
    found = {}
    for each in inputs:
        # Of columns that are computed nothing was declared.
        if each.key is None or each.is_projected:
            continue
        texts = {each.key, quoted(each.key)}
        for number, of in enumerate(step.keys):
            if texts & {*of.members.get(each.name, ())}:
                schema = StructType([each.shape.schema[each.key]])
                kind = to_arrow_schema(schema, timezone="UTC").field(0).type
                exact = None if number in rough else kind
                is_local = (
                    each.time is not None and time_type(each.df, each.time, each.stream) == LOCAL
                )
                found[each.name] = UniqueKey(each.stream, each.key, number, exact, is_local)
    return found
