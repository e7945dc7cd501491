"""Windows that end at every slide: the cells that they are cut into, and their ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddyline.query.query import LONGEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.query.query import SlideWindow


@dataclass(frozen=True, slots=True)
class Slides:
    """The instants of windows, and the cells between them.

    Cells are cut where windows end and where they begin: where the length is no multiple of the
    slide, two cells make a slide, the second one ``cut`` µs after the first.
    """

    slide: int
    """µs."""
    length: int
    """µs; ``LONGEST`` if windows have no beginning."""
    origin: int
    """An instant at which a window ends (µs)."""

    @classmethod
    def of(cls, window: SlideWindow) -> Slides:
        """Return the slides of a window."""
        return cls(window.slide, window.length, window.origin % window.slide)

    @property
    def cut(self) -> int:
        """The place in each slide at which a window begins (µs); 0 if it is where one ends."""
        return 0 if self.length == LONGEST else -self.length % self.slide

    @classmethod
    def common(cls, windows: Sequence[SlideWindow]) -> Slides:
        """Return slides whose cells are cut at the edges of all of some windows, if not finer."""
        first, *_ = windows
        parts = [part for each in windows for part in (each.slide, each.length)]
        parts += [each.origin - first.origin for each in windows]
        width = math.gcd(*parts)
        longest = max(each.length for each in windows)
        return cls(width, longest, first.origin % width)

    def end_from(self, instant: int) -> int:
        """Return the first end of a window at an instant or after it (µs)."""
        return instant + (self.origin - instant) % self.slide

    def cell_of(self, instant: int) -> int:
        """Return the start of the cell of an instant (µs)."""
        place = (instant - self.origin) % self.slide
        return instant - place + (self.cut if place >= self.cut else 0)
