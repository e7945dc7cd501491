"""Alarms as they stand, for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eddyline.runtime.records import Numbers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.estimates.filters import Estimate


@dataclass(frozen=True, slots=True)
class AlarmRecord:
    """The plan of alarms after a batch."""

    component: str
    plan: Mapping[str, Any]
    """How templates are solved that are not covered, by their texts."""
    n_alarms: int
    cost_ns: float
    """Time for each segment, all templates together (ns)."""

    def numbers(self, n_rows: int) -> Numbers:  # noqa: ARG002 - segments are no rows
        """Return how many alarms there are, and what they cost."""
        return Numbers({}, {"n_alarms": self.n_alarms, "cost_ns": self.cost_ns})

    def with_earlier(self, earlier: AlarmRecord, share: float) -> AlarmRecord:  # noqa: ARG002
        """Return one record for several batches: the last one."""
        return self


@dataclass(frozen=True, slots=True)
class TemplateView:
    """A template as it stands."""

    text: str
    n_alarms: int
    sharing: str
    order: tuple[str, ...]
    estimate: Estimate | None
    """What a segment is estimated to cost (ns)."""
    ns: float
    """What it took (ns)."""
    expected: Estimate | None
    """Share of segments on which an alarm is estimated to hold."""
    held: float
    """Ranges that an alarm had for each segment in the newest batch; nan: none was asked."""
