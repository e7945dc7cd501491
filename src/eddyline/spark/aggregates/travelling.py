"""The columns of rows that travel to tasks: each expression once, whatever is made of it there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from sqlglot import TokenType

from eddyline.aggregates.lifts import Lift
from eddyline.sql.parsing import quoted, tokens_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from eddyline.spark.aggregates.lifting import LiftedPartial

_NO_NAMES = TokenType.NULL, TokenType.TRUE, TokenType.FALSE

_NAME = re.compile(r"[A-Za-z_]\w*|`.*`", re.ASCII | re.DOTALL)

TRAVELS = "__t"
"""What columns that travel are named, with a number behind it."""


class Travelling:
    """What travels of rows, and what tasks make of it, in the order in which it is added.

    Args:
        columns: of the rows.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        lower = [each.lower() for each in columns]
        self._known = {each.lower(): each for each in columns if lower.count(each.lower()) == 1}
        self._made: dict[str, Column] = {}
        self._names: dict[str, str] = {}
        self.lifts: dict[str, Lift] = {}
        """How tasks make the columns that were added."""

    @property
    def columns(self) -> list[Column]:
        """The columns that travel, over the rows."""
        return [made.alias(name) for name, made in self._made.items()]

    def add(self, name: str, text: str) -> None:
        """Add a column by its name in tasks, and SQL over the rows."""
        self.lifts[name] = Lift("same", self._travels(text))

    def add_partial(self, partial: LiftedPartial, *, is_timed: bool = True) -> None:
        """Add the partials of single rows.

        Args:
            partial: of a call.
            is_timed: whether tasks know the event time of each row.
        """
        made = partial.made
        if made is None or (made.way == "timed" and not is_timed):
            self._made[partial.source] = partial.of_row
            self.lifts[partial.source] = Lift("same", partial.source)
        else:
            of = self._travels(made.text) if made.text else ""
            self.lifts[partial.source] = Lift(made.way, of, made.kind)

    def _travels(self, text: str) -> str:
        """Return the name under which an expression travels."""
        plain = plain_name(text)
        own = None if plain is None else self._known.get(plain.lower())
        key = text if own is None else f"`{own}"
        if key not in self._names:
            name = self._names[key] = f"{TRAVELS}{len(self._names)}"
            self._made[name] = F.expr(text) if own is None else F.col(quoted(own))
        return self._names[key]


def plain_name(text: str) -> str | None:
    r"""Return the name that an expression is; None if it is more.

    >>> plain_name("(dateTime\n)"), plain_name("`a b`"), plain_name("v + 1"), plain_name("'v'")
    ('dateTime', 'a b', None, None)
    """
    tokens = [each for each in tokens_of(text) if each.text not in ("(", ")")]
    if len(tokens) != 1 or tokens[0].token_type in _NO_NAMES:
        return None
    (only,) = tokens
    return only.text if _NAME.fullmatch(text, only.start, only.end + 1) else None
