"""The table of operators: which one runs a step. A new operator is one line here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from eddyline.errors import PlanError
from eddyline.query.steps import FilterStep, ProjectStep, ReadStep
from eddyline.rules.step import RuleStep
from eddyline.spark.filters.operator import FilterOperator
from eddyline.spark.projection import ProjectOperator
from eddyline.spark.rules.operator import RuleOperator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eddyline.query.steps import Step
    from eddyline.spark.operator import Operator, Site

OPERATORS: dict[type[Any], Callable[[Any, Site], Operator]] = {
    FilterStep: FilterOperator.of,
    RuleStep: RuleOperator.of,
    ProjectStep: ProjectOperator.of,
}
"""By the kind of step: makes its operator over the rows of a site."""


def operators_of(steps: Iterable[Step], site: Site) -> list[Operator]:
    """Return the operators of steps, each over the result of the one before.

    Args:
        steps: of a query over one stream; those that read are none of an operator's.
        site: the rows of the stream.

    Raises:
        PlanError: a step that nothing runs.
        QueryError: a step that does not fit the columns before it.
    """
    operators: list[Operator] = []
    for step in steps:
        if isinstance(step, ReadStep):
            continue
        if type(step) not in OPERATORS:
            known = ", ".join(sorted(each.__name__ for each in OPERATORS))
            msg = f"no operator runs {type(step).__name__} ({step}); those listed run {known}"
            raise PlanError(msg, step=str(step))
        made = OPERATORS[type(step)](step, site)
        n_before = sum(each.name.partition("#")[0] == made.name for each in operators)
        made.name += f"#{n_before + 1}" if n_before else ""
        operators.append(made)
        site = replace(site, df=made.shape(site.df), is_source=False)
    return operators
