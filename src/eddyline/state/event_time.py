"""Event time of a query: lateness, waiting rows, purged rows.

``EventTime`` has the streams and by how much their rows may come late. The instant before which the
rows of a stream are late never goes back. ``OrderPlan`` says up to which instant a bucket may
answer, and which rows are needed afterwards. ``HeldRows`` keeps rows that wait until no earlier row
can come, in files that never change: rows before an instant have waited long enough, and a file
goes when that instant is behind its last row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eddyline.state.bucket_state import upkeep_of
from eddyline.state.rows import ALWAYS, FOREVER, Rows
from eddyline.state.run_files import between, open_rows, write_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyarrow import fs

    from eddyline.query.query import Emits, RowsWindow
    from eddyline.state.run_files import RunFile


_EARLIEST = ALWAYS // 2
"""No row has an earlier event time, but watermarks without any row or any bound are (µs)."""


@dataclass(frozen=True, slots=True)
class EventTime:
    """The streams of a query, and by how much their rows may come late."""

    lateness: Mapping[str, int]
    """By stream (µs); static tables are missing."""
    passed: Mapping[str, int] = field(default_factory=dict)
    """By stream: the instant before which its rows were late after the batch before (µs), with the
    lateness of that time; missing if there was none. It never goes back."""
    told: frozenset[str] = frozenset()
    """The streams whose rows do not tell how far event time is: some may be far ahead of what is
    still to come. Rows that come for their event time alone tell it."""

    def low(self, name: str, latest: Mapping[str, int]) -> int:
        """Return the instant before which rows of a stream are late (µs).

        Args:
            name: the stream.
            latest: the latest event time of each stream (µs); of those that had rows. Empty before
                the rows of a batch: what is late then was settled by the batch before, whatever the
                lateness is now.
        """
        passed = self.passed.get(name, ALWAYS)
        if name not in latest:
            return passed
        return max(latest[name] - self.lateness[name], passed, ALWAYS + 1)

    def lows(self, latest: Mapping[str, int]) -> dict[str, int]:
        """Return that instant for every stream (µs)."""
        return {name: self.low(name, latest) for name in self.lateness}

    def until(self, latest: Mapping[str, int]) -> int:
        """Return the instant before which the rows of all streams have come (µs)."""
        return min(self.lows(latest).values())

    def reached(self, latest: Mapping[str, int]) -> tuple[int | None, int | None]:
        """Return how far event time is (µs): its newest instant, and the watermark of all streams.

        None for what is not known, such as while a stream has had no row.
        """
        newest = max((instant for instant in latest.values() if instant > _EARLIEST), default=None)
        low = min(self.lows(latest).values(), default=ALWAYS)
        return newest, low if low > _EARLIEST else None

    def horizon(self, name: str, latest: Mapping[str, int]) -> int | None:
        """Return the instant such that rows are not needed once they left their window before it.

        A row is needed while a row that shares its window may still come in another stream.

        Args:
            name: the input.
            latest: see ``low``.

        Returns:
            The instant (µs), or None if no row of the input is needed at all.
        """
        others = [self.low(other, latest) for other in self.lateness if other != name]
        return min(others, default=None)


@dataclass(frozen=True, slots=True)
class OrderPlan:
    """The order in which a bucket answers, and the rows that it waits for."""

    emits: Emits
    time: EventTime
    latest: Mapping[str, int] = field(default_factory=dict)
    """The latest event time of each stream before the batch (µs); of those that had rows."""
    rows: Mapping[str, RowsWindow] = field(default_factory=dict)
    """The windows that count rows, by input."""
    ties: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By those inputs: the columns that order rows of one instant, the first one first."""
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By those inputs: the columns that results need."""

    @property
    def awaited(self) -> tuple[str, ...]:
        """The inputs whose rows must be complete up to an instant before it can be answered."""
        return tuple(self.rows if self.emits == "istream" else self.time.lateness)

    def until(self, latest: Mapping[str, int]) -> int:
        """Return the instant before which all rows are there that answers depend on (µs).

        Args:
            latest: the latest event times so far (µs).
        """
        return min(self.time.low(name, latest) for name in self.awaited)

    def horizon(self, name: str, latest: Mapping[str, int], until: int) -> int | None:
        """Return ``EventTime.horizon`` of an input, if all before an instant is answered (µs)."""
        if self.emits == "rstream":
            return until
        if self.emits == "dstream":
            return ended_until(until)
        others = self.time.horizon(name, latest)
        return None if others is None else min(until, others)


def earlier(instant: int, by: int) -> int:
    """Return the instant that is so much earlier (µs), as far as time in 64 bits goes."""
    return instant if instant == FOREVER else max(instant - by, ALWAYS)


def ended_until(until: int) -> int:
    """Return the instant before which a result must end to be emitted as ended (µs).

    Args:
        until: the instant before which all is answered (µs).
    """
    return until if until in (ALWAYS, FOREVER) else until - 1


class HeldRows:
    """The rows of one input that wait, in files of a folder: those from ``since`` on (µs)."""

    def __init__(
        self, files: fs.FileSystem, folder: str, held: Sequence[RunFile], since: int
    ) -> None:
        self.files = files
        self.folder = folder
        self.held = tuple(held)
        self.since = since

    def before(self, until: int) -> list[Rows]:
        """Return the rows that need not wait longer than until an instant (µs).

        Raises:
            OSError: they cannot be read.
        """
        due = [file for file in self.held if file.first_start < until]
        parts = [
            between(open_rows(self.files, self.folder, file), self.since, until) for file in due
        ]
        return [part for part in parts if len(part)]

    def after(self, until: int, new: Rows | None) -> tuple[RunFile, ...]:
        """Return the files of the rows, new ones among them, that wait from ``until`` on (µs).

        Raises:
            OSError: they cannot be read or written.
        """
        upkeep = upkeep_of(self.held, horizon=until, length=FOREVER)
        stay = list(upkeep.stay)
        if upkeep.merge:
            parts = [
                between(open_rows(self.files, self.folder, file), until, FOREVER)
                for file in upkeep.merge
            ]
            stay = [file for file in stay if file not in upkeep.merge]
            stay.insert(0, write_rows(self.files, self.folder, Rows.together(parts)))
        if new is not None and len(new):
            stay.append(write_rows(self.files, self.folder, new))
        return tuple(stay)
