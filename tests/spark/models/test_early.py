"""Early results of a stream: started, restarted, and read as they are by then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import eddyline as el
from eddyline.errors import NotSupportedError, OptionError, QueryError
from eddyline.spark.query import Query
from tests.spark.models.tracks import (
    FIRST_S,
    SECOND,
    copied,
    declared,
    ended,
    fitted,
    record_of,
    rounded,
    stream_of,
    write_files,
)

N_FILES = 3
N_ROWS = 80


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of rows, each out of order by up to 4 seconds."""
    folder = tmp_path_factory.mktemp("tracks")
    rng = np.random.default_rng(8)
    n = N_FILES * N_ROWS
    seconds = np.cumsum(rng.choice([0, 1, 2, 30], n, p=[0.3, 0.5, 0.19, 0.01]))
    order = np.argsort(seconds + rng.integers(0, 5, n), kind="stable")
    times = pa.array((seconds + FIRST_S) * SECOND).cast(pa.timestamp("us", "UTC"))
    x = rng.integers(-4, 5, n) / 1.0
    table = pa.table({"ship": rng.integers(0, 3, n), "ts": times, "x": x, "v": np.full(n, 0.25)})
    return write_files(
        folder, (table.take(pa.array(each)) for each in order.reshape(N_FILES, N_ROWS))
    )


EARLY = {"results": "early", "lateness": "5 seconds", "name": "tracks"}
ASKED = {
    "segments": (fitted, lambda s: s.query(), lambda s: s.to_df()),
    "changes": (declared, *[lambda s: s.where("x > 0").changes()] * 2),
}


def shown(rows):
    return sorted(repr(rounded(row)) for row in rows)


@pytest.mark.large
@pytest.mark.parametrize("name", ASKED)
def test_after_each_batch_and_each_restart_the_latest_results_are_those_of_the_rows_so_far(
    spark, folder, tmp_path, name
):
    make, live, batch = ASKED[name]
    seen, out = tmp_path / "seen", str(tmp_path / "out")
    for number in range(N_FILES):
        copied(folder, seen, [number])
        run = ended(live(make(stream_of(spark, seen), **EARLY)), tmp_path)
        rows = spark.read.parquet(out)
        found = el.models.latest(rows)
        wanted = batch(make(spark.read.parquet(str(seen))))
        assert found.columns == [*wanted.columns, "validated"]
        assert shown(found.drop("validated").collect()) == shown(wanted.collect())
    told = rows.select("version", "validated").distinct().collect()
    assert {each.version for each in told} == {0, 1, 2}
    assert {each.validated for each in told} == {True, False}
    assert "given early" in run.explain()
    record = record_of(run)
    assert record.n_taken_back == rows.where("tomb").count()
    assert record.n_early >= rows.where("NOT validated AND NOT tomb").count() > 0
    if name == "segments":
        found.write.parquet(str(tmp_path / "latest"))
        held = spark.read.parquet(str(tmp_path / "latest"))
        for kept in (rows, rows.union(rows), found, held):
            assert shown(el.models.read(kept).to_df().collect()) == shown(wanted.collect())
        one = el.models.read(out).where("ship = 1").to_df()
        assert shown(one.collect()) == shown(wanted.where("ship = 1").collect())
    else:
        assert record.n_taken_back > 0


ALARMS = {"high": "x > 0", "low": "x < 1 AND ship <> 2"}


@pytest.mark.large
def test_alarms_are_given_early_and_taken_back_with_the_set(spark, folder, tmp_path):
    seen, out = tmp_path / "seen", str(tmp_path / "out")
    for number in range(N_FILES):
        copied(folder, seen, [number])
        texts = dict(list(ALARMS.items())[: 2 - number // 2])  # the last batch has one alarm less
        query = declared(stream_of(spark, seen), **EARLY).alarms(el.AlarmSet(texts))
        ended(query, tmp_path)
        found = el.models.latest(spark.read.parquet(out)).drop("validated")
        wanted = declared(spark.read.parquet(str(seen))).alarms(el.AlarmSet(texts))
        assert found.columns == wanted.columns
        of_set = found.where(found.alarm.isin([*texts]))
        assert shown(of_set.collect()) == shown(wanted.collect())
    final = declared(stream_of(spark, folder), lateness="5 seconds").alarms(el.AlarmSet(ALARMS))
    ended(final, tmp_path / "final")
    kept = spark.read.parquet(str(tmp_path / "final" / "out")).where("alarm = 'low'")
    removed = found.where("alarm = 'low'")
    assert removed.count() > 0
    assert not removed.join(kept, ["ship", "since"], "left_anti").count(), "only what was final"


SOURCE = "tracks MODEL x = x + v * t HORIZON 9 SECONDS BY ship AT ts"
TEXTS = {
    "changes": f"SELECT ship, x FROM {SOURCE} WHERE x > 0 CHANGES",
    "averages": f"SELECT ship, avg(x) AS m FROM {SOURCE} [RANGE 6 SECONDS SLIDE 2 SECONDS] "
    "HAVING avg(x) > 1",
    "pairs": f"SELECT a.ship AS one, b.ship AS other, a.x FROM {SOURCE} AS a JOIN {SOURCE} AS b "
    "ON a.ship < b.ship WHERE abs(a.x - b.x) < 1 CHANGES",
    "greatest": f"SELECT max(x) AS top FROM {SOURCE} SAMPLE EVERY 3 SECONDS",
}


@pytest.mark.large
@pytest.mark.parametrize("name", TEXTS)
def test_early_in_sql_marks_what_later_rows_may_take_back(spark, folder, tmp_path, name):
    seen = tmp_path / "seen"
    for numbers in ([0], [1, 2]):
        copied(folder, seen, numbers)
        engine = el.Engine(spark)
        engine.stream("tracks", stream_of(spark, seen, 1), time="ts", lateness="5 seconds")
        ended(engine.query(f"{TEXTS[name]} EARLY", name="live"), tmp_path)
        rows = spark.read.parquet(str(tmp_path / "out"))
        engine = el.Engine(spark)
        engine.table("tracks", spark.read.parquet(str(seen)))
        wanted = engine.query(TEXTS[name]).to_df()
        assert rows.columns[-3:] == ["version", "tomb", "validated"]
        found = el.models.latest(rows).drop("validated")
        assert shown(found.select(wanted.columns).collect()) == shown(wanted.collect())
    assert rows.where("NOT validated").count() > 0
    assert (rows.where("tomb").count() > 0) is (name != "greatest"), "ticks stay as they are"


@pytest.mark.large
def test_of_rows_that_are_all_there_nothing_is_early(spark, folder):
    query = declared(stream_of(spark, folder), **EARLY).changes()
    batch = spark.read.parquet(str(folder))
    relations = {name: replace(each, df=batch) for name, each in query.relations.items()}
    found = Query("all", "", query.steps, relations, {}).to_df()
    assert found.columns == query.shape.columns
    told = found.select("version", "tomb", "validated").distinct().collect()
    assert [tuple(each) for each in told] == [(-1, False, True)]
    final = declared(batch).changes()
    assert shown(found.select(final.columns).collect()) == shown(final.collect())


def test_what_is_not_given_early_is_refused_at_once(spark, folder):
    stream, batch = stream_of(spark, folder), spark.read.parquet(str(folder))
    early = declared(stream, **EARLY)
    with pytest.raises(OptionError, match="unknown results 'soon'"):
        fitted(stream, results="soon")
    with pytest.raises(OptionError, match="needs a stream"):
        fitted(batch, results="early")
    with pytest.raises(OptionError, match="to all streams of a query, or to none"):
        early.join(declared(stream, name="others")).changes()
    with pytest.raises(OptionError, match="early results have a column 'version' themselves"):
        early.select(Version="x").changes()
    with pytest.raises(QueryError, match=r"models\.latest takes early results"):
        el.models.latest(batch)
    with pytest.raises(NotSupportedError, match="takes rows that were written, not a stream"):
        el.models.latest(stream)
