"""The reference of windowed aggregates: examples by hand, and the same answers as DuckDB's."""

from __future__ import annotations

from hypothesis import given

from eddyline.query.query import (
    LONGEST,
    UNBOUNDED,
    RangeWindow,
    RowsWindow,
    SessionWindow,
    SlideWindow,
)
from tests.examples import examples
from tests.oracles import duckdb_aggregates
from tests.oracles.aggregate_strategies import (
    SCHEMA,
    aggregate_cases,
    as_found,
    over_cases,
    table_of,
)
from tests.oracles.aggregates import (
    FOREVER,
    Aggregation,
    Call,
    Expression,
    Over,
    arrived,
    differences,
    over,
    results,
)

K = Expression("k", lambda row: row["k"])
COUNTED = Aggregation((("k", K),), (Call("count", "n"),), ("k", "n", "ws", "we"))
SUMMED = Aggregation((("k", K),), (Call("sum", "total", "v"),), ("k", "total"))
GROUPED = ("tumbling", "slides", "unbounded slides", "sessions", "changes")


def rows_of(*rows):
    return [{"ts": ts, "k": k, "v": v} for ts, k, v in rows]


def found(of, window, *batches, lateness=0, emits=None, whole=False):
    batches = [rows_of(*batch) for batch in batches]
    return sorted(results(batches, lateness, of, window, emits, whole=whole))


def test_slides_are_given_once_they_are_over():
    rows = (0, "a", 1), (9, "a", 1), (10, "b", 1)
    assert found(COUNTED, SlideWindow(10, 5), rows) == [("a", 1, -5, 5), ("a", 2, 0, 10)]
    assert found(COUNTED, SlideWindow(10, 5), rows, lateness=1) == [("a", 1, -5, 5)]
    assert found(COUNTED, SlideWindow(10, 5), rows, whole=True) == [
        *(("a", 1, -5, 5), ("a", 1, 5, 15), ("a", 2, 0, 10)),
        *(("b", 1, 5, 15), ("b", 1, 10, 20)),
    ]


def test_slides_may_leave_rows_out_or_overlap_unevenly():
    rows = (1, "a", 1), (8, "a", 1), (20, "b", 1)
    assert found(COUNTED, SlideWindow(3, 10, 1), rows) == [("a", 1, 8, 11)]
    assert found(COUNTED, SlideWindow(5, 3), rows) == [
        *(("a", 1, -2, 3), ("a", 1, 1, 6), ("a", 1, 4, 9), ("a", 1, 7, 12)),
    ]


def test_slides_that_come_and_go():
    rows = (0, "a", 1), (1, "a", 0), (9, "z", 0)
    window = SlideWindow(4, 2)
    assert found(SUMMED, window, rows, emits="rstream") == [("a", 1), ("a", 1)]
    assert found(SUMMED, window, rows, emits="istream") == [("a", 1)]
    assert found(SUMMED, window, rows, emits="dstream") == [("a", 1)]


def test_unbounded_slides():
    rows = (0, "a", 1), (5, "a", 2), (6, "b", 0)
    assert found(COUNTED, SlideWindow(LONGEST, 2), rows) == [
        *(("a", 1, None, 2), ("a", 1, None, 4), ("a", 2, None, 6)),
    ]


def test_changes_of_a_range():
    rows = (0, "a", 1), (0, "a", 2), (3, "a", 4), (4, "b", 0), (99, "z", 0)
    assert found(SUMMED, RangeWindow(3), rows) == [("a", 3), ("a", 4), ("a", 7), ("b", 0)]
    assert found(SUMMED, RangeWindow(3), rows, emits="dstream") == [
        *(("a", 3), ("a", 4), ("a", 7), ("b", 0)),
    ]
    assert found(SUMMED, RangeWindow(3), rows, emits="rstream") == [
        *(("a", 3), ("a", 4), ("a", 7), ("b", 0)),
    ]
    assert found(SUMMED, RangeWindow(0), rows) == [("a", 3), ("a", 4), ("b", 0)]


def test_changes_of_rows():
    rows = (0, "a", 1), (1, "b", 2), (2, "a", 4), (3, "z", 0)
    assert found(SUMMED, RowsWindow(2), rows) == [("a", 1), ("a", 4), ("b", 2)]
    assert found(SUMMED, RowsWindow(2), rows, emits="dstream") == [("a", 1)]
    assert found(SUMMED, RowsWindow(1, ("k",)), rows, emits="rstream") == [
        *(("a", 1), ("a", 1), ("a", 4), ("b", 2), ("b", 2)),
    ]


def test_sessions():
    rows = (0, "a", 1), (10, "a", 1), (21, "a", 1), (25, "b", 1), (32, "a", 1)
    window = SessionWindow(10)
    assert found(COUNTED, window, rows) == [("a", 1, 21, 31), ("a", 2, 0, 20)]
    assert found(COUNTED, window, rows, lateness=1) == [("a", 2, 0, 20)]


def test_late_rows_hang_on_the_batch_before():
    first, second = [(10, "a", 1)], [(4, "a", 1), (20, "a", 1), (3, "a", 1)]
    assert found(COUNTED, SlideWindow(5, 5), first, second, lateness=6) == [("a", 1, 0, 5)]
    batches = [rows_of(*first), rows_of(*second)]
    assert [row["ts"] for row in arrived(batches, 5).late] == [4, 3]
    assert [row["ts"] for row in arrived(batches, 6).late] == [3]
    assert not arrived(batches, 7).late
    assert not arrived([rows_of(*first, *second)], 0).late


def test_each_row_has_its_frame():
    frames = (RangeWindow(5), RowsWindow(2), UNBOUNDED)
    calls = tuple((Call("count", f"c{at}"), frame) for at, frame in enumerate(frames))
    asked = Over((K,), calls, ("ts", "c0", "c1", "c2"))
    rows = rows_of((0, "a", 1), (5, "a", 1), (5, "a", 2), (6, "a", 1), (7, "b", 1))
    assert sorted(over([rows], 0, asked)) == [
        *((0, 1, 1, 1), (5, 3, 2, 3), (5, 3, 2, 3), (6, 3, 2, 4)),
    ]


@given(case=aggregate_cases(GROUPED))
@examples(400, few=16)
def test_duckdb_has_the_same_answers(case):
    stream = arrived(case.batches, case.lateness)
    low = -(2**62) if stream.low is None else stream.low
    wanted = results(case.batches, case.lateness, case.of, case.window, case.emits)
    answer = duckdb_aggregates.results(case.on_time, case.of, case.window, low, case.emits)
    assert differences(answer, wanted) == ([], [])


@given(case=aggregate_cases(GROUPED, late=True))
@examples(100, few=6)
def test_duckdb_has_the_same_answers_without_late_rows(case):
    stream = arrived(case.batches, case.lateness)
    low = -(2**62) if stream.low is None else stream.low
    wanted = results(case.batches, case.lateness, case.of, case.window, case.emits)
    answer = duckdb_aggregates.results(case.on_time, case.of, case.window, low, case.emits)
    assert differences(answer, wanted) == ([], [])


@given(case=over_cases(late=True))
@examples(200, few=10)
def test_duckdb_has_the_same_frames(case):
    stream = arrived(case.batches, case.lateness)
    low = -(2**62) if stream.low is None else stream.low
    wanted = over(case.batches, case.lateness, case.of)
    assert differences(duckdb_aggregates.over(case.on_time, case.of, low), wanted) == ([], [])


@given(case=aggregate_cases())
@examples(100)
def test_cuts_change_nothing_where_no_row_is_late(case):
    whole = [tuple(row for batch in case.batches for row in batch)]
    given = (case.lateness, case.of, case.window, case.emits)
    assert differences(results(case.batches, *given), results(whole, *given)) == ([], [])


def test_rows_are_written_and_read():
    row = {"ts": -1, "id": 1, "k": None, "g": 2, "v": 3, "x": -0.0, "d": None}
    table = table_of([row])
    assert table.schema == SCHEMA
    assert as_found(table, SCHEMA.names) == [(-1, 1, None, 2, 3, 0.0, None)]
    assert FOREVER > 0
