from __future__ import annotations

import math
from dataclasses import replace

import pytest

from eddyline.runtime.records import BatchRecord, BlockRecord, RunView
from eddyline.watch.html.series import MAX_FILTERS, block_series, points_of, totals_of
from tests.watch.fakes import a_run, many_names


def a_batch(batch_id: int, order: tuple[int, ...], **changes: object) -> BatchRecord:
    block = BlockRecord(
        component="arrow",
        filter_ids=tuple("abcdef"[: len(order)]),
        order=order,
        drop_fracs=(0.5,) * len(order),
        cost_ns=10.0,
        as_written_ns=30.0,
        n_evaluations=7,
    )
    block = replace(block, **changes)
    return BatchRecord(batch_id=batch_id, n_rows=10, n_kept=1, seconds=2.0, blocks=(block,))


def series_of(*batches: BatchRecord):
    (series,) = block_series(RunView("q", "", batches), points_of(batches))
    return series


@pytest.mark.parametrize(("n", "n_points"), [(0, 0), (1, 1), (10, 10), (11, 6), (25, 9)])
def test_points_keep_every_batch_and_stay_few(n, n_points):
    batches = [a_batch(i, (0, 1)) for i in range(n)]
    points = points_of(batches, max_points=10)
    assert len(points) == n_points
    assert [batch for point in points for batch in point.batches] == batches


def test_a_point_has_the_rate_over_its_batches_and_the_newest_order():
    slow = replace(a_batch(1, (1, 0)), seconds=8.0)
    (point,) = points_of([a_batch(0, (0, 1)), slow], max_points=1)
    assert point.batch_id == 1
    assert point.rows_per_s == 2.0
    assert point.n_evaluations == 14
    assert point.block("arrow").order == (1, 0)
    assert point.block("native") is None


def test_changes_are_seen_within_a_point():
    batches = [a_batch(i, (i % 2, 1 - i % 2)) for i in range(4)]
    (series,) = block_series(RunView("q", "", tuple(batches)), points_of(batches, 1))
    assert series.changes == (1, 2, 3)


def test_ranks_are_places_among_the_filters_shown():
    series = series_of(a_batch(0, (2, 0, 1)), a_batch(1, (0, 1, 2)))
    assert series.ranks() == {2: [0, 2], 0: [1, 0], 1: [2, 1]}
    assert series.positions(1) == [2, 1]


def test_a_batch_without_the_block_is_a_gap():
    series = series_of(a_batch(0, (0, 1)), BatchRecord(1, 0, 0, 0.1), a_batch(2, (0, 1)))
    assert series.costs_ns() == [10.0, None, 10.0]
    assert series.drop_fracs(0) == [0.5, None, 0.5]
    assert series.changes == ()


def test_other_filters_before_a_restart_are_left_out():
    series = series_of(a_batch(0, (2, 1, 0)), a_batch(1, (0, 1)), a_batch(2, (1, 0)))
    assert series.filter_ids == ("a", "b")
    assert series.costs_ns() == [None, 10.0, 10.0]
    assert series.changes == (2,)


def test_mean_costs_weigh_rows_and_skip_what_is_not_known():
    unknown = a_batch(1, (0, 1), cost_ns=math.nan)
    dear = replace(a_batch(2, (0, 1), cost_ns=40.0), n_rows=20)
    series = series_of(a_batch(0, (0, 1)), unknown, dear)
    assert series.mean_cost_ns == pytest.approx(30.0)
    assert series.mean_as_written_ns == pytest.approx(30.0)


def test_the_filters_that_changed_near_the_front_are_shown_first():
    names = many_names(30)
    order = list(range(30))
    swapped_late = [*order[:28], 29, 28]
    swapped_early = [1, 0, *swapped_late[2:]]
    batches = [
        a_batch(i, tuple(o), filter_ids=names, drop_fracs=(0.1,) * 30)
        for i, o in enumerate([order, swapped_late, swapped_early])
    ]
    series = series_of(*batches)
    assert len(series.shown) == MAX_FILTERS
    assert set(series.shown[:2]) == {0, 1}
    assert set(series.shown[2:4]) == {28, 29}


def test_totals_add_up():
    run = a_run(50)
    totals = totals_of((*run.batches, replace(run.batches[0], seconds=math.nan)))
    assert totals.n_batches == 51
    assert totals.seconds == pytest.approx(sum(batch.seconds for batch in run.batches))
    assert totals_of(()).n_rows == 0
