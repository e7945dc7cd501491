"""Python functions that SQL texts may call, as predicates."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

from eddyline.errors import EddylineError, QueryError
from eddyline.query.predicates import FunctionPredicate, predicate

if TYPE_CHECKING:
    from collections.abc import Sequence


def named_functions(given: Mapping[str, Any]) -> dict[str, FunctionPredicate]:
    """Return functions as predicates, by the names that texts call them by.

    Args:
        given: predicates made by ``el.predicate``, or functions over arrays, whose arguments are
            then named like the columns that they read where a text calls them without any.

    Raises:
        QueryError: they have no names, or one is no function; the message names it.
    """
    if not isinstance(given, Mapping):
        msg = f"functions are given by name, such as {{'known': known}}, got {given!r:.60}"
        raise QueryError(msg, got=type(given).__name__)
    return {name: _named(name, each) for name, each in given.items()}


def _named(name: str, given: Any) -> FunctionPredicate:
    if isinstance(given, FunctionPredicate):
        return given
    try:
        return predicate(given, reads=argument_names(given, None), name=name)
    except EddylineError as error:
        msg = f"function {name!r}: {error.message}"
        raise QueryError(msg, name=name) from error


def argument_names(fn: Any, reads: Sequence[str] | None) -> Sequence[str]:
    """Return the columns of a function that a text calls without arguments.

    Args:
        fn: a function or a predicate.
        reads: the columns, where somebody has said them.
    """
    if reads is not None:
        return reads
    if isinstance(fn, FunctionPredicate):
        return fn.reads
    try:
        return [parameter.name for parameter in signature(fn).parameters.values()]
    except (TypeError, ValueError):
        return []
