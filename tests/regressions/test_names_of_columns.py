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
from tests.spark.joins.join_streams import run_to_end, stream_of, write_batch

pytestmark = pytest.mark.spark


@pytest.mark.large
@pytest.mark.parametrize("name", ["null", "true", "my col", "a.b", "b`t", "日本", "case", "''"])
def test_function_reads_a_column_by_its_exact_name(spark, name):
    frame = spark.createDataFrame([(1, 5), (2, 1)], ["id", name])
    keep = el.all_of("id > 0", el.predicate(lambda v: pc.greater(v, 3), reads=[name]))
    kept = frame.transform(keep)
    assert kept.columns == ["id", name]
    assert [row.id for row in kept.collect()] == [1]


@pytest.mark.parametrize("name", ["__eddyline_0_arrow", "__EDDYLINE_LAST"])
def test_names_of_temporary_columns_are_refused(spark, name):
    frame = spark.createDataFrame([(1, 5)], ["id", name])
    with pytest.raises(QueryError, match=f"has a column '{name}'.*rename it"):
        frame.transform(el.all_of("id > 0"))


ODD = ["event.time", "größe 時間", "a`b", "window", "it's"]


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
