"""What the priced experiments add up, and what their Spark jobs are made of."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.change import paper as change_paper
from benchmarks.change import priced as change_priced
from benchmarks.change.costing import CHEAP_S, Costing
from benchmarks.change.priced import Pair, Price, other_order, texts
from benchmarks.change.simulation import Never, Outcome, laid_cost, run_detected, run_fixed
from benchmarks.harness.scenario import Settings
from benchmarks.harness.scenarios import scenarios

from eddyline.change import options_of
from tests.oracles.drifting import DriftingStream

OUTCOME = Outcome(1000.0, 0.0, 0.5, 9, 7, (0, 1), laid_work=1200.0, n_laid=3)


def drops_of(seed, n_rows=4000):
    stream = DriftingStream(n_filters=4, period_rows=n_rows // 4, n_changes=3, seed=seed)
    return (~stream.passes()).view(np.uint8)


def test_a_total_is_work_and_overhead_and_priced_changes():
    assert Costing(0.1, change_ms=20.0)(OUTCOME) == pytest.approx(
        1000 / 0.1 * 10e-6 + 0.5 + 7 * 0.02
    )
    laid = Costing(0.1, change_ms=20.0, at_batches=True)
    assert laid(OUTCOME) == pytest.approx(1200 / 0.1 * 10e-6 + 0.5 + 3 * 0.02)


def test_a_saving_is_against_the_mean_window():
    runs = {f"window {w}": [replace(OUTCOME, n_reorders=n)] for n, w in enumerate((41, 250))}
    runs["never"] = [replace(OUTCOME, n_reorders=0)]
    free, dear = Costing(1.0), Costing(1.0, change_ms=1000.0)
    assert free.saving(runs, "never") == pytest.approx(0.0)
    assert dear.saving(runs, "never") == pytest.approx(100 * 0.5 / (0.51 + 0.5))


def test_free_changes_save_what_the_unpriced_experiment_says():
    cell = change_paper.Cell(4, 20_000, 1, n_changes=1)
    ran = change_paper.run_cell(cell)

    def spent(name: str) -> float:
        (outcome,) = ran.runs[name]
        return outcome.work / cell.profiled * CHEAP_S + outcome.overhead_s

    of_windows = np.mean([spent(f"window {w}") for w in change_paper.WINDOWS])
    unpriced = 100 * (1 - spent("beta_cusum") / of_windows)
    assert Costing(cell.profiled).saving(ran.runs, "beta_cusum") == pytest.approx(unpriced)
    row = change_paper._row(ran, CHEAP_S)
    assert row["saving_percent"]["beta_cusum"] == round(unpriced, 2)
    priced = Costing(cell.profiled, change_ms=ran.price_of_paper("beta_cusum", CHEAP_S, 14.0))
    assert priced.saving(ran.runs, "beta_cusum") == pytest.approx(14.0)


def python_orders_laid_for_batches_are_paid_where_they_differ():
    rng = np.random.default_rng(0)
    drops, price = rng.integers(0, 2, size=(95, 3), dtype=np.uint8), np.array([1.0, 2.0, 4.0])
    laid = np.array([[0, 1, 2]] * 3 + [[2, 1, 0]] * 3 + [[0, 1, 2]] * 4)
    by_hand = 0.0
    for row, dropped in enumerate(drops):
        for f in laid[row // 10]:
            by_hand += price[f]
            if dropped[f]:
                break
    assert laid_cost(drops, price, laid, 10) == (by_hand, 2)


@pytest.mark.parametrize("seed", range(4))
def test_batches_of_one_row_lay_every_order_before_the_next_row(seed):
    drops, price = drops_of(seed), np.ones(4)
    outcome = run_fixed(drops, price, 41, batch_rows=1)
    assert outcome.laid_work == outcome.work
    assert outcome.n_laid <= outcome.n_reorders <= outcome.n_laid + 1  # a last one is not laid


@pytest.mark.parametrize("batch_rows", [50, 1000, 10_000])
@pytest.mark.parametrize("seed", range(3))
def test_larger_batches_lay_fewer_orders(seed, batch_rows):
    drops, price = drops_of(seed), np.ones(4)
    runs = [
        run_fixed(drops, price, 41, batch_rows=batch_rows),
        run_detected(drops, price, options_of("page_hinkley"), 50, batch_rows=batch_rows),
        run_detected(drops, price, Never(), 50, batch_rows=batch_rows),
    ]
    for outcome in runs:
        assert outcome.n_laid <= min(outcome.n_reorders, -(-len(drops) // batch_rows) - 1)
    assert runs[2].n_laid == (batch_rows < len(drops))


def test_a_price_is_the_median_of_pairs():
    pairs = tuple(Pair(50.0, 50.0 + extra) for extra in (1.0, 30.0, 20.0, 10.0, 900.0))
    price = Price(4, pairs, 2)
    assert price.ms == pytest.approx(20.0)
    assert price.quartiles == pytest.approx((10.0, 30.0))
    assert "20.0 ms" in str(price)


def test_chains_differ_by_series_and_not_in_length():
    seen = [texts(64, series) for series in (0, 4000, 64_000, 504_000, 899_999)]
    assert len({text for chain in seen for text in chain}) == 64 * len(seen)
    assert len({len(" ".join(chain)) for chain in seen}) == 1


@pytest.mark.parametrize("n_filters", [4, 64])
def test_another_order_is_another_one(n_filters):
    for series in range(200):
        order = other_order(n_filters, series)
        assert sorted(order) == list(range(n_filters))
        assert order != tuple(range(n_filters))


def test_without_java_nothing_runs(monkeypatch):
    monkeypatch.setattr("eddyline.spark.java.problem", lambda: "no Java")
    monkeypatch.setattr(change_priced, "run_cell", None)
    chosen = [scenario for scenario in scenarios("change") if scenario.id in change_priced.RUNS]
    assert len(chosen) == len(change_priced.RUNS)
    for scenario in chosen:
        measurement = scenario.measure(Settings(quick=True))
        assert scenario.status(measurement) == "skipped"
        assert "no Java" in measurement.note
