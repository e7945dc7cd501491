"""Calls in trees, and tables of Spark's functions.

Functions are safe, strict, not deterministic, or refused. A function that is in no table here may
raise. The tables hold what was run against Spark 4.3 with edge values in ANSI mode
(``tests/sql/test_analysis_spark.py``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, TypeVar

from sqlglot import Expr, exp

from eddyline.registry import hint
from eddyline.sql.parsing import offset_of, quoted, refuse
from eddyline.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    OTHER,
    STRING,
    TIMESTAMP,
    SqlType,
    field_type,
    integer,
    parse_type,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from sqlglot import Expr


@dataclass(frozen=True, slots=True)
class Signature:
    """Arguments with which a function never raises, and the type of its result."""

    parameters: tuple[SqlType | str, ...]
    """A type that the argument is cast to, or ``any``, ``array``, ``map`` or ``sized``."""
    result: SqlType
    is_variadic: bool = False
    """Whether the last parameter stands for any number of arguments."""

    def fits(self, n_args: int) -> bool:
        """Return whether a call with that many arguments may be of this signature."""
        if self.is_variadic:
            return n_args >= len(self.parameters) - 1
        return n_args == len(self.parameters)

    def parameter(self, position: int) -> SqlType | str:
        """Return the parameter of an argument."""
        return self.parameters[min(position, len(self.parameters) - 1)]


def as_name(node: Expr) -> str:
    """Return the name of the function that a node calls, in lower case ("" if it calls none)."""
    called = as_call(node)
    return called[0] if called else ""


def drawn(tree: Expr) -> Expr | None:
    """Return the first call of a function that answers equal rows differently."""
    return next((node for node in tree.walk() if as_name(node) in NON_DETERMINISTIC), None)


def unnegated(tree: Expr) -> tuple[Expr, bool]:
    """Return a condition without NOT and parentheses around it, and whether that negates it."""
    is_negated = False
    while isinstance(tree, exp.Not | exp.Paren):
        is_negated ^= isinstance(tree, exp.Not)
        tree = tree.this
    return tree, is_negated


def joined_by(kind: type[Expr], tree: Expr) -> list[Expr]:
    """Return what AND or OR joins in a tree, through parentheses, from left to right."""
    # A loop and not a recursion: thousands may stand in a row.
    parts, rest = [], [tree]
    while rest:
        node = rest.pop()
        inner = node.unnest()
        if isinstance(inner, kind):
            rest += [inner.expression, inner.this]
        else:
            parts.append(node)
    return parts


def says_collation(tree: Expr) -> bool:
    """Return whether an expression sets a collation, so that bytes do not decide equality."""
    return any(
        isinstance(node, exp.Collate)
        or as_name(node) == "collate"
        or (isinstance(node, exp.DataType) and bool(node.args.get("collate")))
        for node in tree.walk()
    )


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
"""Calls with a grammar of their own: SUBSTRING(s FROM 1 FOR 2)."""


_LONGEST = 2**31 - 16
"""Length of the JVM's longest array: ``length(s) + 1`` never overflows."""
_COUNT = integer("int", 0, _LONGEST)
_SIZE = integer("int", -1, _LONGEST)
_YEAR = integer("int", -6_000_000, 6_000_000)

_WORDS: dict[str, SqlType | str] = {
    **{kind.text: kind for kind in (STRING, INT, DOUBLE, BOOLEAN, DATE, TIMESTAMP)},
    **{word: word for word in ("any", "array", "map", "sized")},
}

_ROWS: tuple[tuple[str, str, SqlType], ...] = (
    ("length len char_length character_length octet_length", "string", _COUNT),
    ("lower lcase upper ucase initcap reverse soundex", "string", STRING),
    ("trim ltrim rtrim btrim", "string", STRING),
    ("trim ltrim rtrim btrim", "string string", STRING),
    ("substring substr", "string int", STRING),
    ("substring substr", "string int int", STRING),
    ("left right", "string int", STRING),
    ("startswith endswith contains", "string string", BOOLEAN),
    ("instr locate position levenshtein find_in_set", "string string", _SIZE),
    ("locate position", "string string int", _COUNT),
    ("replace", "string string", STRING),
    ("replace translate", "string string string", STRING),
    ("substring_index", "string string int", STRING),
    ("ascii", "string", INT),
    ("concat", "string*", STRING),
    ("concat_ws", "string string*", STRING),
    ("get_json_object", "string string", STRING),
    ("md5 sha sha1", "string", STRING),
    ("crc32", "string", BIGINT),
    ("hash", "any*", INT),
    ("xxhash64", "any*", BIGINT),
    ("isnull isnotnull", "any", BOOLEAN),
    ("isnan", "double", BOOLEAN),
    ("sqrt exp expm1 ln log log10 log2 log1p cbrt rint", "double", DOUBLE),
    ("sin cos tan asin acos atan sinh cosh tanh degrees radians", "double", DOUBLE),
    ("sign signum", "double", DOUBLE),
    ("pow power atan2 hypot log", "double double", DOUBLE),
    ("pi e", "", DOUBLE),
    ("rand randn random", "", DOUBLE),
    ("year", "date", _YEAR),
    ("quarter", "date", integer("int", 1, 4)),
    ("month", "date", integer("int", 1, 12)),
    ("day dayofmonth", "date", integer("int", 1, 31)),
    ("dayofweek", "date", integer("int", 1, 7)),
    ("weekday", "date", integer("int", 0, 6)),
    ("dayofyear", "date", integer("int", 1, 366)),
    ("weekofyear", "date", integer("int", 1, 53)),
    ("hour", "timestamp", integer("int", 0, 23)),
    ("minute second", "timestamp", integer("int", 0, 59)),
    ("date_add date_sub", "date int", DATE),
    ("datediff date_diff", "date date", INT),
    ("to_date last_day", "date", DATE),
    ("to_timestamp", "timestamp", TIMESTAMP),
    ("unix_date", "date", INT),
    ("unix_seconds unix_millis unix_micros", "timestamp", BIGINT),
    ("current_date curdate", "", DATE),
    ("current_timestamp now", "", TIMESTAMP),
    ("current_timezone current_user user session_user", "", STRING),
    ("size cardinality array_size", "sized", _SIZE),
    ("map_keys map_values", "map", OTHER),
    ("spark_partition_id", "", _COUNT),
    ("monotonically_increasing_id", "", BIGINT),
    ("input_file_name uuid", "", STRING),
    ("typeof", "any", STRING),
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _table() -> dict[str, tuple[Signature, ...]]:
    table: dict[str, tuple[Signature, ...]] = {}
    for names, words, result in _ROWS:
        parameters = tuple(_WORDS[word.rstrip("*")] for word in words.split())
        signature = Signature(parameters, result, words.endswith("*"))
        for name in names.split():
            table[name] = (*table.get(name, ()), signature)
    return table


SAFE = _table()
"""Functions that never raise on arguments that reach the parameter's type without raising."""

STRICT = _words(
    "length len char_length character_length octet_length lower lcase upper ucase initcap reverse "
    "trim ltrim rtrim btrim substring substr left right startswith endswith contains instr "
    "replace translate substring_index concat year quarter month day dayofmonth dayofweek weekday "
    "dayofyear hour minute second date_add date_sub datediff date_diff"
)
"""Safe functions that are NULL exactly where an argument is."""

STRICT_NUMBERS = _words("round bround sqrt cbrt exp expm1 rint sign signum pow power")
"""Functions of numbers that are NULL exactly where an argument is."""

CASTS = _words(
    "tinyint smallint int bigint float double decimal string boolean date timestamp binary"
)
"""Casts that are written as functions: ``int(a)``."""

WITHOUT_PARENTHESES = _words(
    "current_date current_timestamp current_time localtime localtimestamp current_user user "
    "session_user current_catalog current_database current_schema"
)
"""Functions that may stand without ``()``, unless a column has the name."""

WITH_UNIT = _words("dateadd date_add datediff date_diff timestampadd timestampdiff")
"""Functions whose first of three arguments is a unit, not a column."""

UNITS = _words("year quarter month week day dayofyear hour minute second millisecond microsecond")

JAVA_CALLS = _words("reflect java_method try_reflect")
"""Functions that call any method of Java by its name."""

NON_DETERMINISTIC = JAVA_CALLS | _words(
    "rand randn random uniform randstr uuid shuffle monotonically_increasing_id "
    "spark_partition_id input_file_name input_file_block_start input_file_block_length"
)
"""Every built-in function for which Spark 4.3 says so; ``now()`` is one value per batch."""

HIDDEN = {"_metadata"}
"""Columns that sources of files have beside those of their schema."""

READ_BY = NON_DETERMINISTIC | HIDDEN
"""Names that stand for something that depends on how rows are read."""

AGGREGATES = _words(
    "any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate "
    "approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg "
    "bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list collect_set collect_union "
    "corr count count_if count_min_sketch covar_pop covar_samp every first first_value grouping "
    "grouping_id histogram_numeric hll_sketch_agg hll_union_agg kurtosis last last_value listagg "
    "max max_by mean measure median min min_by mode percentile percentile_approx percentile_cont "
    "percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx "
    "regr_sxy regr_syy schema_of_variant_agg skewness some std stddev stddev_pop stddev_samp "
    "string_agg sum theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum "
    "var_pop var_samp variance"
)
"""Functions over many rows; Spark 4.3's group ``agg_funcs`` without its sketches by type."""

WINDOWED = _words(
    "counter_diff cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number"
)
"""Functions over a window of rows."""

GENERATORS = _words(
    "explode explode_outer inline inline_outer posexplode posexplode_outer stack json_tuple"
)
"""Functions that make many rows of one."""

_NAME = re.compile(r"[A-Za-z_]\w*")


def names_among(names: Iterable[str], texts: Iterable[str]) -> list[str]:
    """Return those of some names that stand in SQL texts as a word, be it one of a literal.

    Example:
        >>> names_among(["rand", "uuid"], ["v + RAND(3)", "w"])
        ['rand']
    """
    words = {word.lower() for text in texts for word in _NAME.findall(text)}
    return sorted(words.intersection(names))


# -- names of columns --------------------------------------------------------------------------
# The columns that a SQL expression reads, resolved as Spark does: in any case by default.


ColumnT = TypeVar("ColumnT")


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """One mention of a column, or of a field inside it."""

    column: str
    """The column's name in the schema."""
    text: str
    """The mention in SQL, quoted and without a qualifier."""
    type: SqlType


class Columns:
    """The columns of an input, and the names by which they may be qualified (None: by any)."""

    def __init__(self, types: Mapping[str, str], qualifiers: Collection[str] | None = ()) -> None:
        self._types = types
        self._takes_any = qualifiers is None
        self._qualifiers = {name.lower() for name in qualifiers or ()}
        self._by_name: dict[str, list[str]] = {}
        for name in types:
            self._by_name.setdefault(name.lower(), []).append(name)

    def references(self, tree: Expr, text: str, what: str) -> dict[int, ColumnRef]:
        """Return the reference of each column of the tree, by the node's ``id``, or refuse it."""
        references: dict[int, ColumnRef] = {}
        for node in column_nodes(tree):
            parts = [part.name for part in node.parts]
            if len(parts) == 1 and is_no_column(node, self._by_name):
                continue
            references[id(node)] = self._resolve(parts, text, offset_of(node), what)
        return references

    def _resolve(self, parts: list[str], text: str, offset: int, what: str) -> ColumnRef:
        prefix: list[str] = []
        if self._takes_any and self._is_qualified(parts):
            # The alias of a DataFrame, which its schema does not tell; Spark will check it.
            prefix, parts = parts[:1], parts[1:]
        matches, is_qualified = matching(parts, self._inside, self._named)
        parts = parts[is_qualified:]
        if len(matches) != 1:
            candidates = [(name, name) for name in self._types]
            refuse_column(parts[0], list(map(repr, matches)), candidates, text, offset, what)
        column = matches[0]
        kind = parse_type(self._types[column])
        for field in parts[1:]:
            kind = field_type(kind, field)
        return ColumnRef(column, ".".join(map(quoted, [*prefix, column, *parts[1:]])), kind)

    def _named(self, name: str) -> list[str]:
        names = self._by_name.get(name.lower(), [])
        return [name] if name in names else names

    def _inside(self, qualifier: str, name: str) -> list[str] | None:
        return self._named(name) if qualifier.lower() in self._qualifiers else None

    def _is_qualified(self, parts: list[str]) -> bool:
        return len(parts) > 1 and not self._named(parts[0]) and bool(self._named(parts[1]))


def matching(
    parts: Sequence[str],
    inside: Callable[[str, str], Sequence[ColumnT] | None],
    named: Callable[[str], Sequence[ColumnT]],
) -> tuple[Sequence[ColumnT], bool]:
    """Return the columns that a name may mean, and whether an input stands before it.

    A name is split at its points: ``k``, ``s.k``, ``s.k.field``, ``k.field``. Its first part is an
    input where there is one with that column, or no column is called so.

    Args:
        parts: of the name.
        inside: the columns of an input that have a name; None if there is no such input.
        named: the columns of any input that have a name.
    """
    if len(parts) > 1:
        columns = inside(parts[0], parts[1])
        if columns is not None and (columns or not named(parts[0])):
            return columns, True
    return named(parts[0]), False


def refuse_column(
    name: str,
    matches: Sequence[str],
    candidates: Sequence[tuple[str, str]],
    text: str,
    offset: int,
    what: str,
    relation: str = "",
) -> NoReturn:
    """Refuse a name that means several columns, or none of those known (of one input, if told).

    Columns found and known are told as people see them, the known ones behind their names.
    """
    if matches:
        message = f"{what}: column {name!r} may be {' or '.join(matches)}; write which"
        refuse(message, text, offset, name=name)
    shown = [label for _, label in candidates]
    listed = f"unknown column {name!r}{relation and f' of {relation}'}; known: {', '.join(shown)}"
    message = f"{what}: {listed}{hint(name, candidates)}"
    refuse(message, text, offset, name=name, known=shown)


def is_no_column(node: exp.Column, names: Collection[str]) -> bool:
    """Return whether a name is a unit of time, or a function without () and no column."""
    name = node.name.lower()
    call = node.parent
    if isinstance(call, exp.Anonymous) and call.name.lower() in WITH_UNIT:
        return len(call.expressions) == 3 and call.expressions[0] is node and name in UNITS
    return name in WITHOUT_PARENTHESES and name not in names


def column_nodes(tree: Expr) -> Iterator[exp.Column]:
    """Return the nodes that name columns, and units or functions that look like one; no stars."""
    for node in tree.find_all(exp.Column):
        if not isinstance(node.this, exp.Star):
            yield node
