"""Streams of joined rows, alternatives and FULL joins: windows over them, as DuckDB finds them."""

from __future__ import annotations

import random

import pytest

from eddyline.errors import QueryError
from tests.spark.joins.join_streams import ended
from tests.spark.joins.test_partners_against_duckdb import normal, rows_of, write_streams
from tests.spark.joins.test_stages_against_duckdb import (
    LAST_ROWS,
    ST,
    STU,
    SU,
    both,
    engine_of,
    expected,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

LEFT_LEFT = (
    "SELECT {time} AS seen, u.id FROM {{s}} LEFT JOIN {{t}} ON s.k = t.k AND {{st}} "
    "LEFT JOIN {{u}} ON s.v = u.v AND {{stu}}"
)
CASES = {
    "the latest row of LEFT, LEFT": both(
        LEFT_LEFT.format(time="greatest(s.ts, t.ts, u.ts)"), st=ST, stu=STU
    ),
    "the first row of LEFT, LEFT": both(LEFT_LEFT.format(time="s.ts"), st=ST, stu=STU),
    "the latest row of inner, RIGHT": both(
        "SELECT greatest(u.ts, t.ts, s.ts) AS seen, u.id FROM {s} JOIN {t} ON s.k = t.k AND {st} "
        "RIGHT JOIN {u} ON s.v = u.v AND {stu}",
        st=ST,
        stu=STU,
    ),
    "FULL": both(
        "SELECT greatest(s.ts, t.ts) AS seen, s.id FROM {s} FULL JOIN {t} ON s.k = t.k AND {st}",
        st=ST,
    ),
    "FULL, LEFT": both(
        "SELECT greatest(s.ts, t.ts, u.ts) AS seen, s.id FROM {s} FULL JOIN {t} "
        "ON s.k = t.k AND {st} LEFT JOIN {u} ON coalesce(s.v, t.v) = u.v AND {stu}",
        st=ST,
        stu=STU,
    ),
    "EXISTS under OR": both(
        "SELECT s.ts AS seen, s.id FROM {s} WHERE s.v > 3 OR EXISTS "
        "(SELECT 1 FROM {t} WHERE t.k = s.k AND {st}) OR s.v NOT IN "
        "(SELECT u.v FROM {u} WHERE u.k = s.k AND u.v IS NOT NULL AND {su})",
        st=ST,
        su=SU,
    ),
    "EXISTS and NOT EXISTS": both(
        "SELECT s.ts AS seen, s.id FROM {s} "
        "WHERE EXISTS (SELECT 1 FROM {t} WHERE t.k = s.k AND {st}) AND NOT EXISTS "
        "(SELECT 1 FROM {u} WHERE u.name = s.name AND u.v > 1 AND {su})",
        st=ST,
        su=SU,
    ),
    "UNION ALL of a join and a stream": both(
        "SELECT greatest(s.ts, t.ts) AS seen, s.id FROM {s}, {t} WHERE s.k = t.k AND {st} "
        "UNION ALL SELECT u.ts AS seen, u.id FROM u WHERE u.v > 2",
        st=ST,
    ),
}


def stream_of_results(spark, folder, case):
    """Write the streams of a case, and return an engine with its results as the stream ``x``."""
    ours, _ = CASES[case]
    seed = 40 + list(CASES).index(case)
    streams = {
        name: [*rows_of(seed + 100 * number), LAST_ROWS[name]]
        for number, name in enumerate(LAST_ROWS)
    }
    write_streams(folder, streams, "some", random.Random(seed))
    engine = engine_of(spark, folder)
    engine.stream("x", engine.query(ours, name="results"), time="seen")
    return engine, seed


@pytest.mark.large("a stream of three batches through joins of joined rows")
@pytest.mark.parametrize("case", CASES)
def test_windows_over_results_lose_none(spark, tmp_path, case):
    engine, seed = stream_of_results(spark, tmp_path, case)
    text = (
        "SELECT count(*) AS n, sum(id) AS total, window.end AS ts "
        "FROM x [RANGE 9 SECONDS SLIDE 9 SECONDS]"
    )
    run = ended(engine.query(text, name="q"))
    wanted = expected(
        "SELECT count(*) AS n, sum(id)::BIGINT AS total, "
        "to_timestamp((epoch_us(seen) // 9000000 + 1) * 9) AS ts "
        f"FROM ({CASES[case][1]}) GROUP BY ts",
        seed,
    )
    assert len(wanted) > 10
    assert normal(run.to_arrow()) == wanted


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            LEFT_LEFT.format(time="u.ts").format(
                s="s [NOW]", t="t [NOW]", u="u [NOW]", st="true", stu="true"
            ),
            r"'seen' is no event time of its results; output columns that are: greatest\(…\) of "
            "those of all its streams",
        ),
        (
            "SELECT t.ts AS seen, t.v FROM s [NOW] FULL JOIN t [NOW] ON s.k = t.k",
            r"output columns that are: greatest\(…\) of those of all its streams",
        ),
        (
            "SELECT s.v AS seen FROM s [NOW] WHERE s.v > 3 OR EXISTS "
            "(SELECT 1 FROM t WHERE t.k = s.k)",
            "output columns that are: ts$",
        ),
        (
            "SELECT DSTREAM(s.ts AS seen) FROM s [NOW], t [NOW] WHERE s.k = t.k",
            "results of DSTREAM and RSTREAM have none",
        ),
    ],
)
def test_results_that_have_no_event_time_say_what_to_write(spark, tmp_path, text, match):
    write_streams(tmp_path, {name: [row] for name, row in LAST_ROWS.items()}, "rows", None)
    engine = engine_of(spark, tmp_path)
    with pytest.raises(QueryError, match=match):
        engine.stream("x", engine.query(text, name="results"), time="seen")
