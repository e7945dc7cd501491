"""What the evidence says of a conjunction, as plain values: the one computation behind the words.

A value that the evidence does not give is None, so that no surface prints a zero for it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.ordering.matrix_view import drop_fracs, expected_cost_ns
from eddyline.watch.formatting import finite, ratio

if TYPE_CHECKING:
    from eddyline.runtime.records import BlockView, FilterView
    from eddyline.stats.profile import FilterProfile


@dataclass(frozen=True, slots=True)
class FilterFacts:
    """One filter at its position in the order in force."""

    position: int
    """Its position in the order in force (from 0)."""
    written_position: int
    """Its position in the order that the user wrote (from 0)."""
    filter_id: str
    text: str
    drop_frac_given_prefix: float | None
    """Share of the rows that reach it that it drops ([0, 1])."""
    reach_frac: float | None
    """Share of the block's input rows that reaches it ([0, 1])."""
    cost_ns: float | None
    """Measured cost of one evaluation (ns)."""
    cost_frac: float | None
    """Its share of the block's expected cost ([0, 1])."""
    n_raised: int
    """Rows on which it raised and was set aside."""


@dataclass(frozen=True, slots=True)
class RouteFacts:
    """The rows that take one of several orders."""

    rows: str
    """Which rows, in words."""
    order: tuple[str, ...]
    """Names of the filters in their order."""
    share: float | None
    """Share of the sampled rows ([0, 1])."""


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """One block under the order in force."""

    component: str
    is_adaptive: bool
    note: str
    n_tuples: int
    """Profile tuples in the window."""
    has_evidence: bool
    """Whether any sampled row was seen."""
    filters: tuple[FilterFacts, ...]
    """The filters in the order in force."""
    cost_ns: float | None
    """Expected cost of the order in force (ns per input row)."""
    as_written_ns: float | None
    """Expected cost of the written order (ns per input row)."""
    is_bound: bool
    """Whether ``as_written_ns`` is an upper bound: not every outcome of every tuple is known."""
    saving: float | None
    """How many times cheaper the order in force is than the written one."""
    n_rows: int | None
    """Rows seen in the life of the block; None where they are not counted."""
    n_evaluations: int | None
    """Evaluations made in the life of the block; None where they are not counted."""
    profiling_frac: float | None
    """Share of the evaluations that only profiling needed ([0, 1])."""
    routed_by: tuple[str, ...] = ()
    """The attributes that tell classes of rows apart, where these have orders of their own."""
    routes: tuple[RouteFacts, ...] = ()
    """Their orders; the first is that of all other rows."""
    route_note: str = ""
    """What is known of classes of rows, in a sentence."""


def block_facts(view: BlockView) -> BlockFacts:
    """Return what the evidence of a block says."""
    profile, totals = view.profile, view.totals
    has_evidence = profile.n_tuples > 0 or profile.passed > 0
    has_costs = has_evidence and bool(profile.costs.is_known.any())
    cost = finite(expected_cost_ns(view.order, profile)) if has_costs else None
    as_written = finite(expected_cost_ns(view.written, profile)) if has_costs else None
    return BlockFacts(
        component=view.component,
        is_adaptive=view.is_adaptive,
        note=view.note,
        n_tuples=profile.n_tuples,
        has_evidence=has_evidence,
        filters=_filter_facts(view, has_evidence),
        cost_ns=cost,
        as_written_ns=as_written,
        is_bound=as_written is not None and profile.basis not in {None, view.written},
        saving=ratio(as_written, cost),
        n_rows=None if totals is None else totals.n_rows or None,
        n_evaluations=None if totals is None else totals.n_evaluations or None,
        profiling_frac=None if totals is None else ratio(totals.n_extra, totals.n_evaluations),
        routed_by=view.routed_by,
        routes=tuple(
            RouteFacts(
                route.rows,
                tuple(profile.filter_ids[f] for f in route.order),
                finite(route.share),
            )
            for route in view.routes
        ),
        route_note=view.route_note,
    )


def view_facts(view: FilterView) -> dict[str, Any]:
    """Return everything known of a conjunction as plain values (JSON)."""
    return {
        "name": view.name,
        "blocks": [_listed(asdict(block_facts(block))) for block in view.blocks],
        "pinned": [asdict(pinned) for pinned in view.pinned],
        "last_change": None if view.last_change is None else asdict(view.last_change),
        "notes": list(view.notes),
    }


def _listed(block: dict[str, Any]) -> dict[str, Any]:
    lists = ("filters", "routed_by", "routes")
    return {**block, **{name: list(block[name]) for name in lists}}


def _filter_facts(view: BlockView, has_evidence: bool) -> tuple[FilterFacts, ...]:
    """Return the facts of each filter; arrays below are by position in the order in force."""
    order = list(view.order)
    profile = view.profile
    drops = np.full(len(order), np.nan)
    if has_evidence:
        drops = np.asarray(drop_fracs(view.order, profile), dtype=np.float64)
    reach = np.concatenate([[1.0], np.cumprod(1.0 - drops)[:-1]])[: len(order)]
    drops[reach <= 0.0] = np.nan  # what nothing reached drops an unknown share
    costs = np.where(profile.costs.is_known, profile.costs.per_row_ns, np.nan)[order]
    work = reach * costs
    raised = _raised(profile if view.totals is None else view.totals)
    written = {filter_index: place for place, filter_index in enumerate(view.written)}
    return tuple(
        FilterFacts(
            position=position,
            written_position=written[f],
            filter_id=profile.filter_ids[f],
            text=view.texts[f],
            drop_frac_given_prefix=finite(drops[position]),
            reach_frac=finite(reach[position]) if has_evidence else None,
            cost_ns=finite(costs[position]),
            cost_frac=ratio(work[position], float(np.nansum(work))),
            n_raised=int(raised[f]),
        )
        for position, f in enumerate(order)
    )


def _raised(profile: FilterProfile) -> list[float]:
    """Return the rows on which each filter raised; a profile that counted none has no array."""
    counts: list[float] = profile.n_raised.tolist()
    return counts or [0.0] * profile.n_filters
