"""Rendering of a condition's parts as Spark SQL.

Equal expressions have equal texts. Every operator is put in parentheses, so that the text means
what the tree says. Whether Spark reads the user's text as that tree is another question: sqlglot
and Spark do not give all operators the same precedence (``a | b & c``, ``a = b < c``);
``is_read_alike`` tells where they may differ. How each type of node is written stands in
``sql.nodes``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from sqlglot import TokenType, exp

from eddyline.sql.parsing import offset_of, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlglot import Expr, Token

    from eddyline.sql.names import ColumnRef

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
