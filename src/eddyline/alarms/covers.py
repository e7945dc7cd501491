"""Which segments any alarm of a template may meet: the loosest constants tell (a cover)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.alarms.meeting import DOWN, UP
from eddyline.alarms.templates import slots_in
from eddyline.models.solving.expressions import holds

if TYPE_CHECKING:
    from collections.abc import Callable

    from eddyline.alarms.bounds import Bounds
    from eddyline.alarms.templates import Template
    from eddyline.data.arrays import Floats, Indices, Mask
    from eddyline.models.solving.expressions import Comparison, Condition


def covered(
    template: Template, condition: Condition, rows: Indices, bounds: Callable[[int], Bounds]
) -> Mask:
    """Return which of some segments any alarm of a template may meet a part of its condition on.

    Args:
        template: with at least one alarm.
        condition: the part.
        rows: the segments, each once and in their order, ``[m]``.
        bounds: for the place of an expression what it is on these.
    """

    def leaf(comparison: Comparison) -> Mask:
        (at,) = slots_in(comparison)
        constants = template.constants[:, at]
        return _loosest(bounds(template.bases[at]), rows, template.ops[at], constants)

    return holds(condition, leaf)


def _loosest(bounds: Bounds, rows: Indices, op: str, constants: Floats) -> Mask:
    low, high = bounds.low, bounds.high
    if len(rows) < len(low):
        low, high = low[rows], high[rows]
    above: Mask = high >= np.fmin.reduce(constants)
    below: Mask = low <= np.fmax.reduce(constants)
    if op in UP:
        return above
    if op in DOWN:
        return below
    found: Mask = above & below if op == "=" else low <= high
    return found
