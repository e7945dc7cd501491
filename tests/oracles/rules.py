"""The slow oracle of boolean rules: one tree, one row, by the definitions of ``query.rules``.

Nothing here is fast and nothing outside of tests may use it. It shares no code with the room that
evaluates rules together.
"""

from __future__ import annotations

import ipaddress
import math
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from eddyline.query.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    And,
    Compare,
    Constant,
    FunctionTest,
    Is,
    IsNull,
    MayRaise,
    NativeTest,
    Not,
    OneOf,
    Or,
    Raise,
    TextTest,
    ValueTest,
)
from eddyline.query.predicate_results import coerce_outcome
from eddyline.sql.regexes import ANY, Wild
from tests.oracles.conjunctions import kleene_and, kleene_not, kleene_or

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from eddyline.query.conditions import Node, Rule
    from eddyline.query.predicates import FunctionPredicate

    Row = Mapping[str, Any]


def truth(node: Node, row: Row, types: Mapping[str, pa.DataType] | None = None) -> bool | None:
    """Return the truth value of a tree for one row; None is unknown.

    Args:
        node: the tree.
        row: the value of each operand by its ``sql`` text, of each native test by its own, and of
            each expression that a function reads by its text; None is NULL.
        types: Arrow types of what functions read; found out from the value if omitted.

    Raises:
        KeyError: the row lacks a value that the tree asks for.

    Example:
        >>> from eddyline.query.conditions import Operand
        >>> from eddyline.sql.types import STRING
        >>> user = Operand("`user`", STRING, ("user",))
        >>> tree = Not(TextTest(user, ("root", Wild("%"))))
        >>> [truth(tree, {"`user`": value}) for value in ("rooty", "eve", None)]
        [False, True, None]
    """
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, Not | And | Or | Is):
        return _joined(node, row, types)
    if isinstance(node, NativeTest):
        said: bool | None = row[node.sql]
        return said
    if isinstance(node, FunctionTest):
        return _called(node.predicate, row, types or {})
    if isinstance(node, MayRaise | Raise):
        msg = "what raises has no truth value; ask for the possible ones"
        raise TypeError(msg)
    value = row[node.operand.sql]
    if isinstance(node, IsNull):
        return value is None
    return None if value is None else _tested(node, value)


def _joined(
    node: Not | And | Or | Is, row: Row, types: Mapping[str, pa.DataType] | None
) -> bool | None:
    values = [truth(child, row, types) for child in node.children]
    match node:
        case And():
            return kleene_and(values)
        case Or():
            return kleene_or(values)
        case Not():
            return kleene_not(values[0])
    return bool(_BIT[values[0]] & node.outcomes)


def possible(node: Node, row: Row) -> int:
    """Return the truth values that a tree may have on a row, a sum of their bits.

    What raises may have each. A rule hangs on an error where it may be true and may be not.

    Args:
        node: the tree.
        row: as for ``truth``, and the operand of each error.
    """
    match node:
        case MayRaise(test, error):
            return _ALL if row[error.operand.sql] is not None else _BIT[truth(test, row)]
        case Not(part):
            return sum({_BIT[kleene_not(value)] for value in _values(possible(part, row))})
        case Is(part, outcomes):
            said = possible(part, row)
            return TRUE * bool(said & outcomes) | FALSE * bool(said & ~outcomes)
        case And(parts) | Or(parts):
            join = kleene_and if isinstance(node, And) else kleene_or
            found = {join([])}
            for part in parts:
                values = _values(possible(part, row))
                found = {join([one, other]) for one in found for other in values}
            return sum(_BIT[value] for value in found)
    return _BIT[truth(node, row)]


def _values(outcomes: int) -> list[bool | None]:
    return [value for value, bit in _BIT.items() if bit & outcomes]


def matches(rules: Iterable[Rule], rows: pa.Table | Iterable[Row]) -> list[list[str]]:
    """Return for each row the names of the rules that fire, in the order of the rules.

    Args:
        rules: the rules.
        rows: as for ``truth``; a table has a column for each operand, named by its text.
    """
    known = list(rules)
    types = None
    if isinstance(rows, pa.Table):
        types = dict(zip(rows.column_names, rows.schema.types, strict=True))
        rows = rows.to_pylist()
    return [[rule.name for rule in known if truth(rule.tree, row, types)] for row in rows]


_BIT = {True: TRUE, False: FALSE, None: UNKNOWN}
_ALL = TRUE | FALSE | UNKNOWN


def _tested(node: Compare | OneOf | TextTest | ValueTest, value: Any) -> bool:
    match node:
        case Compare(_, op, constant):
            return _OPERATORS[op](_sign(value, constant))
        case OneOf(_, constants):
            return any(_sign(value, constant) == 0 for constant in constants)
        case TextTest():
            return is_like(value, node.parts, folded=node.folded)
        case ValueTest(_, "regex", pattern, flags):
            return re.search(pattern, value, flags) is not None
        case ValueTest(_, "cidr", pattern):
            return _is_within(value, pattern)
    msg = f"no such test: {node!r}"
    raise AssertionError(msg)


_OPERATORS: dict[str, Callable[[int], bool]] = {
    "=": lambda sign: sign == 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
}


def _sign(left: Any, right: Any) -> int:
    """Return -1, 0 or 1; NaN is equal to itself and above all numbers."""
    left = _micros(left) if isinstance(left, datetime) else left
    left_nan, right_nan = _is_nan(left), _is_nan(right)
    if left_nan or right_nan:
        return int(left_nan) - int(right_nan)
    return int(left > right) - int(left < right)


def _micros(time: datetime) -> int:
    """Return what timestamps are compared as; without a zone, as if it were UTC."""
    known = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return (known - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def is_like(text: str, parts: Sequence[str | Wild], *, folded: bool) -> bool:
    """Return whether a whole text is of a pattern of ``TextTest``, position by position."""
    given = text.lower() if folded else text
    ends = {0}  # where a match of the parts so far may end
    for part in parts:
        if isinstance(part, str):
            ends = {end + len(part) for end in ends if given.startswith(part, end)}
        elif part.what == ANY:
            ends = set(range(min(ends), len(given) + 1)) if ends else ends
        else:
            ends = {end + 1 for end in ends if end < len(given)}
    return len(given) in ends


def _is_within(text: str, network: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return address in ipaddress.ip_network(network, strict=False)


def _called(
    predicate: FunctionPredicate, row: Row, types: Mapping[str, pa.DataType]
) -> bool | None:
    arrays = [pa.array([row[read]], type=types.get(read)) for read in predicate.reads]
    result = predicate.fn(*(_AS[predicate.arrays](array) for array in arrays))
    keeps = bool(coerce_outcome(result, 1, predicate.name, negated=predicate.negated)[0])
    drops = bool(coerce_outcome(result, 1, predicate.name, negated=not predicate.negated)[0])
    return True if keeps else False if drops else None


_AS: dict[str, Callable[[pa.Array], Any]] = {
    "arrow": lambda array: array,
    "pandas": lambda array: array.to_pandas(),
    "numpy": lambda array: array.to_numpy(zero_copy_only=False),
}
