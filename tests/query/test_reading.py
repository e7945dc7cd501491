"""Which columns of a stream a query reads."""

from __future__ import annotations

import pytest

from eddyline.query.reading import columns_of_stream
from eddyline.query.select.reader import read_query
from eddyline.query.steps import ProjectStep, steps

COLUMNS = {
    "ts": "timestamp",
    "k": "bigint",
    "V": "double",
    "day": "int",
    "x": "array<int>",
    "st": "struct<a:int,b:int>",
    "odd name": "string",
    "unread": "binary",
}
RANGE = "[RANGE 1 MINUTE SLIDE 10 SECONDS]"
OVER = "OVER (PARTITION BY k ORDER BY ts {} PRECEDING AND CURRENT ROW)"
MINUTE = OVER.format("RANGE BETWEEN INTERVAL 1 MINUTE")

COUNTS = f"SELECT k, count(*) AS n, window.end AS ts FROM s {RANGE} GROUP BY k"

READ = {
    "SELECT k FROM s WHERE v > 3": ("k", "V"),
    "SELECT K AS key, `odd name` FROM s AS t WHERE t.v > 3 OR t.st.a = 1": (
        ("k", "V", "st", "odd name")
    ),
    "SELECT st.b FROM s": ("st",),
    "SELECT st.k FROM s AS st": ("k",),
    "SELECT dateadd(hour, 1, ts) AS later FROM s": ("ts",),
    "SELECT dateadd(day, 1, ts) AS later FROM s": ("ts", "day"),
    "SELECT exists(x, each -> each > k) AS some FROM s": ("k", "x"),
    "SELECT exists(x, k -> k > 3) AS some FROM s": ("x",),
    "SELECT 1 AS one FROM s": (),
    f"SELECT k, count(*) AS n FROM s {RANGE} GROUP BY k": ("k",),
    f"SELECT count(V) FILTER (WHERE day > 3) AS n FROM s {RANGE} WHERE k > 1": ("k", "V", "day"),
    f"SELECT k + 1 AS k, max(n) AS n FROM ({COUNTS}) AS c {RANGE} GROUP BY k + 1": ("k",),
    f"SELECT day, sum(V) {MINUTE} AS total FROM s": ("k", "V", "day"),
    f"SELECT day, w FROM (SELECT day, k, sum(V) {MINUTE} AS w FROM s) AS o WHERE w > 3": (
        ("k", "V", "day")
    ),
}
"""Columns that are read beside the event time; a name that may be a column counts as one."""

ALL = [
    "SELECT * FROM s WHERE v > 3",
    "SELECT *, k + 1 AS more FROM s",
    "SELECT s.* FROM s",
    "SELECT struct(*) AS whole FROM s",
    "SELECT sum(V) AS total FROM s [ROWS 3]",
    f"SELECT sum(V) {OVER.format('ROWS BETWEEN 2')} AS total FROM s",
    "SELECT _metadata.file_path AS file FROM s",
]


def read(text):
    query = read_query(text, {"s": COLUMNS}, aggregates=["count", "max", "sum"])
    return columns_of_stream(steps(query), tuple(COLUMNS))


@pytest.mark.parametrize("text", READ)
def test_what_is_read(text):
    assert read(text) == READ[text]


@pytest.mark.parametrize("text", ALL)
def test_where_all_is_read(text):
    assert read(text) is None


def test_filters_that_route_may_use_any_column():
    made = steps(read_query("SELECT k FROM s WHERE sqrt(V) > 3 AND day = 1", {"s": COLUMNS}))
    assert columns_of_stream(made, tuple(COLUMNS)) is None
    assert columns_of_stream(made, tuple(COLUMNS), routes=False) == ("k", "V", "day")


@pytest.mark.parametrize(
    "where",
    [
        "V > 3 AND day = 1",
        "0.908 * V BETWEEN 1 AND 2 AND NOT (day IN (1, 2) OR day IS NULL)",
        "V <=> -day AND day <> 7 AND V <= 1e3 - day",
    ],
)
def test_filters_of_quick_predicates_use_what_is_read_anyway(where):
    made = steps(read_query(f"SELECT k FROM s WHERE {where}", {"s": COLUMNS}))
    assert columns_of_stream(made, tuple(COLUMNS)) == ("k", "V", "day")


@pytest.mark.parametrize("where", ["sqrt(V) > 3 AND day = 1", "V > 3 AND day = 1"])
def test_filters_that_route_by_what_was_named_read_that(where):
    made = steps(read_query(f"SELECT k FROM s WHERE {where}", {"s": COLUMNS}))
    named = columns_of_stream(made, tuple(COLUMNS), route_by=["lower(`odd name`)", "st.a"])
    assert named == ("k", "V", "day", "st", "odd name")
    assert columns_of_stream(made, tuple(COLUMNS), route_by=["none_of_these"]) is None


def test_an_alias_or_a_field_may_be_called_as_a_column():
    made = (ProjectStep("st", ("st.k AS one",)),)
    assert columns_of_stream(made, tuple(COLUMNS)) == ("k", "st")


def test_names_that_differ_in_case_alone():
    made = steps(read_query("SELECT k FROM s", {"s": {"k": "int"}}))
    assert columns_of_stream(made, ("k", "v", "V")) is None
