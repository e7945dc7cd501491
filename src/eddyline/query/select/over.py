"""Reads a filter whose output columns have aggregates of rows so far: ``SUM(v) OVER (…)``.

Of output columns, calls before OVER become columns that steps add to each row; what is left is
computed of these and of the row's own. Calls over equal partitions are made by one step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from eddyline.query.aggregates import CALL, OverCall
from eddyline.query.query import Over
from eddyline.query.select.aggregate_calls import AggregateCalls, comparable
from eddyline.query.select.frames import FrameReader
from eddyline.query.select.names import identifier
from eddyline.query.select.output import (
    columns_of_star,
    default_name,
    is_star,
    unaliased,
    with_names,
)
from eddyline.registry import unknown
from eddyline.sql.analysis import check_is_row_wise
from eddyline.sql.functions import AGGREGATES, WINDOWED
from eddyline.sql.parsing import offset_of, refuse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sqlglot import Expr

    from eddyline.query.query import TimeColumn
    from eddyline.query.select.conditions import Calls
    from eddyline.query.select.names import JoinNames
    from eddyline.query.select.statement import Fragment, Statement

Words = tuple[str, ...]


def over_of(statement: Statement) -> exp.Window | None:
    """Return the first call before OVER in the output columns."""
    columns = (each.tree for each in statement.output_columns)
    found = [node for tree in columns for node in tree.find_all(exp.Window)]
    return min(found, key=offset_of, default=None)


@dataclass(frozen=True, slots=True)
class Windowed:
    """What was read of a query with OVER."""

    overs: tuple[Over, ...]
    projections: tuple[str, ...]
    times: tuple[TimeColumn, ...]


class OverReader:
    """Reads the output columns of a query over one input in which OVER stands.

    Args:
        statement: the query.
        names: of the input's columns.
        functions: those of the user.
        known: names of aggregate functions, in lower case.
    """

    def __init__(
        self, statement: Statement, names: JoinNames, functions: Calls, known: Collection[str]
    ) -> None:
        self._statement = statement
        self._text = statement.text
        self._names = names
        self._functions = functions
        self._calls = AggregateCalls(statement, names, functions, known)
        self._frames = FrameReader(statement, names)
        self._overs: dict[tuple[Words, ...], Over] = {}
        """By the column of time and the words of the partitions."""
        self._columns: dict[tuple[object, ...], str] = {}
        """By what a call is of, and its partitions and frame."""
        self._times: dict[str, TimeColumn] = {}

    def read(self) -> Windowed:
        """Return what was read.

        Raises:
            QueryError: a name that is not there, or a frame that is none.
            NotSupportedError: valid SQL that eddyline does not run yet.
        """
        projections = with_names(self._outputs())
        times = tuple(self._times.values())
        return Windowed(tuple(self._overs.values()), projections, times)

    def _outputs(self) -> Iterator[tuple[Fragment, str, str]]:
        for column in self._statement.output_columns:
            if is_star(column.tree):
                for each in columns_of_star(column, self._statement, self._names):
                    yield column, each.column, identifier(each.column)
                continue
            what = f"output column {column.text!r}"
            alias, part = unaliased(column, self._statement)
            text = self._text_of(part, what)
            yield column, alias or default_name(part, what, self._statement, self._names), text

    def _text_of(self, part: Fragment, what: str) -> str:
        """Return an output column over the columns of a row and of its calls."""
        self._check_is_of_row(part, what)
        nodes = part.tree.walk(prune=lambda each: isinstance(each, exp.Window))
        overs = [each for each in nodes if isinstance(each, exp.Window)]
        parts = [self._statement.part(each) for each in overs]
        places = [(part.start, part.end, self._column(part.tree)) for part in parts]
        own = [
            (each.start, each.end, identifier(each.named.column))
            for each in self._names.mentions(part, what)
            if not any(start <= each.start < end for start, end, _ in places)
        ]
        return part.rewritten(sorted([*places, *own]))

    def _check_is_of_row(self, part: Fragment, what: str) -> None:
        """Refuse what needs other rows and has no OVER."""
        self._functions.check_none(part.tree, "beside OVER")
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
        frame = self._frames.read(over)
        self._times.setdefault(frame.time.name, frame.time)
        texts = tuple(self._partition(each) for each in frame.partition_by)
        by = ((frame.time.name,), *map(comparable, texts))
        key = (self._calls.key(call), by, frame.window)
        if key not in self._columns:
            self._columns[key] = f"{CALL}{len(self._columns)}"
            made = OverCall(replace(call, column=self._columns[key]), frame.window)
            known = self._overs.get(by) or Over(texts, (), frame.time.name)
            self._overs[by] = replace(known, calls=(*known.calls, made))
        return self._columns[key]

    def _partition(self, part: Fragment) -> str:
        self._calls.check_is_of_rows(part, "PARTITION BY")
        return self._names.canonical(part, "PARTITION BY")

    def _refuse_unknown(self, over: exp.Window) -> NoReturn:
        node = over.find(exp.Anonymous)
        name = str(over.this.name if node is None else node.name).lower()
        known = sorted(self._calls.known)
        if name in WINDOWED or name in AGGREGATES:
            kind = "window" if name in WINDOWED else "aggregate"
            message = f"the {kind} function {name}() OVER (…) is not supported yet"
            also = f"; known: {', '.join(known)}" if known else ""
            self._statement.refuse(message + also, offset_of(over))
        refuse(unknown("aggregate function", name, known), self._text, offset_of(over))
