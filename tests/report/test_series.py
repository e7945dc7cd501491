from __future__ import annotations

import math
from dataclasses import replace

import pytest

from eddyline.report.series import MAX_LINES, order_lines, order_series, points_of
from eddyline.runtime.records import BatchRecord, OrderRecord
from tests.report.fakes import many_names


def a_batch(batch_id: int, order: tuple[int, ...], **changes: object) -> BatchRecord:
    block = OrderRecord(
        component="arrow",
        filter_ids=tuple("abcdef"[: len(order)]),
        order=order,
        drop_fracs=(0.5,) * len(order),
        cost_ns=10.0,
        as_written_ns=30.0,
        n_evaluations=7,
    )
    block = replace(block, **changes)
    return BatchRecord(batch_id=batch_id, n_rows=10, n_kept=1, seconds=2.0, operators=(block,))


def series_of(*batches: BatchRecord):
    return order_series("arrow", batches)


def lines_of(figure):
    return {line.name: line for line in figure.lines}


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
    newest, oldest = point.records(OrderRecord)
    assert (newest.order, oldest.order) == ((1, 0), (0, 1))
    assert newest.n_evaluations + oldest.n_evaluations == 14


def test_changes_are_seen_within_a_point():
    batches = [a_batch(i, (i % 2, 1 - i % 2)) for i in range(2_500)]
    series = series_of(*batches)
    assert series.changes == tuple(range(1, 2_500))
    assert series.batch_ids[:2] == (2, 5)
    assert series_of(*batches[:4]).changes == (1, 2, 3)


def test_an_order_that_never_ran_has_no_series():
    assert order_series("native", [a_batch(0, (0, 1))]) is None
    assert order_series("arrow", []) is None


def test_ranks_are_places_among_the_filters_shown():
    series = series_of(a_batch(0, (2, 0, 1)), a_batch(1, (0, 1, 2)))
    order = lines_of(series.figures("filter", "drops")[0])
    assert {name: line.values for name, line in order.items()} == {
        "c": (1, 3),
        "a": (2, 1),
        "b": (3, 2),
    }
    assert order["b"].details == ("position 3", "position 2")


def test_a_batch_without_the_block_is_a_gap():
    series = series_of(a_batch(0, (0, 1)), BatchRecord(1, 0, 0, 0.1), a_batch(2, (0, 1)))
    order, drops, cost = series.figures("filter", "drops")
    assert lines_of(cost)["in force"].values == (10.0, None, 10.0)
    assert lines_of(drops)["a"].values == (0.5, None, 0.5)
    assert lines_of(order)["a"].values == (1, None, 1)
    assert series.changes == ()


def test_other_filters_before_a_restart_are_left_out():
    series = series_of(a_batch(0, (2, 1, 0)), a_batch(1, (0, 1)), a_batch(2, (1, 0)))
    assert series.filter_ids == ("a", "b")
    assert lines_of(series.figures("filter", "drops")[2])["in force"].values == (None, 10.0, 10.0)
    assert series.changes == (2,)


def test_mean_costs_weigh_rows_and_skip_what_is_not_known():
    unknown = a_batch(1, (0, 1), cost_ns=math.nan)
    dear = replace(a_batch(2, (0, 1), cost_ns=40.0), n_rows=20)
    series = series_of(a_batch(0, (0, 1)), unknown, dear)
    assert series.mean_cost_ns == pytest.approx(30.0)
    assert series.mean_as_written_ns == pytest.approx(30.0)


def test_an_order_that_costs_what_the_written_one_does_saves_nothing_to_speak_of():
    same = a_batch(0, (0, 1), n_rows=2_000_000, as_written_ns=10.0)
    assert series_of(same).outcome("The order").endswith("is 10 ns per row, as written.")
    assert order_lines(same.operators, 2_000_000, 1.0)[1:] == ("arrow: 10 ns per row, as written",)


def test_progress_says_what_a_ratio_comes_to_in_a_batch():
    (record,) = a_batch(0, (1, 0), n_rows=2_000_000).operators
    said = "arrow: 10 ns per row, 3 × less than as written (30 ns): "
    saved = f"{said}40 ms of work less (batches took 500 ms)"
    assert order_lines([record], 9, 0.5)[1] == saved
    assert order_lines([record], 9, 50.0)[1] == f"{said}next to nothing of 50 s of batches"
    met_all = replace(record, n_rows=0, meets_all=True)
    assert order_lines([met_all], 2_000_000, 0.5)[1] == saved


def test_progress_gives_no_ratio_where_nobody_knows_what_it_comes_to():
    (record,) = a_batch(0, (1, 0), n_rows=2_000_000).operators
    uncounted = replace(record, n_rows=0)
    assert order_lines([uncounted], 9, 0.5)[1] == "arrow: 10 ns per row, 30 ns as written"


def test_what_was_saved_stands_beside_the_time_of_the_batches():
    n = 2_000_000  # rows, which cost 20 ns less each
    met = [a_batch(0, (0, 1), n_rows=n), a_batch(1, (1, 0), n_rows=0), a_batch(2, (1, 0), n_rows=n)]
    series = series_of(*met)
    assert series.saved_s == pytest.approx(0.08)
    assert series.outcome("The order").endswith(": 80 ms of work less (batches took 6 s).")
    assert series.tiles()[0].detail.endswith("(30 ns): 80 ms of work less (batches took 6 s)")
    little = series_of(*(replace(each, seconds=20.0) for each in met))
    assert little.outcome("The order").endswith(": next to nothing of 60 s of batches.")
    dearer = series_of(a_batch(0, (0, 1), n_rows=10 * n, cost_ns=50.0))
    assert "400 ms of work more (batches took 2 s)" in dearer.outcome("The order")
    assert series_of(a_batch(0, (0, 1))).saved_s is None, "rows were not counted"
    source = series_of(replace(a_batch(0, (1, 0), meets_all=True), n_rows=n))
    assert source.saved_s == pytest.approx(0.04), "an order over the source meets what arrives"


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
    assert len(series.shown) == MAX_LINES
    assert set(series.shown[:2]) == {0, 1}
    assert set(series.shown[2:4]) == {28, 29}
