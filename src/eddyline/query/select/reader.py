"""Reader of queries, from text to values.

An example is ``SELECT … FROM s [RANGE 10 SECONDS], t WHERE s.k = t.k``. A query over one input is a
filter. Its columns are resolved later, when it is bound to a stream: a stream may have columns that
its schema does not show, such as ``_metadata``. So the parts of a filter stay as written, without
the qualifiers of columns (``s.v``). The columns of a join are resolved here. Subqueries and the
parts of UNION ALL are read in the same way.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.errors import QueryError
from eddyline.query.predicates import FunctionPredicate, MixedPredicate
from eddyline.query.query import UNBOUNDED, WINDOW, Input, Query, SessionWindow, SlideWindow
from eddyline.query.select.alternatives import RESERVED, Side, alternatives, query_of
from eddyline.query.select.conditions import Calls, Conditions
from eddyline.query.select.from_clause import OF_FILTERS, FromReader
from eddyline.query.select.groups import (
    AggregateCalls,
    GroupReader,
    OverReader,
    aggregation_of,
    calls_in,
    over_of,
)
from eddyline.query.select.joined import JoinReader, Relation
from eddyline.query.select.statement import (
    Exists,
    JoinNames,
    Names,
    SetOperation,
    Statement,
    identifier,
    is_star,
)
from eddyline.query.steps import ReadStep, carries, steps
from eddyline.sql.analysis import Expression, check_is_row_wise
from eddyline.sql.functions import as_name, drawn
from eddyline.sql.parsing import deep, offset_of, parse_column, refuse
from eddyline.sql.types import OTHER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.query.select.from_clause import FromItem, Subquery
    from eddyline.query.select.statement import Fragment


@deep
def read_query(
    query: str | Sequence[Statement | SetOperation],
    columns: Mapping[str, Mapping[str, str]],
    functions: Mapping[str, FunctionPredicate] | None = None,
    *,
    tables: Collection[str] = (),
    aggregates: Collection[str] = (),
    times: Mapping[str, str | None] | None = None,
) -> Query:
    """Read a query over one stream: a filter or aggregates; a join, or aggregates over one.

    A conjunct that calls a function of ``functions``, or NOT of such a call, becomes that
    predicate, reading the arguments of the call; ``f()`` and ``f(*)`` read the function's own
    columns.

    ``ISTREAM(SELECT …)`` and ``SELECT ISTREAM(…) FROM`` say what a join or aggregates emit, as do
    DSTREAM and RSTREAM; of a join istream without. A stream without a window is unbounded, unless
    bounds of event times make one (``times``). Of a filter ISTREAM over such a stream, and ISTREAM
    and RSTREAM over ``[NOW]``, are its rows.

    An equality of two inputs makes a key if both sides are of types that compare exactly; if its
    sides are of different types it is not supported, as equality would not be transitive. Members
    of a class may differ in width (int, bigint, decimal), and types that cannot be told from the
    text are taken as they are.

    ``query`` is a text, or its SELECTs if these were read before (``Statement.read_all``).
    Columns are name and Spark type of each, by stream or table. A function may be called on one
    input. Only joins read static tables. ``aggregates`` are the names of the aggregate functions
    that may be called; a function of ``functions`` hides one of its name, and what is no name
    (``count(*)``) is none. ``times`` are the event times of the streams: aggregates over a join
    need them, and bounds between them in the condition of a join are windows (``TimeBounds``).

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
    selects = Statement.read_all(query) if isinstance(query, str) else query
    calls = Calls(selects[0].text, functions or {})
    aggregate_names = {
        name.lower() for name in aggregates if name.isidentifier()
    } - calls.functions.keys()
    return _Reader(columns, tables, calls, aggregate_names, times or {}).query(selects)


class _Reader:
    """Reads queries over streams and tables, and the subqueries in them.

    Args:
        columns: of each stream and table.
        tables: names of those that do not change.
        calls: the functions of the user.
        aggregates: names of aggregate functions, in lower case.
        times: the event time of each stream, as far as it is known.
    """

    def __init__(
        self,
        columns: Mapping[str, Mapping[str, str]],
        tables: Collection[str],
        calls: Calls,
        aggregates: Collection[str],
        times: Mapping[str, str | None],
    ) -> None:
        self._columns = columns
        self._tables = tables
        self._calls = calls
        self._aggregate_names = aggregates
        self._times = times

    def query(self, statements: Sequence[Statement | SetOperation]) -> Query:
        """Return the query of one statement, or of UNION ALL."""
        for unused in statements[0].unused:
            if not any(statement.has_models for statement in unused):
                self._subquery(unused)
        return union_of([self._part(statement) for statement in statements])

    def _part(self, statement: Statement | SetOperation) -> Part:
        if isinstance(statement, SetOperation):
            return self._set(statement)
        aggregation, over = aggregation_of(statement, self._aggregate_names), over_of(statement)
        reason = aggregation or over
        if over is not None and len(statement.sources) > 1:
            statement.refuse(f"{over.said} over a join {_IN_TWO}", over.start)
        no_window = OF_FILTERS
        if reason is not None:
            no_window = "" if aggregation is not None else "here OVER (…) says which rows count"
        items = self._items(statement, no_window)
        if len(items) > 1 and aggregation is None:
            return self._joins(statement, items)
        if len(items) > 1:
            query = self._grouped_join(statement, items)
        elif reason is None:
            query = self._filter(statement, items[0])
        else:
            read = self._windowed if aggregation is None else self._grouped
            query = read(statement, items[0])
        return Part(statement, query, items)

    def _items(self, statement: Statement, no_window: str) -> list[FromItem]:
        """Return the items of FROM; ``no_window`` is why one stream may have no window."""
        subqueries = [
            self._subquery(statement.of_source(source)) for source, _ in statement.sources
        ]
        catalog = self._columns, self._tables, self._times
        return FromReader(statement, *catalog, no_window, subqueries).items()

    def _subquery(self, statements: Sequence[Statement | SetOperation]) -> Subquery | None:
        """Return a subquery; None if there is no statement."""
        parts = [self._part(statement) for statement in statements]
        if not parts:
            return None
        query = union_of(parts)
        return query, columns_of(parts), self._time_of(query)

    def _time_of(self, query: Query) -> str | None:
        """Return the event time of the streams of a subquery, if it returns that unchanged."""
        query_steps = steps(query)
        times = {self._times.get(step.stream) for step in query_steps if isinstance(step, ReadStep)}
        time = times.pop() if len(times) == 1 else None
        return time if time is not None and carries(query_steps, time) else None

    def _filter(self, statement: Statement, item: FromItem) -> Query:
        """Read a query over one input."""
        names = Names(item.name, item.stream)
        conditions = Conditions(statement, self._calls, names, [item.name])
        called: dict[str, FunctionPredicate] = {}
        projections = tuple(
            self._output_column(column, conditions, names, called)
            for column in statement.output_columns
        )
        _add_where(conditions)
        read = _inputs([item], conditions)
        return Query(read, (), (), (), projections, "istream", statement.text, called)

    def _grouped(self, statement: Statement, item: FromItem) -> Query:
        """Read a query of aggregates."""
        calls = self._aggregates(statement, item)
        grouping, window, projections, times = GroupReader(calls).read(item.window)
        read = replace(self._filtered(statement, item), window=window)
        _check_counted(statement, read)
        plain = Query((read,), (), (), (), projections, statement.emits, statement.text)
        return replace(plain, grouping=grouping, times=times)

    def _windowed(self, statement: Statement, item: FromItem) -> Query:
        """Read a filter with aggregates OVER rows so far."""
        calls = self._aggregates(statement, item)
        overs, projections, times = OverReader(calls).read()
        read = self._filtered(statement, item)
        plain = Query((read,), (), (), (), projections, "istream", statement.text)
        return replace(plain, overs=overs, times=times)

    def _aggregates(self, statement: Statement, item: FromItem) -> AggregateCalls:
        """Return the calls of aggregates over one input, whose names are resolved in its schema."""
        names = JoinNames(statement.text)
        names.add(item.name, item.columns, ())
        if item.name != item.stream:
            hint = {item.stream.lower(): f"{item.stream} is called {item.name} here"}
            names.scope = replace(names.scope, hints=hint)
        return AggregateCalls(statement, names, self._calls, self._aggregate_names)

    def _filtered(self, statement: Statement, item: FromItem) -> Input:
        """Return an input with what WHERE asks of it."""
        names = Names(item.name, item.stream)
        conditions = Conditions(statement, self._calls, names, [item.name])
        self._check_where(statement)
        _add_where(conditions)
        return _inputs([item], conditions)[0]

    def _check_where(self, statement: Statement) -> None:
        """Refuse aggregates in WHERE."""
        where = statement.tree.args.get("where")
        for node in [] if where is None else calls_in(where.this, self._aggregate_names):
            message = f"WHERE: the aggregate {node.name}() stands in HAVING; WHERE is asked of rows"
            refuse(message, statement.text, offset_of(node))

    def _output_column(
        self,
        column: Fragment,
        conditions: Conditions,
        names: Names,
        called: dict[str, FunctionPredicate],
    ) -> str:
        """Return the text of an output column; calls of functions of the user become columns.

        These are added to ``called``.
        """
        if is_star(column.tree):
            return names.unqualified(column)
        what = f"output column {column.text!r}"
        check_is_row_wise(column.tree, column.query, what, self._calls.functions)
        replaced = []
        for node in self._calls.within(column.tree):
            call = self._calls.call(node)
            assert call is not None
            predicate, _ = conditions.called(call, what)
            name = next((name for name, other in called.items() if other == predicate), None)
            name = name or f"__eddyline_call_{len(called)}"
            called[name] = predicate
            replaced.append((conditions.statement.part(node), name))
        text = names.with_calls(column, replaced)
        is_named = isinstance(column.tree, exp.Alias | exp.Aliases) or not replaced
        return text if is_named else f"{text} AS {identifier(' '.join(column.text.split()))}"

    def _joins(self, statement: Statement, items: Sequence[FromItem]) -> Part:
        """Read a query over several inputs: UNION ALL of the alternatives of its WHERE."""
        parts = [
            Part(statement, reader.query(reader.outputs()), reader.relations)
            for reader in self._readers(statement, items)
        ]
        return Part(statement, union_of(parts), parts[0].relations, read=parts[0].query)

    def _readers(
        self, statement: Statement, items: Sequence[FromItem], *, is_relation: bool = False
    ) -> list[JoinReader]:
        """Return the joins of each alternative of WHERE; see ``JoinReader``."""
        by_select = {
            id(item.added.select): item for item in items if isinstance(item.added, Exists)
        }
        of_from = [item for item in items if not isinstance(item.added, Exists)]
        readers = []
        for alternative in alternatives(statement):
            asked = [replace(by_select[id(one.select)], added=one) for one in alternative.asked]
            of_all = [*of_from, *asked]
            reader = JoinReader(statement, self._calls, of_all, is_relation=is_relation)
            reader.read(alternative.plain)
            readers.append(reader)
        return readers

    def _grouped_join(self, statement: Statement, items: Sequence[FromItem]) -> Query:
        """Read aggregates over a join: over a subquery with the columns that they read.

        A joined row is there from its latest row on, until its first row leaves.
        """
        aggregation = aggregation_of(statement, self._aggregate_names)
        assert aggregation is not None
        self._check_where(statement)
        readers = self._staying(statement, items, aggregation.said, " over a join", _IN_TWO)
        joined = readers[0].closed()
        assert joined.held is not None
        names = JoinNames(statement.text)
        names.scope = readers[0].names.scope
        names.held = dict.fromkeys((item.name for item in items), joined.held)
        calls = AggregateCalls(statement, names, self._calls, self._aggregate_names)
        grouping, _, projections, times = GroupReader(calls).read(UNBOUNDED)
        if times:
            statement.refuse(f"{times[0].what} over a join {_IN_TWO}", times[0].start)
        queries = [reader.rows_for(joined.held.called) for reader in readers]
        query = union_of([Part(statement, rows_query, items) for rows_query in queries])
        rows = Input(joined.name, joined.name, readers[0].stay.window, (), items[0].start, query)
        text, emits = statement.text, statement.emits
        return Query((rows,), (), (), (), projections, emits, text, grouping=grouping)

    def _staying(
        self,
        statement: Statement,
        items: Sequence[FromItem],
        subject: str,
        suffix: str = "",
        instead: str = "is not supported yet",
    ) -> list[JoinReader]:
        """Return joins, or one input, whose rows say how long they stay.

        Args:
            statement: the query.
            items: of FROM, and of EXISTS and IN.
            subject: what is asked of the rows, for errors.
            suffix: words that say which rows they are.
            instead: what errors say of joins that are refused.

        Returns:
            One for each alternative of WHERE.

        Raises:
            NotSupportedError: a row does not say how long it stays.
        """
        for item in items:
            stays = item.kind not in ("semi", "anti")  # of a partner, no result is made
            is_counted = item.window.counts is not None and stays
            if isinstance(item.window, SlideWindow | SessionWindow) or is_counted:
                what = f"{subject}{suffix} with [{item.window.text}] of {item.name!r}"
                statement.refuse(f"{what} is not supported yet; write [RANGE …]", item.start)
            if item.time is None and not item.is_table:
                which = f"{item.name!r}, which does not keep the event time of a stream,"
                statement.refuse(f"{subject}{suffix} of {which} {instead}", item.start)
        return self._readers(statement, items, is_relation=True)

    def _set(self, operation: SetOperation) -> Part:
        """Read UNION, EXCEPT or INTERSECT."""
        parts: list[Part] = []
        sides: list[Sequence[Side]] = []
        for select in operation.selects:
            side = [
                (joins, joins.outputs(tells_instant=True))
                for joins in self._side(select, operation)
            ]
            sides.append(side)
            reader, outputs = side[0]
            parts.append(Part(select, reader.query(outputs), reader.relations))
        check_widths(parts, operation.said)
        columns = columns_of(parts)
        for name in columns:
            if name.lower().startswith(RESERVED):
                message = f"{operation.said} has a column of its own called {name!r}"
                refuse(f"{message}; give this one another name", operation.text, operation.start)
        query = query_of(operation, sides, [*columns])
        return Part(operation, query, [Columns(columns)])

    def _side(self, statement: Statement, operation: SetOperation) -> list[JoinReader]:
        """Return the joins of one SELECT of a set operation; see ``_staying``."""
        word = operation.said
        if statement.emits is not None:
            message = f"{statement.emits.upper()} stands around {word}: {statement.emits.upper()}("
            statement.refuse(f"{message}SELECT … {word} SELECT …)", statement.emits_at)
        distinct = statement.tree.args.get("distinct")
        is_plain = distinct is not None and not distinct.args.get("on")
        asked = aggregation_of(statement, self._aggregate_names, but_distinct=is_plain) or over_of(
            statement
        )
        if asked is not None:
            message = (
                f"{asked.said} in {word} is not supported yet; make a stream of the results "
                "(CREATE STREAM x AS SELECT …) and write SELECT … FROM x"
            )
            statement.refuse(message, asked.start)
        items = self._items(statement, "")
        if all(item.is_table for item in items):
            message = f"{word} of tables, whose rows have no event time, is not supported"
            statement.refuse(f"{message}; write [NOT] EXISTS (SELECT …)", items[0].start)
        return self._staying(statement, items, word)


_IN_TWO = (
    "is not supported yet in one SELECT; make a stream of the join (CREATE STREAM x AS SELECT …) "
    "and aggregate that: SELECT … FROM x"
)
"""What errors say of aggregates over joins that are refused."""


def _check_counted(statement: Statement, read: Input) -> None:
    """Refuse WHERE that is no plain SQL where rows are counted, as it is asked of all of them."""
    where = statement.tree.args.get("where")
    if read.window.counts is None or where is None:
        return
    kinds = FunctionPredicate, MixedPredicate
    called = [predicate.name for predicate in read.predicates if isinstance(predicate, kinds)]
    reasons = [f"{name} calls a Python function" for name in called]
    if (call := drawn(where)) is not None:
        reasons.append(f"{as_name(call)}() is drawn anew")
    if reasons:
        message = (
            f"WHERE: {reasons[0]}, which is not supported yet beside [{read.window.text}]: "
            f"it counts all rows of {read.name!r}; write a condition in SQL on columns"
        )
        statement.refuse(message, statement.part(where.this).start)


def _add_where(conditions: Conditions) -> None:
    where = conditions.statement.tree.args.get("where")
    if where is not None:
        conditions.add("WHERE", where.this)


def _inputs(items: Sequence[FromItem], conditions: Conditions) -> tuple[Input, ...]:
    predicates = [tuple(conditions.predicates[item.name]) for item in items]
    return tuple(
        Input(item.name, item.stream, item.window, own_predicates, item.start, item.query)
        for item, own_predicates in zip(items, predicates, strict=True)
    )


_WINDOW_TYPE = "struct<start:timestamp,end:timestamp>"

Output = tuple[int, str, str]
"""An output column: the position of its item in SELECT, its name ("" if Spark makes one up) and its
Spark type ("?" if the text does not tell it)."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of the rows that a query reads, with their types."""

    columns: Mapping[str, str]
    name: str = ""


class Part:
    """A statement that was read: one SELECT of UNION ALL, or a subquery."""

    def __init__(
        self,
        statement: Statement | SetOperation,
        query: Query,
        relations: Sequence[FromItem | Relation | Columns],
        *,
        read: Query | None = None,
    ) -> None:
        self.statement = statement
        self.query = query
        self.relations = relations
        self._read = query if read is None else read
        """The query that says what output columns are: of UNION ALL the first."""

    @cached_property
    def _types(self) -> Mapping[str, str]:
        """The types of the columns that output columns are of."""
        if self._read.is_join:
            return {}
        types = dict.fromkeys(self._read.calls, "boolean")
        types |= {call.call.column: OTHER.text for over in self._read.overs for call in over.calls}
        read, grouping = self.relations[0].columns, self._read.grouping
        if (joined := self._read.inputs[0].query) is not None and len(self.relations) > 1:
            read = dict(map(self._column_of_join, joined.projections))
        if grouping is None:
            return {**read, **types}
        types |= {call.column: OTHER.text for call in grouping.calls}
        types |= {name: _type_of(text, read) for name, text in grouping.groups}
        return {**types, WINDOW: _WINDOW_TYPE}

    def _column_of_join(self, projection: str) -> tuple[str, str]:
        """Return the name and the type of a column of joined rows that aggregates read."""
        tree = _column_of(projection)
        assert tree is not None
        column = tree.unalias()
        parts = [part.name for part in column.parts] if isinstance(column, exp.Column) else [""]
        columns = next(
            (relation.columns for relation in self.relations if relation.name == parts[0]), {}
        )
        return tree.alias_or_name, columns.get(parts[-1], OTHER.text)

    @cached_property
    def outputs(self) -> list[Output]:
        """The output columns, for a query around this one or beside it."""
        outputs: list[Output] = []
        for position, text in enumerate(self._read.projections):
            tree = _column_of(text)
            if tree is None:
                outputs.append((position, "", OTHER.text))
            elif isinstance(tree, exp.Star) and not any(tree.args.values()):
                outputs += [
                    (position, name, kind) for name, kind in self.relations[0].columns.items()
                ]
            else:
                outputs.append((position, tree.alias_or_name, self._type(text, tree.unalias())))
        return outputs

    def _type(self, text: str, tree: Expr) -> str:
        parts = [part.name for part in tree.parts] if isinstance(tree, exp.Column) else []
        for item in self.relations if self._read.is_join and len(parts) == 2 else ():
            if item.name == parts[0]:
                return item.columns.get(parts[1], OTHER.text)
        return _type_of(text, self._types, tree)


def _column_of(text: str) -> Expr | None:
    """Return the tree of an output column; None if it has none without the query's tokens."""
    with suppress(QueryError):
        return parse_column(text)
    return None


def _type_of(text: str, columns: Mapping[str, str], tree: Expr | None = None) -> str:
    """Return the type of an expression as far as it is known."""
    with suppress(QueryError):
        expression = Expression(text, text, columns, ansi=True, tree=tree)
        plain = (
            columns.get(expression.tree.name) if isinstance(expression.tree, exp.Column) else None
        )
        return plain or expression.type_of(expression.tree).text
    return OTHER.text


def columns_of(parts: Sequence[Part]) -> dict[str, str]:
    """Return the columns of a subquery by name, each with its type.

    Args:
        parts: the subquery, or those of its UNION ALL.

    Raises:
        QueryError: a column without a name, or two of one name.
    """
    first, types = parts[0], dict[str, str]()
    for number, (place, name, _) in enumerate(first.outputs):
        statement = first.statement
        start, text = _place(statement, place)
        if not name:
            message = f"output column {text!r} of a subquery needs a name: {text} AS …"
            refuse(message, statement.text, start)
        if name.lower() in map(str.lower, types):
            message = f"two output columns of a subquery are called {name!r}"
            refuse(f"{message}; give one another name with AS", statement.text, start, name=name)
        kinds = {part.outputs[number][2] for part in parts}
        types[name] = kinds.pop() if len(kinds) == 1 else OTHER.text
    return types


def _place(statement: Statement | SetOperation, place: int) -> tuple[int, str]:
    """Return the offset and the text of an item of SELECT, or of SELECT where stars are many."""
    columns = statement.output_columns
    column = columns[min(place, len(columns) - 1)]
    return column.start, column.text


def union_of(parts: Sequence[Part]) -> Query:
    """Return the query that has the rows of all parts; of one part it is that.

    Raises:
        QueryError: a part has more or fewer columns than the first.
    """
    check_widths(parts, "UNION ALL")
    first, *others = parts
    if not others:
        return first.query
    inputs = tuple(source for part in parts for source in part.query.inputs)
    queries = tuple(query for part in parts for query in part.query.parts or (part.query,))
    text = first.statement.text
    return Query(inputs, (), (), (), first.query.projections, None, text, parts=queries)


def check_widths(parts: Sequence[Part], phrase: str) -> None:
    """Raise QueryError if a part has more or fewer columns than the first."""
    first, *others = parts
    for part in others:
        if len(part.outputs) != len(first.outputs):
            message = (
                f"{phrase} needs equally many output columns in each SELECT: "
                f"{len(part.outputs)} here, {len(first.outputs)} in the first"
            )
            refuse(message, part.statement.text, part.statement.own[0].start)
