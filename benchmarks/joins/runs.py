"""A join without Spark: batches through one bucket, with caches as they are chosen, or without.

Work is counted, or timed. A unit of counted work is a look-up, a combination that is put together,
or a joined row that is put into a cache: what the thesis counts [Babu05 5.8]. What is counted
decides as well, so a run repeats exactly.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyarrow import fs

from eddyline.data.arrays import Ints
from eddyline.joins.caches import bucket_caches
from eddyline.joins.caches.choice import BUDGET, CacheCosts, JoinCaches
from eddyline.joins.caches.prefix_invariant import Candidate, prefix_invariant
from eddyline.joins.graph import JoinGraph
from eddyline.joins.operator.bucket import BucketBatch
from eddyline.joins.orders.pipelines import JoinLoop
from eddyline.joins.orders.probe_profiling import DropSample
from eddyline.joins.plan import (
    NO_CACHES,
    BatchPlan,
    BucketReport,
    CachePlan,
    CacheReport,
    Join,
    JoinProfile,
    JoinWork,
    ProbeWork,
)
from eddyline.options import JoinOptions
from eddyline.state.bucket_state import BucketState
from eddyline.state.manifest import ManifestFolder
from eddyline.state.rows import ALWAYS, Rows
from eddyline.stats.costs import CostSums

Planned = Callable[[int], CachePlan]

ORDERS = {"r": ("s", "t"), "s": ("r", "t"), "t": ("s", "r")}
"""Orders of which r and s are closed, so that T can ask for them."""

ROWS_BYTES = 1 << 28
"""Memory for caches where it is not what is looked at."""


@dataclass(frozen=True)
class Arrivals:
    """The rows of a join in the order in which they arrive, each at an instant of its own."""

    graph: JoinGraph
    orders: Mapping[str, tuple[str, ...]]
    of: Ints
    """The input of each row, by its place in the graph."""
    codes: Ints
    """Of each row in each key class ((classes, rows)); only those of its input are used."""
    lengths: Mapping[str, int]
    """Of each window, in rows of all inputs."""
    scanned: frozenset[Join] = frozenset()
    """Joins whose window has no index: each look-up looks at all rows that live there."""

    def look_up_costs(self, start: int, stop: int) -> dict[Join, int]:
        """Return how many rows a look-up looks at in a batch, of joins without an index.

        What is looked at is not done, as windows have indexes: it is counted as if it were.
        """
        found = {}
        for pipeline, other in self.scanned:
            number, turn = self.graph.inputs.index(other), self.graph.inputs.index(pipeline)
            until = stop if number < turn else start
            since = max(start - self.lengths[other], 0)
            found[pipeline, other] = int((self.of[since:until] == number).sum())
        return found

    def news(self, start: int, stop: int) -> Iterator[tuple[str, Ints, Ints]]:
        """Yield the rows of each input in a batch: their instants and their places."""
        for number, name in enumerate(self.graph.inputs):
            at = start + np.flatnonzero(self.of[start:stop] == number)
            if at.size:
                yield name, at, at


@dataclass(slots=True)
class Run:
    """What batches took."""

    reports: list[BucketReport] = field(default_factory=list)
    plans: list[CachePlan] = field(default_factory=list)
    orders: list[Mapping[str, tuple[str, ...]]] = field(default_factory=list)
    costs: list[Mapping[Join, int]] = field(default_factory=list)
    """Of each batch, the rows that look-ups without an index look at."""
    works: list[float] = field(default_factory=list)
    """Units of counted work of each batch."""
    seconds: list[float] = field(default_factory=list)
    """Time of each batch in pipelines, caches and profiles; sorting and files apart (s)."""
    n_results: int = 0
    checks: int = 0
    """A sum over all results: two runs with other plans have the same."""

    def share(self, plain: Run, skip: int = 0) -> float:
        """Return the counted work over that of a plain run, from some batch on."""
        return sum(self.works[skip:]) / sum(plain.works[skip:])


def run(
    arrivals: Arrivals,
    batch_rows: int,
    planned: Planned | None = None,
    caches: JoinCaches | None = None,
    *,
    loop: JoinLoop | None = None,
    is_counted: bool = True,
) -> Run:
    """Join all arrivals.

    Args:
        arrivals: the rows.
        batch_rows: rows of all inputs in a batch.
        planned: returns what caches to use in a batch; none if omitted.
        caches: decides about them instead.
        loop: decides about orders; as the arrivals say if omitted.
        is_counted: whether ``caches`` learns counted work, not time.
    """
    bucket_caches.forget()
    folder = tempfile.mkdtemp(prefix="eddyline-")
    place = ManifestFolder(fs.LocalFileSystem(), folder).place("join")
    graph, done, before, low = arrivals.graph, Run(), BucketState(), ALWAYS
    for batch, start in enumerate(range(0, arrivals.of.size, batch_rows)):
        plan, orders = NO_CACHES, dict(arrivals.orders if loop is None else loop.plan)
        if caches is not None:
            plan = caches.for_batch(orders, batch)
        elif planned is not None:
            plan = planned(batch)
        lows = dict.fromkeys(graph.inputs, low)
        news = {
            name: Rows(
                {key: arrivals.codes[key][places] for key in graph.classes_of[name]},
                at,
                at + arrivals.lengths[name],
                pa.table({"at": at}),
            )
            for name, at, places in arrivals.news(start, start + batch_rows)
        }
        probing = None if loop is None else loop.probing()
        made = BatchPlan(
            batch, graph, orders, arrivals.lengths, lows, lows, caches=plan, probing=probing
        )
        task = BucketBatch(made, place, before)
        for found in task.run(news):
            done.n_results += found.num_rows
            done.checks += checksum(found)
        report, costs = task.report, arrivals.look_up_costs(start, start + batch_rows)
        before, low = report.after, start
        done.reports.append(report)
        done.plans.append(plan)
        done.orders.append(orders)
        done.costs.append(costs)
        done.works.append(units(report, plan, costs))
        done.seconds.append(seconds(report))
        profile = JoinProfile.from_reports([report])
        if caches is not None:
            caches.step(counted(profile, costs) if is_counted else profile, batch)
        if loop is not None:
            samples = tuple(map(evenly_priced, profile.samples))
            loop.step(replace(profile, samples=samples), batch)
    shutil.rmtree(folder)
    bucket_caches.forget()
    return done


def checksum(found: pa.Table) -> int:
    """Return a number of a bag of results that another bag hardly has."""
    total = np.zeros(found.num_rows, np.uint64)
    for column in sorted(found.column_names):
        total = total * np.uint64(0x9E3779B97F4A7C15) + found[column].to_numpy().astype(np.uint64)
    return int((total ^ (total >> np.uint64(31))).sum())


def evenly_priced(sample: DropSample) -> DropSample:
    """Return a sample of drops as if all look-ups took the same time, and profiling none."""
    n_filters = len(sample.filters.filters)
    n_rows = np.full(n_filters, float(max(len(sample.codes), 1)))
    return replace(sample, costs=CostSums.of_calls(n_rows, n_rows), ns=0)


def look_ups(work: JoinWork, costs: Mapping[Join, int]) -> dict[Join, int]:
    """Return the counted work of each join: look-ups, and combinations that were found."""
    return {join: done.n_in * costs.get(join, 1) + done.n_out for join, done in work.probes.items()}


def units(report: BucketReport, plan: CachePlan, costs: Mapping[Join, int]) -> float:
    """Return the counted work of a batch; ``costs`` are those of look-ups without an index."""
    work = sum(look_ups(report.work, costs).values())
    if report.caches is None:
        return work
    used = sum(
        use.n_rows + use.n_out + use.n_put + use.n_asked for use in report.caches.uses.values()
    )
    kept = sum(each.n_seen + each.n_kept for each in report.caches.stores.values())
    sampled = sum(each.n_looked for each in report.caches.keys.values())
    changes = sum(each.n_seen for each in report.caches.changes.values())
    return work + used + kept + sampled + changes / (1 << plan.sample_bits)


def seconds(report: BucketReport) -> float:
    """Return the time of a batch in pipelines, caches and profiles (s)."""
    ns = sum(done.ns for done in report.work.probes.values())
    if report.caches is not None:
        ns += sum(use.ns - use.miss_ns for use in report.caches.uses.values())
        ns += sum(each.ns for each in report.caches.stores.values()) + report.caches.profile_ns
    return ns / 1e9


def counted(profile: JoinProfile, costs: Mapping[Join, int]) -> JoinProfile:
    """Return the profile of a batch, with counted work in the place of time."""
    found = profile.caches
    priced = look_ups(profile.work, costs)
    work = JoinWork(
        {
            join: ProbeWork(done.n_in, done.n_out, priced[join])
            for join, done in profile.work.probes.items()
        }
    )

    def missed(cache: Candidate) -> int:
        return sum(work.probe(cache.pipeline, name).ns for name in cache.store.windows)

    uses = {
        cache: replace(use, ns=use.n_rows + use.n_out + use.n_put + use.n_asked + missed(cache))
        for cache, use in found.uses.items()
    }
    stores = {
        store: replace(each, ns=each.n_seen + each.n_kept) for store, each in found.stores.items()
    }
    return replace(profile, work=work, caches=CacheReport(uses, stores, found.keys, found.changes))


def lockstep(repeats: int, n_values: int, gap: int, n_kept: int | None = None) -> Arrivals:
    """Return R(A), S(A, B), T(B) that take the same values in the same order [Babu05 5.8.1].

    One row of R and S for each value, and ``repeats`` of T, each ``gap`` values later than the one
    before; all of them meet. A window spans ``n_kept`` values, one gap more than they need if
    omitted.
    """
    graph = JoinGraph(("r", "s", "t"), (frozenset("rs"), frozenset("st")))
    of, values = [], []
    for step in range(n_values + repeats * gap):
        if step < n_values:
            of += [0, 1]
            values += [step, step]
        late = [step - gap * at for at in range(1, repeats + 1)]
        late = [value for value in late if 0 <= value < n_values]
        of += [2] * len(late)
        values += late
    codes = np.array([values, values])
    span = (repeats + 2) * (n_kept or (repeats + 1) * gap)
    return Arrivals(graph, ORDERS, np.array(of), codes, dict.fromkeys(graph.inputs, span))


def uniform(
    rates: Sequence[float], n_keys: int, n_rows: int, *, length: int, seed: int = 0
) -> Arrivals:
    """Return R, S and T that are joined on one attribute, of ``n_keys`` uniform values.

    Rates are relative to each other; windows are as long as so many rows of all inputs.
    """
    rng = np.random.default_rng(seed)
    graph = JoinGraph(("r", "s", "t"), (frozenset("rst"),))
    of = rng.choice(3, n_rows, p=np.array(rates) / sum(rates))
    codes = rng.integers(0, n_keys, (1, n_rows))
    return Arrivals(graph, ORDERS, of, codes, dict.fromkeys(graph.inputs, length))


def decided(
    arrivals: Arrivals, cache_bytes: int = ROWS_BYTES, budget: int | None = None
) -> JoinCaches:
    """Return what decides about the caches of a join by counted work, of ``budget`` candidates."""
    return JoinCaches(
        arrivals.graph,
        arrivals.graph.inputs,
        cache_bytes=cache_bytes,
        costs=CacheCosts(probe=1.0, expand=1.0, update=1.0, look_up=1.0),
        budget=BUDGET if budget is None else budget,
    )


def learned_orders(arrivals: Arrivals) -> JoinLoop:
    """Return what decides about the orders of a join by counted work."""
    return JoinLoop(arrivals.graph, JoinOptions())


def timed(arrivals: Arrivals, cache_bytes: int = ROWS_BYTES) -> JoinCaches:
    """Return what decides about the caches of a join by time."""
    return JoinCaches(arrivals.graph, arrivals.graph.inputs, cache_bytes=cache_bytes)


def used_always(used: tuple[Candidate, ...], limit: int = ROWS_BYTES) -> Planned:
    """Return a plan that uses some caches in every batch."""
    plan = CachePlan(used, limits={each.store: limit for each in used})
    return lambda _: plan


def all_used(arrivals: Arrivals, *windows: str, limit: int = ROWS_BYTES) -> Planned:
    """Return a plan that always uses one store: that of some windows."""
    found = prefix_invariant(arrivals.graph, dict(arrivals.orders))
    used = tuple(each for each in found if each.store.windows == frozenset(windows))
    return used_always(used, limit)
