"""Reads a query: ``SELECT … FROM s [RANGE 10 SECONDS], t WHERE s.k = t.k AND s.v > 3``.

A query over one input is a filter. Its columns are resolved where it is bound to a stream, which
may have some that its schema does not tell, such as ``_metadata``; so its parts stay as written,
but for what stands before columns (``s.v``). Of a join every column is resolved here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eddyline.query.query import Input, Query
from eddyline.query.select.calls import Calls
from eddyline.query.select.conditions import Conditions, JoinConditions
from eddyline.query.select.from_clause import FromReader
from eddyline.query.select.names import JoinNames, Names
from eddyline.query.select.output_columns import OutputColumns, is_star
from eddyline.query.select.statement import Statement
from eddyline.sql.analysis import check_is_row_wise

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eddyline.query.predicates import FunctionPredicate
    from eddyline.query.select.from_clause import FromItem


def read_query(
    text: str,
    columns: Mapping[str, Mapping[str, str]],
    functions: Mapping[str, FunctionPredicate] | None = None,
    *,
    tables: Collection[str] = (),
) -> Query:
    """Read a query over one stream, or a join.

    A conjunct that calls a function of ``functions``, or NOT of such a call, becomes that
    predicate, reading the arguments of the call; ``f()`` and ``f(*)`` read the function's own
    columns.

    ``ISTREAM(SELECT …)`` and ``SELECT ISTREAM(…) FROM`` say what a join emits, as do DSTREAM and
    RSTREAM; istream without. A stream without a window is unbounded.

    An equality of two inputs makes a key if both sides are of types that compare exactly; if its
    sides are of different types it is not supported, as equality would not be transitive. Members
    of a class may differ in width (int, bigint, decimal), and types that cannot be told from the
    text are taken as they are.

    Columns are name and Spark type of each, by stream or table. A function may be called on one
    input. Only joins read static tables.

    Returns:
        The query as a value.

    Raises:
        QueryError: it cannot be read, or names what does not exist; the message shows where.
        NotSupportedError: valid SQL that eddyline does not run yet; the message shows where.

    Example:
        >>> columns = {"s": {"k": "int", "v": "int"}, "t": {"k": "int", "w": "int"}}
        >>> query = read_query("SELECT s.v FROM s WHERE s.v > 3 AND s.k = 7", columns)
        >>> query.projections, [each.text for each in query.inputs[0].predicates]
        (('v',), ['v > 3', 'k = 7'])
        >>> query = read_query(
        ...     "SELECT v, w FROM s [NOW], t WHERE s.k = t.k AND v > 3 AND v < w", columns
        ... )
        >>> query.projections, query.keys[0].members
        (('s.v AS v', 't.w AS w'), {'s': ('k',), 't': ('k',)})
        >>> query.inputs[0].predicates[0].text, query.residual
        ('v > 3', ('s.v < t.w',))
    """
    statement = Statement.read(text)
    calls = Calls(text, functions or {})
    items = FromReader(statement, columns, tables).items()
    if len(items) == 1:
        return _filter(statement, calls, items[0])
    return _join(statement, calls, items, columns)


def _filter(statement: Statement, calls: Calls, item: FromItem) -> Query:
    """Read a query over one input."""
    _check_output(statement, calls)
    names = Names(item)
    projections = tuple(map(names.unqualified, statement.output_columns))
    conditions = Conditions(statement, calls, names, [item.name])
    _add_where(conditions)
    read = _inputs([item], conditions)
    return Query(read, (), (), (), projections, "istream", statement.text)


def _join(
    statement: Statement,
    calls: Calls,
    items: Sequence[FromItem],
    columns: Mapping[str, Mapping[str, str]],
) -> Query:
    """Read a query over several inputs."""
    names = JoinNames(statement.text)
    conditions = JoinConditions(statement, calls, names, [item.name for item in items])
    called = {item.stream.lower(): f"{item.stream} is called {item.name} here" for item in items}
    later = {item.name.lower(): f"{item.name} is joined after this ON" for item in items}
    names.scope = replace(names.scope, hints={**called, **later})
    for item in items:
        for left, right in names.add(item, columns[item.stream]):
            conditions.add_using(left, right, item.start)
        if item.join is not None and item.join.args.get("on") is not None:
            conditions.add("ON", item.join.args["on"])
    names.scope = replace(names.scope, hints=called)
    _add_where(conditions)
    _check_output(statement, calls)
    return Query(
        _inputs(items, conditions),
        conditions.keys.classes(),
        tuple(conditions.equalities),
        tuple(conditions.residual),
        OutputColumns(statement, names).projections(),
        statement.emits or "istream",
        statement.text,
    )


def _add_where(conditions: Conditions) -> None:
    where = conditions.statement.tree.args.get("where")
    if where is not None:
        conditions.add("WHERE", where.this)


def _check_output(statement: Statement, calls: Calls) -> None:
    """Refuse output columns that need more than one row, or call functions of the user."""
    for column in statement.output_columns:
        if not is_star(column.tree):
            calls.check_none(column.tree)
            check_is_row_wise(column.tree, statement.text, f"output column {column.text!r}")


def _inputs(items: Sequence[FromItem], conditions: Conditions) -> tuple[Input, ...]:
    predicates = [tuple(conditions.predicates[item.name]) for item in items]
    return tuple(
        Input(item.name, item.stream, item.window, given, item.start)
        for item, given in zip(items, predicates, strict=True)
    )
