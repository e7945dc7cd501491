"""Boolean SQL over the columns of an input as a tree of tests.

What draws lots, or may raise and has no form that gives NULL instead, is not taken apart at all:
Spark evaluates the whole rule as it was written, with its own short-circuits.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from eddyline.errors import NotSupportedError
from eddyline.query.conditions import NativeTest, Not
from eddyline.query.rules import logic, text_patterns
from eddyline.query.rules.python_calls import take_out_calls
from eddyline.query.rules.reading import COMPARED, Reading
from eddyline.sql.analysis import Expression
from eddyline.sql.functions import as_call
from eddyline.sql.null_rejection import needed_columns
from eddyline.sql.parsing import refuse, slice_of, tokens_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlglot import Expr

    from eddyline.query.conditions import Node
    from eddyline.query.predicates import FunctionPredicate
    from eddyline.query.rules.reading import NodeReader

_VARIABLE = re.compile(r"\$\{\S+?\}")
"""A variable, which Spark puts in before it reads a text (``spark.sql.variable.substitute``)."""


def _called(reading: Reading, node: Expr) -> Node | None:
    """Return the test of a function."""
    name, args = as_call(node) or ("", [])
    if name in ("isnull", "isnotnull") and len(args) == 1:
        null = logic.null_test(reading, args[0])
        return null if null is None or name == "isnull" else Not(null)
    if name in ("rlike", "regexp", "regexp_like") and len(args) == 2:
        return text_patterns.regex(reading, args)
    if name in text_patterns.AROUND and len(args) == 2:
        return text_patterns.around(reading, args, name)
    return None


READERS: dict[type[Expr], NodeReader] = {
    exp.And: logic.connected,
    exp.Or: logic.connected,
    exp.Not: logic.negated,
    exp.Boolean: logic.constant,
    exp.Null: logic.constant,
    exp.Is: logic.truth,
    exp.Column: logic.flag,
    **dict.fromkeys(COMPARED, logic.compared),
    exp.NullSafeEQ: logic.same,
    exp.NullSafeNEQ: logic.same,
    exp.Between: logic.between,
    exp.In: logic.one_of_list,
    exp.Like: text_patterns.like,
    exp.ILike: text_patterns.like,
    exp.Escape: text_patterns.escaped,
    exp.RegexpLike: text_patterns.rlike,
    exp.Anonymous: _called,
}
"""The function that turns each type of node into tests; Spark evaluates all other nodes."""


class RuleText:
    """One rule's text over the columns of an input, a condition.

    It may call the Python predicates by their names; other arguments are as for ``Expression``.
    """

    def __init__(
        self,
        text: str,
        what: str,
        columns: Mapping[str, str],
        functions: Mapping[str, FunctionPredicate],
        *,
        ansi: bool,
    ) -> None:
        known = {name.lower(): predicate for name, predicate in functions.items()}
        self._expression = Expression(
            text, what, columns, ansi=ansi, qualifiers=None, functions=known
        )
        predicates = take_out_calls(self._expression, columns, known)
        self._reading = Reading(self._expression, columns, predicates, READERS)
        self._reading.check_is_condition(self._expression.tree)

    @property
    def first_call(self) -> str:
        """The first Python function that it calls ("" if it calls none)."""
        return self._first_call[0]

    @property
    def _first_call(self) -> tuple[str, int]:
        return min(self._expression.calls.values(), key=lambda call: call[1], default=("", 0))

    @property
    def whole(self) -> NativeTest:
        """The rule as Spark evaluates it, as it was written."""
        # Without a comment at its end, which would hide what comes after it.
        text, tree = self._expression.text, self._expression.tree
        written = slice_of(text, tokens_of(text, self._expression.what))
        columns = self._expression.columns_of(tree)
        # A text that Spark may read otherwise, or that draws lots, is evaluated on every row.
        has_needs = self.risk and not self.doubt and not self.chance
        needs = needed_columns(tree, self._expression.references) if has_needs else ()
        return NativeTest(written, columns, may_raise=bool(self.risk), needs=tuple(sorted(needs)))

    @property
    def chance(self) -> str:
        """Reason why equal rows may get different answers; empty if they do not."""
        return self._expression.chance_in(self._expression.tree)

    @property
    def doubt(self) -> str:
        """Reason why it may be read otherwise than here; empty if it is not."""
        if _VARIABLE.search(self._expression.text):
            return "Spark replaces ${…} by a variable"
        if self._expression.is_read_alike:
            return ""
        return "which of its operators binds tighter is not clear; write parentheses"

    @property
    def risk(self) -> str:
        """Reason why it may raise; empty if it does not."""
        return self._expression.facts(self._expression.tree).reason

    def tree(self) -> Node:
        """Return the rule taken apart; see ``Reading.whole``."""
        return self._reading.whole()

    def refuse_calls(self, reason: str) -> NoReturn:
        """Refuse a rule that calls a Python function although it must stay whole."""
        name, offset = self._first_call
        message = (
            f"{self._expression.what} calls the Python function {name} and cannot be taken apart: "
            f"{reason}; use forms that never raise, such as try_cast or try_divide, or make two "
            "rules of it"
        )
        refuse(message, self._expression.text, offset, NotSupportedError, function=name)
