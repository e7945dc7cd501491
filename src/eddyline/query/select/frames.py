"""What stands in ``OVER (…)``: partitions, the column of time, and frames as windows.

A frame ends at the current row: of RANGE with the rows of its instant, of ROWS with itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from eddyline.errors import NotSupportedError
from eddyline.query.query import TimeColumn
from eddyline.query.select.intervals import micros_of
from eddyline.query.windows import (
    LONGEST,
    MAX_ROWS,
    MAX_SPAN,
    UNBOUNDED,
    RangeWindow,
    RowsWindow,
    too_long,
)
from eddyline.registry import unknown
from eddyline.sql.parsing import offset_of, refuse

if TYPE_CHECKING:
    from sqlglot import Expr

    from eddyline.query.select.names import JoinNames
    from eddyline.query.select.statement import Fragment, Statement
    from eddyline.query.windows import Window

_BY = "ORDER BY of OVER (…)"


@dataclass(frozen=True, slots=True)
class Frame:
    """What OVER says."""

    partition_by: tuple[Fragment, ...]
    window: Window
    time: TimeColumn


class FrameReader:
    """Reads the frames of a query, those of its WINDOW clause included."""

    def __init__(self, statement: Statement, names: JoinNames) -> None:
        self._statement = statement
        self._text = statement.text
        self._names = names
        self._defined: dict[str, exp.Window] = {}
        """Definitions of WINDOW by name in lower case."""
        for each in statement.tree.args.get("windows") or ():
            name = str(each.this.name)
            if name.lower() in self._defined:
                refuse(f"WINDOW {name} is defined twice", self._text, offset_of(each))
            self._defined[name.lower()] = each

    def read(self, over: exp.Window) -> Frame:
        """Return what OVER says, or the definition that it names.

        Raises:
            QueryError: it is not of the event time, or not complete; the message shows where.
            NotSupportedError: a frame that eddyline does not run.
        """
        start, over = offset_of(over), self._definition(over)
        by = over.args.get("partition_by") or ()
        time = self._time(over, start)
        partition = tuple(self._statement.part(each) for each in by)
        return Frame(partition, self._window(over), time)

    def _definition(self, over: exp.Window) -> exp.Window:
        alias = over.args.get("alias")
        if alias is None:
            return over
        if any(over.args.get(key) for key in ("partition_by", "order", "spec")):
            self._refuse(f"OVER ({alias.name} …) with more than the name", alias)
        if alias.name.lower() not in self._defined:
            known = [str(each.this.name) for each in self._defined.values()]
            message = unknown("window", alias.name, known)
            refuse(f"{message}; WINDOW … AS (…) defines some", self._text, offset_of(alias))
        found = self._defined[alias.name.lower()]
        if found.args.get("alias") is not None:
            self._refuse("WINDOW of another one", found)
        return found

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
        found = (each for each in self._statement.tokens if each.text.upper() == word)
        return next((each.start for each in found if each.start >= behind), behind)

    def _refuse_word(self, word: str, message: str, over: exp.Window) -> NoReturn:
        refuse(message, self._text, self._word(word, over), NotSupportedError)

    def _refuse(self, what: str, node: Expr) -> NoReturn:
        self._statement.refuse(f"{what} is not supported yet", offset_of(node))
