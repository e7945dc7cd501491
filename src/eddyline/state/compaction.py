"""Compaction of windows: old runs go as a whole, runs of a size become one of the next size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eddyline.state.rows import FOREVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.state.run_files import RunFile

FAN_IN = 4
"""Runs of about the same size that become one."""

SPARE = 0.25
"""Share of a window that rows may outlive it because they share a run with later ones."""

HOT_SPARE = 0.125
"""The same of the time for which rows are hot: that is short already, so that few are merged."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The compaction of a window before a batch."""

    stay: tuple[RunFile, ...]
    """Those whose rows may still join, the oldest first."""
    merge: tuple[RunFile, ...]
    """Adjacent ones of them that are to become one; none if empty."""


def upkeep_of(
    runs: Sequence[RunFile], *, horizon: int, length: int, hot: int | None = None
) -> Upkeep:
    """Return the compaction of the runs of one input in one bucket, the oldest first.

    A run goes as a whole when all its rows have left their window (horizon, µs). Runs of a size
    become one of the next size, so that a row is written again once for each power of FAN_IN by
    which its window (length in µs, or FOREVER) is larger than a batch; but only if no row waits
    too long to go with the later ones, or to leave the hot tier where rows are in it for less time
    (hot, µs; None: as long as they are in their window).
    """
    spare = length * SPARE if hot is None or hot >= length else hot * HOT_SPARE

    def fits(group: Sequence[RunFile]) -> bool:
        if length == FOREVER:
            return hot is None or _spread_of_starts(group) <= spare
        return _spread(group) <= length + spare

    stay = tuple(run for run in runs if run.last_end >= horizon)
    for first in range(len(stay) - FAN_IN + 1):
        group = stay[first : first + FAN_IN]
        if len({_size(run) for run in group}) == 1 and fits(group):
            return Upkeep(stay, group)
    return Upkeep(stay, ())


def by_size(runs: Sequence[RunFile]) -> list[RunFile]:
    """Return runs of which any may be of any size so that those of a size are adjacent."""
    return sorted(runs, key=_size, reverse=True)


def _size(run: RunFile) -> int:
    """Return the power of FAN_IN that the rows of a run are about."""
    power, n_rows = 0, run.n_rows
    while n_rows >= FAN_IN:
        n_rows //= FAN_IN
        power += 1
    return power


def _spread_of_starts(group: Sequence[RunFile]) -> int:
    """Return the time from the first start of runs to their last one (µs)."""
    return max(run.last_start for run in group) - min(run.first_start for run in group)


def _spread(group: Sequence[RunFile]) -> int:
    """Return the time from the first start of runs to their last end (µs)."""
    return max(run.last_end for run in group) - min(run.first_start for run in group)
