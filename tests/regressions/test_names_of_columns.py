"""Names of columns that are not names in SQL.

A function that reads the column ``null`` got NULLs, one that reads ``my col`` could not be bound,
and a column ``__eddyline_0_arrow`` of the user was gone from the result.
"""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddyline as el
from eddyline.errors import QueryError
from eddyline.spark.arrow_tasks import map_batches, map_groups
from tests.spark.joins.join_streams import run_to_end, stream_of, told, write_batch

pytestmark = pytest.mark.spark


def test_functions_read_columns_by_their_exact_names(spark):
    """Of every row but the first, one column is too small, each time another."""
    names = ["null", "true", "my col", "a.b", "b`t", "日本", "case", "''"]
    passing = [(1, *[5] * len(names))]
    failing = [(2 + at, *[5] * at, 1, *[5] * (len(names) - at - 1)) for at in range(len(names))]
    frame = spark.createDataFrame(passing + failing, ["id", *names])
    fives = [el.predicate(lambda v: pc.greater(v, 3), reads=[n], name=f"of {n}") for n in names]
    kept = frame.transform(el.all_of("id > 0", *fives))
    assert kept.columns == ["id", *names]
    assert [row.id for row in kept.collect()] == [1]


@pytest.mark.parametrize("name", ["__eddyline_0_arrow", "__EDDYLINE_LAST"])
def test_names_of_temporary_columns_are_refused(spark, name):
    frame = spark.createDataFrame([(1, 5)], ["id", name])
    with pytest.raises(QueryError, match=f"has a column '{name}'.*rename it"):
        frame.transform(el.all_of("id > 0"))


ODD = ["it's a`b.größe 時間", "window"]
"""One with all that a name must be quoted for, and one that means something in SQL."""


def quoted(name):
    return "`" + name.replace("`", "``") + "`"


def at(second):
    return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def test_arrow_tasks_see_columns_under_their_names(spark):
    names = ["a.b", "c`d", "e f"]
    df = spark.createDataFrame([(1, 2, 3), (4, 5, 6)], names)
    seen = map_batches(df, lambda batches: batches, df.schema)
    assert seen.columns == names
    assert sorted(map(tuple, seen.collect())) == [(1, 2, 3), (4, 5, 6)]
    groups = map_groups(df, "a.b", lambda table: table.select(["c`d"]), "`c``d` long")
    assert sorted(map(tuple, groups.collect())) == [(2,), (5,)]


@pytest.mark.large
@pytest.mark.parametrize("name", ODD)
def test_models_are_of_columns_of_any_name(spark, name):
    key, time, value = (f"{name}{n}" for n in range(3))
    rows = [(k, at(s), float(s % 7)) for k in "ab" for s in range(20)]
    plain = spark.createDataFrame(rows, "k string, t timestamp, v double")
    odd = plain.toDF(key, time, value)

    def answers(df, key, time, value):
        segments = el.models.fit(df, key=key, time=time, within={value: 0.1})
        high = segments.where(f"{quoted(value)} > 4.5 AND {quoted(key)} <> 'b'")
        alarms = segments.alarms(el.AlarmSet({"high": f"{quoted(value)} > 5"}))
        declared = el.models.declare(
            df, key=key, time=time, model={value: f"{quoted(value)} + t"}, horizon="1 second"
        )
        frames = (
            segments.to_df(),
            segments.sample("5 seconds"),
            high.changes(),
            high.exact(),
            alarms,
            declared.changes(),
            segments.pairs().to_df(),
        )
        return [sorted(map(tuple, each.collect()), key=repr) for each in frames]

    assert answers(odd, key, time, value) == answers(plain, "k", "t", "v")


@pytest.mark.large
@pytest.mark.parametrize("name", ODD)
def test_a_stream_with_a_lateness_has_columns_of_any_name(spark, tmp_path, name):
    time, value = quoted(name), quoted(f"{name} v")
    schema = pa.schema([(name, pa.timestamp("us", "UTC")), (f"{name} v", pa.int64())])
    for number, second in enumerate((1, 70, 2, 200)):  # the third row is late
        table = pa.table([pa.array([at(second)], schema[0].type), pa.array([second])], schema)
        write_batch(tmp_path, "s", number, table)
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, tmp_path, "s"), time=name, lateness="10 seconds")
    kept = engine.query(f"SELECT {value} FROM s WHERE {value} > 1", name="kept")
    run_to_end(kept, tmp_path / "kept")
    assert read(spark, tmp_path / "kept") == [(2,), (70,), (200,)]
    sums = engine.query(
        f"SELECT window({time}, '1 minute').end AS e, SUM({value}) AS {value} FROM s "
        f"GROUP BY window({time}, '1 minute')",
        name="sums",
    )
    run = run_to_end(sums, tmp_path / "sums")
    assert [value for _, value in read(spark, tmp_path / "sums")] == [1, 70]
    late = run.late_rows("s")
    assert late.column(f"{name} v").to_pylist() == [2]


def read(spark, folder):
    return sorted(map(tuple, spark.read.parquet(str(folder / "out")).collect()))


@pytest.mark.large
@pytest.mark.parametrize("name", ODD)
def test_rows_are_routed_by_columns_of_any_name(spark, name):
    df = spark.range(4_000, numPartitions=2).selectExpr(
        "id",
        f"id % 5 AS {quoted(name)}",
        f"CAST(timestamp_seconds(id) AS TIMESTAMP_NTZ) AS {quoted(f'{name} at')}",
    )
    few = el.predicate(lambda v: pc.less(v, 3), reads=[name])
    kept = df.where(f"{quoted(name)} < 3 AND id % 7 < 5").count()
    for route_by in ([name], [f"{name} at"], [f"{quoted(name)} > 2", name]):
        keep = el.all_of(f"{quoted(name)} <> 4", "id % 7 < 5", few, route_by=route_by)
        for _ in range(2):
            assert df.transform(keep).count() == kept


@pytest.mark.large
@pytest.mark.parametrize("name", ODD)
def test_models_in_sql_are_of_columns_of_any_name(spark, name):
    rows = [(k, at(s), float(s % 7)) for k in "ab" for s in range(20)]
    plain = spark.createDataFrame(rows, "k string, t timestamp, v double")
    texts = (
        "SELECT {k}, {v} FROM s MODEL {v} WITHIN 0.1 BY {k} AT {t} WHERE {v} > 4.5 CHANGES",
        "SELECT {k}, {v} + 1 AS {w} FROM s MODEL {v} = {v} + 2 * t HORIZON 1 SECOND BY {k} AT {t} "
        "WHERE {k} <> 'b' SAMPLE EVERY 5 SECONDS",
        "SELECT {k}, avg({v}) AS {w} FROM s MODEL {v} WITHIN 0.1 BY {k} AT {t} "
        "[RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY {k}",
        "SELECT a.{k}, a.{v} - b.{v} AS {w} FROM s MODEL {v} WITHIN 0.1 BY {k} AT {t} AS a "
        "JOIN s MODEL {v} WITHIN 0.1 BY {k} AT {t} AS b ON a.{k} < b.{k} WHERE a.{v} > 4 CHANGES",
        "SELECT {t}, {v} FROM s MODEL {v} WITHIN 0.1 BY {k} AT {t} WHERE {v} > 4.5 EXACT",
    )

    def answers(df, names):
        engine = el.Engine(spark)
        engine.table("s", df)
        frames = [engine.query(text.format(**names)).to_df() for text in texts]
        return [sorted(map(tuple, each.collect()), key=repr) for each in frames]

    odd = {letter: f"{name} {letter}" for letter in "ktvw"}
    found = answers(plain.toDF(*(odd[letter] for letter in "ktv")),
                    {letter: quoted(each) for letter, each in odd.items()})  # fmt: skip
    assert found == answers(plain, {letter: letter for letter in "ktvw"})
    assert all(found)


@pytest.mark.large
@pytest.mark.parametrize("name", ODD)
def test_declared_keys_and_learned_constraints_are_of_columns_of_any_name(spark, tmp_path, name):
    key, time, value = (f"{name}{letter}" for letter in "ktv")
    schema = pa.schema([(key, pa.string()), (time, pa.timestamp("us", "UTC")), (value, pa.int64())])
    for number in range(3):
        seconds = range(4 * number, 4 * number + 4)
        columns = [[f"{s}" for s in seconds], [at(s) for s in seconds], [*seconds]]
        table = pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema
        )
        write_batch(tmp_path, "orders", number, table)
        write_batch(tmp_path, "payments", number, table)
    engine = el.Engine(spark)
    for stream, own in (("orders", key), ("payments", None)):
        df = stream_of(spark, tmp_path, stream)
        engine.stream(stream, df, time=time, lateness="0 seconds", key=own)
    query = engine.query(
        f"SELECT o.{quoted(key)} AS k, p.{quoted(value)} AS v FROM orders [RANGE 100 SECONDS] o, "
        f"payments [RANGE 100 SECONDS] p WHERE o.{quoted(key)} = p.{quoted(key)} "
        f"AND p.{quoted(value)} >= o.{quoted(value)}",
        name="paid", constraints="exact",
    )  # fmt: skip
    run = run_to_end(query, tmp_path)
    assert read(spark, tmp_path) == sorted((f"{s}", s) for s in range(12))
    assert f"checked with every row: {key} of o" in told(run)
