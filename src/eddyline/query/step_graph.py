"""The steps of a query as a graph: which of them make what another one reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.query.predicates import MixedPredicate
from eddyline.query.steps import AggregateStep, FilterStep, JoinStep, ProjectStep, UnionStep
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eddyline.query.steps import Step


def carries(steps: Sequence[Step], column: str) -> bool:
    """Return whether the rows that steps make have a column of the rows they read, unchanged."""
    for at, step in enumerate(steps):
        if isinstance(step, JoinStep | AggregateStep):
            return False
        if isinstance(step, ProjectStep) and _position(step, column) is None:
            return False
        if isinstance(step, UnionStep):
            makers = [steps[maker(steps, at, name)] for name in step.inputs]
            if len({_position(each, column) for each in makers}) > 1:
                return False
    return True


def _position(step: Step, column: str) -> tuple[str, ...] | int | None:
    """Return where a step has a column unchanged: of columns with ``*``, what they are at all."""
    if not isinstance(step, ProjectStep):
        return None
    kept = [at for at, each in enumerate(step.projections) if each in (column, quoted(column))]
    return step.projections if "*" in step.projections else next(iter(kept), None)


def tree(steps: Sequence[Step], say: Callable[[Step], str] = str) -> tuple[str, ...]:
    """Return steps as lines of a tree: the last one at the top, what is read as leaves.

    Example:
        >>> from eddyline.query.predicates import SqlPredicate
        >>> from eddyline.query.steps import ReadStep
        >>> chain = (ReadStep("s", "s"), FilterStep("s", (SqlPredicate("v > 3"),)))
        >>> for line in tree((*chain, ProjectStep("s", ("v",)))):
        ...     print(line)
        project s: v
        └─ filter s: v > 3
           └─ read s
    """
    return tuple(_branch(steps, len(steps) - 1, say, ""))


def _branch(
    steps: Sequence[Step], position: int, say: Callable[[Step], str], indent: str
) -> list[str]:
    """Return the lines of a step and of all that it reads."""
    lines = [say(steps[position])]
    children = [maker(steps, position, name) for name in steps[position].inputs]
    for number, child in enumerate(children):
        is_last = number == len(children) - 1
        branch = _branch(steps, child, say, indent)
        lines.append(("└─ " if is_last else "├─ ") + branch[0])
        lines += [("   " if is_last else "│  ") + line for line in branch[1:]]
    return lines


def maker(steps: Sequence[Step], position: int, name: str) -> int:
    """Return the position of the step that makes a relation which the step at a position reads."""
    return next(at for at in reversed(range(position)) if steps[at].output == name)


def made_by(steps: Sequence[Step], position: int, name: str) -> list[Step]:
    """Return the steps that make a relation which the step at a position reads, in their order."""
    found = {maker(steps, position, name)}
    pending = [*found]
    while pending:
        at = pending.pop()
        makers = {maker(steps, at, each) for each in steps[at].inputs}
        pending += makers - found
        found |= makers
    return [steps[at] for at in sorted(found)]


def asks_python(step: Step) -> bool:
    """Return whether a step calls Python functions elsewhere than as a predicate."""
    if isinstance(step, FilterStep):
        return any(isinstance(each, MixedPredicate) for each in step.predicates)
    return isinstance(step, ProjectStep) and bool(step.calls)
