"""Ranges of values that a user says the rows of a stream keep to, and rows that do not.

Bounds of some results depend on how large values are, which nobody can read of a stream before it
comes. What is said is taken at its word: bounds of models follow from it, and rows outside are
counted. Errors of results are of the models as they are, so that they tell of such rows, too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from eddyline.errors import OptionError
from eddyline.models.ranges import Range
from eddyline.models.rows import list_matrix, values_of
from eddyline.registry import checked_text

_SLOPE = re.compile(r"\s*d\s*\(\s*(.*?)\s*\)\s*", re.IGNORECASE)


def read_ranges(given: Any, *, by_pace: bool = False) -> dict[str, Range]:
    """Return the ranges of attributes.

    Args:
        given: for attributes their least and greatest values, and by ``d(x)`` those of the change
            of x per second.
        by_pace: whether it has to be known of each how fast it changes.

    Raises:
        OptionError: they are not given by name, or one is no range.
    """
    if not isinstance(given, Mapping):
        msg = (
            f"ranges has two ends for each attribute, such as {{'x': (0, 100)}}, got {given!r:.60}"
        )
        raise OptionError(msg, ranges=repr(given))
    values: dict[str, Range] = {}
    paces: dict[str, float] = {}
    for text, ends in given.items():
        low, high = _ends(checked_text("attribute in ranges", text), ends)
        if slope := _SLOPE.fullmatch(text):
            paces[slope[1]] = max(abs(low), abs(high))
        else:
            values[text] = Range(low, high)
    missing = [each for each in paces if each not in values]
    if by_pace and not missing:
        missing = [f"d({each})" for each in values if each not in paces]
    if missing:
        msg = (
            f"ranges lacks that of {missing[0]!r}: for split='gradient' it has those of values and "
            "of their change per second, such as {'x': (0, 100), 'd(x)': (-3, 3)}"
        )
        raise OptionError(msg, attribute=missing[0])
    return {name: each._replace(pace=paces.get(name, math.nan)) for name, each in values.items()}


def _ends(name: str, given: Any) -> tuple[float, float]:
    is_pair = isinstance(given, list | tuple) and len(given) == 2
    ends = [each for each in given if _is_number(each)] if is_pair else []
    if len(ends) != 2 or ends[0] > ends[1]:
        msg = (
            f"ranges[{name!r}] is the least and the greatest value, two finite numbers such as "
            f"(0, 100); got {given!r:.60}"
        )
        raise OptionError(msg, attribute=name, got=repr(given))
    return float(ends[0]), float(ends[1])


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def both(one: Range, other: Range, name: str) -> Range:
    """Return what two ranges that are said of an attribute say together.

    Raises:
        OptionError: no value is in both.
    """
    low, high = max(one.low, other.low), min(one.high, other.high)
    if low > high:
        msg = f"{name!r} is said to be {told(name, one)}, and {told(name, other)}; say one of them"
        raise OptionError(msg, attribute=name)
    return Range(low, high, float(np.fmin(one.pace, other.pace)))


def told(name: str, known: Range) -> str:
    """Return a range in words."""
    return f"{name} from {known.low:g} to {known.high:g}"


def said(assumed: Mapping[str, Range]) -> str:
    """Return what is assumed as the end of a sentence; nothing if nothing is."""
    each = ", ".join(told(name, known) for name, known in assumed.items())
    return f"; {each} is assumed" if each else ""


def n_outside(rows: pa.Table, assumed: Mapping[str, Range]) -> int:
    """Return how many rows have a value outside of its range.

    Args:
        rows: with a column for each attribute: its value, or a list that begins with it.
        assumed: the ranges.
    """
    found = np.zeros(len(rows), np.bool_)
    for name, known in assumed.items():
        column = rows.column(name)
        if pt.is_list(column.type):
            lists = list_matrix(column)
            values = np.where(np.isfinite(lists).all(axis=1), lists[:, 0], np.nan)
        else:
            values = values_of(rows, [name])[name]
        found |= np.isfinite(values) & ((values < known.low) | (values > known.high))
    return int(found.sum())
