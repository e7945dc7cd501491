"""Words for the log of plans: what adapting has brought, whatever operator adapts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.report.formatting import (
    count,
    counted,
    duration,
    finite,
    percent,
    plan_text,
    ratio,
    significant,
    times,
)
from eddyline.report.sections import Facts, Section, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.runtime.hindsight import LogView

LITTLE = 0.005
"""Share of the work below which a difference is none: samples tell it no better."""

TITLE = "what adapting brought"

NOTE = (
    "Estimates from the rows that were sampled in each situation: the work of the plans that were "
    "in force, and that of the best single one all the time. What learning took is in neither. "
    "Where tasks learn, the rows of a batch count for the plan that it ended with."
)


def sections(views: Sequence[LogView]) -> list[Section]:
    """Return what the plans in force cost beside the best single one, by component."""
    pairs = tuple((each.component, _text(each)) for each in views)
    if all(each.why_not or not each.n_rows for each in views):
        return []
    return [Section(TITLE, (Text(NOTE), Facts(pairs)))]


def _text(view: LogView) -> str:
    if view.why_not:
        return f"not known: {view.why_not}"
    if not view.n_rows:
        return "not known yet"
    return "; ".join(filter(None, (_saved(view), _basis(view), _recalls(view))))


def _saved(view: LogView) -> str:
    """Say what was saved against the best single plan."""
    seen = view.hindsight
    if finite(seen.best_cost) is None:
        return "no plan that was in force can be priced in all situations"
    best = f"the best single plan, {plan_text(seen.best)} ({_cost(seen.best_cost, view)})"
    if finite(seen.saved) is None:
        return f"{best}; what was in force cannot be priced"
    if abs(seen.saved) < LITTLE:
        return f"the plans in force cost as much as {best}"
    how = times(ratio(seen.best_cost, seen.cost))
    return f"the plans in force cost {how} ({_cost(seen.cost, view)}) than {best}"


def _cost(cost: float, view: LogView) -> str:
    told = duration(cost) if view.unit == "ns" else f"{significant(cost)} {view.unit}"
    return f"{told} per {view.per}"


def _basis(view: LogView) -> str:
    """Say what the estimate is of."""
    share = ratio(view.n_rows, view.n_rows + view.n_left_out)
    rows = f"{counted(view.n_situations, 'situation')} with {percent(share)} of the rows"
    n_unpriced = view.hindsight.n_unpriced
    left_out = f", {count(n_unpriced)} without a price left out" if n_unpriced else ""
    return f"{rows}; {counted(view.hindsight.n_plans, 'plan')} in force{left_out}"


def _recalls(view: LogView) -> str:
    if not (view.n_right or view.n_mistaken):
        return ""
    right = f"{counted(view.n_right, 'plan')} recalled"
    return f"{right}, {count(view.n_mistaken)} by mistake" if view.n_mistaken else right
