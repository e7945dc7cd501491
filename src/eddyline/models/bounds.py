"""How a model is fitted, as values: bounds of attributes, the method, and what a gap is."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from eddyline.errors import OptionError
from eddyline.models.lengths import read_length
from eddyline.options import in_range, is_one_of
from eddyline.registry import checked_text

METHODS = ("auto", "constant", "swing", "connected", "linear", "polynomial")
"""How segments are found; see ``FitOptions.method``."""

MAX_DEGREE = 4
"""The highest degree that is fitted: what is solved in closed loops stays accurate up to it."""

NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(%?)\s*")


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that a model may be away from a row's value.

    >>> Bound.of("lon", "1 %")
    Bound(value=0.01, is_relative=True)
    """

    value: float
    """In the attribute's unit, or as a share of the row's value; 0 or more."""
    is_relative: bool = False
    """Whether it is a share of each row's value."""

    @classmethod
    def of(cls, attribute: str, given: Any) -> Bound:
        """Read ``0.001``, ``"0.001"`` or ``"1 %"``.

        Raises:
            OptionError: it is something else, negative, or no finite number.
        """
        value, is_relative = given, False
        if isinstance(given, Bound):
            return given
        if isinstance(given, str) and (found := NUMBER.fullmatch(given)):
            value, is_relative = float(found[1]), bool(found[2])
            value = value / 100 if is_relative else value
        if not _is_number(value) or not 0 <= value < math.inf:
            msg = (
                f"within[{attribute!r}] is a finite number of 0 or more, such as 0.001, or a share "
                f"of each value, such as '1 %'; got {given!r:.60}"
            )
            raise OptionError(msg, attribute=attribute, got=repr(given))
        return cls(float(value), is_relative)

    def __str__(self) -> str:
        return f"{self.value * 100:.12g} %" if self.is_relative else f"{self.value:g}"


def read_bounds(within: Any) -> dict[str, Bound]:
    """Return the bound of each attribute.

    Raises:
        OptionError: they are not given by name, or one is no bound.
    """
    if not isinstance(within, Mapping) or not within:
        msg = (
            f"within has a bound for each attribute, such as {{'lat': 0.001, 'lon': '1 %'}}, "
            f"got {within!r:.60}"
        )
        raise OptionError(msg, within=repr(within))
    return {
        checked_text("attribute in within", name): Bound.of(name, each)
        for name, each in within.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """How segments are found.

    Raises:
        OptionError: a value is out of its range; it says which and what the range is.
    """

    method: str = "auto"
    """``constant``: ranges of values. ``swing``: lines from a row, with the least state.
    ``connected``: the same, each from the end of the one before, without jumps. ``linear``: lines,
    the fewest that are possible. ``polynomial``: of ``degree``. ``auto``: for each run of
    rows without a gap the one of constants, lines and polynomials up to ``degree`` that stores the
    fewest numbers for its first rows."""
    degree: int = 2
    """The degree of ``polynomial``, and the highest that ``auto`` tries ([0, 4])."""
    max_gap_us: int | None = None
    """A longer time between two rows of an entity ends a segment, and no model is in it (µs; ≥ 1);
    None: there are no gaps."""
    prefix_rows: int = 1024
    """Instants of a run by which ``auto`` judges (≥ 16)."""
    rounding: float = 0.25
    """What share of the room between a segment's error and its bound the rounding of coefficients
    may take, so that they have few digits and are stored in few bytes ([0, 1]). 0: they stay as
    they are fitted. Segments of ``connected`` are never rounded: there would be jumps."""

    def __post_init__(self) -> None:
        is_one_of(self, "method", METHODS)
        in_range(self, "degree", 0, MAX_DEGREE)
        in_range(self, "prefix_rows", 16, 1 << 16)
        in_range(self, "rounding", 0.0, 1.0)
        if self.max_gap_us is not None:
            in_range(self, "max_gap_us", 1, 2**63 - 1)

    @property
    def n_coefs(self) -> int:
        """Coefficients that are stored of each attribute."""
        by_method = {"constant": 1, "swing": 2, "connected": 2, "linear": 2}
        return by_method.get(self.method, self.degree + 1)


def read_gap(given: Any) -> int | None:
    """Return the longest time between rows that is no gap (µs): an interval, or seconds.

    Raises:
        OptionError: it is something else, or not longer than 0.
    """
    return None if given is None else read_length("max_gap", given)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
