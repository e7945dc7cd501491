"""Words for plans that a person has pinned; they are the same whatever operator has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.report.formatting import duration, finite, plan_text
from eddyline.report.sections import Facts, Section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.runtime.pins import Advice, PinView

TITLE = "pinned by a person"


def lines(pins: Sequence[PinView]) -> tuple[str, ...]:
    """Return the components that are pinned on a line, for the progress; none if there is none."""
    return (f"pinned: {', '.join(each.component for each in pins)}",) if pins else ()


def sections(pins: Sequence[PinView]) -> list[Section]:
    """Return what is pinned since when, and what the evidence says of it."""
    pairs = tuple((each.component, _text(each)) for each in pins)
    return [Section(TITLE, (Facts(pairs),))] if pins else []


def _text(view: PinView) -> str:
    since = f"after batch {view.pin.batch_id}" if view.pin.batch_id >= 0 else "before batch 0"
    begins = "" if view.is_in_force else ", in force from the next batch on"
    said = f"{plan_text(view.pin.plan)}: pinned by a person {since}{begins}"
    return f"{said}; {_advice_text(view)}" if view.is_in_force and view.advice else said


def _advice_text(view: PinView) -> str:
    assert view.advice is not None
    advice: Advice = view.advice
    if advice.plan == view.pin.plan:
        return "the evidence calls no other better"
    if finite(advice.cost_ns) is None:
        return f"the evidence calls {plan_text(advice.plan)} better"
    return (
        f"the evidence says the best order, {plan_text(advice.plan)}, would cost "
        f"{duration(advice.cost_ns)} a row, this one {duration(advice.held_cost_ns)}"
    )
