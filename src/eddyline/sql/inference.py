"""The type of every part of a SQL expression, and whether it can raise on some row.

Conservative: whatever is not known to be free of errors may raise. Most of it is one question,
whether a cast can fail (``sql_types.cast_may_raise``), as Spark's ANSI mode casts wherever types
differ: ``s > 5`` reads the string ``s`` as a bigint, and raises on ``'x'``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import exp

from eddyline.sql.arithmetic import excludes_zero, number_type, result_of
from eddyline.sql.functions import CASTS, SAFE, Signature
from eddyline.sql.literals import constant_of
from eddyline.sql.parsing import SparkText
from eddyline.sql.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    MAX_PRECISION,
    NULL,
    OTHER,
    STRING,
    TIMES,
    SqlType,
    cast_may_raise,
    common_type,
    element_type,
    integer,
    key_type,
    parse_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlglot import Expr

    from eddyline.sql.names import ColumnRef

_MAX_SHOWN = 60
"""Characters of an expression that are shown in a reason."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one node."""

    type: SqlType
    reason: str = ""
    """Why the node or a part of it may raise; empty if it never does."""
    raises_here: bool = False
    """Whether the node's own work may raise, and not only its parts."""
    literal: str | None = None
    """The text of a string literal."""
    is_never_zero: bool = False
    """Whether it is a number other than 0."""


class FactsReader:
    """Reads the facts of one tree."""

    def __init__(self, references: Mapping[int, ColumnRef], *, ansi: bool) -> None:
        self._references = references
        self._ansi = ansi
        self._known: dict[int, Facts] = {}

    def facts(self, node: Expr) -> Facts:
        """Return the facts of a node of the tree."""
        if id(node) not in self._known:
            handler = self._HANDLERS.get(type(node), FactsReader._unknown)
            self._known[id(node)] = handler(self, node)
        return self._known[id(node)]

    # Leaves

    def _column(self, node: Expr) -> Facts:
        found = self._references.get(id(node))
        if found is None:
            return self._call(node, node.name, [])
        return Facts(found.type, is_never_zero=excludes_zero(found.type))

    def _literal(self, node: Expr) -> Facts:
        if node.args.get("is_string"):
            return Facts(STRING, literal=str(node.this))
        return _number(str(node.this))

    # Logic

    def _logic(self, node: Expr) -> Facts:
        parts = list(node.flatten()) if isinstance(node, exp.Connector) else [node.this]
        return self._combine(BOOLEAN, parts, *(self._cast(part, BOOLEAN) for part in parts))

    def _is(self, node: Expr) -> Facts:
        operand, what = node.this, node.expression
        problem = self._cast(operand, BOOLEAN) if isinstance(what, exp.Boolean) else ""
        return self._combine(BOOLEAN, [operand], problem)

    def _compared(self, node: Expr) -> Facts:
        sides = [node.this, node.expression]
        return self._combine(BOOLEAN, sides, self._compare(*sides))

    def _between(self, node: Expr) -> Facts:
        low, high = node.args["low"], node.args["high"]
        problems = [self._compare(node.this, low), self._compare(node.this, high)]
        return self._combine(BOOLEAN, [node.this, low, high], *problems)

    def _in(self, node: Expr) -> Facts:
        parts = [node.this, *node.expressions]
        _, problems = self._meet(parts)
        return self._combine(BOOLEAN, parts, *problems)

    def _like(self, node: Expr) -> Facts:
        return self._matched(node, node.this, node.expression, "\\")

    def _escaped(self, node: Expr) -> Facts:
        like, escape = node.this, self.facts(node.expression).literal
        if not isinstance(like, exp.Like | exp.ILike) or escape is None or len(escape) != 1:
            return self._unknown(node)
        return self._matched(node, like.this, like.expression, escape)

    def _matched(self, node: Expr, value: Expr, pattern: Expr, escape: str) -> Facts:
        patterns = [pattern]
        if isinstance(pattern, exp.Any | exp.All):
            inside = pattern.this.unnest()
            patterns = list(inside.expressions) if isinstance(inside, exp.Tuple) else [inside]
        problems = [self._cast(value, STRING)]
        for each in patterns:
            literal = self.facts(each).literal
            if literal is None or not _is_like_pattern(literal, escape):
                problems.append(f"{_shown(node)} raises if its pattern is not valid")
        return self._combine(BOOLEAN, [value, *patterns], *problems)

    def _regex(self, node: Expr) -> Facts:
        return self._regex_match(node, [node.this, node.expression])

    def _regex_match(self, node: Expr, args: Sequence[Expr]) -> Facts:
        literal = self.facts(args[1]).literal
        is_valid = literal is not None and is_plain_regex(literal)
        problem = "" if is_valid else f"{_shown(node)} raises if its pattern is not valid"
        return self._combine(BOOLEAN, args, self._cast(args[0], STRING), problem)

    def _case(self, node: Expr) -> Facts:
        ifs = list(node.args.get("ifs") or [node])
        default = node.args.get("default") or node.args.get("false")
        results = [each.args["true"] for each in ifs] + ([default] if default else [])
        kind, problems = self._meet(results)
        chosen = node.this if isinstance(node, exp.Case) else None
        for each in ifs:
            problems.append(
                self._compare(chosen, each.this) if chosen else self._cast(each.this, BOOLEAN)
            )
        conditions = [each.this for each in ifs] + ([chosen] if chosen else [])
        return self._combine(kind, [*conditions, *results], *problems)

    # Numbers

    def _arithmetic(self, node: Expr) -> Facts:
        return self._compute(node, type(node), [node.this, node.expression])

    def _compute(self, node: Expr, operation: type[Expr], args: Sequence[Expr]) -> Facts:
        left, right = (self.facts(arg).type for arg in args)
        if left.family == "date" and right.family == "integer":
            return self._combine(DATE, args, self._cast(args[1], INT))
        common = common_type(left, right)
        if not common.is_numeric or left.family == right.family == "string":
            return self._time_arithmetic(node, args)
        problems = [self._cast(arg, common) for arg in args if self.facts(arg).type == STRING]
        left, right = (common if side == STRING else side for side in (left, right))
        never_zero = self.facts(args[1]).is_never_zero
        kind, problem = result_of(operation, left, right, is_never_zero=never_zero)
        said = f"{_shown(node)} {problem}, which raises in ANSI mode" if problem else ""
        return self._combine(kind, args, *problems, said if self._ansi else "")

    def _time_arithmetic(self, node: Expr, args: Sequence[Expr]) -> Facts:
        # now() - INTERVAL 1 DAY is far from the ends of time; a column may hold them.
        families = {self.facts(arg).type.family for arg in args}
        is_fixed = not any(arg.find(exp.Column) for arg in args)
        if is_fixed and "interval" in families and families & {"timestamp", "date"}:
            temporal = [self.facts(arg).type for arg in args]
            kind = next(each for each in temporal if each.family != "interval")
            return self._combine(kind, args)
        return self._combine(OTHER, args, f"{_shown(node)} may leave the range of its type")

    def _negative(self, node: Expr) -> Facts:
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.args.get("is_string"):
            return _number("-" + str(inner.this))
        kind = self.facts(inner).type
        if has_opposite(kind):
            return self._combine(kind, [inner])
        if kind.family == "string":
            return self._combine(DOUBLE, [inner], self._cast(inner, DOUBLE))
        if kind.family != "integer":
            return self._unknown(node)
        full = integer(kind.text)
        fits = kind.low > full.low
        problem = f"{_shown(node)} can overflow, which raises in ANSI mode"
        negated = replace(kind, low=-kind.high, high=-kind.low) if fits else full
        return self._combine(negated, [inner], problem if self._ansi and not fits else "")

    def _bits(self, node: Expr) -> Facts:
        parts = [part for part in (node.this, node.args.get("expression")) if part is not None]
        kinds = [self.facts(part).type for part in parts]
        if any(kind.family != "integer" for kind in kinds):
            return self._unknown(node)
        is_shift = isinstance(node, exp.BitwiseLeftShift | exp.BitwiseRightShift)
        widest = kinds[0] if is_shift else reduce(common_type, kinds)
        return self._combine(integer(widest.text), parts)

    # Other operators

    def _paren(self, node: Expr) -> Facts:
        return self.facts(node.this)

    def _joined(self, node: Expr) -> Facts:
        parts = node.expressions or [node.this, node.expression]
        return self._combine(STRING, parts, *(self._cast(part, STRING) for part in parts))

    def _cast_node(self, node: Expr) -> Facts:
        return self._cast_call(node, node.this, parse_type(node.args["to"].sql(SparkText)))

    def _cast_call(self, node: Expr, source: Expr, target: SqlType) -> Facts:
        given = self.facts(source)
        is_risky = self._ansi and cast_may_raise(given.type, target, given.literal)
        problem = f"{_shown(node)} raises in ANSI mode on values that do not fit"
        if given.type.family == target.family == "integer" and not is_risky:
            target = replace(target, low=given.type.low, high=given.type.high)
        found = self._combine(target, [source], problem if is_risky else "")
        return replace(found, is_never_zero=given.is_never_zero and target.is_numeric)

    def _try_cast(self, node: Expr) -> Facts:
        return self._combine(parse_type(node.args["to"].sql(SparkText)), [node.this])

    def _bracket(self, node: Expr) -> Facts:
        container, keys = self.facts(node.this).type, node.expressions
        parts = [node.this, *keys]
        if container.family == "map" and len(keys) == 1:
            problem = self._cast(keys[0], key_type(container))
            return self._combine(element_type(container), parts, problem)
        if container.family == "array" and len(keys) == 1:
            problem = f"{_shown(node)} raises in ANSI mode if there is no such element"
            return self._combine(element_type(container), parts, problem if self._ansi else "")
        return self._unknown(node)

    def _array(self, node: Expr) -> Facts:
        kind, problems = self._meet(node.expressions)
        text = f"array<{kind.text}>"
        return self._combine(SqlType("array", text), node.expressions, *problems)

    def _interval(self, node: Expr) -> Facts:
        is_plain = isinstance(node.this, exp.Literal) and re.fullmatch(
            r"-?\d{1,6}", str(node.this.this)
        )
        problem = "" if is_plain else f"{_shown(node)} is not known to be free of errors"
        return self._combine(SqlType("interval", "interval"), [], problem)

    def _unknown(self, node: Expr) -> Facts:
        return self._combine(OTHER, [], f"{_shown(node)} is not known to be free of errors")

    # Functions

    def _function(self, node: Expr) -> Facts:
        called = as_call(node)
        return self._call(node, *called) if called else self._unknown(node)

    def _call(self, node: Expr, name: str, args: Sequence[Expr]) -> Facts:
        name = name.lower()
        special = self._SPECIAL.get((name, len(args))) or self._SPECIAL.get((name, -1))
        if special is not None:
            return special(self, node, args)
        if name in CASTS and len(args) == 1:
            return self._cast_call(node, args[0], parse_type(name))
        for signature in SAFE.get(name, ()):
            if signature.fits(len(args)):
                return self._signed(node, args, signature)
        return self._unknown(node)

    def _signed(self, node: Expr, args: Sequence[Expr], signature: Signature) -> Facts:
        problems = []
        for position, arg in enumerate(args):
            wanted = signature.parameter(position)
            kind = self.facts(arg).type
            if isinstance(wanted, SqlType):
                problems.append(self._argument(arg, wanted))
            elif not _is_of(kind, wanted):
                problems.append(f"{_shown(node)} is not known to be free of errors")
        return self._combine(signature.result, args, *problems)

    def _argument(self, arg: Expr, wanted: SqlType) -> str:
        kind = self.facts(arg).type
        takes_as_is = (wanted == STRING and kind == BINARY) or (
            wanted.family == "timestamp" and kind.family == "timestamp_ntz"
        )
        return "" if takes_as_is else self._cast(arg, wanted)

    def _chosen(self, _node: Expr, args: Sequence[Expr]) -> Facts:
        kind, problems = self._meet(args)
        return self._combine(kind, args, *problems)

    def _null_if(self, _node: Expr, args: Sequence[Expr]) -> Facts:
        kind = self.facts(args[0]).type
        return self._combine(kind, args, self._compare(args[0], args[1]))

    def _absolute(self, node: Expr, args: Sequence[Expr]) -> Facts:
        kind = self.facts(args[0]).type
        if has_opposite(kind):
            return self._combine(kind, args)
        if not kind.is_known or kind.family == "decimal":
            return self._unknown(node)
        if kind.family != "integer":
            return self._combine(DOUBLE, args, self._cast(args[0], DOUBLE))
        high = max(abs(kind.low), abs(kind.high))
        fits = high <= integer(kind.text).high
        problem = f"{_shown(node)} can overflow, which raises in ANSI mode"
        absolute = replace(kind, low=0, high=high) if fits else integer(kind.text)
        return self._combine(absolute, args, problem if self._ansi and not fits else "")

    def _rounded_down(self, node: Expr, args: Sequence[Expr]) -> Facts:
        kind = self.facts(args[0]).type
        if kind.family == "integer":
            return self._combine(replace(kind, text="bigint"), args)
        if kind.family != "float":
            return self._unknown(node)
        problem = f"{_shown(node)} can overflow, which raises in ANSI mode"
        return self._combine(BIGINT, args, problem if self._ansi else "")

    def _rounded(self, node: Expr, args: Sequence[Expr]) -> Facts:
        kind = self.facts(args[0]).type
        is_plain = kind.family == "float" and all(not arg.find(exp.Column) for arg in args[1:])
        return self._combine(kind, args) if is_plain else self._unknown(node)

    def _contains(self, node: Expr, args: Sequence[Expr]) -> Facts:
        elements, wanted = element_type(self.facts(args[0]).type), self.facts(args[1]).type
        same = elements.text == wanted.text or elements.family == wanted.family == "integer"
        return self._combine(BOOLEAN, args) if same and elements.is_known else self._unknown(node)

    def _element(self, node: Expr, args: Sequence[Expr]) -> Facts:
        container = self.facts(args[0]).type
        if container.family != "map":
            return self._unknown(node)
        problem = self._cast(args[1], key_type(container))
        return self._combine(element_type(container), args, problem)

    def _part(self, node: Expr, args: Sequence[Expr]) -> Facts:
        name = self.facts(args[0]).literal or args[0].name
        return self._call(node, name if name.lower() in _DATE_PARTS else "", args[1:])

    def _tried(self, node: Expr, args: Sequence[Expr]) -> Facts:
        left, right = (self.facts(arg).type for arg in args)
        common = common_type(left, right)
        if not common.is_numeric or left.family == right.family == "string":
            return self._unknown(node)
        problems = [self._cast(arg, common) for arg in args if self.facts(arg).type == STRING]
        kind = integer(common.text) if common.family == "integer" else common
        if common.family == "decimal" or as_name(node) == "try_divide":
            kind = DOUBLE if common.family != "decimal" else OTHER
        return self._combine(kind, args, *problems)

    # Shared

    def _compare(self, left: Expr, right: Expr) -> str:
        """Return why comparing two expressions may raise."""
        _, problems = self._meet([left, right])
        return next(filter(None, problems), "")

    def _meet(self, parts: Sequence[Expr]) -> tuple[SqlType, list[str]]:
        """Return the type to which expressions are brought, and why that may raise."""
        kinds = [self.facts(part).type for part in parts]
        common = reduce(common_type, kinds, NULL)
        if common.precision > MAX_PRECISION:
            return OTHER, [f"{_shown(parts[0])} and {_shown(parts[-1])} share no decimal type"]
        if not common.is_known and len(parts) > 1:
            return OTHER, [
                f"{_shown(parts[0])} and {_shown(parts[-1])} may not be of comparable types"
            ]
        return common, [self._cast(part, common) for part in parts if len(parts) > 1]

    def _cast(self, part: Expr, target: SqlType) -> str:
        """Return why an implicit cast may raise (empty if it never does)."""
        given = self.facts(part)
        if not cast_may_raise(given.type, target, given.literal) or _is_near(part, target):
            return ""
        if self._ansi:
            how = f"is read as {target.text}, which raises in ANSI mode on values that do not fit"
            return f"{_shown(part)} {how}"
        is_plain = given.type.is_known and target.is_known
        return "" if is_plain else f"{_shown(part)} is of a type that is not known"

    def _combine(self, kind: SqlType, parts: Iterable[Expr], *problems: str) -> Facts:
        here = next(filter(None, problems), "")
        below = (self.facts(part).reason for part in parts)
        reason = next(filter(None, below), "") or here
        return Facts(kind, reason, bool(here), is_never_zero=excludes_zero(kind))

    _HANDLERS: ClassVar[dict[type, Callable[[FactsReader, Any], Facts]]] = {
        exp.Column: _column,
        exp.Literal: _literal,
        exp.RawString: lambda _self, node: Facts(STRING, literal=str(node.this)),
        exp.HexString: lambda _self, _node: Facts(BINARY),
        exp.Boolean: lambda _self, _node: Facts(BOOLEAN),
        exp.Null: lambda _self, _node: Facts(NULL),
        exp.Paren: _paren,
        **dict.fromkeys((exp.And, exp.Or, exp.Not), _logic),
        exp.Is: _is,
        **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE), _compared),
        **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ), _compared),
        exp.Between: _between,
        exp.In: _in,
        **dict.fromkeys((exp.Like, exp.ILike), _like),
        exp.Escape: _escaped,
        exp.RegexpLike: _regex,
        **dict.fromkeys((exp.Case, exp.If), _case),
        **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv), _arithmetic),
        exp.Neg: _negative,
        **dict.fromkeys((exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot), _bits),
        **dict.fromkeys((exp.BitwiseLeftShift, exp.BitwiseRightShift), _bits),
        **dict.fromkeys((exp.DPipe, exp.Concat), _joined),
        exp.Cast: _cast_node,
        exp.TryCast: _try_cast,
        exp.Bracket: _bracket,
        exp.Array: _array,
        exp.Interval: _interval,
        **dict.fromkeys((exp.Anonymous, exp.Substring, exp.Trim, exp.StrPosition), _function),
        **dict.fromkeys((exp.Extract, exp.CurrentDate, exp.CurrentTimestamp), _function),
        **dict.fromkeys((exp.CurrentUser, exp.SessionUser), _function),
    }

    _SPECIAL: ClassVar[dict[tuple[str, int], Callable[[FactsReader, Any, Any], Facts]]] = {
        **dict.fromkeys((("coalesce", -1), ("greatest", -1), ("least", -1)), _chosen),
        **dict.fromkeys((("nvl", 2), ("ifnull", 2)), _chosen),
        **dict.fromkeys((("nullif", 2),), _null_if),
        ("equal_null", 2): lambda self, node, args: replace(
            self._null_if(node, args), type=BOOLEAN
        ),
        ("mod", 2): lambda self, node, args: self._compute(node, exp.Mod, args),
        ("div", 2): lambda self, node, args: self._compute(node, exp.IntDiv, args),
        ("abs", 1): _absolute,
        **dict.fromkeys((("floor", 1), ("ceil", 1), ("ceiling", 1)), _rounded_down),
        **dict.fromkeys((("round", 1), ("round", 2), ("bround", 1), ("bround", 2)), _rounded),
        **dict.fromkeys((("rlike", 2), ("regexp", 2), ("regexp_like", 2)), _regex_match),
        ("array_contains", 2): _contains,
        **dict.fromkeys((("element_at", 2), ("try_element_at", 2)), _element),
        **dict.fromkeys((("extract", 2), ("date_part", 2), ("datepart", 2)), _part),
        **dict.fromkeys((("try_add", 2), ("try_subtract", 2), ("try_multiply", 2)), _tried),
        **dict.fromkeys((("try_divide", 2), ("try_mod", 2)), _tried),
    }


_DATE_PARTS = frozenset({"year", "quarter", "month", "day", "dayofweek", "hour", "minute"})
"""Parts that are also functions of the same name, and whole numbers."""


def as_name(node: Expr) -> str:
    """Return the name of the function that a node calls, in lower case ("" if it calls none)."""
    called = as_call(node)
    return called[0] if called else ""


def as_call(node: Expr) -> tuple[str, list[Expr]] | None:
    """Return name (in lower case) and arguments if the node is a call."""
    if isinstance(node, exp.Anonymous):
        return str(node.name).lower(), list(node.expressions)
    if type(node) not in _TYPED_CALLS:
        return None
    name, keys = _TYPED_CALLS[type(node)]
    if isinstance(node, exp.Trim):
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")), name)
    return name, [node.args[key] for key in keys if node.args.get(key) is not None]


_TYPED_CALLS: dict[type, tuple[str, tuple[str, ...]]] = {
    exp.Substring: ("substring", ("this", "start", "length")),
    exp.StrPosition: ("position", ("substr", "this", "position")),
    exp.Trim: ("trim", ("this", "expression")),
    exp.Extract: ("extract", ("this", "expression")),
    exp.CurrentDate: ("current_date", ()),
    exp.CurrentTimestamp: ("current_timestamp", ()),
    exp.CurrentUser: ("current_user", ()),
    exp.SessionUser: ("session_user", ()),
}


def has_opposite(kind: SqlType) -> bool:
    """Return whether each value of a type has an opposite: Spark negates with 34 digits."""
    return kind.family == "float" or (kind.family == "decimal" and kind.precision <= 34)


def _is_near(part: Expr, target: SqlType) -> bool:
    """Return whether a part is a day or time that is not near the ends of time, to be cast."""
    constant = constant_of(part) if target.family in TIMES else None
    return constant is not None and constant.family in ("date", *TIMES)


def _is_of(kind: SqlType, wanted: str) -> bool:
    families = {"array": ("array",), "map": ("map",), "sized": ("array", "map")}
    return wanted == "any" or kind.family in families[wanted]


def _number(text: str) -> Facts:
    kind, is_never_zero = number_type(text)
    return Facts(kind, is_never_zero=is_never_zero)


def _is_like_pattern(pattern: str, escape: str) -> bool:
    rest = re.sub(re.escape(escape) + "[_%" + re.escape(escape) + "]", "", pattern)
    return escape not in rest


def is_plain_regex(pattern: str) -> bool:
    """Return whether a pattern surely is a regular expression for Java.

    Python accepts nearly what Java does; what only Python accepts is ruled out.
    """
    only_python = re.search(
        r"\(\?[PaLu(]|\[\^?\]|\[[^\]]*\[|(?<!\\)\{(?!\d+(,\d*)?\})|\\[xuUN0-9]", pattern
    )
    if only_python:
        return False
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _shown(node: Expr) -> str:
    text = node.sql(SparkText, normalize_functions=False, comments=False)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
