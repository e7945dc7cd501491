"""Spark's own spelling of windows: ``GROUP BY window(ts, '10 minutes', '1 minute')``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from sqlglot import exp

from eddyline.errors import NotSupportedError
from eddyline.query.query import TimeColumn
from eddyline.query.select.intervals import micros_of
from eddyline.query.windows import MAX_SPAN, SessionWindow, SlideWindow, too_long
from eddyline.sql.parsing import offset_of, refuse

if TYPE_CHECKING:
    from sqlglot import Expr

    from eddyline.query.select.names import JoinNames
    from eddyline.query.select.statement import Fragment

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
        message = f"{name}(…) of what is no bare column of the stream is not supported yet"
        refuse(message, call.query, call.start, NotSupportedError)
    (mention,) = names.mentions(_of(call, column), f"{name}(…)")
    time = TimeColumn(mention.named.column, f"{name}(…)", mention.start)
    micros = [_length(call, each, name) for each in lengths]
    if name == "session_window":
        return SessionWindow(micros[0]), time
    length, slide, origin = (*micros, *(micros[0], 0)[len(micros) - 1 :])
    # Spark's windows begin at multiples of the slide; of ours the ends are told.
    return SlideWindow(length, slide, (origin + length) % slide), time


def _of(call: Fragment, tree: Expr) -> Fragment:
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
