"""Estimates of steps and the plans of joins as they stand, for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eddyline.estimates.filters import Estimate


@dataclass(frozen=True, slots=True)
class StepView:
    """What a step gives for each segment that comes in."""

    text: str
    estimate: Estimate | None
    """For the next batch, put right by what came true; None: nothing is known."""
    gave: float
    """What it gave in the newest batch."""
    factor: float | None
    """What came true over what was estimated, before that is put right; None: none came true."""
    varies: float | None
    """By what share that varies."""


@dataclass(frozen=True, slots=True)
class SideView:
    """A side of a join of which something is asked alone."""

    name: str
    estimate: Estimate | None
    """The share that is left, by histograms; None: nothing is known."""
    left: float | None
    """The share that was left in the newest batch; None: it was not asked."""


@dataclass(frozen=True, slots=True)
class JoinView:
    """What a join asks before."""

    text: str
    way: str
    estimate: Estimate | None
    """What the join takes for each segment that comes in (ns), put right by what came true."""
    ns: float
    """What it took (ns)."""
    sides: tuple[SideView, ...]
