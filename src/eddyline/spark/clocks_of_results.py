"""The clocks of rows that are results: of operators over one stream, and of unions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddyline.state.event_time import earlier

if TYPE_CHECKING:
    from collections.abc import Callable

    from eddyline.spark.operator import Clock


@dataclass(frozen=True, slots=True)
class ResultClock:
    """The clock of results that are given when their instants are over: none of them is late.

    Such are those of aggregates and, but for a span by which a column lags behind, of joins.
    """

    of: Clock
    """The clock of the rows that they are results of."""
    lag: int = 0
    """How far results may be behind that (µs)."""
    offset: int = 0
    """See ``Clock``."""

    @property
    def before(self) -> int:
        """See ``Clock``."""
        return earlier(self.of.before, self.lag)

    @property
    def after(self) -> int:
        """See ``Clock``."""
        return earlier(self.of.after, self.lag)

    @property
    def is_idle(self) -> bool:
        """See ``Clock``."""
        return self.of.is_idle

    @property
    def has_late(self) -> bool:
        """That no result is late; see ``Clock``."""
        return False

    def asked(self, runs_ahead: Callable[[], bool] | None = None) -> None:  # noqa: ARG002
        """Take note that an operator asks; see ``Clock``. Others have asked in a batch before."""
        self.of.asked()


@dataclass(frozen=True, slots=True)
class UnionClock:
    """The clock of the rows of several parts: it is where the one that is behind all others is.

    Args:
        of: the clocks of the parts, with equal offsets.
    """

    of: tuple[Clock, ...]

    @property
    def leaves(self) -> tuple[Clock, ...]:
        """The clocks of all parts, of those of parts that are unions, too."""
        parts = (each.leaves if isinstance(each, UnionClock) else (each,) for each in self.of)
        return tuple(leaf for own in parts for leaf in own)

    @property
    def before(self) -> int:
        """See ``Clock``."""
        return min(each.before for each in self.of)

    @property
    def after(self) -> int:
        """See ``Clock``."""
        return min(each.after for each in self.of)

    @property
    def offset(self) -> int:
        """See ``Clock``."""
        return self.of[0].offset

    @property
    def is_idle(self) -> bool:
        """See ``Clock``."""
        return all(each.is_idle for each in self.of)

    @property
    def has_late(self) -> bool:
        """See ``Clock``."""
        return any(each.has_late for each in self.of)

    def asked(self, runs_ahead: Callable[[], bool] | None = None) -> None:  # noqa: ARG002
        """Take note that an operator asks; see ``Clock``. No job is one over all parts."""
        for each in self.of:
            each.asked()
