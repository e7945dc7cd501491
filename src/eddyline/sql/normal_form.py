"""Normal form of SQL text.

Two texts with one normal form mean the same. These do not count: comments, white space, the case of
keywords and function names, and parentheses that change nothing. The order of AND and OR does not
count, nor does a condition that they repeat, unless it draws lots. ``0 < v`` is ``v > 0``, and the
sides of ``=`` may be swapped. Spark's setting decides whether the case of names counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from eddyline.errors import QueryError
from eddyline.sql.functions import drawn, joined_by
from eddyline.sql.parsing import deep, on_one_line, parse_column

Qualifiers = Callable[[str], str]
"""Returns the name that a qualifier of columns has in normal forms; gets it in lower case."""

_CHAINS = exp.And, exp.Or
_SYMMETRIC = exp.EQ, exp.NEQ, exp.NullSafeEQ
_MIRRORED: dict[type[Any], type[Any]] = {exp.GT: exp.LT, exp.GTE: exp.LTE}


@deep
def conjuncts(
    text: str, *, ignores_case: bool = True, qualifier: Qualifiers = lambda name: name
) -> list[str]:
    """Return the different normal forms of the conditions that AND joins, sorted.

    Args:
        text: SQL of an expression, or of an output column with its alias.
        ignores_case: whether names are the same in any case.
        qualifier: renames the qualifiers of columns.

    Returns:
        Texts for comparisons only. A text that is no SQL is returned on one line.

    >>> conjuncts("(V > 3) and k = 1 -- odd") == conjuncts("1 = k AND v>3")
    True
    >>> conjuncts("0 < v AND v > 0") == conjuncts("v > 0")
    True
    >>> conjuncts("V AS v") == conjuncts("v")
    True
    >>> conjuncts("v > 3 OR k = 1 AND w") == conjuncts("(v > 3 OR k = 1) AND w")
    False
    """
    try:
        tree = parse_column(text)
    except QueryError:
        return [on_one_line(text)]
    form = _Form(ignores_case, qualifier)
    return form.chain(tree, exp.And)


class _Form:
    def __init__(self, ignores_case: bool, qualifier: Qualifiers) -> None:
        self._ignores_case = ignores_case
        self._qualifier = qualifier

    def text_of(self, node: Any) -> str:  # noqa: C901, PLR0911 - a case for each kind of node
        """Return the normal form of a tree, of a list of trees, or of a value in a tree."""
        if isinstance(node, list):
            return f"[{' '.join(map(self.text_of, node))}]"
        if not isinstance(node, exp.Expression):
            return str(node).upper()
        if isinstance(node, exp.Paren):
            return self.text_of(node.this)
        if isinstance(node, exp.Identifier):
            return repr(self._name(node))
        if isinstance(node, exp.Literal):
            return f"text {node.this!r}" if node.is_string else f"number {str(node.this).lower()}"
        if isinstance(node, exp.Column):
            names = [self._name(part) for part in node.parts]
            if len(names) > 1:
                names[0] = self._qualifier(names[0])
            return f"(COLUMN {' '.join(map(repr, names))})"
        if isinstance(node, exp.Alias) and self._is_own_name(node):
            return self.text_of(node.this)
        if isinstance(node, _CHAINS):
            parts = self.chain(node, type(node))
            return parts[0] if len(parts) == 1 else self._call(type(node), parts)
        if isinstance(node, _SYMMETRIC):
            return self._call(
                type(node), sorted([self.text_of(node.this), self.text_of(node.expression)])
            )
        if type(node) in _MIRRORED:
            sides = {"this": node.expression, "expression": node.this}
            return self._call(_MIRRORED[type(node)], self._args(sides))
        return self._call(type(node), self._args(node.args))

    def chain(self, node: Any, kind: type[Any]) -> list[str]:
        """Return the normal forms of what AND or OR joins, sorted; see ``conjuncts``."""
        parts = joined_by(kind, node)
        forms = sorted(self.text_of(part) for part in parts)
        return forms if any(map(drawn, parts)) else list(dict.fromkeys(forms))

    def _args(self, args: Mapping[str, Any]) -> list[str]:
        return [
            f"{name} {self.text_of(value)}"
            for name, value in sorted(args.items())
            if value not in (None, False, [])
        ]

    def _is_own_name(self, node: Any) -> bool:
        """Return whether a column is called as it is called anyway: ``s.v AS v``."""
        column, alias = node.this, node.args["alias"]
        is_column = isinstance(column, exp.Column) and isinstance(alias, exp.Identifier)
        return is_column and self._name(column.parts[-1]) == self._name(alias)

    @staticmethod
    def _call(kind: type[Any], args: list[str]) -> str:
        return f"({kind.__name__} {' '.join(args)})"

    def _name(self, part: Any) -> str:
        name = str(part.name)
        return name.lower() if self._ignores_case else name
