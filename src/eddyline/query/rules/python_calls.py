"""Calls of Python predicates in the text of a rule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.errors import NotSupportedError, QueryError
from eddyline.query.conditions import FunctionTest, Not
from eddyline.sql.analysis import resolve_columns
from eddyline.sql.parsing import offset_of, refuse
from eddyline.sql.rendering import UnwritableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlglot import Expr

    from eddyline.query.conditions import Node
    from eddyline.query.predicates import FunctionPredicate
    from eddyline.sql.analysis import Expression


def take_out_calls(
    expression: Expression,
    columns: Mapping[str, str],
    functions: Mapping[str, FunctionPredicate],
) -> dict[int, FunctionPredicate]:
    """Put a TRUE in the place of every call of a Python predicate; return these by their ``id``.

    The tree of the rule is changed; functions are found by their names in lower case.
    """
    taken: dict[int, FunctionPredicate] = {}
    for call in list(expression.tree.find_all(exp.Anonymous)):
        predicate = functions.get(str(call.name).lower())
        if predicate is not None:
            args = [arg for arg in call.expressions if not isinstance(arg, exp.Star)]
            if args:
                predicate = _with_arguments(expression, predicate, call, args, functions)
            else:
                checked_reads(predicate, expression.what, columns, ansi=expression.ansi)
            taken[id(expression.take_out(call))] = predicate
    return taken


def _with_arguments(
    expression: Expression,
    predicate: FunctionPredicate,
    call: exp.Anonymous,
    args: list[Expr],
    functions: Mapping[str, FunctionPredicate],
) -> FunctionPredicate:
    name, n_reads = str(call.name), len(predicate.reads)
    if len(args) != n_reads:
        takes = f"{name}({', '.join(predicate.reads)})"
        message = f"{expression.what}: {takes} takes {n_reads} argument(s), got {len(args)}"
        refuse(message, expression.text, offset_of(call), function=name)
    for arg in args:
        for node in arg.find_all(exp.Anonymous):
            if str(node.name).lower() in functions:
                message = f"{expression.what}: a Python function as an argument is not supported"
                refuse(message, expression.text, offset_of(node), NotSupportedError)
    return replace(predicate, reads=tuple(_argument(expression, name, arg) for arg in args))


def _argument(expression: Expression, name: str, arg: Expr) -> str:
    """Return an argument: a column's name, or an expression that never raises."""
    why = expression.facts(arg).reason or expression.chance_in(arg)
    if why:
        message = (
            f"{expression.what}: an argument of {name} can raise or differs from time to time "
            f"({why}); use the form that gives NULL instead, such as try_cast or try_divide"
        )
        refuse(message, expression.text, offset_of(arg), function=name)
    reference = expression.references.get(id(arg))
    if reference is not None and isinstance(arg, exp.Column) and len(arg.parts) == 1:
        return reference.column
    try:
        return expression.write(arg)
    except UnwritableError as unknown:
        message = f"{expression.what}: {unknown} in an argument of {name} is not supported"
        refuse(message, expression.text, offset_of(arg), NotSupportedError, function=name)


def checked_reads(
    predicate: FunctionPredicate, what: str, columns: Mapping[str, str], *, ansi: bool
) -> FunctionPredicate:
    """Return the predicate; the columns that it reads have to exist, and never raise."""
    for text in predicate.reads:
        if text in columns:
            continue  # a column by its exact name, which need not be SQL
        found = resolve_columns(text, columns, name=predicate.name, ansi=ansi, qualifiers=None)
        if found.may_raise or not found.is_deterministic:
            msg = (
                f"{what}: predicate {predicate.name!r} reads {text!r}, which can raise or differs "
                f"from time to time ({found.reason}); use a form that gives NULL, such as try_cast"
            )
            raise QueryError(msg, name=predicate.name, reads=text)
    return predicate


def function_test(predicate: FunctionPredicate) -> Node:
    """Return the test of a Python predicate; a negated one is NOT of the plain one."""
    return Not(FunctionTest(~predicate)) if predicate.negated else FunctionTest(predicate)
