"""Python predicates in several crossings: the rows, errors and counts are those of one crossing."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import eddyline as el
from eddyline.errors import PredicateError
from eddyline.filters import crossings
from eddyline.spark.filters.staged_part import LOOK_EVERY, StagedPart

pytestmark = pytest.mark.spark

N_ROWS = 4_000
WIDE = "w" * 3_000


@el.predicate("few", arrays="numpy")
def rare(few):
    return few == 0


@el.predicate("wide")
def ends_in_7(wide):
    return pc.ends_with(wide, "7")


@el.predicate("other")
def has_no_3(other):
    return pc.invert(pc.match_substring(other, "3"))


@el.predicate("n", "wide")
def raises_on_5(n, wide):
    if pc.any(pc.equal(n, 5)).as_py():
        msg = "five"
        raise ValueError(msg)
    return pc.is_valid(wide)


@pytest.fixture(autouse=True)
def _small_jobs_count(monkeypatch):
    monkeypatch.setattr(crossings, "MIN_SAVED_JOB_NS", 0.0)


@pytest.fixture(scope="module")
def rows(spark):
    """Rows with nulls whose texts are wide; ``few`` is 0 in one of twenty."""
    rng = np.random.default_rng(3)
    table = pa.table(
        {
            "n": range(N_ROWS),
            "few": rng.integers(0, 20, N_ROWS),
            "wide": pa.array([f"{WIDE}{i % 10}" if i % 17 else None for i in range(N_ROWS)]),
            "other": pa.array([f"{WIDE}{i % 13}" if i % 19 else None for i in range(N_ROWS)]),
        }
    )
    return spark.createDataFrame(table).repartition(3, "n").cache()


def numbers(df):
    return sorted(each["n"] for each in df.select("n").collect())


SQL = {
    "rare": "few = 0",
    "ends_in_7": "wide LIKE '%7'",
    "has_no_3": "other NOT LIKE '%3%'",
}
EXPECTED = " AND ".join(SQL.values())


def staged(keep):
    """Return the crossings in force, by names of predicates."""
    (block,) = keep.facts().blocks
    return [[block.profile.filter_ids[f] for f in each.filters] for each in block.crossings]


def evaluations(rows, order):
    """Return how many evaluations an order of predicates makes."""
    n_evaluations = 0
    for name in order:
        n_evaluations += rows.count()
        rows = rows.where(SQL[name])
    return n_evaluations


def events(keep):
    return [each for each in keep.journal if each["event"] == "crossings"]


@pytest.mark.large
def test_rows_are_the_same_job_by_job(rows):
    keep = el.all_of(ends_in_7, has_no_3, rare, name="staged")
    expected = numbers(rows.where(EXPECTED))
    assert expected
    for _ in range(LOOK_EVERY + 2):
        assert numbers(rows.transform(keep)) == expected
    assert "rare" in staged(keep)[0]
    assert sorted(name for each in staged(keep) for name in each) == [
        "ends_in_7",
        "has_no_3",
        "rare",
    ]
    first = events(keep)[0]
    assert first["before"] == []
    assert "rare" in first["after"][0]
    assert first["evidence"]["saved_ns"] > crossings.MIN_SAVED_NS
    lead = f"Rows cross to the workers {len(staged(keep))} times: "
    assert lead in " ".join(keep.explain(width=500).split())


def test_evaluations_of_all_crossings_are_counted(rows):
    keep = el.all_of(ends_in_7, has_no_3, rare, sample_prob=0.0)
    numbers(rows.transform(keep))
    (before,) = keep.facts().blocks
    in_force = staged(keep)
    assert in_force
    numbers(rows.transform(keep))
    (after,) = keep.facts().blocks
    made = after.totals.n_evaluations - before.totals.n_evaluations
    made -= after.totals.n_extra - before.totals.n_extra  # of the rows that a new crossing samples
    fewest, most = 0, 0
    entering = rows
    for crossing in in_force:
        # The tasks of a crossing learn its order on their own.
        counts = [evaluations(entering, order) for order in permutations(crossing)]
        fewest, most = fewest + min(counts), most + max(counts)
        entering = entering.where(" AND ".join(SQL[name] for name in crossing))
    assert after.totals.n_rows - before.totals.n_rows == N_ROWS
    assert fewest <= made <= most
    assert after.totals.n_kept - before.totals.n_kept == rows.where(EXPECTED).count()


@pytest.mark.large
def test_another_order_makes_other_crossings(rows):
    """Workers keep nothing of the crossings before."""
    seen = {"sample_prob": 0.5, "max_overhead": 1.0}  # small jobs, so the budget is small
    keep = el.all_of(ends_in_7, has_no_3, rare, name="other order", **seen)
    for _ in range(3):
        numbers(rows.transform(keep))
    assert "rare" in staged(keep)[0]
    others = rows.withColumn("few", F.lit(0).cast("bigint")).withColumn(
        "wide", F.when(F.col("n") % 40 == 7, F.col("wide")).otherwise(F.lit(WIDE))
    )
    expected = numbers(others.where(EXPECTED))
    for _ in range(2 * LOOK_EVERY):
        assert numbers(others.transform(keep)) == expected
    assert len(events(keep)) > 1
    (block,) = keep.facts().blocks
    assert block.profile.filter_ids[block.order[0]] != "rare"


@pytest.mark.large
def test_more_rows_than_expected_ask_for_a_look(rows):
    keep = el.all_of(ends_in_7, has_no_3, rare)
    numbers(rows.transform(keep))
    (part,) = keep._operator.learning.values()
    assert isinstance(part, StagedPart)
    assert keep.facts().blocks[0].crossings
    all_rows = rows.withColumns(
        {"few": F.lit(0).cast("bigint"), "wide": F.lit(f"{WIDE}7"), "other": F.lit(WIDE)}
    )
    assert numbers(all_rows.transform(keep)) == numbers(all_rows.where(EXPECTED))
    keep.facts()  # takes the reports in
    before = part.whole.n_learned
    assert numbers(all_rows.transform(keep)) == numbers(all_rows.where(EXPECTED))
    keep.facts()
    assert part.whole.n_learned == before + 1


@pytest.mark.large
def test_an_error_counts_only_where_the_row_passes_every_crossing(rows):
    """Row 5 is dropped by a predicate of the other crossing, whichever that is."""
    fine = rows.withColumn(
        "few", F.when(F.col("n") == 5, F.lit(0).cast("bigint")).otherwise(F.col("few"))
    )
    keep = el.all_of(raises_on_5, ends_in_7, rare)
    for _ in range(4):
        assert numbers(fine.transform(keep)) == numbers(fine.where("few = 0 AND wide LIKE '%7'"))
    assert staged(keep)
    passing = fine.withColumn(
        "wide", F.when(F.col("n") == 5, F.lit(f"{WIDE}7")).otherwise(F.col("wide"))
    )
    with pytest.raises(Exception, match="raised") as raised:
        numbers(passing.transform(keep))
    assert "five" in str(raised.value) or isinstance(raised.value, PredicateError)


def test_the_plan_of_a_plain_stream_has_one_crossing(spark, rows, tmp_path):
    keep = el.all_of(ends_in_7, has_no_3, rare)
    for _ in range(2):
        numbers(rows.transform(keep))
    assert keep._operator.learning["arrow"].crossings()
    rows.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "in"))
    query = (
        stream.transform(keep)
        .writeStream.format("memory")
        .queryName("one_crossing")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert numbers(spark.table("one_crossing")) == numbers(rows.where(EXPECTED))


@pytest.mark.large
def test_a_query_of_the_engine_stages_and_goes_on_after_a_restart(spark, tmp_path, rows):
    (tmp_path / "in").mkdir()
    table = rows.orderBy("n").toArrow()

    def write(first, last):
        for number in range(first, last):
            part = table.slice(number * 400, 400)
            pq.write_table(part, tmp_path / "in" / f"{number:02d}.parquet")

    def run():
        engine = el.Engine(spark)
        stream = spark.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1)
        engine.stream("rows", stream.parquet(str(tmp_path / "in")))
        for each in (ends_in_7, has_no_3, rare):
            engine.function(each.name, each)
        query = engine.query(
            "SELECT n FROM rows WHERE ends_in_7(wide) AND has_no_3(other) AND rare(few)",
            name="staged",
        )
        paths = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "checkpoint")}
        done = query.start("parquet", **paths, trigger="available_now")
        done.await_termination()
        return done

    write(0, 6)
    assert any(each["event"] == "crossings" for each in run().journal)
    write(6, 10)
    again = run()
    assert sum(each.n_rows for each in again.records) == 4 * 400
    assert numbers(spark.read.parquet(str(tmp_path / "out"))) == numbers(rows.where(EXPECTED))
