"""What an operator of a run knows, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddyline.spark.operator import Stateful

if TYPE_CHECKING:
    from eddyline.spark.run.run import Run


def facts_of(run: Run) -> Any:
    """Return the facts of the first operator with durable state, or else of the first with any.

    None if no operator has any.
    """
    by_state = sorted(run.chain.operators, key=lambda each: not isinstance(each, Stateful))
    return next((each.facts() for each in by_state if hasattr(each, "facts")), None)
