"""Thousands of rows in many batches: state is merged and expires; checked by DuckDB."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from eddyline.query.query import (
    LONGEST,
    UNBOUNDED,
    RangeWindow,
    RowsWindow,
    SessionWindow,
    SlideWindow,
)
from tests import examples
from tests.oracles import duckdb_aggregates
from tests.oracles.aggregate_strategies import (
    GROUPS,
    WORLDS,
    Case,
    disordered,
    over_text,
    row_at,
    text_of,
)
from tests.oracles.aggregates import END, START, Aggregation, Call, Over, arrived, differences
from tests.spark.aggregates.aggregate_streams import ended, found, query_of, write_case

pytestmark = [
    pytest.mark.spark,
    pytest.mark.large("runs streams of many batches"),
    pytest.mark.timeout(900),
]

WORLD, SECOND = WORLDS[0], 1_000_000
N_ROWS, LATENESS_S, SPAN_S = 6_000, 5, 1_500
N_BATCHES, N_FEW_BATCHES = 14, 5

CALLS = (
    Call("count", "n"),
    Call("sum", "a", "v"),
    Call("avg", "b", "x"),
    Call("min", "c", "v"),
    Call("max", "d", "x"),
    Call("var_samp", "e", "v"),
    Call("last", "f", "v"),
    Call("count", "h", "k", distinct=True),
)

WINDOWS = {
    "tumbling": SlideWindow(10 * SECOND, 10 * SECOND),
    "overlapping": SlideWindow(300 * SECOND, 7 * SECOND, 3 * SECOND),
    "apart": SlideWindow(3 * SECOND, 20 * SECOND),
    "endless": SlideWindow(LONGEST, 50 * SECOND),
    "sessions": SessionWindow(2 * SECOND),
    "changes": RangeWindow(40 * SECOND),
    "all so far": UNBOUNDED,
}

FRAMES = (RangeWindow(20 * SECOND), RangeWindow(400 * SECOND), RowsWindow(30), UNBOUNDED)


def batches_of(seed):
    """Return rows of which half are of one group, out of order by up to the lateness."""
    rng = random.Random(seed)
    rows = []
    for number in range(N_ROWS):
        row = row_at(rng, WORLD.base + rng.randrange(SPAN_S) * SECOND, number)
        group = "hot" if rng.random() < 0.5 else rng.choice([None, "", *map(str, range(40))])
        rows.append(row | {"k": group, "x": rng.choice([None, 0.25, 1.5, -3.75, 10.0])})
    rows = disordered(rows, LATENESS_S * SECOND, rng)
    rows.append(row_at(rng, WORLD.base + 3 * SPAN_S * SECOND, N_ROWS))
    n_batches = N_FEW_BATCHES if examples.are_few() else N_BATCHES
    bounds = sorted(rng.randrange(N_ROWS) for _ in range(n_batches - 1))
    bounds = [0, *bounds, N_ROWS, N_ROWS + 1]
    return tuple(tuple(rows[lo:hi]) for lo, hi in pairwise(bounds))


def case_of(of, window, text):
    return Case(text, of, window, None, batches_of(text), LATENESS_S * SECOND, WORLD)


def answered(spark, case, folder, n_starts):
    answer = []
    for at in range(n_starts):
        n = len(case.batches)
        write_case(case, folder, n * at // n_starts, n * (at + 1) // n_starts)
        run = ended(query_of(spark, case, folder), checkpoint=str(folder / "ckpt"))
        answer += found(case, run.to_arrow())
    assert run.late_rows("s").num_rows == 0
    return answer


def low_of(case):
    return arrived(case.batches, case.lateness).low


@pytest.mark.parametrize("kind", WINDOWS)
def test_group_by(spark, tmp_path, kind):
    window = WINDOWS[kind]
    is_compared = isinstance(window, RangeWindow) or window == UNBOUNDED
    calls = tuple(each for each in CALLS if not is_compared or each.function != "var_samp")
    output = ("k", *(each.column for each in calls), START, END)
    of = Aggregation((("k", GROUPS["k"]),), calls, output)
    case = case_of(of, window, text_of(of, window, None, WORLD, distinct=False))
    wanted = duckdb_aggregates.results(case.on_time, of, window, low_of(case))
    assert len(wanted) > 100
    assert differences(answered(spark, case, tmp_path, 3), wanted) == ([], [])


def test_over(spark, tmp_path):
    calls = [(each, frame) for each in CALLS for frame in FRAMES]
    named = tuple(
        (Call(each.function, f"c{at}", each.argument, each.distinct), frame)
        for at, (each, frame) in enumerate(calls)
    )
    of = Over((GROUPS["k"],), named, ("id", *(each.column for each, _ in named)))
    case = case_of(of, UNBOUNDED, over_text(of, WORLD))
    wanted = duckdb_aggregates.over(case.on_time, of, low_of(case))
    assert len(wanted) == N_ROWS
    assert differences(answered(spark, case, tmp_path, 2), wanted) == ([], [])
