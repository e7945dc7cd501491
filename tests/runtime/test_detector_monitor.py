"""Change detectors in the loop: stale evidence goes, detectors start anew, the policy is asked."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from eddyline.change import options_of
from eddyline.errors import OptionError
from eddyline.filters.loop import FilterLoop
from eddyline.options import FilterOptions
from eddyline.runtime.monitors import DetectorMonitorOptions
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile

NAMES = ("a", "b", "c")


def sample_of(fracs, n_rows, rng, cost_ns=(100.0, 100.0, 100.0)):
    drops = rng.random((n_rows, len(fracs))) < np.array(fracs)
    costs = CostSums.of_rows(n_rows, np.array(cost_ns))
    return FilterProfile.of_sample(NAMES, drops, costs=costs)


def observed(monitor, profile, order=(0, 1, 2), ratios=(np.nan,) * 3):
    return monitor.observe(profile, order, FilterProfile.empty(NAMES), np.array(ratios))


def monitor_of(detector="beta_cusum", **options):
    chosen = DetectorMonitorOptions(detector=detector, two_sample=False, **options)
    return chosen.build(3, 0)


@pytest.mark.parametrize("detector", ["beta_cusum", "adwin", "page_hinkley"])
def test_a_change_is_found_and_the_fresh_part_is_what_came_after_it(detector):
    rng = np.random.default_rng(1)
    monitor = monitor_of(detector)
    for _ in range(40):
        assert observed(monitor, sample_of((0.6, 0.5, 0.4), 100, rng)) is None
    n_after, found = 0, []
    for _ in range(60):
        fresh = sample_of((0.2, 0.5, 0.4), 100, rng)
        n_after += fresh.n_tuples
        found += filter(None, [observed(monitor, fresh)])
        if found:
            break
    assert 0 <= found[0].n_fresh <= n_after + 500
    assert found[0].evidence["filter"] == "a"
    assert found[0].evidence["given"] == []


def test_a_filter_that_changes_only_behind_a_prefix_is_seen():
    """b drops the same share as ever, but no longer what a drops: given a it drops twice as much.

    The two-sample test sees that too; the detector names the prefix.
    """
    rng = np.random.default_rng(2)
    monitor = monitor_of()

    def profile(is_correlated):
        u, v = rng.random((2, 200))
        a = u < 0.5
        b = u < 0.5 if is_correlated else v < 0.5
        return FilterProfile.of_sample(NAMES, np.stack([a, b, rng.random(200) < 0.1], axis=1))

    for _ in range(60):
        assert observed(monitor, profile(True)) is None
    for _ in range(60):
        if found := observed(monitor, profile(False)):
            break
    assert found is not None
    assert found.evidence["filter"] == "b"
    assert found.evidence["given"] == ["a"]


def test_a_steady_stream_is_left_alone():
    rng = np.random.default_rng(3)
    monitor = monitor_of("adwin")
    for _ in range(300):
        assert observed(monitor, sample_of((0.6, 0.5, 0.4), 100, rng)) is None


def test_a_cost_that_changes_is_named():
    rng = np.random.default_rng(4)
    monitor = monitor_of("adwin")
    nothing = FilterProfile.empty(NAMES)
    for _ in range(100):
        ratios = np.exp(rng.normal(0.0, 0.1, 3))
        assert observed(monitor, nothing, ratios=ratios) is None
    for _ in range(100):
        ratios = np.exp(rng.normal(0.0, 0.1, 3)) * [1.0, 3.0, 1.0]
        if found := observed(monitor, nothing, ratios=ratios):
            break
    assert found.n_fresh is None
    assert found.costs.tolist() == [False, True, False]
    assert found.evidence["costs_of"] == ["b"]
    unwatched = monitor_of("adwin", watch_costs=False)
    for _ in range(100):
        assert observed(unwatched, nothing, ratios=ratios) is None


def test_after_a_change_of_order_only_detectors_with_the_same_prefix_go_on():
    rng = np.random.default_rng(5)
    monitor = monitor_of("page_hinkley")
    for _ in range(50):
        observed(monitor, sample_of((0.3, 0.3, 0.3), 200, rng))
    bank = monitor._fracs
    before = bank.snapshot()
    assert bank.n_seen[0] > 0
    monitor.reordered((0, 1, 2), (1, 0, 2))
    # The empty prefix and {0, 1} are what they were; {0} became {1}.
    untouched = monitor_of("page_hinkley")._fracs
    untouched.restore(before)
    untouched.reset(np.repeat([False, True, False], 3))
    assert bank.snapshot() == untouched.snapshot()


@pytest.mark.parametrize("monitor", ["window", "two_sample", "beta_cusum", "adwin"])
def test_the_order_follows_under_any_monitor(monitor):
    rng = np.random.default_rng(7)
    loop = FilterLoop("arrow", NAMES, FilterOptions(monitor=monitor), clock=lambda: 0)
    for _ in range(20):
        loop.step(sample_of((0.9, 0.3, 0.2), 200, rng))
    assert loop.order[0] == 0
    for _ in range(40):
        loop.step(sample_of((0.1, 0.3, 0.9), 200, rng))
    assert loop.order == (2, 1, 0)


def test_what_a_change_made_stale_is_dropped_and_what_came_after_it_kept():
    rng = np.random.default_rng(8)
    monitor = DetectorMonitorOptions(detector="adwin", two_sample=False)
    options = FilterOptions(monitor=monitor)
    loop = FilterLoop("arrow", NAMES, options, window_rows=100_000, clock=lambda: 0)
    for _ in range(30):
        loop.step(sample_of((0.9, 0.3, 0.2), 200, rng))
    known = loop.window.profile().n_tuples
    for _ in range(30):
        entries = loop.step(sample_of((0.3, 0.3, 0.2), 200, rng))
        if entries:
            break
    assert entries[0].event == "stale"
    assert entries[0].evidence["detector"] == "adwin"
    assert 0 < loop.window.profile().n_tuples < known


def test_it_asks_after_each_doubling_and_then_once_a_window():
    monitor = monitor_of()
    assert monitor.is_due(10, 10, 1000)
    assert not monitor.is_due(150, 50, 1000)
    assert monitor.is_due(200, 100, 1000)
    assert not monitor.is_due(1000, 900, 1000)
    assert monitor.is_due(1000, 1000, 1000)
    assert not monitor.is_due(0, 0, 1000)


def test_options_out_of_range():
    with pytest.raises(OptionError, match="block_rows"):
        DetectorMonitorOptions(block_rows=1)
    with pytest.raises(OptionError, match="'watch_costs' must be True or False"):
        DetectorMonitorOptions(watch_costs="no")
    with pytest.raises(OptionError, match="beta_cusum"):
        DetectorMonitorOptions(detector="beta_cusun")
    assert DetectorMonitorOptions(detector=options_of("adwin")).build(3, 0) is not None


def test_many_filters():
    rng = np.random.default_rng(9)
    names = tuple(f"f{f}" for f in range(256))
    loop = FilterLoop("arrow", names, FilterOptions(monitor="beta_cusum"), clock=lambda: 0)
    for _ in range(3):
        drops = rng.random((200, 256)) < 0.02
        profile = FilterProfile.of_sample(
            names, drops, costs=CostSums.of_rows(200, np.full(256, 100.0))
        )
        loop.step(profile)
    assert sorted(loop.order) == list(range(256))
    assert len(json.dumps(msgspec.to_builtins(loop.monitor.snapshot()))) < 2_000_000


# -- what every row says ------------------------------------------------------------------------


def counted(fracs, rng, n_rows=10_000, n_blocks=5, order=(0, 1, 2)):
    """A batch without a sample: counts of blocks of all rows, in that order."""
    blocks = np.zeros((n_blocks, 2, 3), dtype=np.int64)
    for block in blocks:
        alive = n_rows // n_blocks
        for f in order:
            block[0, f] = alive
            alive = block[1, f] = rng.binomial(alive, 1.0 - fracs[f])
    rows_in, rows_out = blocks.sum(axis=0).astype(float)
    return replace(
        FilterProfile.empty(NAMES),
        rows_in=rows_in,
        rows_out=rows_out,
        n_rows=n_rows,
        ran_under=order,
        blocks=blocks,
    )


@pytest.mark.parametrize("detector", ["beta_cusum", "adwin", "page_hinkley", "cusum"])
def test_without_any_sample_a_shift_of_the_order_in_force_is_found(detector):
    rng = np.random.default_rng(1)
    monitor = monitor_of(detector)
    for _ in range(40):
        assert observed(monitor, counted((0.5, 0.3, 0.2), rng)) is None
    shifted = (observed(monitor, counted((0.5, 0.5, 0.2), rng)) for _ in range(15))
    found = next(filter(None, shifted))
    assert (found.evidence["filter"], found.evidence["given"]) == ("b", ["a"])


def test_shifts_that_no_order_depends_on_are_left_alone():
    rng = np.random.default_rng(2)
    monitor = monitor_of()
    for batch in range(120):
        fracs = (0.5, 0.3, 0.2) if batch < 60 else (0.505, 0.3, 0.2)
        assert observed(monitor, counted(fracs, rng)) is None


def test_counts_of_another_order_are_not_taken_for_this_one():
    rng = np.random.default_rng(3)
    monitor = monitor_of()
    for _ in range(60):
        assert observed(monitor, counted((0.9, 0.3, 0.2), rng, order=(1, 0, 2))) is None
    assert monitor._main._bank.n_seen.sum() == 0


def test_a_monitor_restored_goes_on_with_the_counts():
    rng = np.random.default_rng(4)
    first = monitor_of("page_hinkley")
    profiles = [counted((0.5, 0.3, 0.2), rng, n_rows=1_300, n_blocks=3) for _ in range(60)]
    profiles += [counted((0.1, 0.3, 0.2), rng, n_rows=1_300, n_blocks=3) for _ in range(30)]
    for profile in profiles[:50]:
        observed(first, profile)
    second = monitor_of("page_hinkley")
    second.restore(json.loads(json.dumps(msgspec.to_builtins(first.snapshot()))))
    for profile in profiles[50:]:
        assert observed(first, profile) == observed(second, profile)
