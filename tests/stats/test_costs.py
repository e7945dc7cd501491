"""Costs of filters, and the clock that measures them."""

from __future__ import annotations

import functools
import operator
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.stats import costs
from eddyline.stats.costs import MIN_PER_ROW_NS, MIN_SLOPE_FRAC, CostSums, work_ns

FIXED_NS, PER_ROW_NS = 50_000.0, 100.0
CALLS = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 10**6)), max_size=20)


def line(n_rows):
    return np.where(n_rows > 0, FIXED_NS + PER_ROW_NS * n_rows, 0.0)


def of_calls(n_rows, time_ns=None) -> CostSums:
    """Sums of calls; a column for each filter."""
    rows = np.array(n_rows, dtype=float)
    times = line(rows) if time_ns is None else np.array(time_ns, dtype=float)
    calls = [CostSums.of_calls(r, t) for r, t in zip(rows, times, strict=True)]
    return functools.reduce(operator.add, calls, CostSums.empty(rows.shape[1]))


def sums_of(calls) -> CostSums:
    rows, times = zip(*calls, strict=True) if calls else ((), ())
    return of_calls(np.array(rows).reshape(-1, 1), np.array(times).reshape(-1, 1))


def test_an_exact_line_is_found():
    fixed, slope = of_calls([[10], [100], [5000]]).fit()
    np.testing.assert_allclose([fixed[0], slope[0]], [FIXED_NS, PER_ROW_NS])


def test_a_late_filter_with_small_calls_is_not_locked_in_place():
    # the same filter first, on whole batches, and late, on a few rows of each
    early = np.linspace(9000, 11_000, 50)
    late = np.linspace(5, 50, 50)
    sums = of_calls(np.stack([early, late], axis=1))
    raw = sums.total_ns / sums.sums[1]
    assert raw[1] > 15 * raw[0]
    np.testing.assert_allclose(sums.per_row_ns, PER_ROW_NS, rtol=1e-6)


def test_small_sample_calls_do_not_raise_the_cost_per_row():
    calls = [[10_000], [10_200], [9_800]] * 10 + [[100]] * 30
    np.testing.assert_allclose(of_calls(calls).per_row_ns, PER_ROW_NS, rtol=1e-6)


def test_calls_of_one_size_count_as_per_row_only():
    fixed, slope = of_calls([[1000]] * 20).fit()
    assert fixed[0] == 0
    assert slope[0] == pytest.approx(line(1000.0) / 1000)


@pytest.mark.parametrize("seed", range(10))
def test_noise_of_a_tenth_moves_the_cost_per_row_little(seed):
    rng = np.random.default_rng(seed)
    n_rows = rng.integers(10, 10_000, (200, 1)).astype(float)
    times = line(n_rows) * rng.normal(1, 0.1, (200, 1))
    assert of_calls(n_rows, times).per_row_ns[0] == pytest.approx(PER_ROW_NS, rel=0.1)


def test_time_that_falls_with_rows_is_mostly_a_fixed_part():
    fixed, slope = of_calls([[10], [1000]], [[2000], [1000]]).fit()
    assert slope[0] == pytest.approx(MIN_SLOPE_FRAC * 3000 / 1010)
    assert fixed[0] * 2 + slope[0] * 1010 == pytest.approx(3000)


def test_a_filter_that_was_never_called_costs_the_median():
    sums = of_calls([[100, 100, 100, 0]], [[1000, 2000, 9000, 0]])
    np.testing.assert_allclose(sums.per_row_ns, [10, 20, 90, 20])
    np.testing.assert_array_equal(sums.is_known, [True, True, True, False])


def test_nothing_known():
    np.testing.assert_array_equal(CostSums.empty(2).per_row_ns, [1, 1])
    assert CostSums.empty(2).n_filters == 2


def test_row_by_row_engines_have_no_fixed_part():
    sums = CostSums.of_rows(50, np.array([3.0, 7.0]))
    fixed, slope = sums.fit()
    np.testing.assert_array_equal(fixed, [0, 0])
    np.testing.assert_allclose(slope, [3, 7])
    np.testing.assert_allclose(sums.total_ns, [150, 350])


@given(CALLS, CALLS, CALLS)
def test_sums_add_up_in_any_grouping(a, b, c):
    one, two, three = map(sums_of, (a, b, c))
    left, right = (one + two) + three, three + (two + one)
    np.testing.assert_allclose(left.sums, right.sums)
    np.testing.assert_allclose(left.sums, sums_of([*a, *b, *c]).sums)


@given(CALLS)
def test_costs_are_always_usable(calls):
    fixed, slope = sums_of(calls).fit()
    assert np.isfinite(fixed).all()
    assert np.isfinite(slope).all()
    assert (fixed >= 0).all()
    assert (slope >= MIN_PER_ROW_NS).all()


COUNTED = pytest.mark.skipif(
    not costs._COUNTS.exists(), reason="this system does not count time in the queue"
)
VALUES = np.random.default_rng(1).random(100_000)


def compute():
    values = VALUES
    for _ in range(20):
        values = np.sqrt(values * values + 1.0)


def timed(clock, work):
    started = clock()
    work()
    return clock() - started


def median(work, n=15):
    return float(np.median([timed(work_ns, work) for _ in range(n)]))


@pytest.fixture
def busy_cores():
    """Two processes a core that do nothing but compute."""
    n = 2 * (os.cpu_count() or 1)
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    time.sleep(0.3)
    yield
    for each in others:
        each.kill()
        each.wait()


def test_readings_ascend():
    readings = [work_ns() for _ in range(5_000)]
    assert readings == sorted(readings)
    assert readings[-1] > readings[0]


def test_waiting_counts_as_the_time_that_passes():
    assert 0.9 < timed(work_ns, lambda: time.sleep(0.05)) / 50e6 < 3.0


@COUNTED
def test_time_without_a_core_does_not_count(busy_cores):
    work, passed = [], []
    for _ in range(30):
        started = time.perf_counter_ns()
        cpu = time.thread_time_ns()
        work.append(timed(work_ns, compute) / (time.thread_time_ns() - cpu))
        passed.append(time.perf_counter_ns() - started)
    assert 0.9 < np.median(work) < 1.1
    assert timed(work_ns, lambda: time.sleep(0.05)) > 45e6, "who waits is charged, still"


@COUNTED
def test_each_thread_has_its_own():
    found = {}
    both = threading.Barrier(2)

    def count(name):
        found[name] = timed(work_ns, compute), costs._of_thread.counts.fileno()
        both.wait()  # a thread that ended gives its file's number back

    work_ns()
    threads = [threading.Thread(target=count, args=(name,)) for name in "ab"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    own = costs._of_thread.counts.fileno()
    assert all(taken > 0 for taken, _ in found.values())
    assert len({own, *(file for _, file in found.values())}) == 3


@COUNTED
def test_a_forked_process_opens_its_own():
    work_ns()
    code = (
        "import os, sys, time; from eddyline.stats import costs as c\n"
        "c.work_ns(); before = c._of_thread.counts\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    c.work_ns(); os._exit(0 if c._of_thread.counts is not before else 1)\n"
        "sys.exit(os.waitpid(pid, 0)[1])\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_all_time_counts_where_the_system_does_not_tell(monkeypatch, tmp_path):
    monkeypatch.setattr(costs, "_COUNTS", tmp_path / "none")
    monkeypatch.setattr(costs, "_of_thread", threading.local())
    assert timed(work_ns, lambda: time.sleep(0.01)) >= 10e6
    short = tmp_path / "schedstat"
    short.write_text("0\n")
    monkeypatch.setattr(costs, "_COUNTS", short)
    monkeypatch.setattr(costs, "_of_thread", threading.local())
    assert timed(work_ns, lambda: time.sleep(0.01)) >= 10e6
