"""Texts and plans without what may have come from a row: literals, keys, sampled values.

Names of queries, columns, functions and files stay. What is not known to be harmless goes.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from sqlglot import TokenType

from eddyline.errors import QueryError
from eddyline.sql.parsing import tokens_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eddyline.runtime.journal import JournalEntry

LEFT_OUT = "left out"
"""Stands for a value."""

_WORD = re.compile(r"[A-Za-z_][A-Za-z_ -]*")
"""A text of words alone, as loops use them for plans and reasons."""

_COUNT = re.compile(
    r"n_\w+|\w+_(ns|s|bytes|frac|prob|ratio|rows|tuples)|ratio|position|partition|\w*batch"
)
"""Names of evidence that count or measure the work, and so are no values of rows."""

_LITERALS = {kind for kind in TokenType if kind.name.endswith("STRING") or kind is TokenType.NUMBER}


def without_literals(text: str) -> str:
    """Return SQL, or a sentence with SQL in it, without its literals and comments.

    >>> without_literals("c = 'x' AND n > 5 -- five")
    'c = ? AND n > ?'
    """
    try:
        tokens = tokens_of(text)
    except QueryError:
        return LEFT_OUT
    parts: list[str] = []
    end = 0
    for token in tokens:
        if token.start < end:  # of a number with a suffix, its type: a token over the same text
            end = max(end, token.end + 1)
            continue
        gap = " " if parts and token.start > end else ""
        parts.append(gap + ("?" if token.token_type in _LITERALS else _written(text, token)))
        end = token.end + 1
    return "".join(parts)


def _written(text: str, token: Any) -> str:
    return text[token.start : token.end + 1]


@dataclass
class Redaction:
    """Redacts what belongs together: texts that are alike without literals stay apart by number."""

    _numbers: dict[str, dict[str, int]] = field(default_factory=dict)
    """By redacted text: the number of each text."""

    def name(self, text: str) -> str:
        """Return the text of a predicate, an attribute or an expression, the same each time."""
        shown = without_literals(text)
        if shown == text:
            return text
        numbers = self._numbers.setdefault(shown, {})
        return f"{shown} #{numbers.setdefault(text, len(numbers) + 1)}"

    def plan(self, plan: Any) -> Any:
        """Return a plan: orders, shapes and words as they are, of anything else what it is."""
        if plan is None or isinstance(plan, bool | int):
            return plan
        if isinstance(plan, str):
            return plan if _WORD.fullmatch(plan) else self.name(plan)
        if isinstance(plan, list | tuple) and all(isinstance(each, str | int) for each in plan):
            return [self.name(each) if isinstance(each, str) else each for each in plan]
        return f"{LEFT_OUT}: {type(plan).__name__}"

    def entry(self, entry: JournalEntry) -> dict[str, Any]:
        """Return a decision with the evidence that counts."""
        plans = {"before": self.plan(entry.before), "after": self.plan(entry.after)}
        return asdict(entry) | plans | {"evidence": evidence(entry.evidence)}


def evidence(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of an evidence that count or measure, and its reasons in words alone."""
    return {name: value if _counts(name, value) else LEFT_OUT for name, value in values.items()}


def _counts(name: str, value: Any) -> bool:
    if isinstance(value, str):
        return name in {"why", "by"} and bool(_WORD.fullmatch(value))
    return isinstance(value, int | float) and bool(_COUNT.fullmatch(name))


def settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return options: numbers and words as they are, expressions without literals."""
    plain = re.compile(r"[\w.+-]*")
    return {
        name: value if plain.fullmatch(value) else without_literals(value)
        for name, value in given.items()
    }


def error_class(error: str) -> str:
    """Return the class of an error, and Spark's name of it; its sentence may quote a value.

    >>> error_class("ArithmeticException: [DIVIDE_BY_ZERO] Division by zero of '[X]'")
    'ArithmeticException [DIVIDE_BY_ZERO]'
    """
    found = re.match(r"([\w.]+):(?: (\[[A-Z][A-Z0-9_.]+\]))?", error)
    return " ".join(filter(None, found.groups())) if found else ""


def titles(sections: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what an explanation had sections about."""
    return [without_literals(str(each.get("title", ""))) for each in sections]
