"""Sections: what people see of an operator, as values. Terminal and page render them.

An operator's own words stand in its sub-room of ``watch/``; they make sections of its view. Texts
are plain, on one line, and carry neither markup nor HTML: who renders them escapes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Text:
    """A sentence or several."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    n_texts: int = 1
    """How many of its first columns are texts; the others are figures, aligned to the right."""
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture of numbers; only pages draw it."""

    title: str
    facts: Any = field(default=None)
    """What is drawn; see ``watch.html.figures``."""


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of an explanation."""

    title: str
    parts: tuple[Text | Table | Figure, ...] = ()
