"""Patterns of texts: LIKE, ILIKE, RLIKE, and the functions of prefixes, ends and parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from eddyline.query.conditions import And, Not, Or, TextTest, ValueTest, necessary_tests
from eddyline.sql.functions import as_call
from eddyline.sql.nodes.text_patterns import patterns_of
from eddyline.sql.regexes import (
    ANY,
    Wild,
    is_folded_alike,
    is_lower,
    like_parts,
    python_regex,
    regex_effort,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Expr

    from eddyline.query.conditions import Node, Operand
    from eddyline.query.rules.reading import Reading

_LOWER = ("lower", "lcase")

AROUND: dict[str, tuple[tuple[Wild, ...], tuple[Wild, ...]]] = {
    "contains": ((Wild(ANY),), (Wild(ANY),)),
    "startswith": ((), (Wild(ANY),)),
    "endswith": ((Wild(ANY),), ()),
}
"""The wildcards before and after the text that a function looks for."""


def like(reading: Reading, node: Expr) -> Node | None:
    """Return the tests of LIKE and ILIKE, also with ANY and ALL."""
    return _liked(reading, node, "\\")


def escaped(reading: Reading, node: Expr) -> Node | None:
    """Return the tests of LIKE with ESCAPE."""
    constant = reading.constant(node.expression)
    character = constant.value if constant is not None else None
    is_plain = isinstance(character, str) and len(character) == 1 and character not in "%_"
    return _liked(reading, node.this, str(character)) if is_plain else None


def _liked(reading: Reading, node: Expr, escape: str) -> Node | None:
    ignores_case = isinstance(node, exp.ILike)
    tests: list[Node] = []
    for pattern in patterns_of(node):
        text = reading.text(pattern)
        if text is None:
            return None
        # Spark compares lower(value) with lower(pattern), escapes and all.
        parts = like_parts(text.lower() if ignores_case else text, escape)
        test = None if parts is None else _text_test(reading, node.this, parts, ignores_case)
        if test is None:
            return None
        tests.append(Not(test) if node.args.get("negate") else test)
    joined = Or if isinstance(node.expression, exp.Any) else And
    return tests[0] if len(tests) == 1 else joined(tuple(tests))


def around(reading: Reading, args: Sequence[Expr], name: str) -> Node | None:
    """Return the test of ``contains``, ``startswith`` or ``endswith`` with a literal."""
    text = reading.text(args[1])
    if text is None:
        return None
    before, after = AROUND[name]
    return _text_test(reading, args[0], (*before, *([text] if text else []), *after), False)


def _text_test(
    reading: Reading, node: Expr, parts: tuple[str | Wild, ...], folded: bool
) -> TextTest | None:
    operand = reading.text_operand(node)
    if not folded and is_lower(parts) and is_folded_alike(parts):
        inside = _lowered(reading, node)
        operand, folded = (operand, False) if inside is None else (inside, True)
    if operand is None or (folded and not is_folded_alike(parts)):
        return None
    return TextTest(operand, parts, folded)


def lower_case_tests(reading: Reading, node: Expr, values: Sequence[Any]) -> Node | None:
    """Return ``lower(x) IN (…)`` as tests of x; what is not in lower case is never equal."""
    inside = _lowered(reading, node)
    if inside is None:
        return None
    texts = [(str(value),) if value else () for value in values]
    possible = [text for text in texts if is_lower(text)]
    if not possible or not all(map(is_folded_alike, possible)):
        return None
    tests = tuple(TextTest(inside, text, folded=True) for text in possible)
    return tests[0] if len(tests) == 1 else Or(tests)


def _lowered(reading: Reading, node: Expr) -> Operand | None:
    """Return the operand x of ``lower(x)``."""
    called = as_call(node.unnest())
    if called is None or called[0] not in _LOWER or len(called[1]) != 1:
        return None
    return reading.text_operand(called[1][0])


def rlike(reading: Reading, node: Expr) -> Node | None:
    """Return the test of RLIKE."""
    return regex(reading, [node.this, node.expression])


def regex(reading: Reading, args: Sequence[Expr]) -> Node | None:
    """Return the test of a regular expression that Python surely reads as Java does."""
    operand, text = reading.text_operand(args[0]), reading.text(args[1])
    translated = None if operand is None or text is None else python_regex(text)
    if operand is None or translated is None:
        return None
    pattern, flags = translated.pattern, translated.flags
    needs = necessary_tests(operand, pattern, flags)
    if not needs and not regex_effort(str(text)).reason:
        return None
    return ValueTest(operand, "regex", pattern, flags, needs)
