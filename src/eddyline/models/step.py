"""The step of a query that makes segments of the rows of a relation and solves what is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eddyline.models import graph
from eddyline.query.steps import RESULT, OverOne

if TYPE_CHECKING:
    from collections.abc import Callable

    from eddyline.models.streaming import StreamPlan


@dataclass(frozen=True, slots=True)
class ModelStep(OverOne):
    """Rows of a relation as segments, what is done with these, and its results as rows."""

    plan: StreamPlan
    output: str = RESULT

    def renamed(self, names: Callable[[str], str]) -> ModelStep:
        """Return the step over relations of other names."""
        return replace(self, input=names(self.input), output=names(self.output))

    def __str__(self) -> str:
        node = self.plan.node
        told = [str(each) for each in graph.parts(node) if not isinstance(each, graph.Input)]
        return f"models of {self.input}: {'; '.join([str(self.plan.maker), *told])}"
