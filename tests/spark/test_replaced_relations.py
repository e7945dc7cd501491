"""Streams and tables that are replaced: queries read what they read when they were made."""

from __future__ import annotations

import pytest

import eddyline as el
from eddyline.spark.shared.group import SCANS, Checkpoint, Start, groups_of

EXACT = "SELECT k, x FROM s MODEL x WITHIN 0 BY k AT ts WHERE x > 0 EXACT"
SAMPLED = "SELECT k, x FROM s MODEL x = x HORIZON 2 SECONDS BY k AT ts SAMPLE EVERY 5 SECONDS"


@pytest.fixture
def engine(spark):
    engine = el.Engine(spark)
    engine.table("s", rows(spark, 1))
    return engine


def rows(spark, x):
    return spark.sql(f"SELECT 7 AS k, timestamp_seconds(0) AS ts, {x}.0D AS x")


def stream(spark):
    return spark.readStream.format("rate").load()


def values(query):
    return sorted(each.x for each in query.to_df().collect())


@pytest.mark.parametrize("text", [EXACT, SAMPLED])
def test_equal_texts_over_other_rows_are_told_apart(engine, spark, text):
    old = engine.query(text, name="q")
    engine.drop("q")
    engine.table("s", rows(spark, 2), replace=True)
    engine.stream("before", old)
    engine.stream("after", engine.query(text, name="q"))
    assert values(engine.query("SELECT x FROM before")) == [1]
    assert values(engine.query("SELECT x FROM after")) == [2]
    both = engine.query("SELECT x FROM before UNION ALL SELECT x FROM after WHERE x > 0")
    assert values(both) == [1, 2]
    assert len(both.relations) == 2


def test_results_stay_over_the_stream_that_was_replaced(engine, spark):
    first, second = stream(spark), stream(spark)
    engine.stream("t", first)
    engine.stream("r", engine.query("SELECT value FROM t WHERE value > 3"))
    engine.stream("t", second, replace=True)
    both = engine.query("SELECT value FROM r UNION ALL SELECT value FROM t")
    assert {name: each.df for name, each in both.relations.items()} == {"t": second, "t 2": first}
    rules = engine.rules("rules", el.RuleSet({"odd": "value % 2 = 1"}), stream="r")
    assert [each.df for each in rules.relations.values()] == [first]
    engine.drop("t")
    assert list(engine.query("SELECT value FROM r").relations) == ["t"]


def test_identity_is_of_what_a_query_reads(engine, spark):
    engine.stream("r", engine.query(EXACT))
    union = "SELECT k FROM r UNION ALL SELECT k FROM r WHERE x > 3"
    texts = [EXACT, SAMPLED, "SELECT k FROM r WHERE x > 3", union]

    def identities():
        return [engine.query(each, name="q", replace=True).identity for each in texts]

    before = identities()
    engine.table("unrelated", rows(spark, 3))
    engine.stream("other", engine.query("SELECT x FROM unrelated MODEL x WITHIN 1 AT ts EXACT"))
    assert identities() == before
    engine.table("s", rows(spark, 3).selectExpr("*", "1 AS more"), replace=True)
    after = identities()
    assert [one == other for one, other in zip(before, after, strict=True)] == [
        False, True, True, True,
    ]  # fmt: skip


def test_queries_over_a_stream_that_was_replaced_run_apart(engine, spark):
    engine.stream("t", stream(spark))
    starts = []
    for name in ("one", "two", "three", "four"):
        if name == "three":
            engine.stream("t", stream(spark), replace=True)
        query = engine.query(f"SELECT value FROM t WHERE value > {len(name)}", name=name)
        starts.append(Start(query, "memory", None, None, None))
    notes: dict[str, str] = {}
    (group,) = groups_of(starts, SCANS[0], Checkpoint(None), notes)
    assert [each.query.name for each in group.starts] == ["three", "four"]
    assert list(notes) == ["one", "two"]
    assert "has been replaced" in notes["one"]
