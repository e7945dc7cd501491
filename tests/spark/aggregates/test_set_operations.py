"""UNION, EXCEPT and INTERSECT of streams: what comes to be in the relation, as DuckDB finds it."""

from __future__ import annotations

from collections import Counter

import pytest

from eddyline.errors import NotSupportedError, QueryError
from tests.spark.aggregates.test_over_joins import (
    LATENESS_S,
    answers,
    engine_of,
    folder,
    later,
    of_duckdb,
    until,
)
from tests.spark.run.lives import relation

pytestmark = pytest.mark.spark

__all__ = ["folder"]

FOR_EVER = "TIMESTAMPTZ '2200-01-01'"
LOW = f"(SELECT min(x) - INTERVAL {LATENESS_S} SECONDS FROM (%s))"


def side(name, seconds=None, where="true", columns="k, v % 3 AS r"):
    """Return SQL of a SELECT over a stream with a window, and of its rows and their stay."""
    window = "" if seconds is None else f" [RANGE {seconds} SECONDS]"
    end = FOR_EVER if seconds is None else f"{name}.ts + INTERVAL {seconds} SECONDS"
    return (
        f"SELECT {columns} FROM {name}{window} WHERE {where}",
        f"SELECT {columns}, {name}.ts AS since, {end} AS until FROM {name} WHERE {where}",
    )


JOINED = (
    "SELECT s.k, u.v % 3 AS r FROM s [RANGE 4 SECONDS], u [RANGE 2 SECONDS] WHERE s.k = u.k",
    "SELECT s.k, u.v % 3 AS r, greatest(s.ts, u.ts) AS since, "
    f"{until(s=4, u=2)} AS until FROM s JOIN u ON s.k = u.k",
)
S, T, U = side("s", 4), side("t", 2), side("u", 3)
DISTINCT = S[0].replace("SELECT", "SELECT DISTINCT"), S[1]

CASES = {
    # name: (how SELECTs are put together, the SELECTs, how often a row is there, by their counts)
    "UNION": ("{} UNION {}", [S, T], "least(1, a + b)"),
    "EXCEPT": ("{} EXCEPT {}", [S, T], "CASE WHEN a > 0 AND b = 0 THEN 1 ELSE 0 END"),
    "INTERSECT of windows of one length": (
        "{} INTERSECT {}",
        [S, side("t", 4, "v > 2")],
        "least(1, a, b)",
    ),
    "EXCEPT ALL": ("{} EXCEPT ALL {}", [S, T], "greatest(a - b, 0)"),
    "INTERSECT ALL of a join": ("{} INTERSECT ALL {}", [JOINED, side("t", 6)], "least(a, b)"),
    "of joins with equal windows": (
        "{} UNION {}",
        [
            (
                f"SELECT s.k, {name}.v % 3 AS r FROM s [RANGE 4 SECONDS], {name} "
                f"WHERE s.k = {name}.k",
                f"SELECT s.k, {name}.v % 3 AS r, greatest(s.ts, {name}.ts) AS since, "
                f"{until(s=4)} AS until FROM s JOIN {name} ON s.k = {name}.k",
            )
            for name in "tu"
        ],
        "least(1, a + b)",
    ),
    "UNION for ever": ("{} UNION DISTINCT {}", [side("s"), side("t")], "least(1, a + b)"),
    "MINUS of a stream for ever": (
        "{} MINUS {}",
        [side("s", 5), side("t", None, "v > 9")],
        "CASE WHEN a > 0 AND b = 0 THEN 1 ELSE 0 END",
    ),
    "INTERSECT comes first": (
        "{} UNION {} INTERSECT {}",
        [S, T, U],
        "least(1, a + least(1, b, c))",
    ),
    "of UNION ALL, and DISTINCT": (
        "{} EXCEPT ALL ({} UNION ALL {})",
        [DISTINCT, side("t", 1, "v > 12"), side("u", 2, "v < 0")],
        "greatest(least(1, a) - (b + c), 0)",
    ),
    "EXCEPT of a LEFT JOIN": (
        "{} EXCEPT ALL {}",
        [
            (
                "SELECT s.k, u.v % 3 AS r FROM s [RANGE 4 SECONDS] "
                "LEFT JOIN u [RANGE 2 SECONDS] ON s.k = u.k",
                "SELECT s.k, u.v % 3 AS r, greatest(s.ts, u.ts) AS since, "
                f"{until(s=4, u=2)} AS until FROM s LEFT JOIN u ON s.k = u.k "
                "AND u.ts BETWEEN s.ts - INTERVAL 2 SECONDS AND s.ts + INTERVAL 4 SECONDS",
            ),
            side("t", 3),
        ],
        "greatest(a - b, 0)",
    ),
    "UNION of EXISTS under OR": (
        "{} UNION {}",
        [
            (
                "SELECT k, v % 3 AS r FROM s [RANGE 4 SECONDS] WHERE v > 9 OR EXISTS "
                "(SELECT 1 FROM u [RANGE 2 SECONDS] WHERE u.k = s.k AND u.v = s.v)",
                "SELECT k, v % 3 AS r, ts AS since, ts + INTERVAL 4 SECONDS AS until FROM s "
                "WHERE v > 9 OR EXISTS (SELECT 1 FROM u WHERE u.k = s.k AND u.v = s.v AND u.ts "
                "BETWEEN s.ts - INTERVAL 2 SECONDS AND s.ts + INTERVAL 4 SECONDS)",
            ),
            T,
        ],
        "least(1, a + b)",
    ),
    "in parentheses": (
        "({} UNION {}) INTERSECT ALL {}",
        [S, T, U],
        "least(least(1, a + b), c)",
    ),
}


def rows_of(sides, n_times, *, waits_s=0, **asked):
    """Return the rows that come to be, or cease to be, as DuckDB finds them; see ``relation``."""
    low = later(LOW, waits_s) if waits_s else LOW
    times = " UNION ALL ".join(f"SELECT max(ts) AS x FROM {name}" for name in "stu")
    of = [rows for _, rows in sides]
    return of_duckdb(relation(of, "k, r", n_times, low % times, **asked))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=[] if at < 1 else pytest.mark.large("a case of several alike"))
        for at, name in enumerate(CASES)
    ],
)
def test_any_cut_gives_what_comes_to_be(spark, folder, case):
    form, sides, n_times = CASES[case]
    text = form.format(*(ours for ours, _ in sides))
    waits = "LEFT JOIN" in case or "EXISTS" in case
    wanted = rows_of(sides, n_times, waits_s=4 * waits)
    assert sum(wanted.values()) > 10
    assert answers(engine_of(spark, folder), text) == wanted


@pytest.mark.large("runs a stream of four batches")
def test_dstream_gives_the_copies_that_cease_to_be(spark, folder):
    text = f"DSTREAM({S[0]} INTERSECT ALL {T[0]})"
    wanted = rows_of([S, T], "least(a, b)", leave=True)
    assert sum(wanted.values()) > 10
    assert answers(engine_of(spark, folder), text) == wanted


TOLD = "k, v % 3 AS r, window.end AS till"


@pytest.mark.parametrize(
    ("form", "leave"),
    [
        ("{} EXCEPT ALL {}", False),
        pytest.param("DSTREAM({} EXCEPT ALL {})", True, marks=pytest.mark.large("alike")),
    ],
)
def test_the_instant_of_a_change_is_a_column(spark, folder, form, leave):
    text = form.format(*(side(name, n, columns=TOLD)[0] for name, n in (("s", 4), ("t", 2))))
    wanted = rows_of([S, T], "greatest(a - b, 0)", leave=leave, till=True)
    assert sum(wanted.values()) > 10
    assert answers(engine_of(spark, folder), text) == wanted


@pytest.mark.large("runs streams of four batches")
@pytest.mark.parametrize(
    ("form", "n_times"),
    [("{} INTERSECT ALL {}", "least(a, b)"), ("{} UNION {}", "least(1, a + b)")],
)
def test_rstream_gives_all_copies_at_each_instant_of_a_row(spark, folder, form, n_times):
    sides = [S, side("t", 4)]
    rows = " UNION ALL ".join(
        f"SELECT *, '{letter}' AS side FROM ({of})"
        for letter, (_, of) in zip("ab", sides, strict=True)
    )
    low = LOW % " UNION ALL ".join(f"SELECT max(ts) AS x FROM {name}" for name in "st")
    counts = ", ".join(f"count(*) FILTER (side = '{letter}') AS {letter}" for letter in "ab")
    wanted = of_duckdb(
        f"WITH q AS ({rows}), i AS (SELECT DISTINCT since AS till FROM q), "
        f"m AS (SELECT k, r, till, {counts} FROM i JOIN q ON since <= till AND till <= until "
        f"WHERE till < {low} GROUP BY ALL) SELECT k, r FROM m, generate_series(1, {n_times})"
    )
    assert sum(wanted.values()) > 10
    text = f"RSTREAM({form.format(*(ours for ours, _ in sides))})"
    assert answers(engine_of(spark, folder), text) == wanted


@pytest.mark.large("runs a stream of four batches")
def test_windows_over_the_changes_of_a_set_operation(spark, folder):
    engine = engine_of(spark, folder)
    text = f"SELECT {TOLD} FROM s [RANGE 4 SECONDS] UNION SELECT {TOLD} FROM t [RANGE 2 SECONDS]"
    engine.stream("both", engine.query(text, name="both_query"), time="till")
    over = "SELECT count(r) AS n, window.end AS ended FROM both [RANGE 3 SECONDS SLIDE 3 SECONDS]"
    found = answers(engine, over)
    every = rows_of([S, T], "least(1, a + b)", till=True)
    wanted = Counter()
    for (_, r, till), n_times in every.items():
        wanted[(till // 3_000_000 + 1) * 3_000_000] += n_times * (r is not None)
    assert len(found) > 8
    assert all(wanted[at] == n for n, at in found)


@pytest.mark.large("runs a stream of four batches")
def test_a_set_operation_is_a_subquery_and_a_stream(spark, folder):
    engine = engine_of(spark, folder)
    engine.stream("both", engine.query(f"{S[0]} UNION {T[0]}", name="both_query"))
    text = "SELECT x.k + 1 AS n FROM (SELECT * FROM both) x WHERE x.r > 0"
    found = answers(engine, text)
    wanted = Counter()
    for (k, r), n_times in rows_of([S, T], "least(1, a + b)").items():
        wanted[(None if k is None else k + 1,)] += n_times * ((r or 0) > 0)
    assert found == +wanted
    with pytest.raises(QueryError, match="unknown column 'q'"):
        engine.query("SELECT q FROM (SELECT k FROM s EXCEPT SELECT k FROM t) x, u WHERE x.k = u.k")


def test_the_plan_says_how_often_a_row_is_there(spark, folder):
    query = engine_of(spark, folder).query(f"{S[0]} EXCEPT ALL {T[0]}")
    plan = " ".join(query.explain().split())
    assert "[RANGE 4 SECONDS, RANGE 2 SECONDS]" in plan
    assert "greatest((COUNT(*) FILTER (WHERE __side = 0)) - (COUNT(*) FILTER" in plan


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        (
            "SELECT k FROM s EXCEPT SELECT k, v FROM t",
            QueryError,
            r"EXCEPT needs equally many output columns in each SELECT: 2 here, 1 in the first.*24",
        ),
        (
            "SELECT k FROM s INTERSECT ALL SELECT ts FROM t",
            QueryError,
            'column of the second table is "TIMESTAMP" type which is not compatible with "INT"',
        ),
        (
            "SELECT k FROM s UNION SELECT max(k) AS k FROM t",
            NotSupportedError,
            r"max\(\) in UNION is not supported yet; make a stream of the results",
        ),
        (
            "SELECT k FROM s UNION SELECT k FROM t [ROWS 5]",
            NotSupportedError,
            r"UNION with \[ROWS 5\] of 't' is not supported yet; write \[RANGE",
        ),
        (
            "SELECT k FROM s EXCEPT SELECT k FROM names",
            NotSupportedError,
            r"'names' is a table: join it with a stream",
        ),
        (
            "SELECT DSTREAM(k) FROM s UNION SELECT k FROM t",
            NotSupportedError,
            r"DSTREAM stands around UNION: DSTREAM\(SELECT … UNION SELECT …\).*column 8",
        ),
        (
            "SELECT k, window.end AS x FROM s UNION SELECT window.end AS x, k FROM t",
            QueryError,
            r"window.end is the instant of a result of UNION, so it stands in the same place of "
            r"each SELECT.*column 40",
        ),
        (
            "SELECT window.end FROM s UNION SELECT window.end FROM t",
            QueryError,
            "UNION compares columns, and window.end is none of them; add one",
        ),
        (
            "SELECT k FROM s UNION BY NAME SELECT k FROM t",
            NotSupportedError,
            "UNION is not supported yet with more than ALL or DISTINCT",
        ),
        (
            "SELECT k + 1 FROM s UNION SELECT k AS k FROM t UNION SELECT q FROM u",
            QueryError,
            "unknown column 'q'",
        ),
        (
            "SELECT k FROM s UNION SELECT v FROM t MODEL v WITHIN 1 BY k",
            NotSupportedError,
            "UNION beside MODEL is not supported; UNION ALL is",
        ),
    ],
)
def test_mistakes_say_what_to_write(spark, folder, text, error, match):
    with pytest.raises(error, match=match):
        engine_of(spark, folder).query(text)
