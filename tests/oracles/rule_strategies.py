"""Hypothesis strategies for boolean rules: operands, trees of every kind of node, and rows.

A table of rows has a column for each operand, native test and function argument, named by its SQL
text, as ``testing.reference_rules`` wants it. Values and constants come from the same few, so that
they often meet. Importing this module needs hypothesis.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from eddyline.query.conditions import (
    And,
    Compare,
    Constant,
    FunctionTest,
    Is,
    IsNull,
    NativeTest,
    Not,
    OneOf,
    Operand,
    Or,
    Rule,
    TextTest,
    ValueTest,
)
from eddyline.query.predicates import FunctionPredicate
from eddyline.sql.regexes import ANY, ONE, Wild
from eddyline.sql.types import parse_type

if TYPE_CHECKING:
    from eddyline.query.conditions import Node
    from eddyline.sql.literals import Scalar

INTEGERS = (-(2**63), -(2**53) - 1, -3, -1, 0, 1, 2, 3, 2**53 + 1, 2**63 - 1)
SINGLES = (0.0, -0.0, 1.0, -1.5, 2.0, float("inf"), float("-inf"))
FLOATS = (*SINGLES, 0.1, 1e300, 5e-324)
DECIMALS = tuple(map(Decimal, ("-99999999.99", "-0.10", "0.00", "0.10", "1.00", "2.50")))
WIDE = (
    *(Decimal(f"{sign}{unscaled}E-10") for sign in ("-", "") for unscaled in (1, 2**63, 2**64)),
    *(Decimal(f"{10**38 - 1}E-10"), Decimal(f"-{10**38 - 1}E-10"), Decimal(0), Decimal("2.50")),
)
DATES = (dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(9999, 12, 31))
TIMES = (
    *(dt.datetime(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
    *(dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 1, 0, 0, 0, 1), dt.datetime(9999, 12, 31)),
)
LETTERS: tuple[str, ...] = (
    *("a", "A", "b", "B", "k", "K", "s", "i", "I", "%", "_", "\\", "\n", " ", "ß", "ẞ", "ſ"),
    *("\u0130", "\u0131", "\u03a3", "\u03c3", "\u03c2", "\u212a", "é", "E\u0301", "\U0001f600"),
)
"""Dotted and dotless i, sharp s, long s, sigmas, the Kelvin sign, combining marks, wide ones."""

_ARROW = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(38,10)": pa.decimal128(38, 10),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
COLUMNS = {
    "n": "bigint",
    "m": "int",
    "x": "double",
    "y": "float",
    "d": "decimal(10,2)",
    "w": "decimal(38,10)",
    "s": "string",
    "t": "string",
    "b": "boolean",
    "day": "date",
    "at": "timestamp",
    "wall": "timestamp_ntz",
}
"""Name and Spark type of each column that rules are drawn over."""

OPERANDS = tuple(Operand(f"`{name}`", parse_type(kind), (name,)) for name, kind in COLUMNS.items())
"""Columns of every type that a test may look at."""

NATIVE_TESTS = (
    NativeTest("`n` + `m` > 3", ("n", "m")),
    NativeTest("`s` < `t`", ("s", "t")),
    NativeTest("`s` rlike '^a.*b$'", ("s",)),
)
"""Conditions that Spark would evaluate; rows say their values, which are drawn freely."""


def _is_positive(n: Any) -> Any:
    return pc.greater(n, 0)


def _is_shorter(s: Any, t: Any) -> Any:
    return pc.less(pc.utf8_length(s), pc.utf8_length(t))


FUNCTION_TESTS = (
    FunctionTest(FunctionPredicate(_is_positive, ("`n`",), "is_positive")),
    FunctionTest(FunctionPredicate(_is_shorter, ("`s`", "`t`"), "is_shorter")),
    FunctionTest(~FunctionPredicate(_is_shorter, ("`t`", "`s`"), "is_longer")),
)
"""Python predicates, NULL where a value that they read is NULL; one is negated."""

_REGEXES: tuple[tuple[str, int, tuple[tuple[str, bool], ...]], ...] = (
    ("a+b", 0, (("ab", False),)),
    ("^(ab|ba)", 0, (("ab", False), ("ba", False))),
    ("ab", re.IGNORECASE, (("ab", True),)),
    ("^$", 0, ()),
    ("a|", 0, ()),
    ("[^a]b.?$", re.DOTALL, ()),
)
_NETWORKS = ("10.0.0.0/8", "192.168.1.1/32", "::/0", "fe80::/10", "0.0.0.0/0")
_ADDRESSES = ("10.1.2.3", "192.168.1.1", "fe80::1", "::ffff:10.0.0.1", "10.0.0.300", " 10.0.0.1")

_VALUES: dict[str, tuple[Any, ...]] = {
    "bigint": INTEGERS,
    "int": (-(2**31), -3, -1, 0, 1, 2, 3, 2**31 - 1),
    "double": FLOATS,
    "float": SINGLES,
    "decimal(10,2)": DECIMALS,
    "decimal(38,10)": WIDE,
    "string": (),
    "boolean": (True, False),
    "date": DATES,
    "timestamp": tuple(time.replace(tzinfo=dt.UTC) for time in TIMES),
    "timestamp_ntz": TIMES,
}
MICROS = (*range(-1, 3), -62_135_596_800_000_000, 253_402_214_400_000_000, -(2**63), 2**63 - 1)
"""Constants that timestamps are compared with; not all are years that Python knows."""


def texts(max_size: int = 4) -> st.SearchStrategy[str]:
    """Return short texts of letters whose case is hard, wildcards and line ends; often empty."""
    return st.lists(st.sampled_from(LETTERS), max_size=max_size).map("".join)


def values_of(operand: Operand, *, constants: bool = False) -> st.SearchStrategy[Any]:
    """Return values of an operand that are not NULL.

    Args:
        operand: one of ``OPERANDS``, or another of the same types.
        constants: without NaN, as the constants of a rule are.
    """
    kind = operand.type.text
    values: tuple[Any, ...] = _VALUES[kind]
    if kind == "string":
        return texts() if constants else texts() | st.sampled_from(_ADDRESSES)
    if operand.type.precision > 18 and constants:
        return st.sampled_from((*WIDE, *DECIMALS, Decimal("5E-11"), 10**50, -(10**50), 3))
    if operand.type.family in ("timestamp", "timestamp_ntz") and constants:
        return st.sampled_from(MICROS)
    if operand.type.family == "float":
        values += (0.1,) if constants else (float("nan"),)
    return st.sampled_from(values)


def operands(family: str | None = None) -> st.SearchStrategy[Operand]:
    """Return operands, or those of one family of types (``string``)."""
    return st.sampled_from([each for each in OPERANDS if family in (None, each.type.family)])


@st.composite
def comparisons(draw: st.DrawFn) -> Compare | OneOf:
    """Return comparisons with one or several constants."""
    operand = draw(operands())
    constants: st.SearchStrategy[Scalar] = values_of(operand, constants=True)
    if draw(st.booleans()):
        signs = st.sampled_from(["=", "<", "<=", ">", ">="])
        return Compare(operand, draw(signs), draw(constants))
    return OneOf(operand, tuple(draw(st.lists(constants, min_size=1, max_size=4))))


@st.composite
def text_tests(draw: st.DrawFn) -> TextTest:
    """Return text patterns, folded or not: also the empty one, and wildcards in a row."""
    folded = draw(st.booleans())
    wild = st.sampled_from([Wild(ANY), Wild(ANY), Wild(ONE)])
    parts: list[str | Wild] = []
    for part in draw(st.lists(texts(2) | wild, max_size=5)):
        if isinstance(part, Wild):
            parts.append(part)
        elif part and not (parts and isinstance(parts[-1], str)):
            parts.append(part.lower() if folded else part)
    return TextTest(draw(operands("string")), tuple(parts), folded)


@st.composite
def value_tests(draw: st.DrawFn) -> ValueTest:
    """Return regular expressions, with what they need, and networks."""
    operand = draw(operands("string"))
    if draw(st.integers(0, 3)) == 0:
        return ValueTest(operand, "cidr", draw(st.sampled_from(_NETWORKS)))
    pattern, flags, needs = draw(st.sampled_from(_REGEXES))
    contains = (TextTest(operand, (Wild(ANY), text, Wild(ANY)), fold) for text, fold in needs)
    return ValueTest(operand, "regex", pattern, flags, tuple(contains))


def tests() -> st.SearchStrategy[Node]:
    """Return the leaves of a tree, of every kind."""
    return st.one_of(
        comparisons(),
        text_tests(),
        value_tests(),
        st.builds(IsNull, operands()),
        st.sampled_from(NATIVE_TESTS),
        st.sampled_from(FUNCTION_TESTS),
        st.builds(Constant, st.sampled_from([True, False, None])),
    )


def trees(*, leaves: st.SearchStrategy[Node] | None = None) -> st.SearchStrategy[Node]:
    """Return trees: also AND of one, NOT and IS nested deep, and equal parts side by side.

    Args:
        leaves: what the leaves are drawn from; ``tests()`` by default.
    """

    def grown(part: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        parts = st.lists(part, min_size=1, max_size=4).map(tuple)
        twice = part.map(lambda each: (each, each))
        return st.one_of(
            st.builds(Not, part),
            st.builds(Is, part, st.integers(0, 7)),
            st.builds(And, parts | twice),
            st.builds(Or, parts | twice),
        )

    return st.recursive(tests() if leaves is None else leaves, grown, max_leaves=8)


@st.composite
def rules(draw: st.DrawFn, *, min_size: int = 0, max_size: int = 8) -> tuple[Rule, ...]:
    """Return rules with unique names, some of them with one tree."""
    drawn: list[Node] = draw(st.lists(trees(), min_size=min_size, max_size=max_size))
    has_twin = draw(st.booleans())
    if drawn and has_twin:
        drawn.append(draw(st.sampled_from(drawn)))
    return tuple(
        Rule(f"r{position}", tree, f"rule {position}") for position, tree in enumerate(drawn)
    )


@st.composite
def rule_rows(draw: st.DrawFn, *, max_rows: int = 20) -> pa.Table:
    """Return rows for the rules: columns named by SQL text, with NULLs, ties and edge values."""
    n_rows = draw(st.integers(0, max_rows))

    def column(values: st.SearchStrategy[Any], kind: pa.DataType) -> pa.Array:
        cells = st.lists(st.none() | values, min_size=n_rows, max_size=n_rows)
        return pa.array(draw(cells), type=kind)

    columns = {each.sql: column(values_of(each), _ARROW[each.type.text]) for each in OPERANDS}
    columns |= {each.sql: column(st.booleans(), pa.bool_()) for each in NATIVE_TESTS}
    return pa.table(columns)


_TEXT_WORDS = ("", "a", "b", "ab", "ba", "A", "a%", "a_b", "é", "it''s", "😀")
_TEXT_PATTERNS = (
    "",
    "%",
    "_",
    "a%",
    "%b",
    "%a%",
    "a_b",
    "a!%%",
    "!_%",
    "%é%",
    "__",
    "%😀",
    "%a%b%",
)
_SIGNS = ("=", "<>", "<", "<=", ">", ">=")
_NUMBERS = ("-3", "-1", "0", "1", "2", "3", "2147483648", "0.5", "-1.5", "2.50", "1.0")
_DAYS = ("'1969-12-31'", "DATE '1970-01-01'", "'9999-12-31'")
_TIMES = (*_DAYS, "'1970-01-01 00:00:00.000001'", "'0001-01-01 00:00:00'", "'1970-01-01T00:00'")
_LEAVES = {
    "number": (
        *("{x} {sign} {number}", "{number} {sign} {x}", "{x} BETWEEN {number} AND {number}"),
        *("{x} IN ({number}, {number}, {number})", "{x} NOT IN ({number}, NULL)"),
        *("{x} IS NOT DISTINCT FROM {number}", "{x} NOT BETWEEN {number} AND NULL", "{x} IS NULL"),
        *("{x} % 3 = {number}", "n {sign} m", "{x} IN ({number}, m)", "{x} = NULL"),
    ),
    "text": (
        *("{s} = {word}", "{s} <> {word}", "{word} = {s}", "{s} IN ({word}, {word}, NULL)"),
        *("{s} NOT IN ({word}, {word})", "{s} LIKE {pattern} ESCAPE '!'", "s < t", "s = t"),
        *("{s} NOT LIKE {pattern} ESCAPE '!'", "contains({s}, {word})", "{s} < {word}"),
        *("lower({s}) = {word}", "lower({s}) IN ({word}, {word})", "length({s}) {sign} {number}"),
        *("contains(lower({s}), {word})", "lower({s}) LIKE {pattern} ESCAPE '!'", "{s} IS NULL"),
        *("{s} {sign} {word}", "{s} NOT BETWEEN {word} AND {word}", "lower({s}) >= {word}"),
        *("{s} || 'b' = {word}", "{s} IS DISTINCT FROM {word}", "{s} BETWEEN {word} AND {word}"),
    ),
    "other": (
        *("b", "b = TRUE", "b <> FALSE", "b IS NOT TRUE", "b IS NULL", "TRUE", "FALSE", "NULL"),
        *("wall {sign} {time}", "wall NOT BETWEEN {time} AND {time}", "wall IN ({time}, {time})"),
        *("day {sign} {day}", "day BETWEEN {day} AND {day}", "day IN ({day}, {day}, NULL)"),
        *("CASE WHEN n > 1 THEN b ELSE s = 'a' END", "coalesce(b, n > 1)", "day IS NOT NULL"),
    ),
}


@st.composite
def leaf_texts(draw: st.DrawFn) -> str:
    """Return conditions in SQL over the columns of ``OPERANDS``, read alike by Spark and DuckDB."""
    form = draw(st.sampled_from(_LEAVES[draw(st.sampled_from(sorted(_LEAVES)))]))

    def filled(match: re.Match[str]) -> str:
        return draw(st.sampled_from(_FILLINGS[match[1]]))

    return re.sub(r"\{(\w+)\}", filled, form)


_FILLINGS = {
    "x": ("n % 10", "m", "x", "d", "w", "m + 0.5"),
    "s": ("s", "t"),
    "sign": _SIGNS,
    "number": _NUMBERS,
    "word": tuple(f"'{word}'" for word in _TEXT_WORDS),
    "pattern": tuple(f"'{pattern}'" for pattern in _TEXT_PATTERNS),
    "day": _DAYS,
    "time": _TIMES,
}


def rule_texts() -> st.SearchStrategy[str]:
    """Return rules in SQL, with AND, OR, NOT, IS and needless parentheses."""

    def grown(part: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        parts = st.lists(part, min_size=2, max_size=4)
        return st.one_of(
            part.map("NOT ({})".format),
            part.map("(({}))".format),
            st.builds("({}) IS {}".format, part, st.sampled_from(["TRUE", "NOT FALSE", "NULL"])),
            st.builds("({}) = {}".format, part, st.sampled_from(["TRUE", "FALSE"])),
            parts.map(lambda texts: " AND ".join(f"({text})" for text in texts)),
            parts.map(lambda texts: " OR ".join(f"NOT ({text})" for text in texts)),
            parts.map(lambda texts: " OR ".join(f"({text})" for text in texts)),
        )

    texts = st.recursive(leaf_texts(), grown, max_leaves=8)
    return texts.filter(lambda text: text.strip("()") != "NULL")  # alone it is no condition
