"""Python functions that SQL texts may call, as predicates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eddyline.errors import EddylineError, QueryError
from eddyline.query.predicates import FunctionPredicate, of_function
from eddyline.registry import checked_text


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
    return {
        checked_text("name of a function", name): _named(name, each) for name, each in given.items()
    }


def _named(name: str, given: Any) -> FunctionPredicate:
    if isinstance(given, FunctionPredicate):
        return given
    try:
        return of_function(given, name=name)
    except EddylineError as error:
        msg = f"function {name!r}: {error.message}"
        raise QueryError(msg, name=name) from error
