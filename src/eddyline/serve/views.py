"""The whole views of runs, made at most as often as that costs little, and only if somebody looks.

A view is made of all batches of a run, so its cost grows with the run. It is made anew after a
batch, but not before the last making was half a percent of the time since: looking takes half a
percent of a processor at most, however long the run and however many look.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddyline.report.sections import arranged, without_values
from eddyline.serve import phases

if TYPE_CHECKING:
    from collections.abc import Callable

    from eddyline.report.sections import RunView, Section
    from eddyline.serve.following import Followed

LEAST_AGE_S = 1.0
"""A view is never made anew earlier (s)."""

SHARE = 0.005
"""Most share of a processor that making and rendering the view of one run takes."""

TRIES = 3
"""How often a view is tried to be made at most."""

ADVICE = "serve(values=True), or --values,"
"""What shows the values of rows."""


@dataclass(slots=True)
class Made:
    """A view, and when and how dearly it was made."""

    view: RunView
    sections: tuple[Section, ...]
    """Its sections, arranged, those of the time of batches included."""
    version: tuple[object, ...]
    """Differs from that of a view of other batches."""
    at: float
    """When it was made (s, of the clock)."""
    cost_s: float
    """Time of a processor that making and rendering it took (s)."""

    @property
    def due_at(self) -> float:
        """When it may be made anew (s, of the clock)."""
        return self.at + max(LEAST_AGE_S, self.cost_s / SHARE)


class Views:
    """The newest view of each run that somebody looked at.

    Args:
        values: whether values of rows are shown.
        clock: returns a time (s) that never goes back.
        spent: returns the time of a processor that the thread has taken (s).
    """

    def __init__(
        self,
        *,
        values: bool,
        clock: Callable[[], float] = time.monotonic,
        spent: Callable[[], float] = time.thread_time,
    ) -> None:
        self.values = values
        self.clock = clock
        self.spent = spent
        self._made: dict[str, Made] = {}

    def of(self, run: Followed) -> Made:
        """Return the view of a run: the newest, or one that is not too old to be made anew."""
        version = (id(run.run), run.last_batch, run.state)
        known = self._made.get(run.key)
        is_due = known is None or (known.version != version and self.clock() >= known.due_at)
        if known is not None and not is_due:
            return known
        before = self.spent()
        view = _view(run)
        found = arranged([*view.sections, *phases.sections(run.run.phases())])
        shown = found if self.values else without_values(found, ADVICE)
        made = Made(view, tuple(shown), version, self.clock(), self.spent() - before)
        self._made[run.key] = made
        return made

    def forget(self, key: str) -> None:
        """Make the view of a run anew when it is asked for next, such as after a person's hand."""
        self._made.pop(key, None)

    def wait_s(self, run: Followed) -> float:
        """Return how long a page should wait for a newer view (s); 0 if it has the newest."""
        known = self._made.get(run.key)
        if known is None or known.version == (id(run.run), run.last_batch, run.state):
            return 0.0
        return max(0.05, known.due_at - self.clock())


def _view(run: Followed) -> RunView:
    """Return the view of a run, whose batches may change what it is made of meanwhile."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(RuntimeError):  # such as a dictionary that changed its size
            return run.run.run_view()
    return run.run.run_view()
