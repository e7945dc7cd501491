"""A budget of time: learning may take a share of the time that the work itself takes."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Budget:
    """Time that learning may take, as a share of the work that was done.

    Args:
        share: most time that learning may take, as a share of that of the work ([0, 1]).
        most_owed: work after which a debt is forgotten, in units of the last earned work; a
            single long decision then never silences learning for good (None: never forgotten).
        clock: monotonic clock (ns).
    """

    def __init__(
        self,
        share: float,
        *,
        most_owed: float | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.share = share
        self._most_owed = most_owed
        self._clock = clock
        self._left_ns = 0.0

    @property
    def may(self) -> bool:
        """Whether nothing is owed."""
        return self._left_ns >= 0.0

    def earn(self, work_ns: float) -> None:
        """Add work that was done (ns). What is not spent is not saved up beyond this batch."""
        earned = self.share * work_ns
        self._left_ns = min(self._left_ns, 0.0) + earned
        if self._most_owed is not None:
            self._left_ns = max(self._left_ns, -self._most_owed * earned)

    def spend(self, ns: float) -> None:
        """Take time off that learning took (ns)."""
        self._left_ns -= ns

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Take off the time that the body takes."""
        started = self._clock()
        try:
            yield
        finally:
            self.spend(self._clock() - started)
