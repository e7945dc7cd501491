"""State of one bucket of an operator: the files of its windows, input by input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from eddyline.state.rows import ALWAYS
from eddyline.state.run_files import RunFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

InputFiles = dict[str, tuple[RunFile, ...]]
"""Files by input, the oldest first; an input without files may be missing."""


class BucketState(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The files of one bucket after a batch; what they hold never changes."""

    runs: InputFiles = field(default_factory=dict)
    """Sorted runs of the rows in each window."""
    cold: InputFiles = field(default_factory=dict)
    """Sorted runs of rows of each window that are hardly asked for any more."""
    filters: InputFiles = field(default_factory=dict)
    """Filters of the keys of each of those; see ``key_filters``."""
    waiting: InputFiles = field(default_factory=dict)
    """Rows in reorder buffers, from the instant on that event time has not passed yet."""
    ends: InputFiles = field(default_factory=dict)
    """End times that became known after their runs were written; see ``end_times``."""
    groups: dict[str, RunFile] = field(default_factory=dict)
    """Row counts of the groups of windows of N rows; see ``row_windows.Groups``."""
    emitted_until: int = ALWAYS
    """Instant before which all results were emitted (µs); ALWAYS if none was, or if results do not
    wait for event time."""

    @property
    def names(self) -> Iterator[str]:
        """The names of all files."""
        for kind in (self.runs, self.cold, self.filters, self.waiting, self.ends):
            for files in kind.values():
                yield from (file.name for file in files)
        yield from (file.name for file in self.groups.values())


def files_of(states: Iterable[BucketState]) -> tuple[str, ...]:
    """Return the names of the files of several buckets, each once, in order of names."""
    return tuple(sorted({name for state in states for name in state.names}))
