"""The conditions of the plan of alarms: on how many segments comparisons and alarms hold.

How often alarms hold is counted on all segments, whatever the plan; how often comparisons do is
known where values are sampled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.alarms.costing import shares_of
from eddyline.runtime.situations import Conditions, Met

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.alarms.profile import AlarmProfile
    from eddyline.alarms.templates import Template
    from eddyline.data.arrays import Floats
    from eddyline.runtime.situations import Situation

MOST_SEEN = 32
"""Templates whose conditions are told apart: those of most alarms."""

LEAST_SAMPLED = 64
"""Sampled segments by which a plan may be chosen."""


class AlarmConditions:
    """What is known of the segments since they last changed."""

    def __init__(self) -> None:
        self.known = Conditions()
        self.prices: dict[str, list[float]] = {}
        """What the fixed plans of templates cost a segment (ns), by their texts."""
        self._held = self._n_rows = np.zeros(0)

    def step(
        self, templates: Mapping[str, Template], bases: Sequence[str], fresh: AlarmProfile
    ) -> bool:
        """Take in a batch; returns whether segments were of other conditions before it."""
        seen = sorted(templates.values(), key=lambda each: (-len(each), each.text))[:MOST_SEEN]
        names = [f"{each.text} holds" for each in seen]
        counts = [fresh.templates.get(each.text) for each in seen]
        self._n_rows = np.array([float(each.n_rows) if each else 0.0 for each in counts])
        self._held = np.array(
            [
                min(each.n_held / (each.n_rows * len(template)), 1.0)
                if each and each.n_rows
                else np.nan
                for template, each in zip(seen, counts, strict=True)
            ]
        )
        shares, rows = [*self._held.tolist()], [*self._n_rows.tolist()]
        n_sampled = min((each.total for each in fresh.values.values()), default=0.0)
        for template in seen:
            found = shares_of(template, bases, fresh.values)
            for at, each in enumerate(template.conjuncts):
                names += [f"an alarm of {each.text} holds", f"any alarm of {each.text} holds"]
                own = [np.nan] * 2 if found is None else [found.any[:, at].mean(), found.cover[at]]
                shares += own
                rows += [0.0 if found is None else n_sampled] * 2
        told = np.clip(np.array(shares, np.float64), 0.0, 1.0)
        is_other = self.known.step(tuple(names), told, np.array(rows), n_sampled)
        if is_other:
            self.prices = {}
        return is_other

    def situation(self, plan: Any) -> Situation | None:
        """Return the conditions as the log knows them, of which all rows met a plan."""
        if not len(self._held) or not np.isfinite(self._held).any():
            return None
        evidence = None
        if self.prices:
            known = self.known.shares[: len(self._held)].tolist()
            held = [round(share, 5) if np.isfinite(share) else None for share in known]
            evidence = [held, self.prices]
        met = Met(plan, self._held, np.maximum(self._n_rows, 1.0))
        least = LEAST_SAMPLED if self.prices else np.inf
        return self.known.situation(evidence, least, met)


def held_of(evidence: Any) -> tuple[Floats, Floats]:
    """Return on what share of segments alarms hold by an evidence, and of how many that is known.

    It is the same under all plans.
    """
    shares = np.array([np.nan if share is None else share for share in evidence[0]], np.float64)
    return shares, np.full(len(shares), np.inf)
