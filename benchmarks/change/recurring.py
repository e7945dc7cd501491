"""Conditions that come again: what the log of plans brings, and what it costs where nothing recurs.

Work is counted over all rows, profiling included, in a loop that learns as a task does; the log is
asked after each micro-batch, as on the driver. The oracle runs the best order for the rows of each
micro-batch from its first row on, and profiles nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from benchmarks.filters.simulated_loop import CountedLoop, Stream, best_work, fixed_work
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median
from eddyline.data.arrays import Floats
from eddyline.filters.loop import FilterLoop
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.plan_log import LogView, PlanLog

COSTS = np.full(5, 1_000.0)
"""Declared cost of an evaluation of each filter (ns)."""

BATCH_ROWS = (2_000, 10_000, 50_000)
N_BATCHES = 10
"""Micro-batches for which a situation holds."""


def situations(n: int, seed: int) -> Floats:
    """Return pass fractions of five filters in some situations ((n, 5))."""
    return np.random.default_rng([seed, 41]).uniform(0.02, 0.95, (n, 5))


class LoggedFilters:
    """Counted filters that learn, and the log of their orders."""

    def __init__(self, seed: int, batch_rows: int, *, recalls: bool = True) -> None:
        self.seed, self.batch_rows = seed, batch_rows
        self.rng = np.random.default_rng([seed, 42])
        self.counted = CountedLoop(COSTS, seed=seed)
        self.log = PlanLog(recalls=recalls)
        self.entries: list[JournalEntry] = []
        self.codes = np.zeros(2 ** len(COSTS))
        """Rows so far, by outcome."""
        self.order_work_ns = 0.0
        """Work so far without profiling."""
        self.n = 0

    @property
    def target(self) -> FilterLoop:
        """The order, as the log sees it."""
        return self.counted.loop

    def batch(self, pass_fracs: Floats) -> Floats:
        """Run a micro-batch; returns its work, that of the best order, and of the order after it.

        All in ns ((3,)).
        """
        drops = self.rng.random((self.batch_rows, len(COSTS))) >= pass_fracs
        stream, ran_under = Stream(drops, COSTS), {"arrow": self.target.plan}
        seed = 10_000 * self.seed + self.n
        run = self.counted.run(stream, seed=seed, batch_rows=self.batch_rows)
        self.counted.loop.n_met = self.batch_rows
        targets = {"arrow": self.target}
        self.entries += self.log.step(targets, ran_under, self.batch_rows, self.n)
        self.n += 1
        codes = stream.histograms(self.batch_rows)
        self.codes += codes.sum(0)
        self.order_work_ns += run.total_ns - COSTS[0] * float(run.extra.sum())
        after = float(fixed_work(codes, self.counted.order, COSTS).sum())
        return np.array([run.total_ns, best_work(codes, COSTS), after])

    def phases(self, fracs: Sequence[Floats], n_batches: int = N_BATCHES) -> Floats:
        """Run phases of some micro-batches each; returns the work ((phases, batches, 3))."""
        return np.array([[self.batch(each) for _ in range(n_batches)] for each in fracs])

    def count(self, event: str) -> int:
        """Return how many decisions of an event there were."""
        return sum(each.event == event for each in self.entries)

    @property
    def view(self) -> LogView:
        """What the log says."""
        return self.log.views({"arrow": self.target})[0]


@dataclass
class Compared:
    """Runs of the same streams with the log and without."""

    with_log: list[float] = field(default_factory=list)
    """Work over the oracle's."""
    without: list[float] = field(default_factory=list)
    recalled: list[float] = field(default_factory=list)
    """Work of the order after the first micro-batch of a recurrence, over the best order's."""
    learned: list[float] = field(default_factory=list)
    """The same without the log."""
    n_recalls: int = 0
    n_mistaken: int = 0
    errors: list[float] = field(default_factory=list)
    """Share of the best single order's work that was saved: as estimated, less as counted."""

    def add(self, fracs: Sequence[Floats], seed: int, batch_rows: int, n_first: int) -> None:
        """Run a stream, of which the first phases are of no recurrence."""
        for recalls in (True, False):
            filters = LoggedFilters(seed, batch_rows, recalls=recalls)
            work = filters.phases(fracs)
            over = self.with_log if recalls else self.without
            over.append(float(work[..., 0].sum() / work[..., 1].sum()))
            firsts = self.recalled if recalls else self.learned
            firsts += (work[n_first:, 0, 2] / work[n_first:, 0, 1]).tolist()
            if recalls:
                self.n_recalls += filters.count("recall")
                self.n_mistaken += filters.count("mistaken")
                single = best_work(filters.codes, COSTS)
                saved = 1.0 - filters.order_work_ns / single
                self.errors.append(filters.view.hindsight.saved - saved)

    @property
    def ratio(self) -> float:
        """Work with the log over that without."""
        return fmean(self.with_log) / fmean(self.without)

    def note(self) -> str:
        """Say what was found."""
        return (
            f"over the oracle {fmean(self.with_log):.4f}, without the log "
            f"{fmean(self.without):.4f}; {self.n_recalls} recalled, {self.n_mistaken} by mistake"
        )


def _compared(settings: Settings, batch_rows: int, kind: str) -> Compared:
    found = Compared()
    for seed in settings.seeds(5, 1):
        n = settings.pick(12, 6)
        unlike = {"alternating": 2, "three": 3, "stationary": 1, "drifting": n}[kind]
        known = situations(unlike, seed)
        found.add([known[at % unlike] for at in range(n)], seed, batch_rows, unlike)
    return found


def _by_size(settings: Settings, kinds: Sequence[str]) -> dict[str, Compared]:
    return {
        f"{kind}, {batch_rows:,} rows": _compared(settings, batch_rows, kind)
        for kind in kinds
        for batch_rows in BATCH_ROWS
    }


def recall_first(settings: Settings) -> Measurement:
    """Median of what the order costs after the first micro-batch of a recurrence."""
    found = _by_size(settings, ("alternating", "three"))
    medians = {name: (median(each.recalled), median(each.learned)) for name, each in found.items()}
    told = "; ".join(f"{name} {a:.3f} (without {b:.3f})" for name, (a, b) in medians.items())
    details = {
        name: {"recalled": each.recalled, "learned": each.learned} for name, each in found.items()
    }
    return Measurement(max(a for a, _ in medians.values()), told, details)


def _work(settings: Settings, *kinds: str) -> Measurement:
    found = _by_size(settings, kinds)
    told = "; ".join(f"{name}: {each.note()}" for name, each in found.items())
    details = {
        name: {"with": each.with_log, "without": each.without, "ratio": each.ratio}
        for name, each in found.items()
    }
    return Measurement(max(each.ratio for each in found.values()), told, details)


def recall_work(settings: Settings) -> Measurement:
    """Work with the log over that without, where conditions come again."""
    return _work(settings, "alternating", "three")


def recall_nothing(settings: Settings) -> Measurement:
    """The same where they never change, or never come again."""
    return _work(settings, "stationary", "drifting")


def recall_hindsight(settings: Settings) -> Measurement:
    """Mean error of the share that adapting is said to have saved."""
    found = _by_size(settings, ("alternating", "three", "drifting"))
    told = "; ".join(
        f"{name} {fmean(map(abs, each.errors)):.3f} (greatest {max(each.errors, key=abs):+.3f})"
        for name, each in found.items()
    )
    errors = [abs(error) for each in found.values() for error in each.errors]
    return Measurement(fmean(errors), told, {name: each.errors for name, each in found.items()})


RUNS: Runs = {
    "recall_first": recall_first,
    "recall_work": recall_work,
    "recall_nothing": recall_nothing,
    "recall_hindsight": recall_hindsight,
}
