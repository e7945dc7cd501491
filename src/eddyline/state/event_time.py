"""How a join whose answers hang on the order of event time is carried out, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eddyline.state.rows import ALWAYS, FOREVER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.query.query import Emits
    from eddyline.query.windows import RowsWindow


@dataclass(frozen=True, slots=True)
class OrderPlan:
    """What a bucket must know to wait for rows that are still to come."""

    emits: Emits
    lateness: Mapping[str, int]
    """By how much rows of each stream may come late (µs); static tables are not in it."""
    latest: Mapping[str, int] = field(default_factory=dict)
    """The latest event time of each stream before the batch (µs); of those that had rows."""
    rows: Mapping[str, RowsWindow] = field(default_factory=dict)
    """The windows that count rows, by input."""
    ties: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of those inputs, the columns that order rows of one instant, the first one first."""
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of those inputs, the columns that results need."""

    @property
    def awaited(self) -> tuple[str, ...]:
        """The inputs whose rows must be complete up to an instant before it can be answered."""
        return tuple(self.rows if self.emits == "istream" else self.lateness)

    def low(self, name: str, latest: Mapping[str, int]) -> int:
        """Return the instant before which no row of a stream is still to come (µs).

        Args:
            name: the input.
            latest: the latest event times so far (µs).
        """
        if name not in latest:
            return ALWAYS
        return max(latest[name] - self.lateness[name], ALWAYS + 1)

    def until(self, latest: Mapping[str, int]) -> int:
        """Return the instant before which all is there that answers hang on (µs).

        Args:
            latest: the latest event times so far (µs).
        """
        return min(self.low(name, latest) for name in self.awaited)

    def horizon(self, name: str, until: int, latest: Mapping[str, int]) -> int | None:
        """Return the instant before which rows that left their window are not needed (µs).

        Args:
            name: the input.
            until: the instant before which all is answered (µs).
            latest: the latest event times so far (µs).

        Returns:
            None if no row of the input is needed at all.
        """
        if self.emits == "rstream":
            return until
        if self.emits == "dstream":
            return ended_until(until)
        others = [self.low(other, latest) for other in self.lateness if other != name]
        return min(until, *others) if others else None


def ended_until(until: int) -> int:
    """Return the instant before which a result must end to be emitted as ended (µs).

    Args:
        until: the instant before which all is answered (µs).
    """
    return until if until in (ALWAYS, FOREVER) else until - 1
