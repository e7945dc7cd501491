"""Batches of a run as values.

Operators fill them in; progress, metrics and reports read them. A ``Record`` is one component of an
operator after a batch. A ``BatchRecord`` has the records of all components, with rows and times. A
``History`` has batches and decisions. ``Progress`` keeps batches in memory as records, and on the
disk as lines of plain values. Both have a budget: when it is used up, older batches are merged into
coarser records, about equally many in each. So counts and times stay right over any number of
batches. ``Counters`` count over the whole life of a query, restarts included. ``Backlog`` is the
input that waits.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import msgspec

from eddyline.data.files import encoded
from eddyline.runtime.journal import LineFile, read_lines

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from pathlib import Path

    from eddyline.runtime.journal import JournalEntry
    from eddyline.stats.profile import Order


class Record(Protocol):
    """One component of an operator after one micro-batch: a frozen value.

    Progress and reports show it; what else it holds is between an operator and its own words in
    ``report/``.
    """

    @property
    def component(self) -> str:
        """Name of what decides, as in the journal."""

    @property
    def plan(self) -> Any:
        """The plan in force as plain values, as in the journal; None if it has none."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a record says in numbers, by name; those that are not known are left out."""

    sums: Mapping[str, float] = field(default_factory=dict)
    """Of its batch alone: they add up over batches."""
    levels: Mapping[str, float] = field(default_factory=dict)
    """As things stand after its batch."""
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Levels of the parts of a component by name, such as its windows or filters."""


@runtime_checkable
class Counting(Protocol):
    """A record (``Record``) that counts what was done in its batch.

    Of any other record the newest stands for those before it. By custom ``n_rows``, ``n_late`` and
    ``n_results`` are sums, and ``n_kept`` (rows, cells or segments of state), ``n_bytes`` (of it),
    ``cost_ns`` and ``as_written_ns`` (of a row), ``n_skipped`` (rules), ``newest_us`` (event time)
    and ``complete_us`` (its watermark) are levels.
    """

    @property
    def component(self) -> str:
        """Name of what decides, as in the journal."""

    def numbers(self, n_rows: int) -> Numbers:
        """Return its numbers.

        Args:
            n_rows: input rows of its batch.
        """

    def with_earlier(self, earlier: Self, share: float) -> Self:
        """Return one record for a batch and those before it.

        Args:
            earlier: of the batches before it.
            share: share of the input rows that were those batches' ([0, 1]).
        """


def event_time_levels(reached: tuple[int | None, int | None]) -> dict[str, float]:
    """Return how far event time is as levels; see ``EventTime.reached``."""
    named = zip(("newest_us", "complete_us"), reached, strict=True)
    return {name: level for name, level in named if level is not None}


def event_times(numbers: Iterable[Numbers]) -> tuple[float | None, float | None]:
    """Return the newest event time that has arrived, and the watermark of a whole query (µs).

    None for what is not known. The watermark of a query is the earliest of its operators.
    """
    levels = [part.levels for part in numbers if "newest_us" in part.levels]
    newest = max((level["newest_us"] for level in levels), default=None)
    lows = [level.get("complete_us") for level in levels]
    present = [low for low in lows if low is not None]
    return newest, min(present) if present and len(present) == len(lows) else None


def lag_s(newest: float | None, complete: float | None) -> float | None:
    """Return how far a watermark is behind the newest event time (both µs, the lag in s)."""
    return None if newest is None or complete is None else max(0.0, newest - complete) / 1e6


def numbers_of(records: Iterable[Record], n_rows: int) -> dict[str, Numbers]:
    """Return what the records of a batch of so many rows say in numbers, by component."""
    counting = (record for record in records if isinstance(record, Counting))
    return {record.component: record.numbers(n_rows) for record in counting}


def weighted(newer: float, earlier: float, share: float) -> float:
    """Return the mean of two values of which the earlier one has a share; nan counts for nothing.

    >>> weighted(4.0, 2.0, 0.5), weighted(4.0, math.nan, 0.5)
    (3.0, 4.0)
    """
    if math.isnan(earlier) or math.isnan(newer):
        return newer if math.isnan(earlier) else earlier
    return (1.0 - share) * newer + share * earlier


@dataclass(frozen=True, slots=True)
class OrderRecord:
    """A learned order, of filters or of look-ups, after one micro-batch."""

    component: str
    filter_ids: tuple[str, ...]
    order: Order
    drop_fracs: tuple[float, ...]
    """Share of the rows that reach a filter that it drops, by filter index ([0, 1])."""
    cost_ns: float
    """Expected cost of the order in force (ns per input row)."""
    as_written_ns: float
    """Expected cost of the written order on the same evidence (ns per input row)."""
    n_evaluations: int = 0
    """Evaluations made in this batch, profiling included (0 where it is not counted)."""
    n_rows: int = 0
    """Rows that the order met in this batch (0 where they are not counted)."""
    routed_by: tuple[str, ...] = ()
    """The attributes that tell classes of rows apart, where these have orders of their own."""
    meets_all: bool = False
    """Whether the order meets every row that arrives, so that those of the batch are its own."""

    @property
    def plan(self) -> list[str]:
        """The order in force, by names."""
        return [self.filter_ids[f] for f in self.order]

    def rows_met(self, n_rows: int) -> int:
        """Return the rows that the order met in a batch of so many; 0 where nobody counts them."""
        return self.n_rows or (n_rows if self.meets_all else 0)

    def saved_s(self, n_rows: int) -> float:
        """Return the work that the order saved in a batch of so many rows (s; nan: unknown)."""
        met = self.rows_met(n_rows)
        return met * (self.as_written_ns - self.cost_ns) / 1e9 if met else math.nan

    def numbers(self, n_rows: int) -> Numbers:
        """Return its work, the expected costs, and what the order saved (``saved_s``)."""
        sums = {"n_rows": self.rows_met(n_rows), "n_evaluations": self.n_evaluations}
        costs = {"cost_ns": self.cost_ns, "as_written_ns": self.as_written_ns}
        places = {f: place for place, f in enumerate(self.order, start=1)}
        parts = {
            name: _finite({"place": places.get(f, math.nan), "drop_frac": drop_frac})
            for f, (name, drop_frac) in enumerate(
                zip(self.filter_ids, self.drop_fracs, strict=False)
            )
        }
        return Numbers(_finite({**sums, "saved_s": self.saved_s(n_rows)}), _finite(costs), parts)

    def with_earlier(self, earlier: OrderRecord, share: float) -> OrderRecord:
        """Return one record for several batches: work adds up, costs are means over rows."""
        if earlier.filter_ids != self.filter_ids:
            return self
        n_rows = self.n_rows + earlier.n_rows
        share = earlier.n_rows / n_rows if n_rows else share
        return replace(
            self,
            cost_ns=weighted(self.cost_ns, earlier.cost_ns, share),
            as_written_ns=weighted(self.as_written_ns, earlier.as_written_ns, share),
            n_evaluations=self.n_evaluations + earlier.n_evaluations,
            n_rows=n_rows,
        )


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One micro-batch of a run, or several that follow each other: what people see of it."""

    batch_id: int
    """The last of them."""
    n_rows: int
    """Input rows."""
    n_kept: int
    """Rows that went to the sink."""
    seconds: float
    """Wall time of the batches (s)."""
    ended_at: float = 0.0
    """End of the last batch (seconds since the epoch)."""
    operators: tuple[Record, ...] = ()
    """Each component of the query's operators."""
    lines: tuple[str, ...] = ()
    """The plans in force and their newest figures in words, for the progress."""
    n_batches: int = 1
    """How many batches it stands for: older ones are merged, and counts add up."""
    kept_by: Mapping[str, int] = field(default_factory=dict)
    """Rows of each query, of several that run together."""
    first_began_at: float | None = None
    """Start of the first of several batches (seconds since the epoch)."""

    @property
    def began_at(self) -> float:
        """Start of the first batch (seconds since the epoch)."""
        seconds = 0.0 if math.isnan(self.seconds) else self.seconds
        return self.ended_at - seconds if self.first_began_at is None else self.first_began_at

    def with_earlier(self, earlier: BatchRecord) -> BatchRecord:
        """Return one record for this batch and those before it: counts and times add up."""
        n_rows = self.n_rows + earlier.n_rows
        share = earlier.n_rows / n_rows if n_rows else 0.5
        before = {part.component: part for part in earlier.operators}
        return replace(
            self,
            n_rows=n_rows,
            n_kept=self.n_kept + earlier.n_kept,
            seconds=self.seconds + earlier.seconds,
            first_began_at=earlier.began_at,
            operators=tuple(
                _with_earlier(part, before.get(part.component), share) for part in self.operators
            ),
            n_batches=self.n_batches + earlier.n_batches,
            kept_by={name: n + earlier.kept_by.get(name, 0) for name, n in self.kept_by.items()},
        )


def _with_earlier(newer: Record, earlier: Record | None, share: float) -> Record:
    if isinstance(newer, Counting) and type(newer) is type(earlier):
        return newer.with_earlier(earlier, share)
    return newer


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if math.isfinite(value)}


def n_batches(records: Iterable[BatchRecord]) -> int:
    """Return how many batches records stand for."""
    return sum(record.n_batches for record in records)


def coarser(records: Sequence[BatchRecord], n: int, n_whole: int) -> list[BatchRecord]:
    """Return fewer records for the same batches: older ones are merged with those beside them.

    Args:
        records: oldest first.
        n: about how many records the older batches are to have (> 0); there are more only where
            other queries ran together, whose rows are told apart.
        n_whole: how many of the newest records stay as they are.
    """
    place = max(0, len(records) - n_whole)
    size = math.ceil(n_batches(records[:place]) / n)
    merged: list[BatchRecord] = []
    for record in records[:place]:
        alike = bool(merged) and merged[-1].kept_by.keys() == record.kept_by.keys()
        if alike and merged[-1].n_batches + record.n_batches // 2 < size:
            merged[-1] = record.with_earlier(merged[-1])
        else:
            merged.append(record)
    return [*merged, *records[place:]]


@dataclass(frozen=True, slots=True)
class History:
    """The batches of a run and its decisions so far; empty outside of a run."""

    batches: tuple[BatchRecord, ...] = ()
    journal: tuple[JournalEntry, ...] = ()

    def last(self, *events: str, components: Container[str] | None = None) -> JournalEntry | None:
        """Return the newest decision of one of those events, of anybody or some components."""
        for entry in reversed(self.journal):
            if entry.event in events and (components is None or entry.component in components):
                return entry
        return None


PROGRESS_FILE = "progress"
"""Name of the file in errors."""

PROGRESS_BYTES = 32 << 20
"""Size up to which the file grows (bytes): some 40,000 records of a query with a few operators."""

MAX_RECORDS = 2_000
"""Records in memory; figures draw half as many points."""


class StoredRecord(msgspec.Struct, frozen=True):
    """One component after one batch, as plain values: a ``Record``."""

    component: str
    plan: Any = None
    """The plan in force, as in the journal."""
    sums: dict[str, float] = {}
    """Counts of the batch by name; see ``runtime.records.Numbers``."""
    levels: dict[str, float] = {}
    """How things stand after the batch."""
    parts: dict[str, dict[str, float]] = {}
    """How the parts of the component stand; see ``Numbers.parts``."""

    @classmethod
    def from_record(cls, record: Record, n_rows: int) -> StoredRecord:
        """Return a record of a batch of so many rows as plain values."""
        numbers = record.numbers(n_rows) if isinstance(record, Counting) else Numbers()
        levels = {name: float(value) for name, value in numbers.levels.items()}
        sums = {name: float(value) for name, value in numbers.sums.items()}
        parts = {
            part: {name: float(value) for name, value in values.items()}
            for part, values in numbers.parts.items()
        }
        return cls(record.component, record.plan, sums, levels, parts)

    def numbers(self, n_rows: int) -> Numbers:  # noqa: ARG002 - they are known
        """Return its numbers."""
        return Numbers(self.sums, self.levels, self.parts)

    def with_earlier(self, earlier: StoredRecord, share: float) -> StoredRecord:  # noqa: ARG002
        """Return one record for several batches: sums add up, levels are as after the last."""
        names = dict.fromkeys((*earlier.sums, *self.sums))
        sums = {name: earlier.sums.get(name, 0.0) + self.sums.get(name, 0.0) for name in names}
        return msgspec.structs.replace(self, sums=sums)


class _Line(msgspec.Struct, omit_defaults=True):
    """A line of the file: a ``BatchRecord``; fields of later versions are passed over."""

    batch_id: int
    n_rows: int
    n_kept: int
    seconds: float
    ended_at: float = 0.0
    operators: tuple[StoredRecord, ...] = ()
    lines: tuple[str, ...] = ()
    n_batches: int = 1
    kept_by: dict[str, int] = {}
    first_began_at: float | None = None


class Progress:
    """The batches of a run, oldest first.

    Args:
        path: file that is appended to, also over restarts; created if it is not there. Without
            one, nothing is kept on the disk.
        max_bytes: size up to which the file grows (bytes).
        max_records: records up to which memory is used.

    Raises:
        StateError: the file cannot be used.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        max_bytes: int = PROGRESS_BYTES,
        max_records: int = MAX_RECORDS,
    ) -> None:
        self.max_bytes = max_bytes
        self.max_records = max_records
        self.records: list[BatchRecord] = []
        """Those of this process; its older batches are merged."""
        self._file = None if path is None else LineFile(path, PROGRESS_FILE)

    def add(self, record: BatchRecord) -> None:
        """Take in a batch that ended.

        Raises:
            StateError: the file cannot be written.
        """
        self.records.append(record)
        if len(self.records) > self.max_records:
            self.records = coarser(self.records, self.max_records // 4, self.max_records // 4)
        if self._file is None:
            return
        self._file.append([line_of(record)])
        if self._file.n_bytes > self.max_bytes:
            self._thin(self._file)

    def _thin(self, file: LineFile) -> None:
        """Rewrite the file to about half of its budget, one half of which are the newest lines."""
        records = read_progress(file.path)
        n_part = max(1, self.max_bytes // 4 * len(records) // file.n_bytes)
        file.replace(map(line_of, coarser(records, n_part, n_part)))


def line_of(record: BatchRecord) -> bytes:
    """Return a record as a line of the file."""
    line = _Line(
        record.batch_id,
        record.n_rows,
        record.n_kept,
        record.seconds,
        record.ended_at,
        tuple(StoredRecord.from_record(part, record.n_rows) for part in record.operators),
        record.lines,
        record.n_batches,
        dict(record.kept_by),
        record.first_began_at,
    )
    return encoded(line)


def read_progress(path: Path) -> list[BatchRecord]:
    """Return the records of a file that another process may be writing, but for half a last one.

    Their operators are ``StoredRecord``.

    Raises:
        StateError: it cannot be read; the message says where.
    """
    records: list[BatchRecord] = []
    decode = msgspec.json.Decoder(_Line).decode
    for line in read_lines(path, PROGRESS_FILE, "batch", decode):
        record = BatchRecord(**msgspec.structs.asdict(line))
        if records and records[-1].batch_id == record.batch_id and records[-1].n_batches == 1:
            records.pop()  # it ran again after a failure, and counts once
        records.append(record)
    return records


SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the classes that batches are counted in by their wall time (s)."""


class Counters(msgspec.Struct):
    """Counts of a query, saved with what it has learned, so that each batch counts once."""

    n_rows: int = 0
    n_kept: int = 0
    seconds: float = 0.0
    """Wall time of all batches (s)."""
    by_seconds: list[int] = msgspec.field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    """Batches by the class of their wall time; the last takes longer than all ``SECONDS``."""
    ended_at: float = 0.0
    """End of the newest batch (seconds since the epoch; 0: none has run)."""
    last_batch: int = -1
    """The newest batch that is counted; -1 if none is."""
    n_failures: int = 0
    """Batches that failed."""
    plan_changes: dict[str, int] = {}
    """Other plans that were put in force, by component; those within tasks are not counted."""
    n_late: dict[str, int] = {}
    """Rows that came too late, by component."""
    n_rejected: dict[str, int] = {}
    """Values of sources that gave no row, by component."""

    @property
    def n_batches(self) -> int:
        """Batches that are done."""
        return sum(self.by_seconds)

    def count(self, record: BatchRecord) -> None:
        """Count a batch, once: also where it runs again and what was learned was dropped."""
        if record.batch_id <= self.last_batch:
            return
        self.last_batch = record.batch_id
        self.n_rows += record.n_rows
        self.n_kept += record.n_kept
        self.seconds += record.seconds
        self.by_seconds[bisect_left(SECONDS, record.seconds)] += 1
        self.ended_at = record.ended_at
        for component, numbers in numbers_of(record.operators, record.n_rows).items():
            for name, counts in (("n_late", self.n_late), ("n_rejected", self.n_rejected)):
                if n_more := round(numbers.sums.get(name, 0)):
                    counts[component] = counts.get(component, 0) + n_more

    def count_decisions(self, entries: Iterable[JournalEntry]) -> None:
        """Count the decisions that put another plan in force."""
        for entry in entries:
            if entry.is_plan_change:
                n_before = self.plan_changes.get(entry.component, 0)
                self.plan_changes[entry.component] = n_before + 1


@dataclass(frozen=True, slots=True)
class Backlog:
    """Input that waits, as far as it is known."""

    n_rows: int | None = None
    """Rows; None where they are not known."""
    is_estimate: bool = False
    """Whether the rows are estimated by the size of files."""
    n_files: int | None = None
    """Files that wait; None for a source that has none."""
    why: str = ""
    """Why the rows are not known; empty if they are."""


def whole(backlogs: Sequence[Backlog]) -> Backlog:
    """Return the backlog of all sources of a query; its rows are known if those of each are.

    >>> whole([Backlog(3), Backlog(4, is_estimate=True, n_files=1)])
    Backlog(n_rows=7, is_estimate=True, n_files=1, why='')
    """
    files = [backlog.n_files for backlog in backlogs if backlog.n_files is not None]
    rows = [backlog.n_rows for backlog in backlogs if backlog.n_rows is not None]
    return Backlog(
        sum(rows) if rows and len(rows) == len(backlogs) else None,
        any(backlog.is_estimate for backlog in backlogs),
        sum(files) if files else None,
        next((backlog.why for backlog in backlogs if backlog.why), ""),
    )
