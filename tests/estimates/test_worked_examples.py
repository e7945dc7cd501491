"""The worked examples of the specification of estimates, in their corrected form (§5)."""

from __future__ import annotations

import numpy as np
import pytest

from eddyline.estimates import filters, plans
from eddyline.estimates.filters import Estimate, Times, below, bernstein, pairs_below
from eddyline.estimates.histograms import CoefHistogram
from eddyline.estimates.plans import Accuracy, Node, overlaps, share_of_pairs
from eddyline.models.solving.polynomials import evaluate, shifted

ROOT = Node(0.0)


def box(first, slope):
    ends = np.array([first, slope], float)
    return ends[None, :, 0], ends[None, :, 1]


def cells(*given, size=2):
    """Return a histogram of ``(count, box of each coefficient, length)``."""
    n = len(given)
    low, high = (
        np.array(
            [[ends[k] * length**at for at, ends in enumerate(dims)] for _, dims, length in given]
        )
        for k in (0, 1)
    )
    whole = np.zeros((n, size), np.int64)
    counts = np.array([count for count, _, _ in given], float)
    seconds = counts * [length for _, _, length in given]
    return CoefHistogram(np.zeros(n, np.int64), whole, whole, counts, low, high, seconds)


def test_5_1_contour():
    p, normal = np.array([0.0, 1, 1, 1]), 2.0 ** np.arange(4)
    assert (normal.tolist(), float(normal @ p)) == ([1, 2, 4, 8], 14.0)


def test_5_2_pair_of_lines():
    for length, expected in ((4.0, (0, 0, 1)), (1.5, (1, 0, 0))):
        found = pairs_below(box((2, 2), (1, 1)), box((5, 5), (-0.5, -0.5)), np.array([length]))
        assert (found.whole[0], found.none[0], found.crossing[0]) == expected
    late = pairs_below(box((4.5, 4.5), (1, 1)), box((3.75, 3.75), (-0.5, -0.5)), np.array([1.5]))
    assert (late.whole[0], late.none[0]) == (0, 1)


def test_5_3_both_ends_do_not_decide_a_parabola():
    assert (bernstein(3) @ [-0.1, 1, -1]).round(9).tolist() == [-0.1, 0.4, -0.1]
    point = np.array([[0.0, 1, -1]])
    found = below(point, point, np.ones(1), 0.1)
    assert (found.whole[0], found.none[0], found.sure[0]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("constant", "whole", "none"),
    [
        (95, 0, 0.9375),
        (98, 0, 0.84),
        (103, 0.1725, 0.4725),
        (105, 0.3125, 0.3125),
        (108, 0.56, 0.11),
        (112, 0.84, 0),
        (125, 1, 0),
    ],
)
def test_5_4_parts_of_a_box(constant, whole, none):
    found = below(*box((100, 110), (-1, 1)), np.array([10.0]), constant)
    assert found.whole[0] == pytest.approx(whole)
    assert found.none[0] == pytest.approx(none)


def test_5_5_filter_by_a_histogram():
    given = cells(
        (40, [(100, 110), (0, 1)], 10),
        (30, [(110, 120), (-1, 0)], 10),
        (20, [(120, 130), (-1, 0)], 10),
        (10, [(90, 100), (0, 1)], 10),
    )
    found, times = filters.comparison(given, "<", 112)
    assert found.value == pytest.approx(0.708)
    assert (found.low, found.high) == pytest.approx((0.708, 0.708))
    assert times.any == pytest.approx(0.708)


def test_5_6_conjunction_holds_at_once():
    def times(*given):
        at = (np.arange(64) + 0.5) / 6.4
        masks = [sum(1 << k for k in range(64) if lo <= at[k] < hi) for lo, hi, _ in given]
        return Times.from_masks(
            np.array(masks, np.uint64), np.array([share for _, _, share in given])
        )

    x = times((0, 10, 0.6), (0, 4, 0.2), (0, 0, 0.2))
    y = times((0, 10, 0.5), (6, 10, 0.25), (0, 0, 0.25))
    assert x.any * y.any == pytest.approx(0.6)
    assert x.both(y).any == pytest.approx(0.55)
    assert x.either(y).any == pytest.approx(1 - 0.2 * 0.25)
    parts = [(Estimate.exactly(each.any), each) for each in (x, y)]
    found, _ = filters.conjunction(parts)
    assert (found.value, found.high) == pytest.approx((0.55, 0.75))
    assert found.low == pytest.approx(0.35)  # 0.75 and 0.6 of all along


def test_5_7_order_of_lines():
    same = pairs_below(box((0, 1), (0, 1)), box((0, 1), (0, 1)), np.ones(1))
    assert (same.whole[0], same.none[0], same.crossing[0]) == pytest.approx((0.375, 0.375, 0.25))
    apart = pairs_below(box((0, 1), (0, 0.1)), box((0.5, 1.5), (0, 0.1)), np.array([10.0]))
    assert (apart.whole[0], apart.none[0]) == pytest.approx((0.7552083, 0.0807292))


def test_5_8_bounds_of_a_conjunction():
    nothing = Times(np.zeros(1, np.uint64), np.ones(1))
    parts = [(Estimate.exactly(share), nothing) for share in (0.4, 0.3, 0.15)]
    assert (filters.conjunction(parts)[0].low, filters.conjunction(parts)[0].high) == (0, 0.15)


def test_5_9_rate_of_a_join():
    x, y = cells((10, [(0, 1), (0, 0)], 10)), cells((10, [(5, 6), (0, 0)], 10))
    assert (
        share_of_pairs(x, y, is_aligned=True).value,
        share_of_pairs(y, x, is_aligned=True).value,
    ) == (1, 0)
    assert overlaps(10, 10, is_aligned=True) / 20 == 0.5
    assert overlaps(10, 10, is_aligned=False) / 20 == 0.95
    half = cells((10, [(0, 0), (1, 1)], 10)), cells((10, [(5, 5), (0, 0)], 10))
    assert share_of_pairs(*half, is_aligned=True).value == pytest.approx(
        1.0
    )  # pieces, however long
    assert [overlaps(10, 7, is_aligned=False), overlaps(3, 20, is_aligned=False)] == [16, 22]
    assert plans.n_sums(17, 2, is_aligned=False) == 16
    assert plans.n_sums(20, 2, is_aligned=True) == 10


def test_5_10_share_of_a_maximum():
    own = cells((6, [(20, 30)], 10), size=1)
    other = cells((5, [(0, 10)], 10), (3, [(10, 20)], 10), (2, [(20, 30)], 10), size=1)
    assert 6 * plans.share_of_maximum([own, other], 0) == pytest.approx(6 * 0.9)
    third = cells((5, [(0, 10)], 10), (5, [(50, 60)], 10), size=1)
    found = plans.share_of_maximum([own, other, third], 0)
    assert found == pytest.approx(0.9 * 0.5)
    alike = [cells((10, [(0, 1)], 10), size=1)] * 5
    assert plans.share_of_maximum(alike, 0) == pytest.approx(0.2, abs=0.01)


def test_5_11_maximum_of_a_window():
    assert [plans.stays_constant(n) for n in (2, 3, 6)] == pytest.approx([1 / 3, 0.5, 5 / 7])


def covered(upstream, cover, gives, compensations):
    """Return the cost of an operator for the loosest of some queries, then of each for itself."""
    shared = Node(cover, gives, (upstream,))
    return plans.cost_of([Node(each, plans.ONE, (shared,)) for each in compensations])


def unshared(upstream, costs):
    """Return the cost of an operator for each query."""
    pairs = zip(upstream, costs, strict=True)
    return plans.cost_of([Node(cost, plans.ONE, (each,)) for each, cost in pairs])


def test_5_14_cost_of_a_cover_and_its_risk():
    gives = Estimate(0.4, 0.2, 0.8)
    shared = covered(ROOT, 1, gives, [1] * 3)
    alone = unshared([ROOT] * 3, [1] * 3)
    assert (shared.value, alone.value) == pytest.approx((2.2, 3))
    assert (shared.high - shared.low, alone.high - alone.low) == pytest.approx((1.8, 0))


@pytest.mark.parametrize(("cost", "shared", "alone"), [(1, 3.03, 1.5), (10, 11.13, 15)])
def test_5_15_cost_of_a_union(cost, shared, alone):
    upstream = [Node(0.0, Estimate.exactly(0.5), (ROOT,)) for _ in range(3)]
    whole = Node(0.7, Estimate.exactly(0.6), upstream)
    found = covered(whole, cost, Estimate.exactly(0.4), [1] * 3)
    assert found.value == pytest.approx(shared)
    assert unshared(upstream, [cost] * 3).value == pytest.approx(alone)


def test_5_16_a_query_goes_to_another_cover():
    def cost(*thresholds):
        gives = Estimate.exactly(max(thresholds) / 100)
        return covered(ROOT, 1, gives, [1] * len(thresholds)).value

    def risen(*thresholds):
        gives = Estimate.exactly(1 - min(thresholds) / 100)
        return covered(ROOT, 1, gives, [1] * len(thresholds)).value

    assert (cost(10, 20, 80), cost(70, 90)) == pytest.approx((3.4, 2.8))
    moved = cost(70, 90, 80) - cost(70, 90) + cost(10, 20) - cost(10, 20, 80)
    assert moved == pytest.approx(-1.1)
    assert risen(20) == pytest.approx(1.8)


@pytest.mark.parametrize("passes", [0.9, 1.5])
def test_5_17_order_by_rank(passes):
    assert plans.comes_later(1, passes, 2, 0.2)
    assert not plans.comes_later(2, 0.2, 1, passes)
    first = Node(1, Estimate.exactly(passes), (ROOT,))
    second = Node(2, Estimate.exactly(0.2), (ROOT,))
    as_written = plans.cost_of([Node(2, Estimate.exactly(0.2), (first,))])
    swapped = plans.cost_of([Node(1, Estimate.exactly(passes), (second,))])
    expected = {0.9: (2.8, 2.2), 1.5: (4, 2.2)}[passes]
    assert (as_written.value, swapped.value) == pytest.approx(expected)


def test_5_19_cover_of_directions():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 100_000))
    cover = ((x > 0) | (y > 0)) & (4 * x > y) | ((x < 0) | (y < 0)) & (3 * x > 3 * y)
    assert (cover == ((4 * x > y) | (3 * x > 3 * y))).all()


def test_5_20_rebasing():
    moved = shifted(np.array([[2.0, 3, 1]]), np.array([2.0]))
    assert moved.tolist() == [[12, 7, 1]]
    assert evaluate(moved, np.array([3.0])).tolist() == [42]


def test_accuracy_puts_estimates_right():
    found = Accuracy()
    for _ in range(20):
        found = found.after(100.0, 150.0)
    assert found.corrected(Estimate.exactly(10.0)).value == pytest.approx(15.0)
    assert found.after(0.0, 1.0) == found == found.after(float("nan"), 1.0)
    wide = found.after(100.0, 600.0).corrected(Estimate.exactly(1.0))
    assert wide.low < wide.value < wide.high
