"""Columns of a stream that a query reads.

Other columns need not be read from files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.errors import QueryError
from eddyline.query.predicates import FunctionPredicate, MixedPredicate, SqlPredicate
from eddyline.query.steps import (
    AggregateStep,
    FilterStep,
    JoinStep,
    OverStep,
    ProjectStep,
    ReadStep,
    SharedAggregateStep,
    SharedJoinStep,
)
from eddyline.sql.functions import UNITS
from eddyline.sql.parsing import parse_output, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.query.predicates import Predicate
    from eddyline.query.query import AggregateCall
    from eddyline.query.steps import Step

_QUICK = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Tuple),
    *(exp.And, exp.Or, exp.Not, exp.Is, exp.EQ, exp.NEQ, exp.NullSafeEQ),
    *(exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In),
    *(exp.Add, exp.Sub, exp.Mul, exp.Neg),
)
"""What conditions are made of that take less time than to read one more column of a row."""

_CHOOSE = ProjectStep, AggregateStep, SharedAggregateStep
"""Steps after which no column is left but those that they make."""


def columns_of_stream(
    steps: Sequence[Step],
    columns: Sequence[str],
    *,
    routes: bool = True,
    route_by: Sequence[str] | None = None,
) -> tuple[str, ...] | None:
    """Return the columns of the one stream that steps read, in the order of the stream.

    Args:
        steps: each over the result of the one before.
        columns: of the stream; its event time is read if a step names it.
        routes: whether filters of several predicates may part rows into classes by any column.
            Quick predicates use only columns that are read anyway: reading another column would
            take longer than the predicates do.
        route_by: SQL texts by which alone they part rows; None if nobody has said.

    Returns:
        None if all columns count, or if that cannot be told: for ``*``, for filters that route, for
        windows that count rows (all columns order rows of equal times), for names that the stream
        does not have, and for rules, whose results are whole rows.

    Example:
        >>> from eddyline.query.predicates import SqlPredicate
        >>> steps = (FilterStep("s", (SqlPredicate("s.V > 3"),)), ProjectStep("s", ("k AS key",)))
        >>> columns_of_stream(steps, ("k", "v", "w"))
        ('k', 'v')
        >>> columns_of_stream((ProjectStep("s", ("*",)),), ("k", "v", "w")) is None
        True
    """
    lower_names = {column.lower() for column in columns}
    chooses = next(
        (position for position, step in enumerate(steps) if isinstance(step, _CHOOSE)), None
    )
    if chooses is None or len(lower_names) < len(columns):
        return None
    read: set[str] = set()
    stand_ins = set(UNITS)  # they stand where a column could, as in dateadd(day, 1, ts)
    for step in steps[: chooses + 1]:
        texts = _texts_of(step)
        if routes and isinstance(step, FilterStep) and len(step.predicates) > 1:
            if route_by is None and not all(map(_is_quick, step.predicates)):
                return None
            texts = [*(texts or ()), *(route_by or ())]
        trees = _trees(texts) if texts is not None else None
        if trees is None:
            return None
        stand_ins |= _made_by(step, trees)
        for path in _paths(trees):
            named = lower_names.intersection(
                path[:2]
            )  # an alias, or a field, may be called as a column
            if not named and path[0] not in stand_ins:
                return None
            read |= named
    return tuple(column for column in columns if column.lower() in read)


def columns_by_stream(
    steps: Sequence[Step], columns: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...] | None]:
    """Return for each stream or table the columns that a query reads of it.

    Args:
        steps: of the query.
        columns: of each stream and table, by its name.

    Returns:
        None if all columns count, or if the columns are unknown; see ``columns_of_stream``.
        Columns by which filters only route rows do not count.
    """
    by_stream: dict[str, tuple[str, ...] | None] = {}
    for position, step in enumerate(steps):
        if not isinstance(step, ReadStep):
            continue
        names = columns[step.stream]
        read = _columns_of_read(steps[position + 1 :], step.output, names)
        before = by_stream.get(step.stream, ())
        both = None if read is None or before is None else {*read, *before}
        by_stream[step.stream] = (
            None if both is None else tuple(name for name in names if name in both)
        )
    return by_stream


def _columns_of_read(
    after: Sequence[Step], relation: str, columns: Sequence[str]
) -> tuple[str, ...] | None:
    """Return the columns of a read that the steps behind it use; None for all columns."""
    chain: list[Step] = []
    for step in after:
        if relation not in step.inputs:
            continue
        if isinstance(step, JoinStep):
            return columns_of_stream((*chain, _of_join(step, relation)), columns, routes=False)
        if (reads := getattr(step, "texts_of", None)) is not None:
            texts = reads(relation)
            if texts is None:
                return None
            steps = (*chain, ProjectStep(relation, texts))
            return columns_of_stream(steps, columns, routes=False)
        chain.append(step)
        if step.output != relation:
            break
    return columns_of_stream(chain, columns, routes=False)


def _of_join(step: JoinStep, relation: str) -> Step:
    """Return a step that reads what a join reads of one of its inputs."""
    joined = [item for item in step.joined if item.input == relation]
    if any(item.window.counts is not None for item in joined):
        return ProjectStep(relation, ("*",))
    names = [quoted(name) for item in joined for name in item.columns]
    keys = [text for key in step.keys for item in joined for text in key.members.get(item.name, ())]
    wheres = (
        [where for item in joined for where in step.wheres(item.name) if where]
        if isinstance(step, SharedJoinStep)
        else []
    )
    return ProjectStep(relation, (*names, *keys, *wheres))


def _texts_of(step: Step) -> list[str] | None:
    """Return the SQL texts of a step over the columns of its input; None if there may be others."""
    texts: list[str] | None = None
    match step:
        case ReadStep():
            texts = []
        case FilterStep():
            texts = [
                text for predicate in step.predicates for text in _texts_of_predicate(predicate)
            ]
        case ProjectStep():
            reads = (text for call in step.calls.values() for text in call.reads)
            texts = [*step.projections, *reads]
        case AggregateStep() if step.window.counts is None:
            texts = [*(text for _, text in step.groups), *_texts_of_calls(step.calls)]
        case SharedAggregateStep():
            members = [_texts_of(member) for member, _ in step.members]
            if None not in members:
                texts = [text for member_texts in members for text in member_texts or ()]
                texts += [where for _, where in step.members if where]
        case OverStep() if all(call.window.counts is None for call in step.calls):
            texts = [*step.partition_by, *_texts_of_calls([call.call for call in step.calls])]
    return texts


def _is_quick(predicate: Predicate) -> bool:
    """Return whether a predicate compares numbers or short values, and does nothing else."""
    trees = _trees([predicate.text]) if isinstance(predicate, SqlPredicate) else None
    return trees is not None and all(isinstance(n, _QUICK) for tree in trees for n in tree.walk())


def _texts_of_predicate(predicate: Predicate) -> list[str]:
    if isinstance(predicate, FunctionPredicate):
        return list(predicate.reads)
    if isinstance(predicate, MixedPredicate):
        reads = (text for function in predicate.functions.values() for text in function.reads)
        return [predicate.text, *reads]
    return [predicate.text]


def _texts_of_calls(calls: Iterable[AggregateCall]) -> list[str]:
    return [text for call in calls for text in (*call.arguments, call.where) if text]


def _made_by(step: Step, trees: Iterable[Expr]) -> set[str]:
    """Return the names, in lower case, that stand for something else unless a column has them."""
    names = {
        parameter.name
        for tree in trees
        for function in tree.find_all(exp.Lambda)
        for parameter in function.expressions
    }
    if isinstance(step, ProjectStep):
        names |= step.calls.keys()
    elif isinstance(step, OverStep):
        names |= {call.call.column for call in step.calls}
    return {name.lower() for name in names}


def _trees(texts: Iterable[str]) -> list[Expr] | None:
    """Return the trees of SQL texts; None if one cannot be read, or has all columns."""
    try:
        trees = [parse_output(text) for text in texts]
    except QueryError:
        return None
    return None if any(tree.find(exp.Star) for tree in trees) else trees


def _paths(trees: Iterable[Expr]) -> Iterator[tuple[str, ...]]:
    """Yield the names, in lower case, that may be columns, perhaps qualified or with a field."""
    for tree in trees:
        for node in tree.find_all(exp.Column):
            yield tuple(part.name.lower() for part in node.parts)
