"""How many ranges the alarms of a template give, estimated from histograms over coefficients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.alarms.templates import slots_in
from eddyline.estimates import filters
from eddyline.estimates.filters import Estimate
from eddyline.models.planning.expected import combined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.alarms.templates import Template
    from eddyline.estimates.filters import Times
    from eddyline.estimates.histograms import CoefHistogram
    from eddyline.models.solving.expressions import Comparison

MOST_ALARMS = 3
"""Alarms of a template that stand for all: their constants are spread evenly among those of all."""

MOST_LEAVES = 4
"""Comparisons of a condition up to which it is estimated."""


def held(
    template: Template, bases: Sequence[str], coefs: Mapping[str, CoefHistogram]
) -> Estimate | None:
    """Return on how many segments an alarm holds somewhere, as a share, on average.

    None if nothing is known of an expression, or if a comparison is ``=`` or ``<>``.

    Args:
        template: its alarms.
        bases: what the expressions of a program are called.
        coefs: how their coefficients are spread.
    """
    given = [coefs.get(bases[each]) for each in template.bases]
    if len(given) > MOST_LEAVES or {*template.ops} & {"=", "<>"}:
        return None
    known = [each for each in given if each is not None and each.total > 0.0]
    if len(known) < len(given):
        return None

    def of(alarm: int) -> Estimate:
        def leaf(each: Comparison) -> tuple[Estimate, Times]:
            (at,) = slots_in(each)
            constant = float(template.constants[alarm, at])
            return filters.comparison(known[at], template.ops[at], constant)

        share = combined(template.condition, leaf)
        assert share is not None  # it can be said of each comparison
        return share[0]

    order = np.lexsort(template.constants.T[::-1])
    places = np.unique(np.linspace(0, len(order) - 1, MOST_ALARMS).round().astype(int))
    found = [of(int(order[place])) for place in places]
    return Estimate(
        *(
            float(np.mean([getattr(each, name) for each in found]))
            for name in ("value", "low", "high")
        )
    )
