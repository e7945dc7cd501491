"""Reader of filters with aggregates of rows so far: ``SUM(v) OVER (…)``.

Each call before OVER becomes a column that a step adds to every row. Output columns are expressions
over these columns and the columns of the row. One step makes all calls over equal partitions.

``OVER (…)`` has partitions, the column of time, and a frame, which is read as a window. A frame
ends at the current row; a RANGE includes the rows of the same instant.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from eddyline.errors import NotSupportedError
from eddyline.query.cql import micros_of
from eddyline.query.query import (
    CALL,
    LONGEST,
    MAX_ROWS,
    MAX_SPAN,
    UNBOUNDED,
    Over,
    OverCall,
    RangeWindow,
    RowsWindow,
    TimeColumn,
    too_long,
)
from eddyline.query.select.groups import Aggregation
from eddyline.query.select.statement import identifier, outputs_of
from eddyline.registry import unknown
from eddyline.sql.analysis import check_is_row_wise
from eddyline.sql.functions import AGGREGATES, WINDOWED
from eddyline.sql.parsing import comparable, offset_of, refuse

if TYPE_CHECKING:
    from sqlglot import Expr

    from eddyline.query.query import Window
    from eddyline.query.select.groups import AggregateCalls
    from eddyline.query.select.statement import Fragment, JoinNames, Statement

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
            message = f"{_BY} DESC has the rows that come later first, and is"
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
