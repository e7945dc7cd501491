"""Rendering of a condition's parts as Spark SQL.

Equal expressions have equal texts. Every operator is put in parentheses, so that the text means
what the tree says. Whether Spark reads the user's text as that tree is another question: sqlglot
and Spark do not give all operators the same precedence (``a | b & c``, ``a = b < c``);
``is_read_alike`` tells where they may differ. How each type of node is written stands in
``sql.nodes``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sqlglot import TokenType, exp

from eddyline.errors import QueryError
from eddyline.sql.functions import drawn, joined_by
from eddyline.sql.parsing import deep, offset_of, on_one_line, parse_column, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlglot import Expr, Token

    from eddyline.sql.functions import ColumnRef

    NodeRule = Callable[["SqlWriter", Any], str]

SIGNS: dict[type, str] = {
    exp.And: "AND",
    exp.Or: "OR",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
    exp.Is: "IS",
    exp.RegexpLike: "RLIKE",
    exp.Like: "LIKE",
    exp.ILike: "ILIKE",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "DIV",
    exp.DPipe: "||",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}
"""Operators between two operands."""


_CHAINED = (exp.And, exp.Or, exp.Add, exp.Sub, exp.Mul, exp.DPipe)
"""Operators that may form long chains; nested parentheses would be too deep for Spark."""


class UnwritableError(Exception):
    """A part of the tree has no text that surely means the same."""


def join_literals(tree: Expr, text: str, tokens: Sequence[Token]) -> Expr:
    """Make neighbouring string literals one in a tree: ``'it''s'``, ``'a' 'b'``."""
    position = {token.start: index for index, token in enumerate(tokens)}
    for node in list(tree.find_all(exp.Concat)):
        first = position.get(offset_of(node), -1)
        run = tokens[first : first + len(node.expressions)] if first >= 0 else []
        if len(run) < 2 or any(token.token_type != TokenType.STRING for token in run):
            continue
        joined = exp.Literal.string(_joined_text(text, run))
        joined.meta.update({"start": run[0].start, "end": run[-1].end})
        if node is tree:
            return joined
        node.replace(joined)
    return tree


def _joined_text(text: str, run: Sequence[Token]) -> str:
    pieces = [run[0].text]
    for before, token in pairwise(run):
        # Two quotes without anything between them are a quote inside of one literal.
        ends, starts = text[before.end], text[token.start]
        is_doubled = before.end + 1 == token.start and ends == starts
        pieces.append(f"{ends}{token.text}" if is_doubled else token.text)
    return "".join(pieces)


class SqlWriter:
    """Writes parts of one tree.

    Calls of Python functions cannot be written; they are named, with their offsets, by the ``id``
    of the nodes that stand for them. Unless literals are kept as in the text, equal ones are
    written alike.
    """

    def __init__(
        self,
        references: Mapping[int, ColumnRef],
        nodes: Mapping[type[Expr], NodeRule],
        text: str,
        what: str,
        calls: Mapping[int, tuple[str, int]],
        keeps_literals: bool = False,
    ) -> None:
        self.references = references
        self.text = text
        self.keeps_literals = keeps_literals
        self._nodes = nodes
        self._what = what
        self._calls = calls

    def write(self, node: Expr) -> str:
        """Return a node as Spark SQL.

        Raises:
            UnwritableError: it holds something that is not known here.
            NotSupportedError: a Python function is called inside of it.
        """
        if id(node) in self._calls:
            name, offset = self._calls[id(node)]
            message = (
                f"{self._what}: the function {name} inside a larger expression is not supported; "
                f"it may stand between AND, OR and NOT, and before IS TRUE or IS NULL"
            )
            refuse(message, self.text, offset, function=name)
        rule = self._nodes.get(type(node))
        if rule is None:
            raise UnwritableError(type(node).__name__)
        return rule(self, node)

    def write_list(self, nodes: Iterable[Expr]) -> str:
        """Return nodes as Spark SQL, with commas between them."""
        return ", ".join(map(self.write, nodes))


def write_operator(writer: SqlWriter, node: Expr) -> str:
    """Return an operator between operands as Spark SQL; those of one kind group from the left."""
    sign, operands = f" {SIGNS[type(node)]} ", [node.expression]
    first = node.this
    while type(node) in _CHAINED and type(first) is type(node):
        operands.append(first.expression)
        first = first.this
    return f"({sign.join(map(writer.write, [first, *reversed(operands)]))})"


def string_literal(text: str) -> str:
    r"""Return a text as a literal of Spark SQL.

    >>> print(string_literal("it's a \\"))
    'it\'s a \\'
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    # Spark replaces ${name} by a variable, in literals too.
    return "'" + escaped.replace("${", "\\u0024{") + "'"


OR, AND, NOT, PREDICATE, COMPARISON = 1, 2, 3, 4, 5
BIT_OR, BIT_XOR, BIT_AND, SHIFT, SUM, PRODUCT, SIGN = 6, 7, 8, 9, 10, 11, 12
CLOSED = 20
"""Ranks by which operators bind in Spark's grammar; ``CLOSED`` is no operator."""


def is_read_alike(tree: Expr, binds: Mapping[type[Expr], int]) -> bool:
    """Return whether Spark surely reads a text into the tree that sqlglot made of it."""

    def level(node: Expr) -> int:
        return binds.get(type(node), CLOSED)

    def is_alike(node: Expr) -> bool:
        node_level, right = level(node), node.args.get("expression")
        if node_level == CLOSED or isinstance(node, exp.Escape):
            return True
        if isinstance(node, exp.Is) and not isinstance(right, exp.Null | exp.Boolean):
            return False
        first = level(node.this)
        if node_level == PREDICATE:
            others = [right, node.args.get("low"), node.args.get("high")]
            binds_all = all(level(other) > COMPARISON for other in others if other is not None)
            return first >= COMPARISON and binds_all and not node.args.get("symmetric")
        # Operators of one level group from the left; for AND and OR it makes no difference.
        return first >= node_level and (
            right is None or level(right) > node_level or node_level < NOT
        )

    return all(map(is_alike, tree.walk()))


# -- a normal form of SQL text ---------------------------------------------------------------------
# A normal form of SQL text: two texts with one normal form mean the same.
#
# These do not count: comments, white space, the case of keywords and function names, and
# parentheses
# that change nothing. The order of AND and OR does not count, nor does a condition that they
# repeat,
# unless it draws lots. ``0 < v`` is ``v > 0``, and the sides of ``=`` may be swapped. Spark's
# setting
# decides whether the case of names counts.


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
