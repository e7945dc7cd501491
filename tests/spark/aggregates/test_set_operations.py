"""UNION, EXCEPT and INTERSECT of streams: what comes to be in the relation, as DuckDB finds it."""

from __future__ import annotations

from collections import Counter

import pytest

from eddyline.errors import NotSupportedError, QueryError
from tests.spark.aggregates.aggregate_streams import ended
from tests.spark.aggregates.test_over_joins import (
    LATENESS_S,
    answers,
    engine_of,
    folder,
    of_duckdb,
    until,
)

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
    "in parentheses": (
        "({} UNION {}) INTERSECT ALL {}",
        [S, T, U],
        "least(least(1, a + b), c)",
    ),
}


def relation(sides, n_times, emits="istream"):
    """Return SQL of the rows that come to be, or cease to be, in a relation of counted rows."""
    letters = "abc"[: len(sides)]
    rows = " UNION ALL ".join(
        f"SELECT *, '{letter}' AS side FROM ({of})"
        for letter, (_, of) in zip(letters, sides, strict=True)
    )
    counts = ", ".join(f"count(*) FILTER (side = '{letter}') AS {letter}" for letter in letters)
    times = " UNION ALL ".join(f"SELECT max(ts) AS x FROM {name}" for name in "stu")
    change = "n - was" if emits == "istream" else "was - n"
    return (
        f"WITH q AS (SELECT *, until + INTERVAL 1 MICROSECOND AS gone FROM ({rows})), "
        "i AS (SELECT k, r, since AS till FROM q UNION SELECT k, r, gone FROM q), "
        f"m AS (SELECT i.k, i.r, till, {counts} FROM i LEFT JOIN q ON q.k IS NOT DISTINCT FROM i.k "
        "AND q.r IS NOT DISTINCT FROM i.r AND since <= till AND till < gone GROUP BY ALL), "
        f"l AS (SELECT *, {n_times} AS n FROM m), "
        "w AS (SELECT *, lag(n, 1, 0) OVER (PARTITION BY k, r ORDER BY till) AS was FROM l) "
        f"SELECT k, r FROM w, generate_series(1, {change}) WHERE till < {LOW % times}"
    )


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
    wanted = of_duckdb(relation(sides, n_times))
    assert sum(wanted.values()) > 10
    assert answers(engine_of(spark, folder), text) == wanted
