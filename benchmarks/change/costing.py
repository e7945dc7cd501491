"""What runs of schemes cost, and what one scheme saves of the mean over the fixed windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from benchmarks.change.simulation import Outcome

Outcomes = dict[str, list[Outcome]]
"""The outcome of every query by scheme: ``window W``, ``all W`` (the whole view is checked at every
insertion), ``grid …`` (another assignment of β-CUSUM), a detector."""

WINDOWS = (106_652, 34_473, 6345, 3000, 1500, 250, 41)
"""The paper's fixed windows (profile rows)."""

CHEAP_S, DEAR_S = 10e-6, 10.0
"""The paper's costs of one evaluation."""


def mean_of(runs: Outcomes, kind: str, measure: Callable[[Outcome], float]) -> float:
    """Return the mean over the runs of one scheme, or of all of a kind, as ``"window "``."""
    is_kind = kind.endswith(" ")
    chosen = [
        each for name, each in runs.items() if name == kind or (is_kind and name.startswith(kind))
    ]
    return fmean(measure(outcome) for each in chosen for outcome in each)


def means(runs: Outcomes, names: Any, field: str) -> dict[str, float]:
    """Return the mean of one field of the outcomes, by scheme."""
    return {name: mean_of(runs, name, lambda each: getattr(each, field)) for name in names}


def detectors_of(runs: Outcomes) -> list[str]:
    """Return the schemes whose window detectors govern."""
    return [name for name in runs if not name.startswith(("window ", "all ", "grid "))]


@dataclass(frozen=True, slots=True)
class Costing:
    """How the total cost of a run is added up."""

    profiled: float
    """Share of tuples that the run saw: its work stands for one over that."""
    cost_s: float = CHEAP_S
    """Declared cost of one evaluation."""
    change_ms: float = 0.0
    """Price of a change of order."""
    at_batches: bool = False
    """Whether orders change only where a micro-batch begins."""
    profiling: bool = False
    """Whether evaluations that only profiling needs count."""

    def __call__(self, outcome: Outcome) -> float:
        """Return the total cost (s)."""
        work = outcome.laid_work if self.at_batches else outcome.work
        changes = outcome.n_laid if self.at_batches else outcome.n_reorders
        evaluations = work / self.profiled + self.profiling * outcome.extra
        return evaluations * self.cost_s + outcome.overhead_s + changes * self.change_ms / 1e3

    def saving(self, runs: Outcomes, name: str, against: str = "window ") -> float:
        """Return what a scheme saves of the mean cost over the fixed windows (%)."""
        return 100.0 * (1.0 - mean_of(runs, name, self) / mean_of(runs, against, self))

    def savings(self, runs: Outcomes, names: Any, against: str = "window ") -> dict[str, float]:
        """Return the same of several schemes, rounded."""
        return {name: round(self.saving(runs, name, against), 2) for name in names}

    def best_window(self, runs: Outcomes) -> tuple[int, float]:
        """Return the fixed window with the least mean cost and what it saves (%)."""
        savings = {w: self.saving(runs, f"window {w}") for w in WINDOWS}
        best = max(savings, key=lambda w: savings[w])
        return best, savings[best]
