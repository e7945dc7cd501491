"""Writing a part of a condition as Spark SQL of its own, the same text for the same expression.

Every operator is put in parentheses, so that the text means what the tree says. Whether the tree
says what Spark would read is another question: sqlglot and Spark do not give all operators the
same precedence (``a | b & c``, ``a = b < c``); ``is_read_alike`` tells where they may differ.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import TokenType, exp

from eddyline.sql.inference import as_call
from eddyline.sql.parsing import SparkText, offset_of, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlglot import Expr, Token

    from eddyline.sql.names import ColumnRef


_SIGNS: dict[type, str] = {
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


class UnwritableError(Exception):
    """A part of the tree has no text that surely means the same."""


def join_literals(tree: Expr, text: str, tokens: Sequence[Token]) -> Expr:
    """Make neighbouring string literals one, as Spark reads them: ``'it''s'``, ``'a' 'b'``.

    Args:
        tree: the tree; it is changed.
        text: the text that it was read from.
        tokens: the tokens of the text.
    """
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

    Args:
        references: what each column refers to, by the node's ``id``.
        calls: nodes that stand for calls of Python functions, by ``id``, with their offsets.
        text: the text of the tree.
        what: what the text is, for errors.
    """

    def __init__(
        self,
        references: Mapping[int, ColumnRef],
        calls: Mapping[int, tuple[str, int]],
        text: str,
        what: str,
    ) -> None:
        self._references = references
        self._calls = calls
        self._text = text
        self._what = what

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
            refuse(message, self._text, offset, function=name)
        handler = self._HANDLERS.get(type(node))
        if handler is None:
            raise UnwritableError(type(node).__name__)
        return handler(self, node)

    def _list(self, nodes: Sequence[Expr]) -> str:
        return ", ".join(map(self.write, nodes))

    def _column(self, node: Expr) -> str:
        found = self._references.get(id(node))
        return node.name.lower() if found is None else found.text

    def _literal(self, node: Expr) -> str:
        value = str(node.this)
        return string_literal(value) if node.args.get("is_string") else value

    def _hex(self, node: Expr) -> str:
        value = str(node.this)
        if re.fullmatch("[0-9A-Fa-f]*", value) is None or f"'{value}'" not in self._text:
            raise UnwritableError(value)
        return f"X'{value}'"

    def _operator(self, node: Expr) -> str:
        sign = _SIGNS[type(node)]
        return f"({self.write(node.this)} {sign} {self.write(node.expression)})"

    def _like(self, node: Expr, escape: str = "") -> str:
        sign = _SIGNS[type(node)]
        negate = "NOT " if node.args.get("negate") else ""
        pattern = node.expression
        written = ""
        if isinstance(pattern, exp.Any | exp.All):
            inside = pattern.this.unnest()
            each = inside.expressions if isinstance(inside, exp.Tuple) else [inside]
            kind = "ANY" if isinstance(pattern, exp.Any) else "ALL"
            written = f"{kind} ({self._list(each)})"
        return f"({self.write(node.this)} {negate}{sign} {written or self.write(pattern)}{escape})"

    def _escaped(self, node: Expr) -> str:
        if not isinstance(node.this, exp.Like | exp.ILike):
            raise UnwritableError(type(node.this).__name__)
        return self._like(node.this, f" ESCAPE {self.write(node.expression)}")

    def _between(self, node: Expr) -> str:
        low, high = self.write(node.args["low"]), self.write(node.args["high"])
        return f"({self.write(node.this)} BETWEEN {low} AND {high})"

    def _case(self, node: Expr) -> str:
        chosen = f" {self.write(node.this)}" if node.this is not None else ""
        arms = [
            f" WHEN {self.write(each.this)} THEN {self.write(each.args['true'])}"
            for each in node.args["ifs"]
        ]
        default = node.args.get("default")
        otherwise = "" if default is None else f" ELSE {self.write(default)}"
        return f"CASE{chosen}{''.join(arms)}{otherwise} END"

    def _if(self, node: Expr) -> str:
        parts = [node.this, node.args["true"], node.args.get("false")]
        return f"if({self._list([part for part in parts if part is not None])})"

    def _cast(self, node: Expr) -> str:
        name = "TRY_CAST" if isinstance(node, exp.TryCast) else "CAST"
        if node.args.get("format") or node.args.get("action"):
            raise UnwritableError(name)
        return f"{name}({self.write(node.this)} AS {node.args['to'].sql(SparkText)})"

    def _call(self, node: Expr) -> str:
        called = as_call(node)
        if called is None or re.fullmatch(r"\w+", called[0]) is None:
            raise UnwritableError(type(node).__name__)
        return f"{called[0].lower()}({self._list(called[1])})"

    def _trim(self, node: Expr) -> str:
        if node.args.get("expression") is not None:
            raise UnwritableError("TRIM")  # which of two arguments is the text, varies
        return self._call(node)

    def _extract(self, node: Expr) -> str:
        return f"EXTRACT({node.this.name} FROM {self.write(node.expression)})"

    def _negative(self, node: Expr) -> str:
        # Spark reads -1 as one number; what it negates, -(1), it may round.
        is_apart = isinstance(node.this, exp.Paren) and isinstance(node.this.unnest(), exp.Literal)
        inner = self.write(node.this)
        return f"(- ({inner}))" if is_apart else f"(- {inner})"

    def _interval(self, node: Expr) -> str:
        unit = node.args.get("unit")
        if not isinstance(unit, exp.Var) or not isinstance(node.this, exp.Literal):
            raise UnwritableError("INTERVAL")
        return f"INTERVAL '{node.this.this}' {unit.name}"

    def _bracket(self, node: Expr) -> str:
        return f"{self.write(node.this)}[{self._list(node.expressions)}]"

    _HANDLERS: ClassVar[dict[type, Callable[[SqlWriter, Any], str]]] = {
        exp.Column: _column,
        exp.Literal: _literal,
        exp.RawString: lambda _self, node: string_literal(str(node.this)),
        exp.HexString: _hex,
        exp.Boolean: lambda _self, node: "TRUE" if node.this else "FALSE",
        exp.Null: lambda _self, _node: "NULL",
        exp.Paren: lambda self, node: self.write(node.this),
        exp.Not: lambda self, node: f"(NOT {self.write(node.this)})",
        exp.Neg: _negative,
        exp.BitwiseNot: lambda self, node: f"(~ {self.write(node.this)})",
        exp.In: lambda self, node: f"({self.write(node.this)} IN ({self._list(node.expressions)}))",
        exp.Between: _between,
        **dict.fromkeys(_SIGNS, _operator),
        **dict.fromkeys((exp.Like, exp.ILike), _like),
        exp.Escape: _escaped,
        exp.Case: _case,
        exp.If: _if,
        **dict.fromkeys((exp.Cast, exp.TryCast), _cast),
        exp.Bracket: _bracket,
        exp.Array: lambda self, node: f"array({self._list(node.expressions)})",
        exp.Interval: _interval,
        exp.Extract: _extract,
        exp.Trim: _trim,
        **dict.fromkeys((exp.Anonymous, exp.Substring, exp.StrPosition), _call),
        **dict.fromkeys((exp.CurrentDate, exp.CurrentTimestamp), _call),
        **dict.fromkeys((exp.CurrentUser, exp.SessionUser), _call),
    }


def string_literal(text: str) -> str:
    r"""Return a text as a literal of Spark SQL.

    >>> print(string_literal("it's a \\"))
    'it\'s a \\'
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    # Spark replaces ${name} by a variable, in literals too.
    return "'" + escaped.replace("${", "\\u0024{") + "'"


_LEVELS: dict[type, int] = {
    exp.Or: 1,
    exp.And: 2,
    exp.Not: 3,
    **dict.fromkeys((exp.Is, exp.Between, exp.In, exp.Escape, exp.Like, exp.ILike), 4),
    **dict.fromkeys((exp.RegexpLike, exp.NullSafeEQ, exp.NullSafeNEQ), 4),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), 5),
    exp.BitwiseOr: 6,
    exp.BitwiseXor: 7,
    exp.BitwiseAnd: 8,
    **dict.fromkeys((exp.BitwiseLeftShift, exp.BitwiseRightShift), 9),
    **dict.fromkeys((exp.Add, exp.Sub, exp.DPipe), 10),
    **dict.fromkeys((exp.Mul, exp.Div, exp.Mod, exp.IntDiv), 11),
    **dict.fromkeys((exp.Neg, exp.BitwiseNot), 12),
}
"""How tightly operators bind in Spark's grammar; what is not listed stands for itself."""
_NOT, _PREDICATE, _COMPARISON, _CLOSED = 3, 4, 5, 20


def is_read_alike(tree: Expr) -> bool:
    """Return whether Spark surely reads a text into the tree that sqlglot made of it.

    >>> from eddyline.sql.parsing import parse_condition
    >>> is_read_alike(parse_condition("a | b & c = 1"))  # for sqlglot (a | b) & c
    False
    """
    return all(map(_is_alike, tree.walk()))


def _is_alike(node: Expr) -> bool:
    level = _level(node)
    if level == _CLOSED or isinstance(node, exp.Escape):
        return True
    what = node.args.get("expression")
    if isinstance(node, exp.Is) and not isinstance(what, exp.Null | exp.Boolean):
        return False
    first = _level(node.this)
    if level == _PREDICATE:
        others = [what, node.args.get("low"), node.args.get("high")]
        binds = all(_level(other) > _COMPARISON for other in others if other is not None)
        return first >= _COMPARISON and binds and not node.args.get("symmetric")
    # Operators of one level group from the left; for AND and OR it makes no difference.
    return first >= level and (what is None or _level(what) > level or level < _NOT)


def _level(node: Expr) -> int:
    return _LEVELS.get(type(node), _CLOSED)
