"""The batches and decisions of a run, as values: the bridge from the loops to ``watch``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.operator import Record
    from eddyline.stats.profile import Order


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a record says in numbers, by name; those that are not known are left out."""

    sums: Mapping[str, float] = field(default_factory=dict)
    """Of its batch alone: they add up over batches."""
    levels: Mapping[str, float] = field(default_factory=dict)
    """As things stand after its batch."""


@runtime_checkable
class Counting(Protocol):
    """A record (``runtime.operator.Record``) that counts what was done in its batch.

    Of any other record the newest stands for those before it. By custom ``n_rows``, ``n_late`` and
    ``n_results`` are sums, and ``n_kept`` (rows, cells or segments of state), ``n_bytes`` (of it),
    ``cost_ns`` and ``as_written_ns`` (of a row), ``n_skipped`` (rules), ``newest_us`` (event time)
    and ``complete_us`` (its watermark) are levels.
    """

    @property
    def component(self) -> str:
        """Name of what decides, as in the journal."""
        ...

    def numbers(self, n_rows: int) -> Numbers:
        """Return its numbers.

        Args:
            n_rows: input rows of its batch.
        """
        ...

    def with_earlier(self, earlier: Self, share: float) -> Self:
        """Return one record for a batch and those before it.

        Args:
            earlier: of the batches before it.
            share: share of the input rows that were those batches' ([0, 1]).
        """
        ...


def event_time_levels(reached: tuple[int | None, int | None]) -> dict[str, float]:
    """Return how far event time is as levels; see ``EventTime.reached``."""
    named = zip(("newest_us", "complete_us"), reached, strict=True)
    return {name: at for name, at in named if at is not None}


def event_times(said: Iterable[Numbers]) -> tuple[float | None, float | None]:
    """Return the newest event time that has arrived, and the watermark of a whole query (µs).

    None for what is not known. The watermark of a query is the earliest of its operators.
    """
    levels = [each.levels for each in said if "newest_us" in each.levels]
    newest = max((each["newest_us"] for each in levels), default=None)
    lows = [each.get("complete_us") for each in levels]
    known = [low for low in lows if low is not None]
    return newest, min(known) if known and len(known) == len(lows) else None


def numbers_of(records: Iterable[Record], n_rows: int) -> dict[str, Numbers]:
    """Return what the records of a batch of so many rows say in numbers, by component."""
    counting = (each for each in records if isinstance(each, Counting))
    return {each.component: each.numbers(n_rows) for each in counting}


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
        return Numbers(_known({**sums, "saved_s": self.saved_s(n_rows)}), _known(costs))

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
        known = 0.0 if math.isnan(self.seconds) else self.seconds
        return self.ended_at - known if self.first_began_at is None else self.first_began_at

    def with_earlier(self, earlier: BatchRecord) -> BatchRecord:
        """Return one record for this batch and those before it: counts and times add up."""
        n_rows = self.n_rows + earlier.n_rows
        share = earlier.n_rows / n_rows if n_rows else 0.5
        before = {each.component: each for each in earlier.operators}
        return replace(
            self,
            n_rows=n_rows,
            n_kept=self.n_kept + earlier.n_kept,
            seconds=self.seconds + earlier.seconds,
            first_began_at=earlier.began_at,
            operators=tuple(
                _with_earlier(each, before.get(each.component), share) for each in self.operators
            ),
            n_batches=self.n_batches + earlier.n_batches,
            kept_by={name: n + earlier.kept_by.get(name, 0) for name, n in self.kept_by.items()},
        )


def _with_earlier(newer: Record, earlier: Record | None, share: float) -> Record:
    if isinstance(newer, Counting) and type(newer) is type(earlier):
        return newer.with_earlier(earlier, share)
    return newer


def _known(values: Mapping[str, float]) -> dict[str, float]:
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
    at = max(0, len(records) - n_whole)
    size = math.ceil(n_batches(records[:at]) / n)
    found: list[BatchRecord] = []
    for each in records[:at]:
        alike = bool(found) and found[-1].kept_by.keys() == each.kept_by.keys()
        if alike and found[-1].n_batches + each.n_batches // 2 < size:
            found[-1] = each.with_earlier(found[-1])
        else:
            found.append(each)
    return [*found, *records[at:]]


@dataclass(frozen=True, slots=True)
class History:
    """The batches of a run and its decisions so far; empty outside of a run."""

    batches: tuple[BatchRecord, ...] = ()
    journal: tuple[JournalEntry, ...] = ()

    def last(self, *events: str, components: Container[str] | None = None) -> JournalEntry | None:
        """Return the newest decision of one of those events, of anybody or some components."""
        for each in reversed(self.journal):
            if each.event in events and (components is None or each.component in components):
                return each
        return None
