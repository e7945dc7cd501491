"""Values as a run would leave them, without a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eddyline.filters.binding import Pinned
from eddyline.filters.loop import BlockView, FilterView
from eddyline.joins.view import (
    CacheView,
    InputView,
    JoinRecord,
    JoinView,
    PipelineView,
    ProbeView,
)
from eddyline.report import filters, joins, rules
from eddyline.report.progress import progress_lines
from eddyline.report.sections import Node, RunView, Section
from eddyline.report.terminal import explain
from eddyline.rules.view import RuleView
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import BatchRecord, History, OrderRecord
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile

NAMES = (
    "proto = 'tcp'",
    "length(payload) > 100",
    "suspicious",
    "geo_is_rare",
    "port_scan",
    "beacon",
)
COSTS_NS = (18.0, 45.0, 5_200.0, 880.0, 310.0, 2_100.0)


WORDS = {FilterView: filters, RuleView: rules, JoinView: joins}


def sections_of(view: FilterView | RuleView | JoinView, *entries: JournalEntry) -> list[Section]:
    """Return a view's sections, after those decisions and outside of a run."""
    return WORDS[type(view)].sections(view, History(journal=entries))


def told(view: FilterView | RuleView | JoinView, *entries: JournalEntry, **how: object) -> str:
    """Return a view in words, after those decisions and outside of a run."""
    return explain(view.name, sections_of(view, *entries), **how)


def run_of(
    view: FilterView | RuleView | JoinView,
    batches: tuple[BatchRecord, ...] = (),
    journal: tuple[JournalEntry, ...] = (),
    **changes: object,
) -> RunView:
    """Return a run that such batches led to such a view."""
    history = History(batches, journal)
    sections = tuple(WORDS[type(view)].sections(view, history))
    made = RunView(query=view.name, text="SELECT …", history=history, sections=sections)
    return replace(made, **changes)


def a_profile(
    names: tuple[str, ...] = NAMES,
    costs_ns: tuple[float, ...] = COSTS_NS,
    n_rows: int = 2_000,
    seed: int = 3,
) -> FilterProfile:
    rng = np.random.default_rng(seed)
    chances = rng.uniform(0.05, 0.7, len(names))
    drops = rng.random((n_rows, len(names))) < chances
    costs = CostSums.of_rows(n_rows, np.array(costs_ns))
    return FilterProfile.of_sample(names, drops, prob=0.01, costs=costs)


def some_totals(names: tuple[str, ...] = NAMES) -> FilterProfile:
    raised = np.zeros(len(names))
    raised[min(2, len(names) - 1)] = 12
    return replace(
        FilterProfile.empty(names),
        n_rows=4_800_000,
        n_kept=31_000,
        n_evaluations=9_100_000,
        n_extra=81_000,
        n_raised=raised,
    )


def a_block(names: tuple[str, ...] = NAMES, **changes: object) -> BlockView:
    n = len(names)
    profile = a_profile(names, tuple(np.linspace(4_000.0, 20.0, n)))
    view = BlockView(
        component="arrow",
        written=tuple(range(n)),
        order=tuple(reversed(range(n))),
        profile=profile,
        texts=tuple(f"{name}(payload)" for name in names),
        is_adaptive=True,
        note="a_greedy on a window of 1,000 profile tuples.",
        totals=some_totals(names),
    )
    return replace(view, **changes)


SWAPPED = JournalEntry(
    batch_id=41,
    component="arrow",
    event="order",
    before=list(NAMES),
    after=[NAMES[1], NAMES[0], *NAMES[2:]],
    evidence={"position": 0, "ratio_before": 0.0123456, "ratio_after": 0.0345, "n_tuples": 812},
)
"""An order of ``NAMES`` that changed."""


def a_view(**changes: object) -> FilterView:
    view = FilterView(
        name="suspicious packets",
        blocks=(a_block(),),
        pinned=(Pinned("cast(x AS INT) > 3", "cast(x AS INT) > 3", "it may raise"),),
        notes=("Statistics of Python predicates are taken inside the task.",),
    )
    return replace(view, **changes)


def nothing_known() -> FilterView:
    empty = FilterProfile.empty(NAMES)
    block = a_block(profile=empty, totals=None, note="")
    return FilterView(name="fresh", blocks=(block,))


def a_run(
    n_batches: int = 120,
    names: tuple[str, ...] = NAMES,
    costs_ns: tuple[float, ...] = COSTS_NS,
    seed: int = 5,
) -> RunView:
    """Return a run whose data drift three times: the cheapest order follows, two batches late."""
    rng = np.random.default_rng(seed)
    n = len(names)
    costs = np.array(costs_ns)
    phases = rng.uniform(0.05, 0.8, (4, n))
    order = tuple(range(n))
    batches, journal = [], []
    for batch_id in range(n_batches):
        place = 4 * batch_id / max(n_batches, 1)
        drops = np.clip(phases[int(place)] + rng.normal(0, 0.012, n), 0.01, 0.99)
        best = tuple(np.argsort(-drops / costs).tolist())
        if best != order and (rng.random() < 0.2 or batch_id == 3) and batch_id >= 3:
            journal.append(_switch(batch_id - 1, names, (order, best), drops, costs))
            order = best
        batches.append(_batch(batch_id, names, order, drops=drops, costs=costs, rng=rng))
    return run_of(
        a_view(),
        tuple(batches),
        tuple(journal),
        text="SELECT *\nFROM packets\nWHERE proto = 'tcp' AND length(payload) > 100\n"
        "  AND suspicious(payload, dst_port) AND geo_is_rare(src)\n"
        "  AND port_scan(src, dst_port) AND beacon(src, dst, ts)",
        settings={"policy": "a_greedy", "sample_prob": "0.01", "seed": "0"},
    )


def _cost(order: tuple[int, ...], drops: np.ndarray, costs: np.ndarray) -> float:
    kept = np.concatenate([[1.0], np.cumprod(1 - drops[list(order)])[:-1]])
    return float((kept * costs[list(order)]).sum())


def _switch(batch_id, names, orders, drops, costs) -> JournalEntry:
    order, best = orders
    return JournalEntry(
        batch_id=batch_id,
        component="arrow",
        event="order",
        before=[names[f] for f in order],
        after=[names[f] for f in best],
        evidence={
            "position": 1,
            "cost_before_ns": _cost(order, drops, costs),
            "cost_after_ns": _cost(best, drops, costs),
            "n_tuples": 1000,
        },
    )


def _batch(batch_id, names, order, *, drops, costs, rng) -> BatchRecord:
    n_rows = int(rng.integers(90_000, 110_000))
    reach = np.concatenate([[1.0], np.cumprod(1 - drops[list(order)])[:-1]])
    cost, written = _cost(order, drops, costs), _cost(tuple(range(len(names))), drops, costs)
    block = OrderRecord(
        component="arrow",
        filter_ids=names,
        order=order,
        drop_fracs=tuple(drops.tolist()),
        cost_ns=cost,
        as_written_ns=written,
        n_evaluations=int(n_rows * reach.sum() * 1.01),
    )
    return BatchRecord(
        batch_id=batch_id,
        n_rows=n_rows,
        n_kept=int(n_rows * np.prod(1 - drops)),
        seconds=0.35 + n_rows * cost * 1e-9 + abs(rng.normal(0, 0.02)),
        ended_at=1_790_000_000.0 + 2.0 * batch_id,
        operators=(block,),
        lines=progress_lines([block], n_rows, 0.4),
    )


def many_names(n: int) -> tuple[str, ...]:
    return tuple(f"rule_{f:03d}" for f in range(n))


# -- joins ------------------------------------------------------------------------------------

T0 = 1_700_000_000_000_000
"""2023-11-14 22:13:20 UTC (µs)."""

MINUTE = 60_000_000


def an_input(name: str, **changes: object) -> InputView:
    view = InputView(
        name=name,
        stream=f"all {name}",
        window="RANGE 10 MINUTES",
        n_arrived=1_200,
        n_joined=1_100,
        n_late=37,
        n_untimed=5,
        latest=T0,
        n_kept=400,
        n_bytes=12_345_678,
        n_runs=24,
        awaited_from=T0 - MINUTE,
    )
    return replace(view, **changes)


def a_table(name: str) -> InputView:
    return InputView(name, name, "static", 0, 50, 0, 0, None, 60, 2_000, 1)


CUT = JournalEntry(4, "join", "grid", [8, 1], [4, 2], {"rows_in_fullest_before": 1_234.0})
"""A grid that changed."""


def a_join_view(**changes: object) -> JoinView:
    view = JoinView(
        name="paid orders",
        emits="istream",
        inputs=(
            an_input("o"),
            an_input("p", latest=T0 - 2 * MINUTE, awaited_from=T0 - 3 * MINUTE),
            a_table("geo"),
        ),
        pipelines=(
            PipelineView(
                "o",
                (
                    ProbeView("geo", 1_000, 800, 3_000_000, 0.2),
                    ProbeView("p", 800, 77, 8_000, float("nan")),
                ),
                ("p", "geo"),
            ),
            PipelineView(
                "p",
                (
                    ProbeView("o", 0, 0, 0, float("nan")),
                    ProbeView("geo", 0, 0, 0, float("nan")),
                ),
                ("o", "geo"),
            ),
        ),
        caches=(CacheView("o", ("p", "geo"), 1_000, 900, 1.2e6, 3e5, 45_000),),
        keys=("o.id = p.order_id", "o.country = geo.code"),
        grid=(4, 2),
        fullest=1.31,
        n_results=12_345,
        is_adaptive=True,
        notes=("a note",),
    )
    return replace(view, **changes)


def a_fresh_join() -> JoinView:
    """Return a join that no row has come to yet."""
    nan = float("nan")
    nothing = {"n_arrived": 0, "n_joined": 0, "n_late": 0, "n_untimed": 0, "n_kept": 0}
    nothing |= {"n_bytes": 0, "n_runs": 0, "latest": None, "awaited_from": None}
    return a_join_view(
        inputs=tuple(an_input(name, **nothing) for name in "op"),
        pipelines=tuple(
            PipelineView(name, (ProbeView(other, 0, 0, 0, nan),), (other,))
            for name, other in ("op", "po")
        ),
        caches=(),
        fullest=nan,
        n_results=0,
        notes=(),
    )


def a_join_record(batch_id: int = 0, inputs: tuple[str, ...] = ("o", "p", "geo")) -> JoinRecord:
    kept = tuple(100 * (batch_id + 1) * (at + 1) for at in range(len(inputs)))
    return JoinRecord(inputs, kept, tuple(80 * n for n in kept), batch_id % 3, 500 + batch_id)


def a_join_run(n_batches: int = 12, view: JoinView | None = None) -> RunView:
    joined = a_join_view() if view is None else view
    inputs = tuple(each.name for each in joined.inputs)
    batches = []
    for at in range(n_batches):
        order = (0, 1) if at < 5 else (1, 0)
        block = OrderRecord("pipeline o", ("p", "geo"), order, (0.3, 0.6), 90.0, 120.0)
        records = (block, a_join_record(at, inputs))
        ended, lines = 1_790_000_000.0 + at, progress_lines(records, 1_000, 0.5)
        batches.append(BatchRecord(at, 1_000, 490 + at, 0.5, ended, records, lines))
    orders = ["p", "geo"], ["geo", "p"]
    entry = JournalEntry(4, "pipeline o", "order", *orders, {"n_tuples": 400})
    return run_of(
        joined,
        tuple(batches),
        (entry,) if n_batches else (),
        text="SELECT o.id FROM orders [RANGE 10 MINUTES] AS o, …",
        settings={"buckets": "8"},
    )


NODES = (
    Node("0", "stream", "o", "read orders as o"),
    Node("1", "filter", "o", "filter o: v > 3", (("0", "o"),)),
    Node("2", "stream", "p", "read p"),
    Node("3", "table", "geo", "read geo"),
    Node(
        "4",
        "join",
        "o ⋈ p ⋈ geo",
        "join o [RANGE 10 MINUTES], p [RANGE 10 MINUTES], geo [UNBOUNDED] on o.id = p.order_id",
        (("1", "o"), ("2", "p"), ("3", "geo")),
    ),
    Node("5", "project", "(result)", "project o ⋈ p ⋈ geo: o.v AS v", (("4", "o ⋈ p ⋈ geo"),)),
)
"""The steps of ``a_join_run`` as a graph."""
