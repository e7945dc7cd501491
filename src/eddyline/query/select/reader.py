"""Reads a query: ``SELECT … FROM s [RANGE 10 SECONDS], t WHERE s.k = t.k AND s.v > 3``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.query.select.filters import read_select
from eddyline.query.select.joins import is_join, read_join

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.query.predicates import FunctionPredicate
    from eddyline.query.query import Query


def read_query(
    text: str,
    columns: Mapping[str, Mapping[str, str]],
    functions: Mapping[str, FunctionPredicate] | None = None,
) -> Query:
    """Read a query over one input or several.

    Args:
        text: the query.
        columns: name and Spark type of each column, by stream or table.
        functions: the predicates that may be called, by name.

    Raises:
        QueryError: it cannot be read, or names what does not exist; the message shows where.
        NotSupportedError: valid SQL that eddyline does not run yet; the message shows where.
    """
    if is_join(text):
        return read_join(text, columns, functions or {})
    return read_select(text, functions or {}, tuple(columns))
