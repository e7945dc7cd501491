"""The simulation behind the change-detection benchmarks, against everything recomputed slowly."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.change import intrusion as change_intrusion
from benchmarks.change import monitors as change_monitors
from benchmarks.change import paper as change_paper
from benchmarks.change.costing import Costing, mean_of
from benchmarks.change.simulation import (
    Never,
    Slots,
    advance,
    analyse,
    estimate_block,
    greedy_order,
    new_scratch,
    new_state,
    oracle_work,
    run_detected,
    run_fixed,
)
from benchmarks.filters.simulated_loop import Stream
from benchmarks.harness.scenario import Settings
from benchmarks.harness.scenarios import scenarios

from eddyline.change import DETECTORS, options_of
from eddyline.ordering.a_greedy import Evidence, restore_invariant
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile
from eddyline.testing.reference_orders import static_greedy
from tests.examples import are_few
from tests.oracles.conjunctions import matrix_view
from tests.oracles.drifting import DriftingStream

HYSTERESIS = 0.9

SMALL = change_paper.Cell(4, 20_000, 1, n_changes=1)


@pytest.fixture(scope="module")
def ran():
    """What the schemes of the paper come to in a small cell."""
    return change_paper.run_cell(SMALL)


def rows_of(n_filters, seed, n_rows=400):
    period = n_rows // 4
    stream = DriftingStream(
        n_filters=n_filters, period_rows=period, n_changes=3, seed=seed, low_frac=0.3,
        n_affected=n_filters,
    )  # fmt: skip
    return (~stream.passes()).astype(np.uint8)


def price_of(n_filters, seed):
    """Powers of two, so that one over a price is exact and ties are ties in any formula."""
    if seed % 2:
        return np.ones(n_filters)
    return 2.0 ** np.random.default_rng(seed).integers(0, 3, size=n_filters)


def profile_of(rows, price):
    names = tuple(f"f{f}" for f in range(rows.shape[1]))
    return FilterProfile.of_sample(names, rows > 0, costs=CostSums.of_rows(1, price))


def flagged_position(order, profile, price, start=0):
    ratios = matrix_view(order, profile) / price[list(order)]
    for i in range(start, len(order)):
        if any(ratios[i, i] < HYSTERESIS * ratios[i, j] for j in range(i + 1, len(order))):
            return i
    return None


def repaired(order, profile, price):
    """The thesis' loop with everything recomputed from scratch."""
    evidence = Evidence.from_profile(profile)
    position = flagged_position(order, profile, price)
    while position is not None:
        order, checked = restore_invariant(order, position, evidence)
        position = flagged_position(order, profile, price, checked)
    return order


def evaluations_by_hand(row, order, price):
    spent = 0.0
    for f in order:
        spent += price[f]
        if row[f]:
            break
    return spent


SIZES = [(2, 30), (4, 60), (5, 7), (9, 100)]
SEEDED = [
    (*size, check_all, seed)
    for at, size in enumerate(SIZES)
    for check_all in (False, True)
    for seed in range(6)
    if not are_few() or seed == (at + 3 * check_all) % 6
]
"""Every size with and without ``check_all``; few examples have one seed each."""


@pytest.mark.parametrize(("n_filters", "window_rows", "check_all", "seed"), SEEDED)
def test_every_insertion_leaves_the_view_and_order_of_a_recomputation(
    n_filters, window_rows, check_all, seed
):
    drops, price = rows_of(n_filters, seed), price_of(n_filters, seed)
    state, scratch = new_state(price, len(drops)), new_scratch(n_filters, len(drops))
    min_fill = min(20, window_rows)
    laid = np.zeros((len(drops) // 16, n_filters), dtype=np.int64)
    expected = tuple(range(n_filters))
    for row in range(len(drops)):
        by_hand = evaluations_by_hand(drops[row], expected, price)
        before = expected
        window = drops[max(row + 1 - window_rows, 0) : row + 1]
        profile = profile_of(window, price)
        if row + 1 >= min_fill:
            expected = repaired(expected, profile, price)
        options = (window_rows, min_fill, HYSTERESIS, check_all)
        work, n_checks, n_reorders = advance(
            drops, (row, row + 1), state, price, options, scratch, laid, 16
        )
        order, view, first, rates = state
        assert tuple(order) == expected
        assert (view == matrix_view(expected, profile)).all()
        assert work == by_hand
        assert n_checks == (row + 1 >= min_fill)
        assert n_reorders == (expected != before)
        assert (rates == 1.0 / price[order]).all()
        drop_places = [
            next((p for p, f in enumerate(expected) if each[f]), n_filters) for each in window
        ]
        assert first[max(row + 1 - window_rows, 0) : row + 1].tolist() == drop_places


@pytest.mark.parametrize(
    ("window_rows", "seed"), [(41, 0), (41, 1), (250, 2), (250, 3), (5000, 0), (5000, 1)]
)
def test_a_whole_run_counts_what_a_slow_loop_counts(window_rows, seed):
    drops, price = rows_of(5, seed, 800), price_of(5, seed)
    order, work, n_reorders = tuple(range(5)), 0.0, 0
    for row in range(len(drops)):
        work += evaluations_by_hand(drops[row], order, price)
        window = drops[max(row + 1 - window_rows, 0) : row + 1]
        if len(window) >= 41:
            before, order = order, repaired(order, profile_of(window, price), price)
            n_reorders += order != before
    for check_all in (False, True):
        outcome = run_fixed(drops, price, window_rows, check_all=check_all)
        assert outcome.order == order
        assert outcome.work == work
        assert outcome.extra == len(drops) * price.sum() - work
        assert outcome.n_reorders == n_reorders
        assert outcome.n_analyses == len(drops) - 40


@pytest.mark.parametrize("seed", range(8))
def test_an_analysis_restores_the_invariant_on_its_window(seed):
    rng = np.random.default_rng(seed)
    n_filters = int(rng.integers(2, 9))
    drops, price = rows_of(n_filters, seed, 200), price_of(n_filters, seed)
    state, scratch = new_state(price, len(drops)), new_scratch(n_filters, len(drops))
    state[0][:] = rng.permutation(n_filters)
    state[3][:] = 1.0 / price[state[0]]
    before = tuple(state[0].tolist())
    low, high = sorted(rng.choice(len(drops), size=2, replace=False))
    profile = profile_of(drops[low:high], price)
    expected = repaired(before, profile, price)
    broken = analyse(drops, low, high, state, HYSTERESIS, scratch)
    assert tuple(state[0].tolist()) == expected
    assert broken == (flagged_position(before, profile, price) is not None)
    assert (state[1] == matrix_view(expected, profile)).all()


@pytest.mark.parametrize("seed", range(8))
def test_a_block_gives_the_conditional_drop_fractions(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    drops, price = rows_of(n, seed, 200), price_of(n, seed)
    order = rng.permutation(n)
    slots = Slots(order)
    values = np.full(slots.n, -1.0)
    dropped = np.full((n + 1, n), 7, dtype=np.int32)
    work, n_known = estimate_block(
        drops, (50, 100), order, price, (slots.starts, slots.filters), 10, dropped, values
    )
    assert work == sum(evaluations_by_hand(row, order, price) for row in drops[50:100])
    for i in range(n):
        alive = drops[50:100][~drops[50:100][:, order[:i]].any(axis=1)]
        entries = slice(slots.starts[i], slots.starts[i + 1])
        assert sorted(slots.filters[entries]) == sorted(order[i:])
        assert (len(alive) >= 10) == (i < n_known)
        if len(alive) >= 10:
            assert values[entries] == pytest.approx(alive[:, slots.filters[entries]].mean(axis=0))
        else:
            assert np.isnan(values[entries]).all()


def test_a_block_of_the_specification():
    """Spec T7: four of eight rows reach position 1, two position 2, two position 3."""
    codes = ["0000", "0010", "0000", "0111", "1000", "0010", "1101", "0111"]
    drops = np.array([[int(bit) for bit in code] for code in codes], dtype=np.uint8)
    order = np.array([2, 0, 1, 3])
    slots = Slots(order)
    values, dropped = np.empty(slots.n), np.zeros((5, 4), dtype=np.int32)
    known = (slots.starts, slots.filters)
    price = np.ones(4)
    work, n_known = estimate_block(drops, (0, 8), order, price, known, 1, dropped, values)
    assert (work, n_known) == (16.0, 4)
    assert values.tolist() == [0.5, 0.25, 0.375, 0.375, 0.5, 0.25, 0.25, 0, 0, 0]
    written = np.arange(4)
    slots = Slots(written)
    known = (slots.starts, slots.filters)
    work, _ = estimate_block(drops, (0, 8), written, price, known, 1, dropped, values)
    assert work == 20.0
    assert values[:4].tolist() == [0.25, 0.375, 0.5, 0.375]


@pytest.mark.parametrize("seed", range(10))
def test_entries_change_only_where_the_prefix_is_another_set(seed):
    rng = np.random.default_rng(seed)
    n = 7
    slots = Slots(np.arange(n))
    for _ in range(20):
        before, filters = slots.order, slots.filters.copy()
        order = before.copy()
        i, j = sorted(rng.integers(0, n, size=2))
        order[i : j + 1] = rng.permutation(order[i : j + 1])
        changed = slots.follow(order)
        for i in range(n):
            entries = slice(slots.starts[i], slots.starts[i + 1])
            is_same = set(before[:i]) == set(order[:i])
            assert changed[entries].tolist() == [not is_same] * (n - i)
            assert set(slots.filters[entries]) == set(order[i:])
            if is_same:
                assert (slots.filters[entries] == filters[entries]).all()


class Scripted:
    """Options of a bank that finds changes where it is told to."""

    def __init__(self, at, back):
        self.at, self.back, self.was_reset = at, back, []

    def build(self, n):
        self.n_seen = np.zeros(n, dtype=np.int64)
        self.change_points = np.full(n, -1)
        self.values = []
        return self

    def update(self, values):
        self.n_seen += ~np.isnan(values)
        self.values.append(values.copy())
        found = np.zeros(len(values), dtype=bool)
        if len(self.values) - 1 in self.at:
            found[0] = True
            self.change_points[0] = self.n_seen[0] - self.back
        return found

    def reset(self, which):
        self.was_reset.append(which.copy())


def test_a_change_empties_the_window_up_to_its_change_point():
    rng = np.random.default_rng(0)
    fracs = np.repeat([[0.2, 0.5, 0.8], [0.8, 0.5, 0.2]], 1000, axis=0)
    drops = (rng.random((2000, 3)) < fracs).astype(np.uint8)
    price = np.ones(3)
    bank = Scripted(at={24}, back=5)  # found after row 1250, begun at row 1000
    outcome = run_detected(drops, price, bank, 50)
    assert outcome.order == (0, 1, 2)
    assert (outcome.n_analyses, outcome.n_reorders, outcome.n_detections) == (2, 2, 1)
    assert len(bank.was_reset) == 2
    assert bank.was_reset[-1].tolist() == [False] * 3 + [True] * 3
    slow = sum(evaluations_by_hand(row, (0, 1, 2), price) for row in drops[:250])
    slow += sum(evaluations_by_hand(row, (2, 1, 0), price) for row in drops[250:1250])
    slow += sum(evaluations_by_hand(row, (0, 1, 2), price) for row in drops[1250:])
    assert outcome.work == slow


def test_a_change_now_waits_until_the_window_is_filled_again():
    drops = rows_of(3, 1, 2000)
    bank = Scripted(at={20}, back=0)
    outcome = run_detected(drops, np.ones(3), bank, 50)
    assert outcome.n_analyses == 2
    unfinished = run_detected(drops[:1250], np.ones(3), Scripted(at={20}, back=0), 50)
    assert unfinished.n_analyses == 1


def test_reviews_check_again_whenever_the_window_has_doubled():
    drops = rows_of(3, 1, 8000)
    outcome = run_detected(drops, np.ones(3), Scripted(at=set(), back=0), 50, reviews=True)
    assert outcome.n_analyses == 6  # 250, 500, 1000, 2000, 4000, 8000
    outcome = run_detected(drops, np.ones(3), Scripted(at={79}, back=10), 50, reviews=True)
    assert outcome.n_analyses == 4 + 4  # up to 2000, then 500 to 4000 rows since row 3500


@pytest.mark.parametrize("name", DETECTORS)
def test_every_detector_governs_a_window(name):
    drops = rows_of(4, 2, 6000)
    outcome = run_detected(drops, np.ones(4), options_of(name), 50)
    assert sorted(outcome.order) == [0, 1, 2, 3]
    assert outcome.n_items >= len(drops) // 50 * 4
    assert outcome.n_reorders <= outcome.n_analyses <= outcome.n_detections + 1
    assert outcome.overhead_s > 0


@pytest.mark.parametrize("seed", range(5))
def test_the_oracle_is_greedy_on_the_true_distribution(seed):
    stream = DriftingStream(n_filters=6, period_rows=100, n_affected=4, seed=seed, group_size=3)
    row = stream.n_rows - 1
    assert greedy_order(stream, row) == static_greedy(stream.at(row).exact())


def test_the_oracle_beats_every_window():
    stream = DriftingStream(n_filters=8, period_rows=4000, n_affected=4, seed=3)
    drops = (~stream.passes()).view(np.uint8)
    best = oracle_work(stream, drops, np.ones(8))
    for window in change_paper.WINDOWS:
        assert best < 1.005 * run_fixed(drops, np.ones(8), window).work


def test_costs_are_added_up_as_the_paper_does(ran):
    outcome = ran.runs["window 41"][0]
    cost = Costing(SMALL.profiled)
    cheap = cost(outcome)
    assert cheap == pytest.approx(outcome.work * 10 * 10e-6 + outcome.overhead_s)
    with_profiling = replace(cost, profiling=True)(outcome)
    assert with_profiling == pytest.approx(cheap + outcome.extra * 10e-6)
    dear = Costing(SMALL.profiled, 10.0)
    savings = [dear.saving(ran.runs, f"window {w}") for w in change_paper.WINDOWS]
    assert sum(savings) == pytest.approx(0)


def test_ids_are_unique():
    modules = (change_paper, change_intrusion, change_monitors)
    ids = [scenario for module in modules for scenario in module.RUNS]
    assert len(ids) == len(set(ids))


def test_a_quick_look_is_small():
    for cell in (*change_paper.ABRUPT_256, *change_paper.GRADUAL_4, *change_paper.SAMPLING):
        quick = cell.at(Settings(quick=True))
        assert quick.stream(0).n_rows <= 150_000
        assert cell.at(Settings()) is cell


@pytest.mark.parametrize("seed", range(5))
def test_rules_are_drawn_over_the_columns_that_tell_rows_apart(seed):
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "row_id": np.arange(2000),
            **{f"n{k}": rng.integers(0, 50, size=2000) for k in range(6)},
            "flag": rng.integers(0, 2, size=2000),
            "constant": np.zeros(2000),
            "service": pa.array(rng.choice(["http", "smtp"], size=2000), pa.large_string()),
            "label": pa.array(["normal"] * 2000, pa.large_string()),
        }
    )
    pool = change_intrusion.pool_v1(table)
    assert set(pool.texts) == {*(f"n{k}" for k in range(6)), "flag", "service"}
    texts, passes = change_intrusion.rule_v1(pool, seed)
    assert passes.shape == (2000, 4 + seed % 3)
    assert len({text.split()[0] for text in texts}) == len(texts)
    assert passes.mean(axis=0).min() >= 0.01
    assert passes.mean(axis=0).max() <= 0.99
    assert (change_intrusion.rule_v1(pool, seed)[1] == passes).all()


def test_without_data_the_real_traffic_is_skipped(monkeypatch, tmp_path):
    monkeypatch.setenv("EDDYLINE_DATA", str(tmp_path))
    chosen = [each for each in scenarios("change") if each.id.endswith("intrusion")]
    assert len(chosen) == 2
    for scenario in chosen:
        measured = scenario.measure(Settings(quick=True))
        assert scenario.status(measured) == "skipped"
        assert "EDDYLINE_DATA" in measured.note


def test_monitors_run_in_the_loop():
    case = change_monitors.Case("small", 4, 20_000, 1, 1)
    drifting = case.stream(0, Settings(quick=True))
    stream = Stream(~drifting.passes(), np.full(4, change_monitors.COST_NS))
    for options in change_monitors.monitors().values():
        run, n_asked = change_monitors._run(stream, 0, options)
        assert run.n_changes <= n_asked
        assert run.total_ns >= stream.n_rows * change_monitors.COST_NS


def test_the_price_of_a_reorder_that_gives_a_saving_does_give_it(ran):
    measure = Costing(SMALL.profiled)
    price_s = ran.price_of_paper("beta_cusum", 10e-6, 14.0) / 1e3
    mine, fixed = (
        mean_of(ran.runs, name, lambda each: measure(each) + price_s * each.n_reorders)
        for name in ("beta_cusum", "window ")
    )
    assert 100 * (1 - mine / fixed) == pytest.approx(14.0)
    assert ran.price_of_paper("beta_cusum", 10e-6, 99.9) is None


def test_a_mean_is_of_one_scheme_or_of_a_kind(ran):
    for name in change_paper.schemes():
        assert mean_of(ran.runs, name, lambda each: each.work) == ran.runs[name][0].work
    windows = [ran.runs[f"window {w}"][0].work for w in change_paper.WINDOWS]
    mean = mean_of(ran.runs, "window ", lambda each: each.work)
    assert mean == pytest.approx(np.mean(windows))


def test_without_detectors_the_first_analysis_is_the_only_one():
    drops = rows_of(4, 5, 4000)
    outcome = run_detected(drops, np.ones(4), Never(), 50)
    assert (outcome.n_analyses, outcome.n_detections) == (1, 0)
    assert outcome.order == repaired((0, 1, 2, 3), profile_of(drops[:250], np.ones(4)), np.ones(4))
