"""A budget of time: learning may take a share of the time that the work itself takes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from eddyline.stats.costs import work_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Budget:
    """Time that learning may take, as a share of the work that was done.

    Args:
        share: most time that learning may take, as a share of that of the work ([0, 1]).
        saves: whether what is not spent may be spent later; if not, only a debt is kept.
        most_owed: the largest debt that is kept, in units of what was earned last; so a single
            long decision never silences learning for good. Unlimited if omitted.
        clock: monotonic clock (ns); if omitted, time in the queue for a core is nobody's.
    """

    def __init__(
        self,
        share: float,
        *,
        saves: bool = True,
        most_owed: float | None = None,
        clock: Callable[[], int] = work_ns,
    ) -> None:
        self.share = share
        self.left_ns = 0.0
        """Time that may still be spent (ns); a debt if negative."""
        self._saves = saves
        self._most_owed = most_owed
        self._clock = clock

    @property
    def may(self) -> bool:
        """Whether nothing is owed."""
        return self.left_ns >= 0.0

    def earn(self, done_ns: float) -> None:
        """Add work that was done (ns)."""
        earned = self.share * done_ns
        self.left_ns += earned
        if not self._saves:
            self.left_ns = min(self.left_ns, 0.0)
        if self._most_owed is not None:
            self.left_ns = max(self.left_ns, -self._most_owed * earned)

    def spend(self, ns: float) -> None:
        """Take off time that learning took (ns)."""
        self.left_ns -= ns

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Take off the time that the body takes."""
        started = self._clock()
        try:
            yield
        finally:
            self.spend(self._clock() - started)
