"""What a person may want to see of a query, as values: the bridge from the loop to ``watch``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eddyline.filters.binding import Pinned
    from eddyline.joins.view import JoinRecord, JoinView
    from eddyline.rules.record import RuleRecord
    from eddyline.rules.view import RuleView
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.operator import Record
    from eddyline.stats.profile import FilterProfile, Order


@dataclass(frozen=True, slots=True)
class RouteView:
    """The rows that take one of the orders of a route table."""

    rows: str
    """Which rows, in words."""
    order: Order
    """Their order: ``order[position] -> filter index``."""
    share: float
    """Share of the sampled rows (nan: none was sampled)."""


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block of a conjunction whose order is learned."""

    component: str
    """``native`` (SQL, in the JVM) or ``arrow`` (Python functions), numbered if there are more."""
    written: Order
    """The order in which the user wrote the filters."""
    order: Order
    """The order in force: ``order[position] -> filter index``."""
    profile: FilterProfile
    """The evidence in the window."""
    texts: tuple[str, ...]
    """What each filter is, by filter index: SQL text or ``function(columns)``."""
    is_adaptive: bool
    """Whether the order may still change."""
    note: str = ""
    """How the order came about or why it cannot change, in a sentence."""
    totals: FilterProfile | None = None
    """Counts over the whole life of the block (rows, evaluations), without codes."""
    routes: tuple[RouteView, ...] = ()
    """The orders of the classes of rows, where they differ; the first is that of all others."""
    routed_by: tuple[str, ...] = ()
    """The attributes that tell the classes apart."""
    route_note: str = ""
    """What is known of classes of rows, in a sentence."""


@dataclass(frozen=True, slots=True)
class FilterView:
    """One conjunction as it stands."""

    name: str
    blocks: tuple[BlockView, ...]
    pinned: tuple[Pinned, ...] = ()
    last_change: JournalEntry | None = None
    notes: tuple[str, ...] = ()
    """Other things worth knowing: guarded errors, missing statistics, settings."""


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """One block after one micro-batch."""

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
    routed_by: tuple[str, ...] = ()
    """The attributes that tell classes of rows apart, where these have orders of their own."""


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One micro-batch of a run: what progress and the report show."""

    batch_id: int
    n_rows: int
    n_kept: int
    seconds: float
    """Wall time of the batch (s)."""
    ended_at: float = 0.0
    """When it ended (seconds since the epoch)."""
    blocks: tuple[BlockRecord, ...] = ()
    rules: RuleRecord | None = None
    """Of a set of rules, how it stands."""
    join: JoinRecord | None = None
    """Of a join, how it stands."""
    operators: tuple[Record, ...] = ()
    """Each component of the query's operators."""
    lines: tuple[str, ...] = ()
    """The plans in force and their newest figures in words, for the progress."""


@dataclass(frozen=True, slots=True)
class History:
    """The batches of a run and its decisions so far; empty outside of a run."""

    batches: tuple[BatchRecord, ...] = ()
    journal: tuple[JournalEntry, ...] = ()

    def last(self, *events: str) -> JournalEntry | None:
        """Return the newest decision of one of those events, if any."""
        return next((each for each in reversed(self.journal) if each.event in events), None)


@dataclass(frozen=True, slots=True)
class RunView:
    """A whole run: what the report is made of."""

    query: str
    """Name of the query."""
    text: str
    """The query as the user wrote it."""
    batches: tuple[BatchRecord, ...] = ()
    journal: tuple[JournalEntry, ...] = ()
    filter_view: FilterView | None = None
    rule_view: RuleView | None = None
    """Set if it is a run of rules, or of queries that run shared."""
    join_view: JoinView | None = None
    """Set if it is a run of a windowed join."""
    settings: dict[str, str] = field(default_factory=dict)
