"""Calls of the user's functions: conjuncts of their own, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.errors import NotSupportedError
from eddyline.sql.parsing import offset_of, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot import Expr

    from eddyline.query.predicates import FunctionPredicate


@dataclass(frozen=True, slots=True)
class Call:
    """A conjunct that is ``[NOT] f(…)`` of a function of the user."""

    function: FunctionPredicate
    negated: bool
    start: int
    """The offset of the function's name."""
    arguments: tuple[Expr, ...]
    """Empty for ``f()`` and ``f(*)``, which read the function's own columns."""

    def predicate(self, reads: Sequence[str]) -> FunctionPredicate:
        """Return the function as a predicate on what it reads here."""
        made = replace(self.function, reads=tuple(reads))
        return ~made if self.negated else made


class Calls:
    """The functions that a query may call."""

    def __init__(self, text: str, functions: Mapping[str, FunctionPredicate]) -> None:
        self._text = text
        self.functions = {name.lower(): made for name, made in functions.items()}
        """By name in lower case."""

    def call(self, tree: Expr) -> Call | None:
        """Return the call if a conjunct is ``[NOT] f(…)`` of a function.

        Raises:
            QueryError: a call that does not fit the function.
            NotSupportedError: a function inside a larger expression.
        """
        negated, inner = False, tree
        while isinstance(inner, exp.Not | exp.Paren):
            negated ^= isinstance(inner, exp.Not)
            inner = inner.this
        found = self.functions.get(inner.name.lower()) if _is_call(inner) else None
        if found is None:
            self.check_none(tree)
            return None
        is_star = [type(each) for each in inner.expressions] == [exp.Star]
        call = Call(found, negated, offset_of(inner), () if is_star else tuple(inner.expressions))
        given = len(call.arguments)
        if given and given != len(found.reads):
            takes = f"{found.name}({', '.join(found.reads)})"
            message = f"{takes} takes {len(found.reads)} argument(s), got {given}"
            refuse(message, self._text, call.start, function=found.name)
        for each in call.arguments:
            self.check_none(each)
        return call

    def check_none(self, tree: Expr) -> None:
        """Refuse a function in an expression that is no call.

        Raises:
            NotSupportedError: there is one.
        """
        for node in tree.find_all(exp.Anonymous):
            name = str(node.name)
            if name.lower() in self.functions:
                message = (
                    f"the function {name} inside a larger expression is not supported yet; "
                    f"it may stand between the ANDs of WHERE, alone or after NOT"
                )
                refuse(message, self._text, offset_of(node), NotSupportedError, function=name)


def _is_call(tree: Expr) -> bool:
    return isinstance(tree, exp.Anonymous)
