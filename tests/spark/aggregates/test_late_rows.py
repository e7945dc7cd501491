"""Rows that come too late for an aggregate are counted and kept, and change nothing."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, given

import eddyline as el
from eddyline.errors import LateRowsWarning
from eddyline.query.query import RangeWindow, SessionWindow, SlideWindow
from tests.examples import examples
from tests.oracles.aggregate_strategies import (
    WORLDS,
    Case,
    aggregate_cases,
    over_cases,
    text_of,
)
from tests.oracles.aggregates import (
    Aggregation,
    Call,
    Expression,
    arrived,
    differences,
)
from tests.spark.aggregates.aggregate_streams import (
    ended,
    found,
    has_answers,
    query_of,
    wanted,
    write_case,
)
from tests.spark.joins.join_streams import stream_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]


def late_of(case):
    """Return the event times of late rows; where windows count rows, WHERE is asked behind them."""
    late = arrived(case.batches, case.lateness).late
    is_counted = case.window is not None and case.window.counts is not None
    return Counter(row["ts"] for row in late if is_counted or case.of.keeps(row))


def is_late(case):
    """Return whether rows are late."""
    return has_answers(case) and bool(arrived(case.batches, case.lateness).late)


def check(spark, case):
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_case(case, place)
        run = ended(query_of(spark, case, place), checkpoint=str(place / "ckpt"))
        late = run.late_rows("s")
        answer = found(case, run.to_arrow())
    assert differences(answer, wanted(case)) == ([], []), case
    times = Counter(round(row["_time"].timestamp() * 1_000_000) for row in late.to_pylist())
    assert times == late_of(case), case


@pytest.mark.large("draws streams and runs each")
@given(case=aggregate_cases(late=True).filter(is_late))
@examples(12, phases=PHASES)
def test_group_by(spark, case):
    check(spark, case)


@pytest.mark.large("draws streams and runs each")
@given(case=over_cases(late=True).filter(is_late))
@examples(12, phases=PHASES)
def test_over(spark, case):
    check(spark, case)


def row_at(second, number, k="a"):
    ts = WORLDS[0].base + second * 1_000_000
    return {"ts": ts, "id": number, "k": k, "g": 0, "v": 1, "x": 0.0, "d": None}


K = Expression("k", lambda row: row["k"])
COUNTED = Aggregation((("k", K),), (Call("count", "n"),), ("k", "n"))


def case_of(window, *batches, lateness=0, of=COUNTED):
    rows = tuple(tuple(row_at(*row) for row in batch) for batch in batches)
    text = text_of(of, window, None, WORLDS[0], distinct=False)
    return Case(text, of, window, None, rows, lateness * 1_000_000, WORLDS[0])


@pytest.mark.large
@pytest.mark.parametrize(
    "window",
    [
        SlideWindow(10_000_000, 5_000_000),
        SlideWindow(10_000_000, 10_000_000),
        SessionWindow(5_000_000),
        RangeWindow(5_000_000),
    ],
    ids=["slides", "tumbling", "sessions", "changes"],
)
def test_a_row_before_what_has_come_is_late_whatever_the_window(spark, window):
    case = case_of(window, [(20, 1)], [(14, 2), (19, 3), (20, 4), (30, 5)], [(29, 6)], [(60, 7)])
    check(spark, case)
    assert sum(late_of(case).values()) == 3


@pytest.mark.large
def test_many_late_rows_are_warned_of_once_with_the_way_out(spark, tmp_path):
    newest, early = (
        [(600, 0)],
        [[(second, second) for second in range(20 * n, 20 * n + 20)] for n in (0, 1)],
    )
    case = case_of(SlideWindow(10_000_000, 5_000_000), newest, *early)
    write_case(case, tmp_path)
    with pytest.warns(LateRowsWarning, match=r"20 of 21 rows of 's' came too late") as caught:
        ended(query_of(spark, case, tmp_path))
    (said,) = [str(each.message) for each in caught if "too late" in str(each.message)]
    assert "lateness=" in said
    assert "Spark reads files by modification time" in said


@pytest.mark.large
def test_disorder_inside_a_batch_is_never_late(spark):
    window = SlideWindow(10_000_000, 5_000_000)
    case = case_of(window, [(50, 1), (0, 2), (49, 3)], [(60, 4), (50, 5)], [(99, 6)])
    check(spark, case)
    assert not late_of(case)


@pytest.mark.large
def test_rows_that_where_drops_are_never_late(spark):
    of = replace(COUNTED, where=Expression("id > 9", lambda row: row["id"] > 9))
    window = SlideWindow(10_000_000, 10_000_000)
    case = case_of(window, [(20, 11)], [(1, 1), (2, 12)], [(60, 13)], of=of)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_case(case, place)
        run = ended(query_of(spark, case, place), checkpoint=str(place / "ckpt"))
        assert run.late_rows("s")["id"].to_pylist() == [12]


@pytest.mark.large
def test_conditions_behind_columns_say_what_is_late(spark, tmp_path):
    """A stream of a query: of the rows of its stream, those that pass all conditions are late."""
    case = case_of(SlideWindow(1, 1), [(20, 11)], [(1, 1), (2, 12), (3, 13)], [(60, 14)])
    write_case(case, tmp_path)
    engine = el.Engine(spark)
    engine.function("even", lambda id: id.to_numpy() % 2 == 0, reads=["id"], arrays="arrow")
    engine.stream("s", stream_of(spark, tmp_path, "s"), time="ts", lateness="0 seconds")
    engine.stream("some", engine.query("SELECT ts, id + 1 AS more, id FROM s WHERE id > 9"))
    text = (
        "SELECT count(*) AS n FROM some [RANGE 9 SECONDS SLIDE 9 SECONDS] WHERE more > 12 "
        "AND even(id)"
    )
    run = ended(engine.query(text), checkpoint=str(tmp_path / "ckpt"))
    assert run.late_rows("s")["id"].to_pylist() == [12]
    assert run.to_arrow()["n"].to_pylist() == []
