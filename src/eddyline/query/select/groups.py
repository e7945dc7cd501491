"""Reader of aggregates: GROUP BY, HAVING and output columns.

The rows are those of one stream or of a join. DISTINCT groups by the output columns. Each call of
an aggregate and each expression of GROUP BY becomes a column. Output columns and HAVING are
expressions over these columns. As in Spark, a name means a column of the stream first, and in GROUP
BY and HAVING an output column second. ``window`` is the window of a result, unless the stream has a
column of that name. Spark's spelling of windows is read, too: ``GROUP BY window(ts, '10 minutes',
'1 minute')``.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn, TypeGuard

from sqlglot import exp

from eddyline.errors import NotSupportedError, QueryError
from eddyline.query.cql import micros_of
from eddyline.query.query import (
    CALL,
    GROUP,
    LONGEST,
    MAX_ROWS,
    MAX_SPAN,
    UNBOUNDED,
    WINDOW,
    AggregateCall,
    Grouping,
    Over,
    OverCall,
    RangeWindow,
    RowsWindow,
    SessionWindow,
    SlideWindow,
    TimeColumn,
    too_long,
)
from eddyline.query.select.statement import (
    AGGREGATION,
    Fragment,
    columns_of_star,
    default_name,
    identifier,
    is_star,
    outputs_of,
    unaliased,
)
from eddyline.registry import unknown
from eddyline.sql.analysis import check_is_row_wise
from eddyline.sql.functions import AGGREGATES, WINDOWED, as_name, drawn, is_no_column
from eddyline.sql.parsing import comparable, offset_of, refuse

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sqlglot import Expr

    from eddyline.query.query import Window
    from eddyline.query.select.conditions import Calls
    from eddyline.query.select.statement import JoinNames, Named, Statement

Changes = list[tuple[int, int, str]]
"""Offsets, and the text that stands between them instead."""

_FIELDS = ("start", "end")
"""Those of ``WINDOW``."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """The first words by which a query aggregates rows, and their offset."""

    said: str
    start: int


def aggregation_of(
    statement: Statement, functions: Collection[str], *, but_distinct: bool = False
) -> Aggregation | None:
    """Return what says that a query aggregates rows: a clause, or a call in an output column.

    Args:
        statement: the query.
        functions: names of the functions, in lower case.
        but_distinct: whether DISTINCT does not count.
    """
    aggregations = [
        Aggregation("GROUP BY" if key == "group" else word, statement.offset_of_word(word))
        for key, word in AGGREGATION.items()
        if statement.tree.args.get(key) and not (but_distinct and key == "distinct")
    ]
    for column in statement.output_columns:
        for node in column.tree.walk(prune=lambda inner: isinstance(inner, exp.Window)):
            if (
                isinstance(node, exp.Filter | exp.WithinGroup)
                or called(node, functions) is not None
            ):
                name = node.find(exp.Anonymous) or node
                aggregations.append(Aggregation(f"the aggregate {name.name}()", offset_of(node)))
    return min(aggregations, key=lambda aggregation: aggregation.start, default=None)


class GroupReader:
    """Reads what a query asks of groups of the rows of one input, or of a join."""

    def __init__(self, calls: AggregateCalls) -> None:
        self._calls = calls
        self._statement, self._names = calls.statement, calls.names
        self._text = calls.statement.text
        self._is_distinct = self._statement.tree.args.get("distinct") is not None
        self._groups: dict[tuple[str, ...], tuple[str, str]] = {}
        """Name and text of each group by its words."""
        self._window_call: Fragment | None = None
        """Spark's ``window(ts, …)``, where GROUP BY has it."""
        self._parts: list[tuple[Fragment, str, Fragment]] = []
        """Output columns that are no stars: the item, its alias or "", and its expression."""

    def read(
        self, window: Window
    ) -> tuple[Grouping, Window, tuple[str, ...], tuple[TimeColumn, ...]]:
        """Return what is grouped, the window, the output columns, and the time that is named.

        Args:
            window: the one behind the stream.

        Raises:
            QueryError: an expression that is neither of groups nor of aggregates; a name that is
                not there.
            NotSupportedError: valid SQL that eddyline does not run yet.
        """
        self._check_clauses()
        for column in self._statement.output_columns:
            if not is_star(column.tree):
                self._parts.append((column, *unaliased(column, self._statement)))
        self._add_groups()
        window, times = self._window(window)
        projections = outputs_of(
            self._statement, self._names, self._of_groups, self._grouped_name, self._default_name
        )
        having = self._having()
        groups = tuple(self._groups.values())
        return Grouping(groups, tuple(self._calls.made), having), window, projections, times

    def _check_clauses(self) -> None:
        args = self._statement.tree.args
        trees = [column.tree for column in self._statement.output_columns]
        for over in [window for tree in trees for window in tree.find_all(exp.Window)]:
            message = "OVER (…) beside aggregates, GROUP BY or DISTINCT is not supported yet in one"
            self._statement.refuse(f"{message} SELECT", offset_of(over))
        if not self._is_distinct:
            return
        start = self._statement.offset_of_word("DISTINCT")
        if args["distinct"].args.get("on"):
            self._statement.refuse("DISTINCT ON is not supported yet", start)
        calls = [call for tree in trees for call in calls_in(tree, self._calls.known)]
        if args.get("group") or args.get("having") or calls:
            message = "DISTINCT beside GROUP BY or aggregates is not supported yet"
            self._statement.refuse(message, start)

    # -- groups -----------------------------------------------------------------------------------

    def _add_groups(self) -> None:
        group = self._statement.tree.args.get("group")
        if self._is_distinct or (group is not None and group.args.get("all")):
            self._add_outputs()
        if group is None:
            return
        check_one_grouping(self._statement)
        for expression in group.expressions:
            self._add_group(self._meant(self._statement.part(expression)))

    def _add_outputs(self) -> None:
        """Add the output columns in which nothing is aggregated: DISTINCT and GROUP BY ALL."""
        for column in self._statement.output_columns if self._is_distinct else ():
            if is_star(column.tree):
                for named in columns_of_star(column, self._statement, self._names):
                    self._add(identifier(self._names.name_of(named)))
        for _, _, part in self._parts:
            if not calls_in(part.tree, self._calls.known):
                self._add_group(part, is_output=True)

    def _meant(self, part: Fragment) -> Fragment:
        """Return the expression that an item of GROUP BY means, perhaps an output column's."""
        tree = part.tree
        if isinstance(tree, exp.Literal) and not tree.is_string and tree.name.isdecimal():
            columns = self._statement.output_columns
            if not 1 <= int(tree.name) <= len(columns):
                message = f"GROUP BY {tree.name} is no output column; there are {len(columns)}"
                refuse(message, self._text, part.start)
            column = columns[int(tree.name) - 1]
            if is_star(column.tree):
                message = f"GROUP BY {tree.name} is a star (name the columns), which is not"
                self._statement.refuse(f"{message} supported yet", part.start)
            return self._unaggregated(unaliased(column, self._statement)[1], part)
        if isinstance(tree, exp.Column) and len(tree.parts) == 1 and not self._is_column(tree):
            aliased = self._aliased(tree.name)
            return part if aliased is None else self._unaggregated(aliased, part)
        return part

    def _unaggregated(self, part: Fragment, item: Fragment) -> Fragment:
        if calls_in(part.tree, self._calls.known):
            message = f"GROUP BY {item.text} is the aggregate {part.text}; groups are made of rows"
            refuse(message, self._text, item.start)
        return part

    def _aliased(self, name: str) -> Fragment | None:
        """Return the expression of the output column that has a name by AS."""
        parts = (part for _, alias, part in self._parts if alias.lower() == name.lower())
        return next(parts, None)

    def _add_group(self, part: Fragment, *, is_output: bool = False) -> None:
        part = self._bare(part)
        if is_window_call(part.tree):
            if self._window_call is not None and self._key(part) != self._key(self._window_call):
                refuse("GROUP BY has two windows; write one", self._text, part.start)
            self._window_call = part
        elif not self._is_of_window(part, is_output=is_output):
            self._calls.check_is_of_rows(part, "GROUP BY")
            self._add(self._names.canonical(part, "GROUP BY"))

    def _is_of_window(self, part: Fragment, *, is_output: bool) -> bool:
        """Return whether an expression is of the window, which tells results apart anyway."""
        columns = list(part.tree.find_all(exp.Column))
        mentions = [column for column in columns if self._window_mention(column)]
        is_whole = part.tree in mentions or (is_output and len(mentions) == len(columns))
        if mentions and not is_whole:
            message = "GROUP BY: an expression of the window is not supported yet; write window"
            self._statement.refuse(message, offset_of(mentions[0]))
        return bool(mentions)

    def _add(self, text: str) -> None:
        name = f"{GROUP}{len(self._groups)}"
        self._groups.setdefault(comparable(text), (name, text))

    def _bare(self, part: Fragment) -> Fragment:
        """Return an expression without parentheses around it."""
        inner = part.tree.unnest()
        return part if isinstance(inner, exp.Tuple) else self._statement.part(inner)

    # -- windows ----------------------------------------------------------------------------------

    def _window(self, window: Window) -> tuple[Window, tuple[TimeColumn, ...]]:
        """Return the window of the query, and the column by which it goes if it is told."""
        times: tuple[TimeColumn, ...] = ()
        if self._window_call is not None:
            if window != UNBOUNDED:
                message = "the query has a window behind its stream, too; write one of the two"
                refuse(message, self._text, self._window_call.start)
            window, time = window_called(self._window_call, self._names)
            times = (time,)
        if isinstance(window, SessionWindow) and self._statement.emits in ("dstream", "rstream"):
            message = f"{self._statement.emits.upper()} of sessions is not supported yet: each has"
            self._statement.refuse(f"{message} one result, when it ends", self._statement.emits_at)
        return window, times

    def _window_mention(self, tree: Expr) -> exp.Identifier | None:
        """Return the name if a part mentions the window: ``window``, ``window.start``."""
        if not isinstance(tree, exp.Column) or isinstance(tree.this, exp.Star):
            return None
        first = tree.parts[0]
        names = [WINDOW, self._window_call.tree.name if self._window_call else WINDOW]
        is_window = first.name.lower() in map(str.lower, names) and not self._is_column(tree)
        return first if is_window and isinstance(first, exp.Identifier) else None

    def _is_column(self, tree: exp.Column) -> bool:
        """Return whether a name begins with a column of the input, or with the input."""
        name, scope = tree.parts[0].name, self._names.scope
        is_input = len(tree.parts) > 1 and scope.input_of(name) is not None
        return scope.has(name) or is_input

    # -- results ----------------------------------------------------------------------------------

    def _grouped_name(self, item: Fragment, column: Named) -> str:
        """Return the column of a group that DISTINCT makes of a column of a star."""
        if not self._is_distinct:
            message = f"{item.text} beside aggregates is not supported; name what is grouped"
            self._statement.refuse(message, item.start)
        name, _ = self._groups[comparable(identifier(self._names.name_of(column)))]
        return name

    def _default_name(self, part: Fragment, what: str) -> str:
        inner = part.tree.unnest()
        if isinstance(inner, exp.Column) and self._window_mention(inner):
            return str(inner.parts[-1].name)
        return default_name(part, what, self._statement, self._names)

    def _having(self) -> str:
        having = self._statement.tree.args.get("having")
        if having is None:
            return ""
        return self._of_groups(self._statement.part(having.this), "HAVING", has_aliases=True)

    def _of_groups(self, part: Fragment, what: str, *, has_aliases: bool = False) -> str:
        """Return an expression over groups, calls and the window."""
        for node in part.tree.find_all(*AROUND):
            inner = node.find(exp.Anonymous)
            if inner is not None and str(inner.name).lower() not in self._calls.known:
                if str(inner.name).lower() in AGGREGATES:
                    message = f"{what}: the aggregate function {inner.name}() is not supported yet"
                    self._statement.refuse(message, offset_of(node))
                message = unknown("aggregate function", inner.name, sorted(self._calls.known))
                refuse(f"{what}: {message}", self._text, offset_of(node))
        check_is_row_wise(part.tree, self._text, what, self._calls.known)
        self._calls.functions.check_none(part.tree, "beside aggregates")
        self._calls.check_deterministic(part, what)
        return part.rewritten(sorted(self._changes(part.tree, what, has_aliases=has_aliases)))

    def _changes(self, tree: Expr, what: str, *, has_aliases: bool) -> Changes:
        """Return what stands for groups, calls and the window in an expression."""
        place, column = self._statement.place(tree), self._calls.column_of(tree)
        if place is not None and column is None:
            column = self._group_of(Fragment(self._text, tree, *place))
        if place is not None and column is not None:
            return [(*place, column)]
        if is_window_call(tree):
            message = f"{what}: {str(tree.name).lower()}(…) is not the one of GROUP BY"
            refuse(message, self._text, offset_of(tree))
        if isinstance(tree, exp.Column):
            return self._change_of(tree, what, has_aliases=has_aliases)
        inner = (
            self._changes(child, what, has_aliases=has_aliases) for child in tree.iter_expressions()
        )
        return [change for changes in inner for change in changes]

    def _group_of(self, part: Fragment) -> str | None:
        """Return the column of an expression that is grouped, or is the window."""
        key = self._key(part)
        if is_window_call(part.tree) and self._window_call is not None:
            return WINDOW if key == self._key(self._window_call) else None
        group = self._groups.get(key) if key else None
        return group[0] if group else None

    def _key(self, part: Fragment) -> tuple[str, ...]:
        """Return the words of an expression of the stream's columns; none if it reads others."""
        with suppress(QueryError):
            return comparable(self._names.canonical(part, ""))
        return ()

    def _change_of(self, tree: exp.Column, what: str, *, has_aliases: bool) -> Changes:
        """Return what stands for a name that is no group."""
        columns = {named.column.lower() for named in self._names.scope.output}
        if len(tree.parts) == 1 and is_no_column(tree, columns):
            return []
        if (first := self._window_mention(tree)) is not None:
            return [self._of_window(tree, first, what)]
        aliased = self._aliased(tree.parts[0].name) if has_aliases else None
        if aliased is not None and (len(tree.parts) == 1 or not self._is_column(tree)):
            text, place = self._of_groups(aliased, what), tree.parts[0].meta
            return [
                (place["start"], place["end"] + 1, text if text.isidentifier() else f"({text})")
            ]
        return [self._of_group(tree, what)]

    def _of_group(self, tree: exp.Column, what: str) -> tuple[int, int, str]:
        """Return the column of a group that is a column, of which fields may be read."""
        place = self._statement.place(tree)
        if place is None:  # st.()
            refuse(f"{what}: a field of a struct is missing", self._text, offset_of(tree))
        (mention,) = self._names.mentions(Fragment(self._text, tree, *place), what)
        group = self._groups.get(comparable(identifier(self._names.name_of(mention.named))))
        if group is None:
            name = mention.written
            message = f"{what}: {name!r} is neither grouped nor aggregated; add it to GROUP BY"
            refuse(f"{message}, or write an aggregate such as MAX({name})", self._text, place[0])
        return mention.start, mention.end, group[0]

    def _of_window(
        self, tree: exp.Column, first: exp.Identifier, what: str
    ) -> tuple[int, int, str]:
        if len(tree.parts) > 1 and tree.parts[1].name.lower() not in _FIELDS:
            message = (
                f"{what}: {first.name} has the fields start and end, not {tree.parts[1].name!r}"
            )
            refuse(message, self._text, tree.parts[1].meta["start"])
        return first.meta["start"], first.meta["end"] + 1, WINDOW


def check_one_grouping(statement: Statement) -> None:
    """Refuse groups of several kinds in one GROUP BY.

    Raises:
        NotSupportedError: ROLLUP, CUBE, GROUPING SETS or totals; the message shows where.
    """
    group = statement.tree.args.get("group")
    sets = (exp.GroupingSets, exp.Cube, exp.Rollup)
    if group is not None and (group.find(*sets) or group.args.get("totals")):
        message = "ROLLUP, CUBE and GROUPING SETS are not supported yet"
        statement.refuse(message, statement.offset_of_word("GROUP"))


AROUND = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)
_TAKES_NULLS = ("first", "last", "first_value", "last_value", "any_value")
"""Functions that may ignore NULL, as their second argument says."""


def called(tree: Expr, functions: Collection[str]) -> exp.Anonymous | None:
    """Return the call if a part is one of an aggregate function, with FILTER and such or without.

    Args:
        tree: the part.
        functions: names of the functions, in lower case.
    """
    while isinstance(tree, AROUND):
        tree = tree.this
    is_known = isinstance(tree, exp.Anonymous) and str(tree.name).lower() in functions
    return tree if is_known and isinstance(tree, exp.Anonymous) else None


def calls_in(tree: Expr, functions: Collection[str]) -> list[exp.Anonymous]:
    """Return the calls in an expression but for those before OVER."""
    nodes = tree.walk(prune=lambda node: isinstance(node, exp.Window))
    calls = (called(node, functions) for node in nodes if isinstance(node, exp.Anonymous))
    return [call for call in calls if call is not None]


class AggregateCalls:
    """The calls of aggregate functions that a query makes; equal ones are made once.

    Args:
        statement: the query.
        names: of the input's columns.
        functions: those of the user.
        aggregates: names of aggregate functions, in lower case.
    """

    def __init__(
        self, statement: Statement, names: JoinNames, functions: Calls, aggregates: Collection[str]
    ) -> None:
        self.statement = statement
        self.names = names
        self.functions = functions
        self.known = aggregates
        self.made: list[AggregateCall] = []
        self._columns: dict[tuple[tuple[str, ...], ...], str] = {}

    def call_of(self, tree: Expr) -> AggregateCall | None:
        """Return the call, whose column is not known yet, if a part is one."""
        node = called(tree, self.known)
        return None if node is None else self._read(tree, node)

    def column_of(self, tree: Expr) -> str | None:
        """Return the column of a call if a part is one."""
        call = self.call_of(tree)
        if call is None:
            return None
        key = self.key(call)
        if key not in self._columns:
            self._columns[key] = f"{CALL}{len(self.made)}"
            self.made.append(replace(call, column=self._columns[key]))
        return self._columns[key]

    def key(self, call: AggregateCall) -> tuple[tuple[str, ...], ...]:
        """Return what equal calls have in common."""
        texts = (call.function, *call.arguments, "is_distinct" * call.is_distinct, call.where)
        return tuple(map(comparable, texts))

    def _read(self, tree: Expr, node: exp.Anonymous) -> AggregateCall:
        """Return a call, whose column is not known yet."""
        name, where = str(node.name).lower(), ""
        more: tuple[str, ...] = ()
        while tree is not node:
            if isinstance(tree, exp.Filter):
                where = self._text(tree.expression.this, f"FILTER of {name}()")
            elif isinstance(tree, exp.IgnoreNulls):
                more = self._ignoring(name, node)
            elif isinstance(tree, exp.WithinGroup):
                self._refuse(f"{name}() WITHIN GROUP is not supported yet", node)
            tree = tree.this
        is_distinct = isinstance(node.expressions and node.expressions[0], exp.Distinct)
        arguments = (*self._arguments(name, node), *more)
        return AggregateCall(name, arguments, "", is_distinct=is_distinct, where=where)

    def _arguments(self, name: str, node: exp.Anonymous) -> tuple[str, ...]:
        arguments: Sequence[Expr] = node.expressions
        if arguments and isinstance(arguments[0], exp.Distinct):
            arguments = [*arguments[0].expressions, *arguments[1:]]
        if name == "count" and [type(part) for part in arguments] == [exp.Star]:
            return ()
        if not arguments:
            refuse(f"{name}() needs an argument", self.statement.text, offset_of(node))
        texts: list[str] = []
        for argument in arguments:
            inner = (
                argument.this
                if isinstance(argument, exp.IgnoreNulls | exp.RespectNulls)
                else argument
            )
            if isinstance(inner, exp.Star | exp.Order | exp.Kwarg | exp.PropertyEQ | exp.Alias):
                self._refuse(
                    f"{name}({self.statement.part(inner).text}) is not supported yet", node
                )
            texts.append(self._text(inner, f"argument of {name}()"))
            texts += self._ignoring(name, node) if isinstance(argument, exp.IgnoreNulls) else ()
        if name in _TAKES_NULLS and len(arguments) == 2:
            if not isinstance(arguments[1], exp.Boolean):
                message = f"the second argument of {name}() is TRUE (NULL is left out) or FALSE"
                refuse(message, self.statement.text, offset_of(node))
            texts[1:] = self._ignoring(name, node) if arguments[1].this else ()
        return tuple(texts)

    def _ignoring(self, name: str, node: exp.Anonymous) -> tuple[str]:
        if name not in _TAKES_NULLS:
            self._refuse(f"IGNORE NULLS of {name}() is not supported yet", node)
        return ("true",)

    def _text(self, tree: Expr, what: str) -> str:
        """Return what a call reads of each row, over the columns of the input."""
        part = self.statement.part(tree)
        self.check_is_of_rows(part, what)
        return self.names.canonical(part, what)

    def check_is_of_rows(self, part: Fragment, what: str) -> None:
        """Refuse what is not computed of each row, always in the same way.

        Raises:
            NotSupportedError: it is not.
        """
        nested = calls_in(part.tree, self.known)
        if nested:
            message = f"{what}: an aggregate such as {nested[0].name}() cannot stand here"
            refuse(message, part.query, offset_of(nested[0]))
        check_is_row_wise(part.tree, part.query, what)
        self.functions.check_none(part.tree, f"as {what}")
        self.names.check_no_star(part, what)
        self.check_deterministic(part, what)

    def check_deterministic(self, part: Fragment, what: str) -> None:
        """Refuse functions that answer equal rows differently.

        Raises:
            NotSupportedError: there is one.
        """
        if (node := drawn(part.tree)) is not None:
            message = f"{what}: {as_name(node)}() is not deterministic, which is not supported yet"
            refuse(f"{message} beside aggregates", part.query, offset_of(node), NotSupportedError)

    def _refuse(self, message: str, node: Expr) -> None:
        self.statement.refuse(message, offset_of(node))


WINDOW_CALLS = ("window", "session_window")
"""Names of the functions, and of the columns that they make."""

_FORMS = {
    "window": "window(ts, '10 minutes'[, '1 minute'[, '15 seconds']])",
    "session_window": "session_window(ts, '5 minutes')",
}


def is_window_call(tree: Expr) -> TypeGuard[exp.Anonymous]:
    """Return whether a part calls one of the functions."""
    return isinstance(tree, exp.Anonymous) and str(tree.name).lower() in WINDOW_CALLS


def window_called(
    call: Fragment, names: JoinNames
) -> tuple[SlideWindow | SessionWindow, TimeColumn]:
    """Return the window that a call says, and the column by which it goes.

    Raises:
        QueryError: it says none.
    """
    name = str(call.tree.name).lower()
    column, *lengths = call.tree.expressions or [None]
    if not 1 <= len(lengths) <= (1 if name == "session_window" else 3):
        refuse(f"{name}(…) is {_FORMS[name]}", call.query, call.start)
    if not isinstance(column, exp.Column):
        message = f"{name}(…) of anything but a plain column of the stream is not supported yet"
        refuse(message, call.query, call.start, NotSupportedError)
    (mention,) = names.mentions(_fragment(call, column), f"{name}(…)")
    time = TimeColumn(mention.named.column, f"{name}(…)", mention.start)
    micros = [_length(call, expression, name) for expression in lengths]
    if name == "session_window":
        return SessionWindow(micros[0]), time
    length, slide, origin = (*micros, *(micros[0], 0)[len(micros) - 1 :])
    # Spark's windows begin at multiples of the slide; of ours the ends are told.
    return SlideWindow(length, slide, (origin + length) % slide), time


def _fragment(call: Fragment, tree: Expr) -> Fragment:
    return type(call)(call.query, tree, call.start, call.end)


def _length(call: Fragment, tree: Expr, name: str) -> int:
    """Return a length (µs); that of an origin may be 0."""
    micros, is_origin = micros_of(tree), len(call.tree.expressions) == 4
    least = 0 if is_origin and tree is call.tree.expressions[3] else 1
    if micros is not None and micros > MAX_SPAN:
        refuse(too_long(f"a time of {name}(…)"), call.query, offset_of(tree) or call.start)
    if micros is None or micros < least:
        message = f"{name}(…) takes times such as '10 minutes', as {_FORMS[name]}"
        refuse(message, call.query, offset_of(tree) or call.start)
    return micros


# -- filters with OVER -------------------------------------------------------------------------
# Reader of filters with aggregates of rows so far: ``SUM(v) OVER (…)``.
#
# Each call before OVER becomes a column that a step adds to every row. Output columns are
# expressions over these columns and the columns of the row. One step makes all calls over equal
# partitions.
#
# ``OVER (…)`` has partitions, the column of time, and a frame, which is read as a window. A frame
# ends at the current row; a RANGE includes the rows of the same instant.


Words = tuple[str, ...]


def over_of(statement: Statement) -> Aggregation | None:
    """Return the first OVER in the output columns."""
    columns = (column.tree for column in statement.output_columns)
    starts = [offset_of(node) for tree in columns for node in tree.find_all(exp.Window)]
    return Aggregation("OVER (…)", min(starts)) if starts else None


class OverReader:
    """Reads the output columns of a query over one input in which OVER stands."""

    def __init__(self, calls: AggregateCalls) -> None:
        self._calls = calls
        self._statement, self._names = calls.statement, calls.names
        self._text = calls.statement.text
        self._frames = FrameReader(calls.statement, calls.names)
        self._overs: dict[tuple[Words, ...], Over] = {}
        """By the column of time and the words of the partitions."""
        self._columns: dict[tuple[object, ...], str] = {}
        """By what a call is of, and its partitions and frame."""
        self._times: dict[str, TimeColumn] = {}

    def read(self) -> tuple[tuple[Over, ...], tuple[str, ...], tuple[TimeColumn, ...]]:
        """Return the calls by partition, the output columns, and the times that are named.

        Raises:
            QueryError: a name that is not there, or a frame that is none.
            NotSupportedError: valid SQL that eddyline does not run yet.
        """
        projections = outputs_of(
            self._statement, self._names, self._text_of, lambda _, named: identifier(named.column)
        )
        return tuple(self._overs.values()), projections, tuple(self._times.values())

    def _text_of(self, part: Fragment, what: str) -> str:
        """Return an output column over the columns of a row and of its calls."""
        self._check_is_of_row(part, what)
        nodes = part.tree.walk(prune=lambda node: isinstance(node, exp.Window))
        overs = [node for node in nodes if isinstance(node, exp.Window)]
        parts = [self._statement.part(over) for over in overs]
        places = [(part.start, part.end, self._column(part.tree)) for part in parts]
        changes = [
            (mention.start, mention.end, identifier(mention.named.column))
            for mention in self._names.mentions(part, what)
            if not any(start <= mention.start < end for start, end, _ in places)
        ]
        return part.rewritten(sorted([*places, *changes]))

    def _check_is_of_row(self, part: Fragment, what: str) -> None:
        """Refuse what needs other rows and has no OVER."""
        self._calls.functions.check_none(part.tree, "beside OVER")
        rest = part.tree.copy()
        for over in [] if isinstance(rest, exp.Window) else list(rest.find_all(exp.Window)):
            over.replace(exp.true())
        if not isinstance(rest, exp.Window):
            check_is_row_wise(rest, self._text, what)

    # -- calls ------------------------------------------------------------------------------------

    def _column(self, over: Expr) -> str:
        """Return the column of a call before OVER."""
        assert isinstance(over, exp.Window)
        if isinstance(over.this, exp.Window):
            refuse("OVER stands twice behind one call", self._text, offset_of(over))
        call = self._calls.call_of(over.this)
        if call is None:
            self._refuse_unknown(over)
        parts, window, time = self._frames.read(over)
        self._times.setdefault(time.name, time)
        texts = tuple(map(self._partition, parts))
        by = ((time.name,), *map(comparable, texts))
        key = (self._calls.key(call), by, window)
        if key not in self._columns:
            self._columns[key] = f"{CALL}{len(self._columns)}"
            over_call = OverCall(replace(call, column=self._columns[key]), window)
            over_so_far = self._overs.get(by) or Over(texts, (), time.name)
            self._overs[by] = replace(over_so_far, calls=(*over_so_far.calls, over_call))
        return self._columns[key]

    def _partition(self, part: Fragment) -> str:
        self._calls.check_is_of_rows(part, "PARTITION BY")
        return self._names.canonical(part, "PARTITION BY")

    def _refuse_unknown(self, over: exp.Window) -> NoReturn:
        node = over.find(exp.Anonymous)
        name = str(over.this.name if node is None else node.name).lower()
        functions = sorted(self._calls.known)
        if name in WINDOWED or name in AGGREGATES:
            kind = "window" if name in WINDOWED else "aggregate"
            message = f"the {kind} function {name}() OVER (…) is not supported yet"
            also = f"; known: {', '.join(functions)}" if functions else ""
            self._statement.refuse(message + also, offset_of(over))
        refuse(unknown("aggregate function", name, functions), self._text, offset_of(over))


_BY = "ORDER BY of OVER (…)"


class FrameReader:
    """Reads the frames of a query, those of its WINDOW clause included."""

    def __init__(self, statement: Statement, names: JoinNames) -> None:
        self._statement = statement
        self._text = statement.text
        self._names = names
        self._defined: dict[str, exp.Window] = {}
        """Definitions of WINDOW by name in lower case."""
        for definition in statement.tree.args.get("windows") or ():
            name = str(definition.this.name)
            if name.lower() in self._defined:
                refuse(f"WINDOW {name} is defined twice", self._text, offset_of(definition))
            self._defined[name.lower()] = definition

    def read(self, over: exp.Window) -> tuple[list[Fragment], Window, TimeColumn]:
        """Return the partitions, the window and the time of OVER, or of the WINDOW that it names.

        Raises:
            QueryError: it is not of the event time, or not complete; the message shows where.
            NotSupportedError: a frame that eddyline does not run.
        """
        start, over = offset_of(over), self._definition(over)
        time = self._time(over, start)
        parts = [
            self._statement.part(expression) for expression in over.args.get("partition_by") or ()
        ]
        return parts, self._window(over), time

    def _definition(self, over: exp.Window) -> exp.Window:
        alias = over.args.get("alias")
        if alias is None:
            return over
        if any(over.args.get(key) for key in ("partition_by", "order", "spec")):
            self._refuse(f"OVER ({alias.name} …) with more than the name", alias)
        if alias.name.lower() not in self._defined:
            names = [str(window.this.name) for window in self._defined.values()]
            message = unknown("window", alias.name, names)
            refuse(f"{message}; WINDOW … AS (…) defines some", self._text, offset_of(alias))
        definition = self._defined[alias.name.lower()]
        if definition.args.get("alias") is not None:
            self._refuse("WINDOW of another one", definition)
        return definition

    def _time(self, over: exp.Window, start: int) -> TimeColumn:
        """Return the column that rows go by."""
        order = over.args.get("order")
        if order is None:
            message = (
                "OVER (…) without ORDER BY is over rows that come later, too; write ORDER BY and "
                "the event time, for the rows so far"
            )
            self._statement.refuse(message, start)
        first, *others = order.expressions
        column, place = first.this, self._statement.place(first.this)
        if others or not isinstance(column, exp.Column) or place is None:
            refuse(f"{_BY} is the event time: one bare column", self._text, offset_of(order))
        (mention,) = self._names.mentions(self._statement.part(column), _BY)
        if mention.end != place[1]:
            refuse(f"{_BY} is the event time: one bare column", self._text, place[0])
        if first.args.get("desc"):
            message = f"{_BY} DESC puts later rows first, which is"
            self._statement.refuse(f"{message} not supported; time ascends", place[0])
        return TimeColumn(mention.named.column, _BY, mention.start)

    # -- frames -----------------------------------------------------------------------------------

    def _window(self, over: exp.Window) -> Window:
        spec = over.args.get("spec")
        if spec is None:
            return UNBOUNDED
        self._check_end(spec, over)
        kind, start = str(spec.args["kind"]).upper(), spec.args.get("start")
        if kind == "GROUPS":
            self._refuse_word("GROUPS", "GROUPS is not supported yet; write ROWS or RANGE", over)
        if kind == "ROWS":
            return self._rows(start, over)
        if start == "UNBOUNDED":
            return UNBOUNDED
        return RangeWindow(0 if start == "CURRENT ROW" else self._micros(start, over))

    def _check_end(self, spec: exp.WindowSpec, over: exp.Window) -> None:
        """Refuse frames that do not end at the current row."""
        sides = [str(spec.args.get(key)).upper() for key in ("start_side", "end_side")]
        if "FOLLOWING" in sides:
            message = (
                "a frame that reaches FOLLOWING rows would wait for rows that come later, and is "
                "not supported; end it at CURRENT ROW"
            )
            self._refuse_word("FOLLOWING", message, over)
        if sides[0] != "PRECEDING" and spec.args.get("start") != "CURRENT ROW":
            message = "PRECEDING is missing behind the beginning of a frame"
            refuse(message, self._text, self._word(str(spec.args["kind"]).upper(), over))
        if spec.args.get("end") not in (None, "CURRENT ROW"):
            message = "a frame that ends before CURRENT ROW is not supported yet"
            self._refuse_word("PRECEDING", message, over)
        if spec.args.get("exclude"):
            self._refuse_word("EXCLUDE", "EXCLUDE is not supported yet", over)

    def _rows(self, start: Expr | str | None, over: exp.Window) -> Window:
        if start == "UNBOUNDED":
            return RowsWindow(LONGEST)
        if start == "CURRENT ROW":
            return RowsWindow(1)
        if not isinstance(start, exp.Literal) or not start.name.isdecimal():
            message = "ROWS takes a whole number, such as ROWS BETWEEN 10 PRECEDING AND CURRENT ROW"
            refuse(message, self._text, self._word("ROWS", over))
        # Python reads whole numbers of up to 4,300 digits.
        if (rows := int(start.name[:4_000])) >= MAX_ROWS:
            message = (
                f"ROWS BETWEEN {start.name:.20} PRECEDING is too many; the most are {MAX_ROWS}"
            )
            refuse(message, self._text, self._word("ROWS", over))
        return RowsWindow(rows + 1)

    def _micros(self, start: Expr | str | None, over: exp.Window) -> int:
        micros = micros_of(start) if isinstance(start, exp.Expr) else None
        if micros is not None and micros > MAX_SPAN:
            message = f"{too_long('the time before the row')}; write UNBOUNDED PRECEDING"
            refuse(message, self._text, self._word("RANGE", over))
        if micros is None or micros < 0:
            message = (
                "RANGE goes by time: write RANGE BETWEEN INTERVAL '10' MINUTES PRECEDING AND "
                "CURRENT ROW"
            )
            refuse(message, self._text, self._word("RANGE", over))
        return micros

    def _word(self, word: str, over: exp.Window) -> int:
        """Return the offset of a word in what OVER says."""
        behind = offset_of(over)
        tokens = (token for token in self._statement.tokens if token.text.upper() == word)
        return next((token.start for token in tokens if token.start >= behind), behind)

    def _refuse_word(self, word: str, message: str, over: exp.Window) -> NoReturn:
        refuse(message, self._text, self._word(word, over), NotSupportedError)

    def _refuse(self, what: str, node: Expr) -> NoReturn:
        self._statement.refuse(f"{what} is not supported yet", offset_of(node))
