"""A query that finds, for each row of a stream, the rules of a set that are true for it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from eddyline.query.steps import ReadStep
from eddyline.rules.step import RuleStep
from eddyline.spark.query import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from eddyline.query.steps import Step
    from eddyline.rules.step import Rules
    from eddyline.spark.relation import Relation

DEFAULT_NAME = "rules"
"""Of a set without a name, and of its first run."""

STREAM = "stream"
"""Name of the stream where there is no other."""


class RuleQuery(Query):
    """Rules over a stream; made by ``Engine.rules`` and ``RuleSet.start``.

    Each micro-batch has the rules of the moment it starts. The rows are those of the one stream
    unless steps make them. ``rename`` says for errors how the query gets another name;
    ``check_not_running`` raises QueryError if a query of a name is running.

    Raises:
        QueryError: a rule does not fit the rows, or they have a column of that name.
    """

    def __init__(
        self,
        name: str,
        rules: Rules,
        relations: Mapping[str, Relation],
        *,
        column: str,
        keep_unmatched: bool,
        source: Sequence[Step] = (ReadStep(STREAM, STREAM),),
        rename: str,
        check_not_running: Callable[[str], None] = lambda _name: None,
    ) -> None:
        step = RuleStep(source[-1].output, rules, column, keep_unmatched)
        super().__init__(
            name,
            rules.text,
            (*source, step),
            relations,
            {"adaptive": rules.options.adaptive, "seed": rules.options.seed},
            check_not_running=check_not_running,
            rename=rename,
        )

    @property
    def identity(self) -> str:
        """The steps; the rules change while they run, and their operator knows which it learned."""
        return "\n".join(map(str, self.steps))


def free_name(stream: DataFrame) -> str:
    """Return a name for a run of a set without one."""
    taken = {each.name for each in stream.sparkSession.streams.active}
    numbered = (f"{DEFAULT_NAME}_{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([DEFAULT_NAME], numbered) if name not in taken)
