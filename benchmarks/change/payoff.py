"""A map of where β-CUSUM pays: from which price of a change of order it saves 14 %.

The paper has one generator; here five things vary: how many filters there are, the share of them
that changes, what they pass, the share of tuples that is profiled, and what a change of order
costs. Everything is counted: total = evaluations / profiled share + changes of order · price, with
the price in evaluations. CPU time of monitoring is not part of it (``change_overhead``).

The total is linear in the price, so each cell of the map is one number: the least price from which
β-CUSUM saves ``WANTED`` of the fixed windows' cost. It is told against the mean of the paper's
seven windows, as the paper does, and against the best of them.
"Never" means at no price. Streams have five periods of 50,000 tuples, the paper's shortest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
from tests.oracles.drifting import DriftingStream

from benchmarks.change.costing import WINDOWS, Outcomes, mean_of
from benchmarks.change.paper import BLOCK_ROWS
from benchmarks.change.simulation import oracle_work, run_detected, run_fixed
from benchmarks.harness.scenario import Measurement, Runs, Settings
from eddyline.change.beta_cusum import BetaCusumOptions

WANTED = 0.14
"""Share of the cost that is to be saved: the paper's for 4 filters."""

PERIOD = 50_000
"""Tuples from change to change."""

N_FILTERS = (4, 16, 64)
CHANGED = (0.25, 0.5, 1.0)
"""Shares of the filters that change."""
PROFILED = (0.01, 0.1, 1.0)
"""Shares of the tuples that are profiled."""
PASSING = {
    "few": (0.2, 0.05, 0.3, 0.1),
    "half": (0.5, 0.1, 0.9, 0.2),
    "most": (0.9, 0.8, 0.99, 0.05),
}
"""What filters pass: before the first change, least, most, and the least step of a change."""

PRICES = (0, 100, 1_000, 10_000)
"""Evaluations that a change of order costs: at 10 µs each, Spark's is 2,230 (change_price)."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A point of the map, at any price."""

    n_filters: int
    passing: str
    profiled: float
    changed: float

    def __str__(self) -> str:
        where = f"{self.n_filters} filters, {self.passing} pass"
        return f"{where}, {self.profiled:g} profiled, {self.changed:g} change"

    def stream(self, seed: int, period: int) -> DriftingStream:
        """Return the profile rows of one query."""
        start, low, high, step = PASSING[self.passing]
        return DriftingStream(
            n_filters=self.n_filters,
            period_rows=round(period * self.profiled),
            n_changes=4,
            n_affected=max(1, round(self.changed * self.n_filters)),
            start_frac=start,
            low_frac=low,
            high_frac=high,
            min_step=step,
            seed=seed,
        )


def price_from(lacking: Iterable[tuple[float, float]]) -> float:
    """Return the least price at which enough is saved, against all rivals; inf if at none.

    Args:
        lacking: for each rival, the evaluations and the changes of order by which β-CUSUM is above
            what it may have.

    >>> price_from([(500.0, -10.0)]), price_from([(-5.0, -1.0)]), price_from([(5.0, 1.0)])
    (50.0, 0.0, inf)
    >>> price_from([(500.0, -10.0), (-30.0, 1.0)])
    inf
    """
    least, most = 0.0, math.inf
    for evaluations, changes in lacking:
        if changes < 0.0:
            least = max(least, evaluations / -changes)
        elif evaluations > 0.0:
            return math.inf
        elif changes > 0.0:
            most = min(most, -evaluations / changes)
    return least if least <= most else math.inf


def run_of(cell: Cell, *, period: int, n_queries: int) -> tuple[Outcomes, float]:
    """Run β-CUSUM and every window; return the outcomes, and the mean work of an oracle."""
    runs: Outcomes
    price, runs, oracle = np.ones(cell.n_filters), {}, []
    detector = BetaCusumOptions(block_rows=BLOCK_ROWS)
    for seed in range(n_queries):
        stream = cell.stream(seed, period)
        drops = (~stream.passes()).view(np.uint8)
        oracle.append(oracle_work(stream, drops, price))
        runs.setdefault("beta_cusum", []).append(run_detected(drops, price, detector, BLOCK_ROWS))
        for window in WINDOWS:
            outcome = run_fixed(drops, price, window)
            runs.setdefault(f"window {window}", []).append(outcome)
    return runs, fmean(oracle)


def row_of(cell: Cell, runs: Outcomes, oracle: float) -> dict[str, Any]:
    """Return a cell of the map as plain values."""

    def counts(kind: str) -> tuple[float, float]:
        work = mean_of(runs, kind, lambda outcome: outcome.work) / cell.profiled
        return work, mean_of(runs, kind, lambda outcome: outcome.n_reorders)

    work, changes = counts("beta_cusum")
    against = {kind: counts(kind) for kind in ("window ", *(f"window {w}" for w in WINDOWS))}
    lacking = {
        kind: (work - (1.0 - WANTED) * theirs, changes - (1.0 - WANTED) * their_changes)
        for kind, (theirs, their_changes) in against.items()
    }
    mean_work, mean_changes = against.pop("window ")
    mean_lacks = lacking.pop("window ")
    savings = {}
    for price in PRICES:
        best = min(theirs + price * n for theirs, n in against.values())
        total = work + price * changes
        savings[price] = (
            round(100.0 * (1.0 - total / (mean_work + price * mean_changes)), 1),
            round(100.0 * (1.0 - total / best), 1),
        )
    return {
        "price_from": price_from([mean_lacks]),
        "price_from_against_best": price_from(lacking.values()),
        "saving_percent_of_mean_and_best_window": savings,
        "ceiling_percent": round(100.0 * (1.0 - oracle / cell.profiled / mean_work), 1),
        "changes": {"beta_cusum": changes, "mean window": mean_changes},
    }


def shown(price: float) -> str:
    """Return a price as the map shows it."""
    return "never" if math.isinf(price) else f"{price:.0f}"


def payoff(settings: Settings) -> Measurement:
    """Share of the map's points at which β-CUSUM saves enough of the mean window's cost."""
    axes = product(N_FILTERS, PASSING, PROFILED, CHANGED)
    cells = [Cell(*point) for point in axes]
    if settings.quick:
        cells = [cell for cell in cells if cell.n_filters == N_FILTERS[0]]
    period = PERIOD // 10 if settings.quick else PERIOD
    rows = {}
    for cell in cells:
        n_queries = 1 if cell.profiled == PROFILED[-1] or settings.quick else 3
        rows[cell] = row_of(cell, *run_of(cell, period=period, n_queries=n_queries))
    lines = []
    for n, passing in product(dict.fromkeys(cell.n_filters for cell in cells), PASSING):
        parts = [
            f"{profiled:g} profiled "
            + " ".join(
                f"{shown(row['price_from'])}/{shown(row['price_from_against_best'])}"
                for cell, row in rows.items()
                if (cell.n_filters, cell.passing, cell.profiled) == (n, passing, profiled)
            )
            for profiled in PROFILED
        ]
        lines.append(f"{n} filters, {passing} pass: {', '.join(parts)}")
    percent = [row["saving_percent_of_mean_and_best_window"] for row in rows.values()]
    shares = {
        price: [fmean(each[price][k] >= 100.0 * WANTED for each in percent) for k in (0, 1)]
        for price in PRICES
    }
    told = ", ".join(
        f"{price} {mean:.0%} of the cells (against the best window {best:.0%})"
        for price, (mean, best) in shares.items()
    )
    never = [str(cell) for cell, row in rows.items() if math.isinf(row["price_from"])]
    note = (
        f"points at which β-CUSUM saves {WANTED:.0%} or more; by price of a change in evaluations:"
        f" {told}. At no price: {'; '.join(never) or 'nowhere'}. Least price against the mean"
        f" window / against each window, where {', '.join(f'{c:g}' for c in CHANGED)} of the"
        f" filters change: {'; '.join(lines)}"
    )
    details = {
        str(cell): {name: None if value == math.inf else value for name, value in row.items()}
        for cell, row in rows.items()
    }
    return Measurement(fmean(mean for mean, _ in shares.values()), note, {"cells": details})


RUNS: Runs = {"change_map": payoff}
