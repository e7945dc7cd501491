"""State of one bucket of an operator: the files of its windows, input by input."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from eddyline.state.rows import ALWAYS
from eddyline.state.run_files import RunFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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
        return tuple(each.run for each in self._every() if each.run is not None)

    @property
    def filters(self) -> tuple[RunFile, ...]:
        """The filters of all and of every part."""
        return tuple(each.filter for each in self._every())

    def _every(self) -> list[ColdRuns]:
        """Return it and every part of it, each before its own parts."""
        found, due = [], [self]
        while due:
            each = due.pop()
            found.append(each)
            due.extend(reversed(each.parts))
        return found

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all runs and filters."""
        own = (self.filter.name,) if self.run is None else (self.filter.name, self.run.name)
        return own + tuple(chain.from_iterable(each.names for each in self.parts))

    @cached_property
    def n_rows(self) -> int:
        """The rows of the runs."""
        own = 0 if self.run is None else self.run.n_rows
        return own + sum(each.n_rows for each in self.parts)

    @cached_property
    def first_end(self) -> int:
        """The instant at which the first run has left the window (µs)."""
        own = self.filter.last_end if self.run is None else self.run.last_end
        return min((each.first_end for each in self.parts), default=own)

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
    """End times that became known after their runs were written; see ``end_times``."""
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
