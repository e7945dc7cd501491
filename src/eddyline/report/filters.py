"""Sections about conjunctions: the plan in force and its evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.ordering.protocol import drop_fracs, expected_cost_ns, reach
from eddyline.report.decisions import ROUTING, last_change
from eddyline.report.formatting import cost_text, count, finite, order_text, percent, ratio
from eddyline.report.sections import Column, Facts, Section, Table, Text, columns, notes
from eddyline.report.series import order_series, points_of, work_section
from eddyline.runtime.records import History, OrderRecord

if TYPE_CHECKING:
    from eddyline.filters.loop import BlockView, FilterView
    from eddyline.report.sections import Part
    from eddyline.report.series import OrderSeries
    from eddyline.stats.profile import FilterProfile

CHANGES = ("order", "routes")
"""Events of the journal that are another plan."""

FILTERS = columns(
    "#: count, written: count, filter, "
    "drops: share, reached by: share, cost each: ns, of the cost: share"
)
ROUTES = (Column("rows", shows_values=True), *columns("order, of sampled: share"))


def sections(view: FilterView, history: History) -> list[Section]:
    """Return a conjunction as it stands, and as it came to be, as people may want to see it."""
    components = {block.component for block in view.blocks}
    ran = {
        block.component: series
        for block in view.blocks
        if (series := _series(block, history)) is not None
    }
    block_notes = {block.note for block in view.blocks}
    wordings = {(component, "routes"): ROUTING for component in components}
    return [
        replace(_lead(view, ran), wordings=wordings),
        *(_block(block, ran.get(block.component)) for block in view.blocks),
        *_work(history, components),
        *_pinned(view),
        *last_change(history.last(*CHANGES, components=components), wordings),
        *notes([note for note in view.notes if note not in block_notes]),
    ]


def _series(block: BlockView, history: History) -> OrderSeries | None:
    return order_series(block.component, history.batches, block.profile.costs.per_row_ns)


def _lead(view: FilterView, ran: dict[str, OrderSeries]) -> Section:
    if not view.blocks:  # where there is no filter at all, the steps say that every row passes
        lead = (Text("No filter of it has an order to learn."),) if view.pinned else ()
        return Section("", lead)
    outcomes = (
        series.outcome(f"The order of the {_block_name(name)}")
        for name, series in ran.items()
        if len(series.filter_ids) > 1
    )
    tiles = (tile for series in ran.values() for tile in series.tiles())
    return Section("", tuple(map(Text, outcomes)), tuple(tiles))


def _block(view: BlockView, ran: OrderSeries | None) -> Section:
    state = "order is learned" if view.is_adaptive else "order is fixed"
    if len(view.order) == 1:
        state = "one filter, nothing to order"
    profile = view.profile
    has_evidence = profile.n_tuples > 0 or profile.passed > 0
    rows = _filter_rows(view, has_evidence=has_evidence)
    width = len(FILTERS) if has_evidence else 3
    parts: list[Part] = [Text(view.note)] if view.note else []
    parts.append(Table(FILTERS[:width], tuple(row[:width] for row in rows)))
    if has_evidence or len(view.order) > 1:
        parts.append(Text(_evidence(profile, has_evidence=has_evidence)))
    costs = _costs(view, is_told=ran is not None, has_evidence=has_evidence)
    parts += [Text(sentence) for sentence in (*costs, *_counts(view))]
    parts += _routes(view)
    if ran is not None:
        parts += ran.figures("filter", "Rows dropped of those that reach a filter")
    return Section(f"{_block_name(view.component)}: {state}", tuple(parts))


def _block_name(component: str) -> str:
    """Return the name of a block, from its component.

    >>> _block_name("native"), _block_name("arrow#2 of s")
    ('native block', 'arrow#2 block of s')
    """
    kind, separator, relation = component.partition(" of ")
    return f"{kind} block{separator}{relation}"


def _filter_rows(view: BlockView, *, has_evidence: bool) -> tuple[tuple[Any, ...], ...]:
    """Return the table of filters; arrays below are by position in the order in force."""
    order, profile = list(view.order), view.profile
    drops = np.full(len(order), np.nan)
    if has_evidence:
        drops = np.asarray(drop_fracs(view.order, profile), dtype=np.float64)
    reached = reach(drops)
    drops[reached <= 0.0] = np.nan  # what nothing reached drops an unknown share
    costs = np.where(profile.costs.is_known, profile.costs.per_row_ns, np.nan)[order]
    work = reached * costs
    shares = [ratio(cost, float(np.nansum(work))) for cost in work]
    written = {filter_index: place for place, filter_index in enumerate(view.written, 1)}
    return tuple(
        (position + 1, written[f], _label(profile.filter_ids[f], view.texts[f]), *numbers)
        for position, (f, *numbers) in enumerate(
            zip(order, drops.tolist(), reached.tolist(), costs.tolist(), shares, strict=True)
        )
    )


def _label(name: str, text: str) -> str:
    """Return the name of a predicate, and what it is where the name does not say it."""
    return name if text == name else f"{name}: {text}"


def _evidence(profile: FilterProfile, *, has_evidence: bool) -> str:
    if not has_evidence:
        return "No evidence: no row was profiled."
    if profile.n_tuples == 0:
        return "Evidence: every profiled row passed."
    return f"Evidence: the newest {count(profile.n_tuples)} profiled rows that a filter dropped."


def _costs(view: BlockView, *, is_told: bool, has_evidence: bool) -> list[str]:
    """Say what the order in force costs, as far as there is evidence.

    Where it is told what the order has saved, batch by batch, the newest evidence has no say in it.
    """
    profile = view.profile
    if not has_evidence:
        return []
    if not profile.costs.is_known.any():
        return ["No cost was measured."]
    cost = finite(expected_cost_ns(view.order, profile))
    if cost is None:
        return ["No cost was measured."]
    as_written = finite(expected_cost_ns(view.written, profile))
    sentences = [f"By the newest evidence it costs {cost_text(cost, as_written)}."]
    if not is_told:
        n_rows = 0 if view.totals is None else view.totals.n_rows
        saved_s = None
        if n_rows and as_written is not None and as_written != cost:
            saved_s = n_rows * (as_written - cost) / 1e9
        so_far = "" if saved_s is None else " over the rows so far"
        sentences = [f"Expected cost {cost_text(cost, as_written, saved_s)}{so_far}."]
    if as_written is not None and profile.basis not in {None, view.written}:
        sentences.append("The cost as written is an upper bound: profiling skips some outcomes.")
    return sentences


def _counts(view: BlockView) -> list[str]:
    """Say what was counted in the life of a block; what is not counted is left out."""
    totals, sentences = view.totals, []
    if totals is not None and totals.n_rows:
        line = f"{count(totals.n_rows)} rows reached this block"
        if totals.n_evaluations:
            line += f", {count(totals.n_evaluations)} evaluations made"
            if totals.n_extra:
                line += f", {percent(totals.n_extra / totals.n_evaluations)} of them for profiling"
        sentences.append(f"{line}.")
    # A profile that counted no errors has no array of them.
    raised = (view.profile if totals is None else totals).n_raised.tolist()
    return sentences + [
        f"Set aside: {view.profile.filter_ids[f]} raised on {count(raised[f])} rows."
        for f in view.order
        if raised and raised[f] > 0
    ]


def _routes(view: BlockView) -> list[Part]:
    """Return the classes of rows that have orders of their own."""
    if not view.routes:
        return [Text(f"Routing {view.route_note}.")] if view.route_note else []
    ids = view.profile.filter_ids
    rows = tuple(
        (route.rows, order_text([ids[f] for f in route.order]), route.share)
        for route in view.routes
    )
    lead = f"Classes of rows by {', '.join(view.routed_by)}, each in its own order:"
    return [Text(lead), Table(ROUTES, rows)]


def _work(history: History, components: set[str]) -> list[Section]:
    """Return the evaluations made for the batches."""
    points = points_of(history.batches)
    evaluations = [
        sum(
            record.n_evaluations
            for record in point.records(OrderRecord)
            if record.component in components
        )
        for point in points
    ]
    relation = min(components, default="").partition(" of ")[2]
    return work_section(
        f"evaluations of {relation}" if relation else "evaluations", points, evaluations
    )


def _pinned(view: FilterView) -> list[Section]:
    if not view.pinned:
        return []
    pairs = tuple((_label(pinned.name, pinned.text), pinned.reason) for pinned in view.pinned)
    return [Section("pinned: keeps its place", (Facts(pairs),))]


# -- decisions of the journal -----------------------------------------------------------------
