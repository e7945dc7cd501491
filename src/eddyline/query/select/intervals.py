"""Lengths of time in expressions: ``INTERVAL '1' HOUR``, ``'10 minutes'``."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

from sqlglot import exp

from eddyline.query.windows import UNITS

if TYPE_CHECKING:
    from sqlglot import Expr

_SPAN = re.compile(r"\s*([+-]?\d+(?:\.\d*)?)\s+([a-z]+?)s?(?=\s|$)", re.IGNORECASE | re.ASCII)


def micros_of(tree: Expr) -> int | None:
    """Return the length of an interval, or of one in quotes, in µs; None if it is none."""
    if isinstance(tree, exp.Add):  # INTERVAL 1 HOUR 30 MINUTES
        parts = micros_of(tree.left), micros_of(tree.right)
        return None if parts[0] is None or parts[1] is None else parts[0] + parts[1]
    if isinstance(tree, exp.Interval):
        unit = tree.args.get("unit")
        is_plain = isinstance(tree.this, exp.Literal) and isinstance(unit, exp.Var | None)
        return (
            micros_in(f"{tree.this.name} {'' if unit is None else unit.name}") if is_plain else None
        )
    is_text = isinstance(tree, exp.Literal) and tree.is_string
    return micros_in(tree.name) if is_text else None


def micros_in(text: str) -> int | None:
    """Return the length that a text says in numbers and units, in µs; None if it says none.

    >>> micros_in("1 hour 30 minutes"), micros_in("interval 1.5 seconds"), micros_in("1 month")
    (5400000000, 1500000, None)
    """
    rest, micros = re.sub(r"(?i)^\s*interval(?=\s)", "", text), Fraction(0)
    while rest.strip():
        found = _SPAN.match(rest)
        if found is None or found[2].lower() not in UNITS:
            return None
        # Python reads whole numbers of up to 4,300 digits; what is left is too long as well.
        micros += Fraction(found[1][:4_000]) * UNITS[found[2].lower()]
        rest = rest[found.end() :]
    return int(micros) if text.strip() and micros.denominator == 1 else None
