"""Choice whether tasks read the files of a batch, by measured times.

Tasks that read files save the trip of every row from the JVM to Python. They send back all columns
of the rows that pass. So files win unless most rows pass and these are wide, and every query begins
with them. Now and then a few batches run the other way. The faster of both is kept, by time per
row. The next trial comes after so many batches that trials take a small share of the time, whatever
the other way costs. The first one comes soon unless little is sent back of what is read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from eddyline.runtime.choice import OneOfFew

if TYPE_CHECKING:
    from eddyline.runtime.journal import JournalEntry

FILES, ROWS = "files", "rows"
"""Plans: tasks read files, or Spark reads them and hands over rows."""

TRIAL = 3
"""Batches of a trial: the first compiles, and the fastest one of the others is compared with the
fastest of as many batches under the plan in force."""

FIRST_TRIAL, CLEAR_TRIAL, LEAST_WAIT = 4, 100, 10
"""Batches before the first trial, before it where files are clearly cheaper, and at least between
two others."""

SAVED_NS, BACK_NS, BYTE_NS = 500.0, 300.0, 1.25
"""What a row costs that Spark hands to Python, and one that tasks send back, with each of its bytes
(ns of a core; the first is the lower end of what was measured)."""

QUICK_NS = 0.15e9
"""Time of a batch that reads files below which rows are not tried (ns). A small batch of rows takes
0.2 s or more: Spark runs a job to hand them over."""

TRIAL_SHARE = 0.005
"""Share of the time that trials may take beyond the plan in force."""

LEAST_GAIN = 1.05
"""Factor by which the other plan has to be faster."""

ALIKE = 2.0
"""Batches are compared if neither has so many times the rows of the other."""

KEPT = 0.8
"""What a measured time counts one batch later."""


class LaneChoice(OneOfFew):
    """Whether the tasks of an operator read files, or are handed rows."""

    plans = (FILES, ROWS)
    learned = ("plan", "_n_rows", "_newest", "_wait", "_n_since", "_has_tried")

    def __init__(self, component: str, *, is_adaptive: bool) -> None:
        self.component = component
        self.is_adaptive = is_adaptive
        self.plan = FILES
        self._n_rows = 0.0
        """Rows of a batch, newer ones counting more."""
        self._newest: list[float] = []
        """Times per row of the newest batches under the plan in force (ns), at most ``TRIAL``."""
        self._wait = FIRST_TRIAL
        """Batches until the next trial."""
        self._has_tried = False
        self._n_since = 0
        """Batches under the plan in force since the last trial, or the start."""
        self._tried: list[float] = []
        """Times per row of the batches of a trial so far (ns)."""

    def check_learned(self) -> None:
        """Raise StateError if a restored time is none."""
        if not all(isinstance(seconds, float) and seconds > 0 for seconds in self._newest):
            self._damaged(f"times are {self._newest!r:.80}")

    @property
    def is_trial(self) -> bool:
        """Whether the next batch runs the other way."""
        return (
            self.is_adaptive
            and not self.is_held
            and self._n_since >= self._wait
            and not self._is_quick
        )

    @property
    def _is_quick(self) -> bool:
        """Whether batches read files in less time than Spark takes to hand over rows."""
        fastest_ns = min(self._newest, default=math.inf) * self._n_rows
        return self.plan == FILES and fastest_ns < QUICK_NS

    @property
    def next(self) -> str:
        """The way of the next batch."""
        return self._other if self.is_trial else self.plan

    @property
    def _other(self) -> str:
        return ROWS if self.plan == FILES else FILES

    def adopt(self, plan: str) -> None:
        """Put another plan in force, of which nothing is known."""
        super().adopt(plan)
        self._newest, self._n_since, self._tried = [], 0, []

    def sent(self, n_rows: int, n_kept: int, n_bytes: int) -> None:
        """Take in what the tasks of a batch that read files have sent back, of so many rows."""
        costs_ns = BACK_NS * n_kept + BYTE_NS * n_bytes
        if not self._has_tried:
            self._wait = CLEAR_TRIAL if 2 * costs_ns < SAVED_NS * n_rows else FIRST_TRIAL

    def step(self, ran: str, n_rows: int, took_ns: float, batch_id: int) -> list[JournalEntry]:
        """Take in the time of a batch, and choose if a trial is over.

        Args:
            ran: the way it ran.
            n_rows: its rows.
            took_ns: its time (ns).
            batch_id: the micro-batch, for the journal.
        """
        if not n_rows:
            return []
        row_ns = took_ns / n_rows
        if ran == self.plan:
            # The first batch of a process compiles and starts workers.
            if self._n_since:
                self._newest = [*self._newest, row_ns][-TRIAL:]
                self._n_rows = _newer(self._n_rows, n_rows)
            self._n_since += 1
            return []
        is_alike = 1 / ALIKE <= n_rows / max(self._n_rows, 1.0) <= ALIKE
        self._tried.append(row_ns if is_alike else math.inf)
        return self._judged(batch_id) if len(self._tried) >= TRIAL else []

    def _judged(self, batch_id: int) -> list[JournalEntry]:
        """End a trial: keep the faster plan, and say when to try again."""
        before, now, tried = self.plan, min(self._newest, default=0.0), min(self._tried[1:])
        self._n_since, self._tried, self._has_tried = 0, [], True
        if not math.isfinite(tried) or not now:
            self._wait *= 2  # its batches were not like the others, and more may be so
            return []
        beyond = max(tried, now) / min(tried, now) - 1
        self._wait = max(LEAST_WAIT, math.ceil(TRIAL * beyond / TRIAL_SHARE))
        if tried * LEAST_GAIN > now:
            return []
        self.plan, self._newest = self._other, [tried]
        evidence = {"row_ns_before": round(now, 1), "row_ns_after": round(tried, 1)}
        return [self.decision(batch_id, "lane", before, self.plan, evidence)]


def _newer(before: float, now: float) -> float:
    """Return a mean that counts newer values more."""
    return KEPT * before + (1 - KEPT) * now if before else float(now)
