"""Values between the driver of a join and its tasks.

A task gets a ``BatchPlan``, with a ``CachePlan`` for caches of joined rows. It returns a
``BucketReport`` of counts: of probes, of the ages of rows that are found, of rows that are done or
lost, and of caches. ``Counts`` of several buckets add up. ``JoinProfile`` is the sum of a batch;
orders and caches learn from nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from operator import add, and_
from typing import TYPE_CHECKING, Self, TypeVar

from eddyline.state.bucket_state import BucketState
from eddyline.state.grid import Bins, Grid

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from eddyline.constraints.bounds import Disorder
    from eddyline.joins.caches.prefix_invariant import Candidate, Store
    from eddyline.joins.graph import JoinGraph, UniqueKey
    from eddyline.joins.orders.probe_profiling import ClassOrders, DropProbing, DropSample
    from eddyline.query.query import JoinKind, Products
    from eddyline.state.event_time import EventTime, OrderPlan
    from eddyline.state.grid import Moved
    from eddyline.state.rows import KeyColumn

COMPONENT = "join"
"""Name of a join in journals, reports of tasks and manifests."""

BUCKETS, BROADCAST = WAYS = "buckets", "broadcast"
"""Where rows meet: in the buckets that windows lie in, or, tables being small, where they are."""


def pipeline_of(name: str, query: str = "") -> str:
    """Return the component of the pipeline of an input, where several queries have one: of whom."""
    return f"pipeline {name} of {query}" if query else f"pipeline {name}"


Place = tuple[str, int]
"""An input and a key class."""

Closed = dict[str, dict[int, dict[str, int]]]
"""By input, key class and stream: how long after its first row a key is closed there (µs)."""

Join = tuple[str, str]
"""A probe: the input of the pipeline, and the input whose window is probed."""


@dataclass(slots=True)
class ProbeWork:
    """The work of the rows of one pipeline at one window."""

    n_in: int = 0
    """Rows, or combinations of rows, that were looked up."""
    n_out: int = 0
    """Combinations with a row of the window that were found."""
    ns: int = 0
    """Time that it took (ns)."""

    def add(self, n_in: int, n_out: int, ns: int) -> None:
        """Count one look-up of many rows."""
        self.n_in += n_in
        self.n_out += n_out
        self.ns += ns


@dataclass(slots=True)
class JoinWork:
    """The work of all pipelines of a join."""

    probes: dict[Join, ProbeWork] = field(default_factory=dict)

    def probe(self, pipeline: str, other: str) -> ProbeWork:
        """Return the counts of one probe; the caller may add to them."""
        return self.probes.setdefault((pipeline, other), ProbeWork())

    def without(self, pipelines: Collection[str]) -> JoinWork:
        """Return the counts of all pipelines but some, such as those that begin another order."""
        return JoinWork(
            {join: done for join, done in self.probes.items() if join[0] not in pipelines}
        )

    @classmethod
    def merge(cls, parts: Iterable[JoinWork]) -> JoinWork:
        """Return the sum of several tasks or batches."""
        whole = cls()
        for part in parts:
            for (pipeline, other), done in part.probes.items():
                whole.probe(pipeline, other).add(done.n_in, done.n_out, done.ns)
        return whole


def _summed(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {bin_: one.get(bin_, 0) + other.get(bin_, 0) for bin_ in {**one, **other}}


MOST = 2**62
"""Greatest number of missing results that is told: sums stay whole numbers of 64 bits."""


def _at_most(one: int, other: int) -> int:
    return min(one + other, MOST)


@dataclass(slots=True)
class Counts:
    """Counts of one thing in one bucket. Fields add up, unless their ``merge`` says otherwise."""

    def add(self, other: Self) -> None:
        """Add the counts of the same thing in another bucket."""
        for count in fields(self):
            merge = count.metadata.get("merge", add)
            setattr(self, count.name, merge(getattr(self, count.name), getattr(other, count.name)))


Key = TypeVar("Key")
CountsT = TypeVar("CountsT", bound=Counts)


def merged(parts: Iterable[Mapping[Key, CountsT]]) -> dict[Key, CountsT]:
    """Return the counts of several buckets, by what they are of."""
    sums: dict[Key, CountsT] = {}
    for part in parts:
        for key, counts in part.items():
            sums.setdefault(key, type(counts)()).add(counts)
    return sums


@dataclass(slots=True)
class AgeCounts(Counts):
    """The ages of the rows of one window that were found."""

    n_pairs: int = 0
    """Pairs of a row, or a combination of rows, and a row of the window."""
    n_cold: int = 0
    """Pairs whose row of the window was in a cold run."""
    bins: dict[int, int] = field(default_factory=dict, metadata={"merge": _summed})
    """Pairs whose row of the window was older than its partner, by the bin of its age. The counts
    of measured pairs are scaled up to all pairs."""
    is_measured: bool = field(default=True, metadata={"merge": and_})
    """Whether ages were measured; if not, pairs are only counted."""


@dataclass(slots=True)
class Spans(Counts):
    """How long after the first row of their key the rows of a stream in a batch came."""

    n_rows: int = 0
    """Rows; those that were measured stand for others."""
    bins: dict[int, int] = field(default_factory=dict, metadata={"merge": _summed})
    """Rows that came later than the first one, by the bin of how much; see ``bounds.bins_of``."""


@dataclass(slots=True)
class DoneCounts(Counts):
    """How many rows of an input were done by a rule, and the work of letting them go."""

    n_new: int = 0
    """New rows."""
    n_new_done: int = 0
    """New rows that were done when their batch ended."""
    n_old_done: int = 0
    """Older rows that were seen to be done."""
    n_left: int = 0
    """Rows of merged runs that left by the rule."""
    ns: int = 0
    """Time to find them, and to write apart what left, with its filter (ns)."""
    n_merged: int = 0
    """Rows that were merged."""
    merge_ns: int = 0
    """Time to merge them, and to write those that stay (ns)."""


Done = dict[tuple[str, str], DoneCounts]
"""Counts by rule and input."""

MATCHED = "matched"
"""The rule of rows that were in their only result."""

PASSED = "passed"
"""The rule of rows whose key the others have passed."""

CLOSED = "closed"
"""The rule of rows whose key has come in all other streams, and comes no more."""


def merged_counts(parts: Iterable[Done], rule: str) -> dict[str, DoneCounts]:
    """Return the counts of several buckets by one rule, by input."""
    return {
        name: counts for (done_rule, name), counts in merged(parts).items() if done_rule == rule
    }


@dataclass(slots=True)
class LostCounts(Counts):
    """What dropped rows of one input cost in a batch, and what its others were needed for."""

    n_found: int = 0
    """Results that were found."""
    widest: int = field(default=0, metadata={"merge": max})
    """Greatest age of a row of the input in a result: the event time from it to the latest row of
    the result (µs)."""
    n_most: int = field(default=0, metadata={"merge": _at_most})
    """Upper bound of the missed results of which a row of the input was the first to be missing."""
    n_about: float = 0.0
    """Estimate of these results."""
    n_seen: int = 0
    """Combinations of which a dropped partner is known for certain."""
    widest_seen: int = field(default=0, metadata={"merge": max})
    """Greatest age of the newest such partner (µs)."""
    n_dropped: int = 0
    """Rows of the input that were dropped."""


CachePlace = tuple[str, int, tuple[int, ...]]
"""The place at which a cache is, or would be, asked: pipeline, position, and classes of the key."""


def place_of(candidate: Candidate) -> CachePlace:
    """Return the place at which a candidate is asked."""
    return candidate.pipeline, candidate.start, candidate.store.key


@dataclass(frozen=True, slots=True)
class CachePlan:
    """The caches of the pipelines in a batch; the same for every bucket."""

    used: tuple[Candidate, ...] = ()
    """The caches to ask; a bucket leaves out those that are not sound with the orders in force."""
    kept: tuple[Store, ...] = ()
    """Stores that are kept true although no cache of them may be asked."""
    profiled: tuple[Candidate, ...] = ()
    """Candidates whose keys are sampled."""
    limits: Mapping[Store, int] = field(default_factory=dict)
    """Memory of each store in a bucket (bytes); a missing one has none."""
    sample_bits: int = 0
    """One in 2^bits keys is sampled where candidates are profiled."""

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stores that are kept true."""
        return tuple(dict.fromkeys((*(cache.store for cache in self.used), *self.kept)))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.used or self.kept or self.profiled)


NO_CACHES = CachePlan()
"""Plain pipelines."""


@dataclass(slots=True)
class UseCounts(Counts):
    """The counts of one cache."""

    n_rows: int = 0
    """Rows, or combinations of rows, that came to it."""
    n_keys: int = 0
    """Distinct keys of them."""
    n_hits: int = 0
    """Of those, the ones that it had before the batch."""
    n_out: int = 0
    """Combinations that went on behind it."""
    n_put: int = 0
    """Joined rows that were put in for keys that it did not have."""
    n_asked: int = 0
    """New rows of which it was asked whether they may use a hit; see ``prefix_invariant``."""
    ns: int = 0
    """Time that it took, with the joins of missing keys (ns)."""
    miss_ns: int = 0
    """Of that, the joins of missing keys (ns)."""


@dataclass(slots=True)
class StoreCounts(Counts):
    """The counts of keeping one store true."""

    n_seen: int = 0
    """Changes of the join that its taps saw."""
    n_kept: int = 0
    """Of those, rows whose key it has."""
    ns: int = 0
    """Time that the taps took, and the removal of dead rows (ns)."""
    n_entries: int = 0
    """Keys that it has after the batch."""
    n_rows: int = 0
    """Joined rows that it has."""
    n_bytes: int = 0
    """Their size."""


@dataclass(slots=True)
class KeyCounts(Counts):
    """Sampled keys at the place of a candidate."""

    n_new: int = 0
    """Distinct keys that did not come in the batches that are remembered."""
    n_rows: int = 0
    """Sampled rows."""
    n_asked: int = 0
    """Of those, rows that were asked for whether they may use a hit; see ``prefix_invariant``."""
    n_supported: int = 0
    """Of those, the ones that might."""
    n_looked: int = 0
    """Look-ups that this took. The other counts are scaled up to all keys, this one is not."""


@dataclass(slots=True)
class ChangeCounts(Counts):
    """Sampled changes of a join that a candidate would have to keep."""

    n_seen: int = 0
    """Changes with a sampled key."""
    n_kept: int = 0
    """Of those, changes whose key is remembered at a place of the store."""


@dataclass(slots=True)
class CacheReport:
    """The counts of the caches of one bucket, or of several, in one batch."""

    uses: dict[Candidate, UseCounts] = field(default_factory=dict)
    stores: dict[Store, StoreCounts] = field(default_factory=dict)
    keys: dict[CachePlace, KeyCounts] = field(default_factory=dict)
    changes: dict[Store, ChangeCounts] = field(default_factory=dict)
    """Of the stores of candidates that are profiled."""
    profile_ns: int = 0
    """Time that profiling took (ns)."""

    @classmethod
    def merge(cls, parts: Iterable[CacheReport]) -> CacheReport:
        """Return the sum of several buckets."""
        every = list(parts)
        return cls(
            merged(part.uses for part in every),
            merged(part.stores for part in every),
            merged(part.keys for part in every),
            merged(part.changes for part in every),
            sum(part.profile_ns for part in every),
        )


@dataclass(frozen=True, slots=True)
class PartnerPlan:
    """The rows of the first of two inputs whose partners decide whether they are results."""

    kind: JoinKind
    """What is a result; not ``inner``."""
    left: str
    right: str
    length: int
    """Length of the window of the first input (µs)."""
    found: pa.DataType | None
    """Type of the rows that equal keys find for a row of the first, where conditions say which of
    them are partners: lists of structs. These are asked of results; None if there are none."""
    time: EventTime | None = None
    """Event time of the streams; None if no row of the second input comes later: it is a table."""
    latest: Mapping[str, int] = field(default_factory=dict)
    """The latest event time of each stream before the batch (µs); of those that had rows."""


MEMBER = "__member"
"""The column of results of several queries that says which one a result is of, by number."""

MARKS = "\0marks"
"""The column of an input's rows with a bit for each query that needs a row; no stream has it."""

MOST_MEMBERS = 62
"""Most queries that share windows: a bit for each fits into a whole number."""


@dataclass(frozen=True, slots=True)
class MemberPlan:
    """The way the rows of a batch are joined for one of several queries that share windows."""

    number: int
    """Its number, and the place of its bit in ``MARKS``."""
    name: str
    graph: JoinGraph
    """Its inputs in its own order; the classes are those of all."""
    orders: Mapping[str, tuple[str, ...]]
    """See ``BatchPlan``."""
    columns: Mapping[str, tuple[str, ...]]
    """By input, the columns that its results have."""
    stays: Mapping[str, int] = field(default_factory=dict)
    """By input whose window is shorter than the shared one: its length (µs)."""
    marked: frozenset[str] = frozenset()
    """The inputs of which it does not need all rows: ``MARKS`` says which."""
    probing: DropProbing | None = None
    """See ``BatchPlan``."""


@dataclass(frozen=True, slots=True)
class ProductPlan:
    """What results say that stand for several combinations."""

    asked: Products
    keys: Mapping[str, str]
    """By input, the column of the key where equal codes may be of other keys; else empty."""
    may_be: bool = True
    """Whether products can be made at all."""
    is_on: bool = False
    """Whether products are wanted; else each combination is a product of one."""


@dataclass(slots=True)
class ProductCounts(Counts):
    """The combinations of one bucket in one batch, and the products that stand for them."""

    n_combinations: int = 0
    n_products: int = 0
    """Where combinations were given: an upper bound, or as many as these if they were few."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The way the rows of a batch are joined; the same for every bucket."""

    batch_id: int
    graph: JoinGraph
    orders: Mapping[str, tuple[str, ...]]
    """By input: the other inputs in the order in which its new rows probe them."""
    lengths: Mapping[str, int]
    """Length of each input's window (µs); FOREVER if rows never leave it by time."""
    lows: Mapping[str, int] = field(default_factory=dict)
    """For each input, the instant before which its new rows are late (µs); none if missing."""
    horizons: Mapping[str, int | None] = field(default_factory=dict)
    """By input: rows that left their window before this instant (µs) can be dropped. None: drop
    all, no other input still receives rows."""
    lateness: Mapping[str, int] = field(default_factory=dict)
    """By how much the rows of each stream may be late that tell how far event time is (µs)."""
    grid: Grid = field(default_factory=lambda: Grid(()))
    """Cut of the rows into buckets; one bucket if omitted."""
    order: OrderPlan | None = None
    """Progress of event time, for joins whose answers depend on the order of rows; see
    ``operator.event_time.OrderedBatch``."""
    keys_only: Mapping[str, Sequence[KeyColumn]] = field(default_factory=dict)
    """By input: key columns that its rows do not carry, because their codes tell them."""
    moved: Moved | None = None
    """Origin of the runs if another grid made them; each bucket takes its own rows out."""
    partners: PartnerPlan | None = None
    """What is asked beside combinations, or in their place; None of an inner join. See
    ``operator.event_time.PartnerBatch``."""
    spans: Mapping[str, int | None] = field(default_factory=dict)
    """By input whose window may have a cold tier: for how long its rows are hot (µs); None: all of
    them are. The ages of rows that are found are measured of these inputs alone."""
    kept_for: Mapping[str, int | None] | None = None
    """By input of which rows may be dropped: for how long they are kept (µs); None: as long as
    their window says. None of a join that drops none, which forgets what it knew of rows that were
    dropped before: what they cost is counted no more."""
    keys: Mapping[str, UniqueKey] = field(default_factory=dict)
    """Keys that were declared, by input: new rows are checked."""
    covers: frozenset[str] = frozenset()
    """Inputs of which a row is in one result at most: it is done once it was in one."""
    below: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """By input and key class: rows with a code below this one are done, as others passed it."""
    tops: Mapping[Place, int | None] = field(default_factory=dict)
    """The keys of which is measured how far they are behind the greatest code so far, and that."""
    closed: Closed = field(default_factory=dict)
    """By input and key class: when a key is closed in all other streams, whose rows are done."""
    clusters: Mapping[Place, int] = field(default_factory=dict)
    """The keys of which is measured how long after its first row one comes, and the latest event
    time of their stream before the batch (µs)."""
    measures: bool = True
    """Whether ages of rows and the order of keys are measured; else what is cheap is counted."""
    leaving: frozenset[tuple[str, str]] = frozenset()
    """Rules and inputs by which rows go cold once they are done, or are dropped; such an input has
    a span, or is one of which rows may be dropped."""
    caches: CachePlan = NO_CACHES
    """Use of caches of joined rows; none if omitted."""
    probing: DropProbing | None = None
    """Choice of the new rows that are profiled; None if none is."""
    classes: Mapping[str, ClassOrders] = field(default_factory=dict)
    """By input whose classes of new rows have orders of their own: these."""
    members: tuple[MemberPlan, ...] = ()
    """The queries that share the windows, each with pipelines of its own; empty: there is one."""
    products: ProductPlan | None = None
    """What results say that may stand for several combinations; None if they do not. See
    ``operator.products``."""

    def stays(self, name: str) -> int:
        """Return how long after its event time a row of an input leaves its own window (µs)."""
        asked = self.partners
        is_awaited = asked is not None and asked.time is not None and name == asked.right
        return self.lengths[name] - (asked.length if asked is not None and is_awaited else 0)

    @property
    def measures_ages(self) -> bool:
        """Whether the rows that are found are counted by age, or those in cold tiers alone."""
        has_cold = any(span is not None for span in self.spans.values())
        return has_cold or (self.measures and bool(self.spans))


@dataclass(slots=True)
class MemberReport:
    """The work of one bucket in one batch for one of several queries."""

    n_results: int = 0
    """Combinations found, before conditions other than equalities were checked."""
    work: JoinWork = field(default_factory=JoinWork)
    samples: tuple[DropSample, ...] = ()
    """Outcomes of the probes of sampled rows."""
    ns: int = 0
    """Time that it took (ns)."""


@dataclass(slots=True)
class BucketReport:
    """The work of one bucket in one batch."""

    bucket: int
    after: BucketState = field(default_factory=BucketState)
    """The state of the bucket after the batch."""
    n_rows: dict[str, int] = field(default_factory=dict)
    """New rows of each input that were joined; of the copies of a row the first one counts."""
    n_here: int = 0
    """New rows that were joined, with copies."""
    n_late: dict[str, int] = field(default_factory=dict)
    """New rows of each input that came too late."""
    late_files: list[str] = field(default_factory=list)
    """Files that they were written to."""
    n_results: int = 0
    """Combinations found, before conditions other than equalities were checked."""
    ns: int = 0
    """Time that the task took (ns)."""
    work: JoinWork = field(default_factory=JoinWork)
    bins: Bins = field(default_factory=dict)
    """Histogram of the hashes of new rows; every row is counted in one bucket."""
    samples: tuple[DropSample, ...] = ()
    """Outcomes of the probes of sampled rows."""
    ages: dict[str, AgeCounts] = field(default_factory=dict)
    """Ages of the rows that were found, by input."""
    done: Done = field(default_factory=dict)
    """How many rows were done by each rule, and what it took to let them go."""
    disorder: dict[Place, Disorder] = field(default_factory=dict)
    """How far new keys were behind those before them."""
    lost: dict[str, LostCounts] = field(default_factory=dict)
    """What rows that were dropped cost, by input."""
    spans: dict[Place, Spans] = field(default_factory=dict)
    """How long after the first row of their key new rows came."""
    monitor_ns: int = 0
    """Time that measuring ages, and the order and the clusters of keys took (ns)."""
    unique: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """By table of which rows came, the key classes of which no two have the same code."""
    caches: CacheReport | None = None
    """Counts of the caches; None if the plan has none."""
    members: dict[str, MemberReport] = field(default_factory=dict)
    """What was done for each of several queries, by name."""
    products: ProductCounts = field(default_factory=ProductCounts)
    """Combinations, and products that stand for them, where results may be products."""


@dataclass(frozen=True, slots=True)
class JoinProfile:
    """Counts and samples of one bucket or of several."""

    samples: tuple[DropSample, ...] = ()
    """Sampled rows that were looked up in all windows."""
    work: JoinWork = field(default_factory=JoinWork)
    """Counts of the probes."""
    caches: CacheReport = field(default_factory=CacheReport)
    """Counts of the caches."""
    n_buckets: int = 1
    ns: int = 0
    """Time of the tasks together (ns)."""

    @classmethod
    def from_reports(cls, reports: Iterable[BucketReport]) -> Self:
        """Return the profile of a batch from the reports of its buckets, in their order."""
        every = list(reports)
        return cls(
            tuple(sample for report in every for sample in report.samples),
            JoinWork.merge(report.work for report in every),
            CacheReport.merge(report.caches for report in every if report.caches is not None),
            len(every),
            sum(report.ns for report in every),
        )

    @classmethod
    def of_member(cls, reports: Iterable[BucketReport], name: str) -> Self:
        """Return the profile of a batch for one of several queries; see ``of``."""
        every = [report.members[name] for report in reports if name in report.members]
        return cls(
            tuple(sample for report in every for sample in report.samples),
            JoinWork.merge(report.work for report in every),
            n_buckets=len(every),
            ns=sum(report.ns for report in every),
        )
