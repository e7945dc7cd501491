"""Windows over streams, as values that answer how long rows stay.

A new kind of window is one class here, and a line of grammar in ``cql``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

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

LONGEST = 2**63 - 1
"""µs of a range without an end: what an event time in 64 bits can hold."""

MAX_SPAN = 3_652_500 * UNITS["day"]
"""µs of the longest time that an option or a query may have: no sum of such times overflows."""

MAX_ROWS = 10**15
"""Rows of the largest window of rows."""


class Window:
    """The rows of a stream that are there to be joined at an instant of event time.

    What a kind of window does not say of itself is as in one that keeps all rows.
    """

    __slots__ = ()

    @property
    def text(self) -> str:
        """The window as a query would write it."""
        raise NotImplementedError

    @property
    def length(self) -> int:
        """The time after which a row leaves (µs); ``LONGEST`` if time alone takes none out."""
        return LONGEST

    @property
    def counts(self) -> RowsWindow | None:
        """The number of later rows after which a row leaves, if rows are counted.

        Such rows are needed in the order of event time, whether they can join or not.
        """
        return None

    def ends(self, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the last instants (µs) of rows by their event times (µs), as far as time tells."""
        if self.length == LONGEST:
            return np.full(starts.size, LONGEST)
        # Where the end is beyond all instants, the row stays.
        return np.where(starts > LONGEST - self.length, LONGEST, starts + self.length)


@dataclass(frozen=True, slots=True)
class RangeWindow(Window):
    """``[RANGE 10 SECONDS]``: the rows whose event time is at most so long ago, ends included.

    ``[NOW]`` is a range of length 0: the rows of the same instant.
    """

    length: int = field()
    """µs, 0 or more."""

    @property
    def text(self) -> str:
        """The window in the largest unit up to days.

        >>> RangeWindow(90_000_000).text, RangeWindow(0).text
        ('RANGE 90 SECONDS', 'NOW')
        """
        return f"RANGE {span_text(self.length)}" if self.length else "NOW"


@dataclass(frozen=True, slots=True)
class RowsWindow(Window):
    """``[ROWS 1000]``, ``[PARTITION BY k ROWS 10]``: so many latest rows of the stream, or a group.

    The count runs over all rows of the stream, before its own predicates. The order is that of
    event time; among equal times that of the rows' contents, so it does not depend on arrival.
    """

    rows: int
    """1 or more; ``LONGEST`` of a frame that has all rows so far, but not those of the own instant
    that come behind."""
    partition_by: tuple[str, ...] = ()
    """Columns of the stream, by name."""

    @property
    def text(self) -> str:
        """The window as a query would write it.

        >>> RowsWindow(10, ("k",)).text
        'PARTITION BY k ROWS 10'
        """
        by = f"PARTITION BY {', '.join(self.partition_by)} " if self.partition_by else ""
        return f"{by}ROWS {'UNBOUNDED' if self.rows == LONGEST else self.rows}"

    @property
    def counts(self) -> RowsWindow | None:
        """The window itself."""
        return self


@dataclass(frozen=True, slots=True)
class UnboundedWindow(Window):
    """``[UNBOUNDED]``: all rows so far; what a stream without a window has."""

    @property
    def text(self) -> str:
        """The window as a query would write it."""
        return "UNBOUNDED"


UNBOUNDED = UnboundedWindow()


@dataclass(frozen=True, slots=True)
class SlideWindow(Window):
    """``[RANGE 10 MINUTES SLIDE 1 MINUTE]``: a window that ends at every slide.

    The window that ends at an instant has the rows of ``[end - length, end)``, as Spark's
    ``window(ts, length, slide)``; where length and slide are equal, windows tumble. Where the slide
    is longer, there are gaps, and the rows in them are in no window.
    """

    length: int = field()
    """µs, 1 or more; ``LONGEST`` of ``[UNBOUNDED SLIDE …]``: all rows before the end."""
    slide: int = field()
    """µs, 1 or more."""
    origin: int = 0
    """An instant at which a window ends (µs since 1970, in UTC)."""

    @property
    def text(self) -> str:
        """The window in the largest units.

        >>> SlideWindow(600_000_000, 60_000_000).text
        'RANGE 10 MINUTES SLIDE 1 MINUTE'
        """
        length = "UNBOUNDED" if self.length == LONGEST else f"RANGE {span_text(self.length)}"
        origin = f" ORIGIN {span_text(self.origin)}" if self.origin else ""
        return f"{length} SLIDE {span_text(self.slide)}{origin}"


@dataclass(frozen=True, slots=True)
class SessionWindow(Window):
    """``[SESSION 5 MINUTES]``: rows of a group that follow each other by no more than a gap.

    As Spark's ``session_window``, that of rows from ``first`` to ``last`` is [first, last + gap).
    """

    gap: int
    """µs, 1 or more."""

    @property
    def text(self) -> str:
        """The window as a query would write it.

        >>> SessionWindow(300_000_000).text
        'SESSION 5 MINUTES'
        """
        return f"SESSION {span_text(self.gap)}"


def check_span(what: str, micros: int | None, **facts: Any) -> None:
    """Refuse a time (µs) that is longer than ``MAX_SPAN``; None is no time.

    Raises:
        OptionError: it is too long; the error has the facts.
    """
    if micros is not None and micros > MAX_SPAN:
        raise OptionError(too_long(what), **facts)


def too_long(what: str) -> str:
    """Return the reason why a time is refused that is longer than ``MAX_SPAN``."""
    return f"{what} is too long; the longest time is {span_text(MAX_SPAN)} (10,000 years)"


def span_text(micros: int) -> str:
    """Return a time span in the largest unit up to days.

    >>> span_text(90_000_000)
    '90 SECONDS'
    """
    unit = [each for each in UNITS if each != "week" and micros % UNITS[each] == 0][-1]
    number = micros // UNITS[unit]
    return f"{number} {unit.upper()}{'' if number == 1 else 'S'}"
