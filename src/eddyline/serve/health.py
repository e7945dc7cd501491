"""Whether a run is well, in a word and in sentences that each name what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Literal

from eddyline.report.formatting import TIMES, count, counted, ratio, significant, span
from eddyline.serve.following import work_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eddyline.serve.following import Followed

Level = Literal["good", "look", "bad", "past"]
"""Of a run: nothing stands out, something does, it failed, it has ended."""

LEVELS: dict[Level, str] = {
    "good": "running well",
    "look": "running, look at it",
    "bad": "failed",
    "past": "ended",
}
"""The levels in words."""

NEWEST = 10
"""Newest batches that are judged."""

LEAST_BATCHES = 20
"""Batches that must be known before the newest are compared with them."""

SLOWER = 2.0
"""How many times longer a row must take than usual to be told."""

SILENT = 10.0
"""After how many usual intervals without a batch that is told."""

LEAST_SILENCE_S = 60.0
"""Shorter times without a batch are not told (s)."""

DEARER = 1.05
"""How many times more than as written a plan must cost to be told."""


@dataclass(frozen=True, slots=True)
class Health:
    """How a run is."""

    level: Level
    said: tuple[str, ...]
    """What was found, in sentences."""

    @property
    def word(self) -> str:
        """The level in words."""
        return LEVELS[self.level]


def health(run: Followed, now: float, *, values: bool) -> Health:
    """Return how a run is.

    Args:
        run: the run.
        now: the time (s since 1970).
        values: whether an error may show values of rows.
    """
    if run.error is not None:
        return Health("bad", (run.error.told(values=values),))
    if not run.is_running:
        return Health("past", (_so_far(run),))
    if not run.recent:
        return Health("good", ("It waits for its first batch.",))
    said = (*_late(run), *_slow(run), *_silent(run, now), *_dear(run))
    if said:
        return Health("look", (*said, *_skipped(run)))
    return Health("good", (_so_far(run), *_skipped(run)))


def _so_far(run: Followed) -> str:
    if not run.n_batches:
        return "No batch has run."
    batches = "1 batch" if run.n_batches == 1 else f"{count(run.n_batches)} batches"
    return f"{count(run.n_rows)} rows in {batches}, {count(run.n_kept)} out."


def _skipped(run: Followed) -> Iterator[str]:
    """Say what was left out on request: rules that do not run are told, and are no alarm."""
    if n := work_of(run.recent[-1]).n_skipped:
        yield f"{counted(n, 'rule')} {'is' if n == 1 else 'are'} skipped."


def _late(run: Followed) -> Iterator[str]:
    newest = list(run.recent)[-NEWEST:]
    n_late = sum(work_of(each).n_late for each in newest)
    if n_late:
        yield f"{count(n_late)} rows of the newest {len(newest)} batches came too late."


def _slow(run: Followed) -> Iterator[str]:
    times = [each.seconds / each.n_rows for each in run.recent if each.n_rows]
    if len(times) < LEAST_BATCHES:
        return
    slower = ratio(median(times[-NEWEST:]), median(times[:-NEWEST]))
    if slower is not None and slower >= SLOWER:
        yield (
            f"A row takes {significant(slower)} {TIMES} as long in the newest {NEWEST} batches as "
            f"in those before."
        )


def _silent(run: Followed, now: float) -> Iterator[str]:
    ends = [each.ended_at for each in run.recent if each.ended_at]
    if len(ends) < 2:
        return
    usual = median(after - before for before, after in pairwise(ends))
    silence = now - ends[-1]
    if silence > max(LEAST_SILENCE_S, SILENT * usual):
        waits = f"usually one ends every {lasting(usual)}"
        yield f"No batch has ended for {lasting(silence)}; {waits}."


def lasting(seconds: float) -> str:
    """Write a time that may be long.

    >>> lasting(0.25), lasting(7_385)
    ('250 ms', '2 h 3 min')
    """
    return span(max(1, round(1e6 * seconds)))


def _dear(run: Followed) -> Iterator[str]:
    work = work_of(run.recent[-1])
    more = ratio(work.cost_ns, work.as_written_ns)
    if more is not None and more >= DEARER:
        yield f"The plans in force cost {significant(more)} {TIMES} what those as written would."
