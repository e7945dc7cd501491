"""Models of a stream: started, cut into batches and restarted, they give what a batch gives."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

import eddyline as el
from eddyline.errors import NotSupportedError, OptionError, PlanError, QueryError
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

N_FILES = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of rows in the order of time, the last of which is far behind: it ends all models."""
    folder = tmp_path_factory.mktemp("tracks")
    rng = np.random.default_rng(8)
    seconds = np.cumsum(rng.choice([0, 1, 1, 2, 40], 600, p=[0.2, 0.5, 0.1, 0.19, 0.01]))
    seconds = np.append(seconds, seconds[-1] + 10_000)
    ships = np.append(rng.integers(0, 5, 600), 99)
    x = np.cumsum(rng.integers(-2, 3, 601)) / 2
    times = pa.array((seconds + FIRST_S) * SECOND).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"ship": ships, "ts": times, "x": x, "v": np.full(601, 0.25)})
    return write_files(folder, (table.slice(150 * n, 150 + n // 3) for n in range(N_FILES)))


def dropping(df, **more):
    return declared(df, within={"x": 0.5}, **more)


def macd(segments):
    slow = segments.avg("x", window="20 seconds")
    fast = segments.avg("x", window="5 seconds")
    return fast.join(slow, "a.x > b.x", names=("a", "b")).sample("2 seconds")


ASKED = {
    "where": lambda s: s.where("x > 0 AND ship <> 3").changes(),
    "average": lambda s: s.avg("x", window="10 seconds", slide="3 seconds"),
    "macd": macd,
    "greatest of a part, with all": lambda s: (
        s.where("x > 0").max("x", window="5 seconds").join(s).changes()
    ),
    "greatest of averages of what is covered": lambda s: (
        s.avg("x", window="5 seconds", covered=True).max("x", by="ship").changes()
    ),
}


def shown(rows):
    """Return rows but those of the ship that ends all models, numbers rounded."""
    return sorted(rounded(row) for row in rows if row.ship != 99)


@pytest.mark.large
@pytest.mark.parametrize(
    ("name", "make", "files"),
    [
        ("where", declared, 1),
        ("average", fitted, 3),
        ("macd", fitted, 1),
        ("greatest of a part, with all", declared, 3),
        ("greatest of averages of what is covered", declared, 1),
    ],
)
def test_a_stream_and_its_restart_give_what_a_batch_gives(
    spark, folder, tmp_path, name, make, files
):
    wanted = shown(ASKED[name](make(spark.read.parquet(str(folder)))).collect())
    found = []
    for numbers in ((0, 1), (2, 3)):
        copied(folder, tmp_path / "seen", numbers)
        query = ASKED[name](make(stream_of(spark, tmp_path / "seen", files), name="tracks"))
        run = ended(query, tmp_path)
        found.append(shown(spark.read.parquet(str(tmp_path / "out")).collect()))
    assert "segments" in run.explain()
    assert found[1] == wanted
    if name not in {"where", "greatest of a part, with all"}:  # x > 0 in the first files alone
        assert 0 < len(found[0]) < len(wanted)
    assert len(wanted) > 5


@pytest.mark.large
def test_rows_that_a_model_predicts_are_dropped_and_counted(spark, folder, tmp_path):
    batch = declared(spark.read.parquet(str(folder)))
    wanted = dropping(spark.read.parquet(str(folder))).where("x > 0").changes()
    # Of the bound of a result follows that of the attribute that is declared.
    query = declared(stream_of(spark, folder, 2), name="tracks").within({"x": 0.5})
    query = query.where("x > 0").changes()
    run = ended(query, tmp_path)
    found = spark.read.parquet(str(tmp_path / "out"))
    assert shown(found.collect()) == shown(wanted.collect())
    assert len(shown(found.collect())) > 5
    assert found.agg({"err_x": "max"}).first()[0] == 0.5
    text = run.explain()
    assert "rows dropped with x within 0.5" in text
    assert "x within 0.5; inputs: x within 0.5" in text
    record = record_of(run)
    assert record.n_dropped + record.n_segments == record.n_rows
    assert record.n_dropped > 50
    assert record.n_segments == dropping(spark.read.parquet(str(folder))).to_df().count() - 1
    assert batch.to_df().count() - 1 == record.n_rows


@pytest.mark.large
def test_segments_of_a_stream_are_a_query(spark, folder, tmp_path):
    segments = fitted(stream_of(spark, folder, 2), name="tracks")
    ended(segments.query(), tmp_path)
    kept = el.models.read(spark.read.parquet(str(tmp_path / "out"))).to_df().where("ship <> 99")
    wanted = fitted(spark.read.parquet(str(folder))).to_df().where("ship <> 99")
    assert kept.exceptAll(wanted).isEmpty()
    assert wanted.exceptAll(kept).isEmpty()
    with pytest.raises(NotSupportedError, match=r"segments.query\(\).start"):
        segments.to_df()


@pytest.mark.large
def test_what_a_join_asks_is_shown_pinned_and_kept(spark, folder, tmp_path):
    """Whatever it asks, answers are those of a batch."""
    on = "a.x > -10 AND b.x < 10"

    def both(segments):
        return segments.join(segments, on, names=("a", "b")).changes()

    wanted = both(fitted(spark.read.parquet(str(folder)))).collect()
    seen, text = tmp_path / "seen", f"join a and b on {on}"
    for number, way in enumerate((["b", "a"], ["a"], [], "by sample")[:N_FILES]):
        copied(folder, seen, [number])
        run = ended(both(fitted(stream_of(spark, seen, 1), name="tracks")), tmp_path)
        assert text in run.explain(width=400)
        run.pin({"models": {text: way}})  # in force from the next start on
        with pytest.raises(PlanError, match="sides that are asked before"):
            run.pin({"models": {text: ["c"]}})
    assert "b then a" not in run.explain(width=400)
    assert shown(spark.read.parquet(str(tmp_path / "out")).collect()) == shown(wanted)
    assert len(wanted) > 5


ACROSS = {
    "near": lambda s: s.near(2.0, "x").where("left_ship <> 3 OR right_ship = 4").changes(),
    "alarms of pairs": lambda s: s.pairs().alarms(
        el.AlarmSet({"below": "left_x < right_x - 2", "met": "left_x = right_x AND left_ship < 2"})
    ),
}


@pytest.mark.large
@pytest.mark.parametrize("name", ACROSS)
def test_pairs_of_a_stream_are_those_of_a_batch(spark, folder, tmp_path, name):
    made = ACROSS[name](fitted(stream_of(spark, folder, 2), name="tracks"))
    ended(made, tmp_path)
    wanted = ACROSS[name](fitted(spark.read.parquet(str(folder)))).collect()
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(map(rounded, found)) == sorted(map(rounded, wanted))  # none is of ship 99
    assert len(wanted) > 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda s: s.pairs(within={"x": 1.0}, whole=True).changes(),
            "once come near are not told for all the time before",
        ),
        (
            lambda s: s.pairs().where("left_ship = 1").max("left_x", by="right_ship").changes(),
            "the condition on keys of pairs .* needs these keys",
        ),
    ],
)
def test_what_cannot_be_told_of_a_stream_is_refused_at_once(spark, folder, call, message):
    with pytest.raises(NotSupportedError, match=message):
        call(fitted(stream_of(spark, folder, 1)))


def test_what_needs_state_is_not_laid_without_it(spark, folder):
    segments = fitted(stream_of(spark, folder, 1))
    for call in (segments.persist, segments.to_df, lambda: segments.write):
        with pytest.raises(NotSupportedError, match=r"segments.query\(\).start"):
            call()
    both = segments.join(segments)
    far = both.avg_distance("x", window="5 seconds", slide="1 second")
    assert not hasattr(far, "isStreaming"), "a query, and no DataFrame"


READ = {
    "changes": lambda s: s.where("x > 0").changes(),
    "joined": lambda s: s.join(s.avg("x", window="5 seconds"), "left.x > right.x").changes(),
    "pairs": lambda s: s.pairs("left.x < right.x", within={"x": 2}).changes(),
    "greatest": lambda s: s.max("x", by=[]).sample("3 seconds"),
}


@pytest.mark.large
@pytest.mark.parametrize("name", READ)
def test_segments_of_a_stream_are_read_as_those_of_a_table(spark, folder, tmp_path, name):
    kept = fitted(spark.read.parquet(str(folder))).to_df().orderBy("lo").toArrow()
    size = -(-len(kept) // N_FILES)
    (tmp_path / "kept").mkdir()
    write_files(tmp_path / "kept", (kept.slice(size * n, size) for n in range(N_FILES)))
    ask = READ[name]
    stream = stream_of(spark, tmp_path / "kept", 1)
    ended(ask(el.models.read(stream, lateness="1 second", name="kept")), tmp_path)
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    wanted = ask(el.models.read(spark.read.parquet(str(tmp_path / "kept")))).collect()
    last = max(each["lo"] for each in kept.select(["lo"]).to_pylist()).replace(tzinfo=None)
    known = [row for row in wanted if max(_times(row)) <= last - timedelta(seconds=1)]
    assert len(known) > 4
    rows, least, most = ({*map(rounded, each)} for each in (found, known, wanted))
    assert least <= rows <= most
    assert len(rows) == len(found)


def _times(row):
    return [each for each in row if isinstance(each, datetime)]


@pytest.mark.large
def test_segments_of_a_stream_in_sql_and_what_is_wrong_with_them(spark, folder, tmp_path):
    made = fitted(spark.read.parquet(str(folder)))
    made.write.parquet(str(tmp_path / "kept"))
    schema = made.to_df().schema
    stream = spark.readStream.schema(schema).parquet(str(tmp_path / "kept"))
    engine = el.Engine(spark)
    engine.stream("kept", stream, time="lo", lateness="9 days")
    engine.stream("untimed", stream)
    text = "SELECT ship, x FROM kept MODEL SEGMENTS WHERE ship > 0 AND x > 0 CHANGES"
    query = engine.query(text, name="asked")
    assert query.streams == ("kept",)
    with pytest.raises(QueryError, match=r"ordered by lo.*time='lo'"):
        engine.query(text.replace("kept", "untimed"))
    early = stream.selectExpr("*", "1L AS version", "true AS validated")
    with pytest.raises(NotSupportedError, match="segments of a stream are final"):
        el.models.read(early)
    with pytest.raises(OptionError, match="keep the bounds of their fit"):
        el.models.read(stream, lateness="1 day").within({"x": 0.1}).changes()
    twice = made.to_df().union(made.to_df())
    twice.write.parquet(str(tmp_path / "twice"))
    stream = spark.readStream.schema(schema).parquet(str(tmp_path / "twice"))
    run = el.models.read(stream, lateness="0 seconds").changes().start(
        "memory", checkpoint=str(tmp_path / "checkpoint"), trigger="available_now"
    )  # fmt: skip
    with pytest.raises(Exception, match=r"segments of a stream overlap: of \{'ship'"):
        run.await_termination()


def test_a_stream_needs_a_gap(spark, folder):
    segments = el.models.fit(stream_of(spark, folder, 1), key="ship", time="ts", within={"x": 1.0})
    with pytest.raises(OptionError, match="models of a stream need max_gap"):
        segments.sample("1 second")


@pytest.mark.large
def test_two_streams_and_a_table_are_joined_as_in_a_batch(spark, folder, tmp_path):
    batch = spark.read.parquet(str(folder))
    kept = fitted(batch)

    def asked(one, other):
        both = one.join(other, "a.x > b.x", names=("a", "b"))
        return both.join(kept, names=("c", "d")).select(z="c_a_x - d_x").changes()

    wanted = shown(asked(fitted(batch), declared(batch)).collect())
    assert len(wanted) > 5
    slow = stream_of(spark, folder, 1)
    query = asked(
        fitted(stream_of(spark, folder, 3), name="fast"),
        declared(slow, name="slow", lateness="3 seconds"),
    )
    ended(query, tmp_path)
    assert query.streams == ("fast", "slow")
    assert shown(spark.read.parquet(str(tmp_path / "out")).collect()) == wanted
