"""Monitors in eddyline's own loop, on streams whose true pass fractions are known.

Work is counted over all rows, profiling included. What is sampled keeps to eddyline's budget, or is
a tenth of the rows whatever that costs, as in ``change_paper``. The oracle knows the true pass
fractions at every row, runs the greedy order for them, and profiles nothing. A detector runs as the
monitor of its name, with the two-sample test beside it, and alone.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from tests.oracles.drifting import DriftingStream

from benchmarks.change.simulation import oracle_work
from benchmarks.filters.simulated_loop import BATCH_ROWS, CountedLoop, CountedRun, Stream
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median
from eddyline.change import DETECTORS
from eddyline.data.outcomes import seed_of
from eddyline.runtime.monitors import DetectorMonitorOptions

COST_NS = 10_000.0
"""Declared cost of an evaluation: the paper's 10 µs."""

WINDOWS = (250, 1000, 5000)
"""Profile tuples of the fixed windows."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of stream."""

    name: str
    n_filters: int
    period: int
    n_changes: int
    n_seeds: int
    ramp: int = 0
    profiled: float | None = None
    """Share of rows that is profiled; None: what eddyline's budget allows."""

    @property
    def sampling(self) -> dict[str, Any]:
        """Options that sample so."""
        prob = self.profiled
        return {} if prob is None else {"sample_prob": prob, "warmup_prob": prob, "max_overhead": 1}

    def stream(self, seed: int, settings: Settings) -> DriftingStream:
        """Return one stream."""
        return DriftingStream(
            n_filters=self.n_filters,
            period_rows=self.period,
            ramp_rows=self.ramp,
            n_changes=settings.pick(self.n_changes, 1),
            n_affected=max(1, self.n_filters // 4),
            seed=seed,
        )


CASES = (
    Case("4 filters, abrupt every 200K", 4, 200_000, 4, 3),
    Case("4 filters, ramps of 50K every 200K", 4, 200_000, 4, 3, ramp=50_000),
    Case("4 filters, abrupt every 200K, 10 % profiled", 4, 200_000, 4, 3, profiled=0.1),
    Case("64 filters, abrupt every 100K", 64, 100_000, 2, 1),
    Case("64 filters, abrupt every 100K, 10 % profiled", 64, 100_000, 2, 1, profiled=0.1),
)


def monitors() -> dict[str, dict[str, Any]]:
    """Return the options of every monitor that is compared."""
    alone = {
        f"{name} alone": {"monitor": DetectorMonitorOptions(detector=name, two_sample=False)}
        for name in DETECTORS
    }
    return {
        **{f"window {w}": {"monitor": "window", "window_rows": w} for w in WINDOWS},
        "two_sample": {"monitor": "two_sample"},
        **{name: {"monitor": name} for name in DETECTORS},
        **alone,
    }


class _Asked:
    """A policy that counts how often it is asked."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self.n_asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def propose(self, *args: Any) -> Any:
        self.n_asked += 1
        return self._policy.propose(*args)


def _run(stream: Stream, seed: int, options: dict[str, Any]) -> tuple[CountedRun, int]:
    """Run a stream from the order by index; returns the run and how often the policy was asked."""
    loop = CountedLoop(stream.costs_ns, seed=seed, **options)
    asked: Any = _Asked(loop.loop.policy)
    loop.loop.policy = asked
    return loop.run(stream, seed=seed_of("monitors", seed)), asked.n_asked


MEASURES = ("work_over_oracle", "order_work_over_oracle", "order_changes", "analyses")


def loop_monitors(settings: Settings) -> Measurement:
    """Work over the oracle's, by monitor."""
    table: dict[str, dict[str, dict[str, float]]] = {}
    for case in CASES:
        results: dict[str, list[tuple[float, ...]]] = {name: [] for name in monitors()}
        for seed in settings.seeds(case.n_seeds, 1):
            drifting = case.stream(seed, settings)
            drops = ~drifting.passes()
            costs = np.full(case.n_filters, COST_NS)
            oracle = oracle_work(drifting, drops.view(np.uint8), costs)
            for name, options in monitors().items():
                run, n_asked = _run(Stream(drops, costs), seed, options | case.sampling)
                profiling = COST_NS * float(run.extra.sum())
                ratios = run.total_ns / oracle, (run.total_ns - profiling) / oracle
                results[name].append((*ratios, run.n_changes, n_asked))
        table[case.name] = {
            name: {
                key: round(fmean(values), 4)
                for key, values in zip(MEASURES, zip(*rows, strict=True), strict=True)
            }
            for name, rows in results.items()
        }
    told = "; ".join(
        f"{case}: "
        + ", ".join(
            f"{name} {row['work_over_oracle']:.3f} ({row['order_work_over_oracle']:.3f},"
            f" {row['order_changes']:.1f}/{row['analyses']:.1f})"
            for name, row in rows.items()
        )
        for case, rows in table.items()
    )
    note = f"work over oracle (without profiling, changes of order / analyses) by monitor: {told}"
    value = max(rows["beta_cusum"]["order_work_over_oracle"] for rows in table.values())
    return Measurement(value, note, {"cases": table})


FEW = ("window 1000", "two_sample", "beta_cusum", "adwin")
"""Monitors of the query of 256 filters."""


def loop_256(settings: Settings) -> Measurement:
    """Time of a batch of 10,000 rows through 256 filters that cost nothing."""
    period = settings.pick(100_000, 40_000)
    cases = [Case("budget", 256, period, 1, 1), Case("10 % profiled", 256, period, 1, 1, 0, 0.1)]
    drifting = cases[0].stream(0, settings)
    costs = np.full(drifting.n_filters, COST_NS)
    stream = Stream(~drifting.passes(), costs)
    oracle = oracle_work(drifting, stream.drops.view(np.uint8), costs)
    rows: dict[str, dict[str, float]] = {}
    for case in cases:
        for name in FEW:
            loop = CountedLoop(costs, seed=0, **monitors()[name], **case.sampling)
            seconds, work_ns, n_changes = [], 0.0, 0
            for start in range(0, stream.n_rows, BATCH_ROWS):
                batch = stream.slice(start, start + BATCH_ROWS)
                started = time.perf_counter()
                run = loop.run(batch, seed=seed_of("monitors", start))
                seconds.append(time.perf_counter() - started)
                work_ns += run.total_ns - COST_NS * float(run.extra.sum())
                n_changes += run.n_changes
            rows[f"{name}, {case.name}"] = {
                "median_ms": 1e3 * median(seconds),
                "most_ms": 1e3 * max(seconds),
                "order_work_over_oracle": work_ns / oracle,
                "order_changes": n_changes,
            }
    told = "; ".join(
        f"{name} {row['median_ms']:.0f} (most {row['most_ms']:.0f}), work over oracle without"
        f" profiling {row['order_work_over_oracle']:.3f}, {row['order_changes']:g} changes of order"
        for name, row in rows.items()
    )
    note = f"ms per batch of {BATCH_ROWS:,} rows, without the filters' own time: {told}"
    return Measurement(rows["beta_cusum, budget"]["median_ms"], note, {"monitors": rows})


RUNS: Runs = {"change_loop_monitors": loop_monitors, "change_loop_256": loop_256}
