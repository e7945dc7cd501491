"""The step of a query that makes segments of the rows of relations and solves what is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eddyline.models import graph
from eddyline.query.steps import RESULT
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from eddyline.models.streaming import StreamPlan


@dataclass(frozen=True, slots=True)
class ModelStep:
    """Rows of relations as segments, what is done with these, and its results as rows."""

    inputs: tuple[str, ...]
    """A relation for each input of the plan."""
    plan: StreamPlan
    output: str = RESULT

    def texts_of(self, relation: str) -> tuple[str, ...] | None:
        """Return SQL of the values that an input must have; None if it needs whole rows."""
        texts: list[str] = []
        for name, given in zip(self.inputs, self.plan.inputs, strict=True):
            if name == relation:
                if given.maker is None:
                    return None
                columns = given.maker.columns.values()
                texts += [*map(quoted, (*given.maker.keys, given.maker.time)), *columns]
        return tuple(texts)

    def renamed(self, names: Callable[[str], str]) -> ModelStep:
        """Return the step over relations of other names."""
        return replace(self, inputs=tuple(map(names, self.inputs)), output=names(self.output))

    def __str__(self) -> str:
        node = self.plan.node
        told = [
            f"{each.maker or 'segments'}{f' of {name}' if len(self.inputs) > 1 else ''}"
            for name, each in zip(self.inputs, self.plan.inputs, strict=True)
        ]
        told += [str(each) for each in graph.parts(node) if not isinstance(each, graph.Input)]
        told += ["results early"] if self.plan.is_early else []
        return f"models of {', '.join(self.inputs)}: {'; '.join(told)}"
