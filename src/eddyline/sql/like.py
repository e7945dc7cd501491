"""LIKE patterns of Spark in parts, and the literals that may be compared in lower case."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

ANY, ONE = "%", "_"
"""The wildcards: any characters, also none, and exactly one."""

_NEWLY_PAIRED = frozenset("ɤƛꟓꟕ")
"""Lower-case letters whose upper case came with Unicode 15 and 16, which Python may not know."""


@dataclass(frozen=True, slots=True)
class Wild:
    """A wildcard in a text pattern."""

    what: str
    """``ANY`` or ``ONE``."""


def like_parts(pattern: str, escape: str) -> tuple[str | Wild, ...] | None:
    r"""Return the parts of a LIKE pattern, or None if Spark refuses it.

    >>> like_parts("a%b!_", "!")
    ('a', Wild(what='%'), 'b_')
    """
    parts: list[str | Wild] = []
    chars = iter(pattern)
    for char in chars:
        if char == escape:
            literal = next(chars, "")
            if literal not in (ANY, ONE, escape):
                return None
            _append(parts, literal)
        elif char in (ANY, ONE):
            parts.append(Wild(char))
        else:
            _append(parts, char)
    return tuple(parts)


def is_whole_text(text: str) -> bool:
    r"""Return whether a text has no half characters, which Spark does not keep.

    >>> is_whole_text("é"), is_whole_text("\ud800")
    (True, False)
    """
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _append(parts: list[str | Wild], literal: str) -> None:
    if parts and isinstance(parts[-1], str):
        parts[-1] += literal
    else:
        parts.append(literal)


def is_lower(parts: tuple[str | Wild, ...]) -> bool:
    """Return whether the literals of a pattern are in lower case, as texts in lower case are."""
    return all(char.lower() == char for part in parts if isinstance(part, str) for char in part)


def is_folded_alike(parts: tuple[str | Wild, ...]) -> bool:
    """Return whether Python and Spark surely agree on which texts in lower case hold the literals.

    Letters that are newer than this Python's Unicode are not folded by it.
    """
    chars = {char for part in parts if isinstance(part, str) for char in part}
    return not chars & _NEWLY_PAIRED and all(unicodedata.category(char) != "Cn" for char in chars)
