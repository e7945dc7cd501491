"""Spans of time as text, such as ``1 hour 30 minutes``.

They are read without a parser.
"""

from __future__ import annotations

import re
from fractions import Fraction

UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
"""µs of each unit of time; a day has 24 hours, as in Spark's intervals."""

_SPAN = re.compile(r"\s*([+-]?\d+(?:\.\d*)?)\s+([a-z]+?)s?(?=\s|$)", re.IGNORECASE | re.ASCII)


def micros_in(text: str) -> int | None:
    """Return the length that a text says in numbers and units, in µs; None if it says none.

    >>> micros_in("1 hour 30 minutes"), micros_in("interval 1.5 seconds"), micros_in("1 month")
    (5400000000, 1500000, None)
    """
    rest, micros = re.sub(r"(?i)^\s*interval(?=\s)", "", text), Fraction(0)
    while rest.strip():
        match = _SPAN.match(rest)
        if match is None or match[2].lower() not in UNITS:
            return None
        # Python reads whole numbers of up to 4,300 digits; what is left is too long as well.
        micros += Fraction(match[1][:4_000]) * UNITS[match[2].lower()]
        rest = rest[match.end() :]
    return int(micros) if text.strip() and micros.denominator == 1 else None
