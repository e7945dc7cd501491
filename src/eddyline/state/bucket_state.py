"""Files of one bucket by input, and merges of runs.

``BucketState`` is what a manifest says of a bucket. ``upkeep_of`` decides before a batch which runs
of a window go, as all their rows have left it, and which adjacent ones are merged.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from eddyline.state.rows import ALWAYS, FOREVER
from eddyline.state.run_files import RunFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

InputFiles = dict[str, tuple[RunFile, ...]]
"""Files by input, the oldest first; an input without files may be missing."""


class ColdRuns(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, dict=True):
    """Cold runs, one or more, behind a filter of their keys; a tree.

    A part that stays from one batch to the next keeps what was gathered of it.
    """

    filter: RunFile
    """The filter of the keys of all of them and of those of them that have left the window, which
    says of all how many rows they are, and when."""
    run: RunFile | None = None
    """The run, if it is one."""
    parts: tuple[ColdRuns, ...] = ()
    """The parts that they are in, each behind a filter of its own, if they are several."""

    @property
    def runs(self) -> tuple[RunFile, ...]:
        """The runs, the oldest first."""
        return tuple(part.run for part in self._every() if part.run is not None)

    @property
    def filters(self) -> tuple[RunFile, ...]:
        """The filters of all and of every part."""
        return tuple(part.filter for part in self._every())

    def _every(self) -> list[ColdRuns]:
        """Return it and every part of it, each before its own parts."""
        parts, due = [], [self]
        while due:
            part = due.pop()
            parts.append(part)
            due.extend(reversed(part.parts))
        return parts

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all runs and filters."""
        names = (self.filter.name,) if self.run is None else (self.filter.name, self.run.name)
        return names + tuple(chain.from_iterable(part.names for part in self.parts))

    @cached_property
    def n_rows(self) -> int:
        """The rows of the runs."""
        n_rows = 0 if self.run is None else self.run.n_rows
        return n_rows + sum(part.n_rows for part in self.parts)

    @cached_property
    def first_end(self) -> int:
        """The instant at which the first run has left the window (µs)."""
        end = self.filter.last_end if self.run is None else self.run.last_end
        return min((part.first_end for part in self.parts), default=end)

    def after(self, horizon: int) -> ColdRuns:
        """Return those with a row that is in its window at an instant or later (µs)."""
        if not self.parts or self.first_end >= horizon:
            return self
        stay = [part.after(horizon) for part in self.parts if part.filter.last_end >= horizon]
        return replace(self, parts=tuple(stay))


class BucketState(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The files of one bucket after a batch; what they hold never changes."""

    runs: InputFiles = field(default_factory=dict)
    """Sorted runs of the rows in each window."""
    cold: dict[str, tuple[ColdRuns, ...]] = field(default_factory=dict)
    """By input, the runs of its window that are hardly asked for any more, the oldest first."""
    dropped: InputFiles = field(default_factory=dict)
    """What is known of rows that were dropped before they left their window; see
    ``dropped_rows``."""
    waiting: InputFiles = field(default_factory=dict)
    """Rows in reorder buffers, from the instant on that event time has not passed yet."""
    ends: InputFiles = field(default_factory=dict)
    """End times that became known after their runs were written; see ``row_windows.write_ends``."""
    groups: dict[str, RunFile] = field(default_factory=dict)
    """Row counts of the groups of windows of N rows; see ``row_windows.Groups``."""
    emitted_until: int = ALWAYS
    """Instant before which all results were emitted (µs); ALWAYS if none was, or if results do not
    wait for event time."""

    def all_runs(self, name: str) -> tuple[RunFile, ...]:
        """Return the sorted runs of a window, the cold ones first."""
        cold = (run for part in self.cold.get(name, ()) for run in part.runs)
        return (*cold, *self.runs.get(name, ()))

    @property
    def names(self) -> Iterator[str]:
        """The names of all files."""
        for kind in (self.runs, self.dropped, self.waiting, self.ends):
            for files in kind.values():
                yield from (file.name for file in files)
        for parts in self.cold.values():
            for part in parts:
                yield from part.names
        yield from (file.name for file in self.groups.values())


def files_of(states: Iterable[BucketState]) -> tuple[str, ...]:
    """Return the names of the files of several buckets, each once, in order of names."""
    return tuple(sorted({name for state in states for name in state.names}))


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
        first = min(run.first_start for run in group)
        if length == FOREVER:
            return hot is None or max(run.last_start for run in group) - first <= spare
        return max(run.last_end for run in group) - first <= length + spare

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
