"""The lane reads files as Spark does, or refuses; its rows and its errors are those of any plan."""

from __future__ import annotations

import datetime as dt
import decimal
import shutil
from functools import cache
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

import eddyline as el
from eddyline.errors import SourceError
from eddyline.lane.choice import FILES, FIRST_TRIAL, ROWS
from eddyline.lane.scan import Rows
from eddyline.spark.lane import PlainScan, Refused, local_path
from eddyline.spark.operator import Batch
from eddyline.spark.rules.task import FileRules, Keep
from eddyline.spark.stream_files import columns_of, each_of
from tests.spark.parquet_files import schema_of

pytestmark = pytest.mark.spark

DAYS = [dt.date(1, 1, 1), dt.date(1582, 10, 10), dt.date(1970, 1, 1), dt.date(9999, 12, 31)]
TIMES = [dt.datetime(1850, 1, 1, 1, 2, 3, 4), dt.datetime(2026, 3, 29, 1, 30)]
VALUES = {
    "flag": ([True, False], pa.bool_()),
    "tiny": ([-128, 0, 127], pa.int8()),
    "small": ([-(2**15), 0, 2**15 - 1], pa.int16()),
    "whole": ([-(2**31), 0, 2**31 - 1], pa.int32()),
    "long": ([-(2**63), 0, 2**63 - 1], pa.int64()),
    "real": ([float("nan"), -0.0, 0.0, float("inf"), 1e-45, 3.4e38], pa.float32()),
    "double": ([float("nan"), -0.0, float("-inf"), 5e-324, 1.7e308], pa.float64()),
    "text": (["", "a", "é" * 9, "\x00", "long " * 40], pa.string()),
    "bytes": ([b"", b"\x00\xff", b"x" * 300], pa.binary()),
    "day": (DAYS, pa.date32()),
    "at": (TIMES, pa.timestamp("us", "UTC")),
    "at_ms": ([TIMES[1]], pa.timestamp("ms", "UTC")),
    "local": (TIMES, pa.timestamp("us")),
    "price": ([decimal.Decimal("-999.99"), decimal.Decimal("0.01")], pa.decimal128(5, 2)),
    "huge": ([decimal.Decimal("1" * 28 + ".0123456789")], pa.decimal128(38, 10)),
}


def drawn(seed, n_rows, share_null):
    """Rows of all types, with an id; NULL, NaN, ties and the ends of ranges."""
    rng = np.random.default_rng(seed)
    columns = {"id": pa.array(range(seed * 10_000, seed * 10_000 + n_rows), pa.int64())}
    for name, (values, kind) in VALUES.items():
        places = rng.integers(0, len(values), n_rows)
        is_null = rng.random(n_rows) < share_null
        columns[name] = pa.array(
            [None if null else values[at] for at, null in zip(places, is_null, strict=True)], kind
        )
    return pa.table(columns)


def by_arrow(table, folder, _spark, **options):
    pq.write_table(table, folder / f"{table.num_rows}.parquet", **options)


def by_spark(table, folder, spark, instants="INT96"):
    df = spark.createDataFrame(table).coalesce(1)
    spark.conf.set("spark.sql.parquet.outputTimestampType", instants)
    df.write.mode("append").parquet(str(folder))
    spark.conf.unset("spark.sql.parquet.outputTimestampType")


def by_duckdb(table, folder, _spark):
    with duckdb.connect() as connection:
        connection.register("given", table.drop_columns(["at", "at_ms", "local"]))
        connection.execute(
            f"COPY given TO '{folder}/{table.num_rows}.parquet' (ROW_GROUP_SIZE 2048)"
        )


def by_polars(table, folder, _spark):
    pl.from_arrow(table.drop_columns(["price", "huge"])).write_parquet(
        folder / f"{table.num_rows}.parquet", row_group_size=70
    )


WRITERS = {
    "arrow": by_arrow,
    "arrow, small row groups": lambda *a: by_arrow(*a, row_group_size=37, data_page_size=64),
    "arrow, plain": lambda *a: by_arrow(*a, use_dictionary=False, compression="none"),
    "arrow, second pages": lambda *a: by_arrow(*a, data_page_version="2.0", compression="zstd"),
    "arrow, no hint": lambda *a: by_arrow(*a, store_schema=False, version="1.0"),
    "arrow, short decimals": lambda *a: by_arrow(*a, store_decimal_as_integer=True),
    "spark": by_spark,
    "spark, microseconds": lambda *a: by_spark(*a, instants="TIMESTAMP_MICROS"),
    "duckdb": by_duckdb,
    "polars": by_polars,
}


def listed_scan(df):
    scan = PlainScan.from_frame(df)
    return scan.listed(scan.files())


def read_by_lane(df):
    scan = listed_scan(df)
    tables = [
        pa.table([*block], names=df.columns)
        for splits in scan.tasks
        for block in Rows(splits, scan.columns, ignores_case=scan.ignores_case).blocks()
    ]
    return pa.concat_tables(tables)


def bits(table):
    """Columns by name, rows by id; floating-point numbers are their bits, but any NaN is one."""

    def of(column):
        found = column.combine_chunks()
        if pa.types.is_nested(found.type):  # files do not say that no element is NULL
            return found.to_pylist()
        if not pa.types.is_floating(found.type):
            return found
        one = pc.if_else(pc.is_nan(found), pa.scalar(float("nan"), found.type), found)
        return one.view(pa.int32() if found.type == pa.float32() else pa.int64())

    table = table.sort_by("id")
    return [(name, of(table[name])) for name in table.column_names]


@pytest.mark.parametrize("writer", WRITERS)
def test_files_are_read_as_spark_reads_them(spark, tmp_path, writer):
    """One of all values, and one of NULLs alone."""
    for table in (drawn(1, 500, 0.2), drawn(2, 3, 1.0)):
        WRITERS[writer](table, tmp_path, spark)
    df = spark.read.parquet(str(tmp_path))
    found = read_by_lane(df)
    true = df.toArrow()
    assert found.schema.types == true.schema.types
    assert bits(found) == bits(true)


def test_names_and_order_and_absent_columns_are_those_of_the_plan(spark, tmp_path):
    by_arrow(pa.table({"id": [1, 2], "A": [3, 4], "b": ["x", None]}), tmp_path, spark)
    df = spark.read.schema("b string, gone double, a bigint, id bigint").parquet(str(tmp_path))
    df = df.withColumnRenamed("b", "text").select("id", "gone", "a", "text", F.col("a").alias("z"))
    df.createOrReplaceTempView("seen")
    for each in (df, spark.table("seen"), df.alias("x")):
        assert bits(read_by_lane(each)) == bits(each.toArrow())


def test_columns_of_a_plan_have_any_name(spark, tmp_path):
    names = ["a#1", "b,c", "e\nf", "g#2L", "h-T5ms", "i AS j#3"]
    by_arrow(pa.table({name: [1] for name in names} | {"at": VALUES["at"][0][:1]}), tmp_path, spark)
    df = spark.read.parquet(str(tmp_path))
    for each in (
        df,
        df.withWatermark("at", "1 second"),
        df.select("b,c", F.col("g#2L").alias("x")),
    ):
        plan = each._jdf.queryExecution().analyzed()
        asked = [(one.exprId().id(), str(one.name())) for one in each_of(plan.output())]
        assert columns_of(plan) == asked


N_ROWS = 2_000
"""Of each of three files."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows in three files, with NULL, NaN and ties."""
    made = tmp_path_factory.mktemp("lane")
    for number in range(3):
        table = drawn(number, N_ROWS, 0.1)
        ids = pa.array(range(number * N_ROWS, (number + 1) * N_ROWS))
        table = table.set_column(0, "id", ids)
        pq.write_table(table, made / f"{number}.parquet", row_group_size=700)
    return made


@pytest.fixture(scope="module")
def df(spark, folder):
    return spark.read.parquet(str(folder))


def why_not(df):
    with pytest.raises(Refused) as caught:
        listed_scan(df)
    return str(caught.value)


@pytest.mark.large
def test_plans_that_are_more_than_a_scan_are_refused(spark, df, tmp_path):
    assert why_not(df.where("id > 3")) == "Filter stands between the files and it"
    assert why_not(df.withColumn("n", F.lit(1))) == "a column is computed before it"
    assert why_not(df.select("id", "_metadata.file_name")) == "a column is computed before it"
    assert "no column of the files" in why_not(df.select("id", "_metadata"))
    assert why_not(df.union(df)).endswith("stands between the files and it")
    assert why_not(df.distinct()).endswith("stands between the files and it")
    assert "not Parquet files" in why_not(spark.range(3).withColumnRenamed("id", "x"))
    df.limit(5).select("id", "text").write.json(str(tmp_path / "json"))
    assert why_not(spark.read.json(str(tmp_path / "json"))).startswith("its files are read by Json")
    df.limit(5).select("id", "whole").write.partitionBy("whole").parquet(str(tmp_path / "parts"))
    assert why_not(spark.read.parquet(str(tmp_path / "parts"))) == "folders have a column"


def test_what_is_cached_is_not_read_from_files(spark, folder):
    mine = spark.read.parquet(str(folder)).select("id")
    assert PlainScan.from_frame(mine)
    mine.cache()
    try:
        assert "InMemoryRelation" in why_not(mine)
    finally:
        mine.unpersist()


@pytest.mark.parametrize(
    "setting",
    [
        "spark.sql.files.ignoreCorruptFiles",
        "spark.sql.files.ignoreMissingFiles",
        "spark.sql.parquet.binaryAsString",
        "spark.sql.parquet.int96TimestampConversion",
        "spark.sql.execution.arrow.useLargeVarTypes",
    ],
)
def test_settings_that_change_what_spark_reads_are_refused(change, df, setting):
    change(**{setting: "true"})
    assert why_not(df) == f"{setting} is on"


def test_options_of_the_reader_are_refused(spark, folder):
    read = spark.read.option("datetimeRebaseMode", "LEGACY").parquet(str(folder))
    assert why_not(read) == "its reader has the option datetimerebasemode"


def test_files_that_are_given_twice_are_read_twice(spark, folder):
    one = str(folder / "1.parquet")
    for paths in ([str(folder), one], [one, one], [str(folder / "*.parquet"), one]):
        twice = spark.read.parquet(*paths)
        assert bits(read_by_lane(twice)) == bits(twice.toArrow())


def test_the_summary_of_a_folder_is_no_file(spark, tmp_path):
    table, parts = drawn(3, 20, 0.1), []
    pq.write_table(table, tmp_path / "a.parquet", metadata_collector=parts)
    parts[0].set_file_path("a.parquet")
    pq.write_metadata(table.schema, tmp_path / "_metadata", metadata_collector=parts)
    df = spark.read.parquet(str(tmp_path))
    assert bits(read_by_lane(df)) == bits(df.toArrow())


def test_values_that_only_a_table_knows_are_refused(spark):
    spark.sql("CREATE TABLE lane_defaults (id BIGINT) USING parquet")
    try:
        spark.sql("INSERT INTO lane_defaults VALUES (1)")
        assert PlainScan.from_frame(spark.table("lane_defaults"))
        spark.sql("ALTER TABLE lane_defaults ADD COLUMN (w INT DEFAULT 7)")
        told = why_not(spark.table("lane_defaults").withMetadata("w", {}))
        assert told == "the table gives 'w' values that files do not have"
    finally:
        spark.sql("DROP TABLE lane_defaults")


def test_a_column_that_spark_fills_is_refused(spark, folder):
    schema = "id bigint, _tmp_metadata_row_index bigint"
    assert "fills by itself" in why_not(spark.read.schema(schema).parquet(str(folder)))


def test_a_damaged_page_is_an_error(spark, tmp_path):
    rows = spark.range(1000).coalesce(1).write.option("parquet.enable.dictionary", "false")
    rows.option("compression", "none").parquet(str(tmp_path / "rows"))
    df = spark.read.parquet(str(tmp_path / "rows"))
    (path,) = map(Path, PlainScan.from_frame(df).files().paths)
    content, value = path.read_bytes(), (500).to_bytes(8, "little")
    assert content.count(value) == 1
    path.write_bytes(content.replace(value, (1 << 40).to_bytes(8, "little")))
    with pytest.raises(SourceError, match=r"cannot be read.*(?i:crc|checksum)"):
        read_by_lane(df)


def test_many_files_and_other_file_systems_are_refused(df, monkeypatch):
    monkeypatch.setattr("eddyline.spark.lane.MOST_FILES", 2)
    assert why_not(df) == "there are more than 2 files"
    with pytest.raises(Refused, match="s3a"):
        local_path("s3a://bucket/x.parquet")


# -- answers --------------------------------------------------------------------------------------


def positive(double):
    return pc.greater(double, 0)


def short(text):
    return pc.less(pc.utf8_length(text), 9)


def odd(whole, flag):
    return pc.or_(pc.not_equal(whole, 0), flag)


def raises_on_zero(long):
    if pc.any(pc.equal(long, 0)).as_py():
        raise ValueError("zero")
    return pc.greater(long, 0)


CONJUNCTIONS = {
    "one": [positive],
    "several": [positive, short, odd],
    "an error that another drops": [raises_on_zero, "long > 0"],
    "a check behind": [short, "double <> 0", "10 / double > 0.1"],
    "two segments": [short, "rand() >= 0", positive, odd],
    "all drop": [el.predicate(lambda id: pc.less(id, 0), reads=["id"], name="never"), short],
    "all pass": [el.predicate(lambda id: pc.greater_equal(id, 0), reads=["id"], name="ever")],
}


@pytest.mark.parametrize(
    ("kind", "routing"), [*((kind, True) for kind in CONJUNCTIONS), ("several", False)]
)
def test_rows_are_those_of_the_other_way(df, kind, routing):
    made = {
        lane: el.all_of(*CONJUNCTIONS[kind], lane=lane, routing=routing) for lane in ("on", "off")
    }
    expected = bits(df.transform(made["off"]).toArrow())
    for _ in range(2):  # what was learned of one job is used in the next
        kept = df.transform(made["on"])
        assert kept.schema == df.schema
        assert bits(kept.toArrow()) == expected
    (note,) = (each for each in made["on"].facts().notes if each.startswith("lane"))
    if kind in ("an error that another drops", "a check behind"):  # SQL goes first
        assert "no Python functions" in note
    else:
        assert note == "lane: tasks read 3 files"
    assert "lane: no, because the option lane is 'off'" in made["off"].explain()
    both = made["on"].facts().blocks[-1].totals, made["off"].facts().blocks[-1].totals
    assert both[0].n_rows == 2 * both[1].n_rows


@pytest.mark.large
def test_an_error_counts_if_the_row_survives(df):
    for lane in ("on", "off"):
        keep = el.all_of(raises_on_zero, lane=lane)
        with pytest.raises(Exception, match="'raises_on_zero' raised ValueError: zero"):
            df.transform(keep).count()


@pytest.mark.large
def test_why_there_is_no_lane_is_said(df):
    def note(keep, rows):
        rows.transform(keep).schema  # noqa: B018 - lays it
        (said,) = (each for each in keep.facts().notes if each.startswith("lane"))
        return said

    on = {"lane": "on"}
    assert "lane='on' takes it" in note(el.all_of(positive), df)
    assert note(el.all_of(positive, **on), df.where("id > 1")).startswith(
        "lane: no, because Filter"
    )
    expression = el.predicate(lambda x: pc.greater(x, 1), reads=["coalesce(id, 0)"], name="more")
    assert "reads 'coalesce(id, 0)'" in note(el.all_of(expression, **on), df)
    routed = el.all_of(positive, short, route_by=["id % 3"], **on)
    assert "told apart by 'id % 3'" in note(routed, df)
    assert "no Python functions" in note(el.all_of("id > 3", positive, **on), df)


@pytest.mark.large
def test_types_that_arrow_lacks_are_no_error(spark, tmp_path):
    rows = spark.range(3).selectExpr("id", "CAST(id AS DOUBLE) AS double", "INTERVAL '1' YEAR AS y")
    rows.write.parquet(str(tmp_path / "rows"))
    keep = el.all_of(positive, lane="on")
    kept = spark.read.parquet(str(tmp_path / "rows")).transform(keep)
    assert kept.count() == 2
    assert "lane: no, because its plan is not read" in keep.explain()


def test_the_file_of_a_row_is_never_empty_without_a_word(df):
    kept = df.transform(el.all_of(positive, lane="on"))
    with pytest.raises(AnalysisException, match="input_file_name"):
        kept.withColumn("file", F.input_file_name())
    with pytest.raises(AnalysisException, match="_metadata"):
        kept.select("_metadata.file_path")
    before = df.withColumn("file", F.input_file_name()).transform(el.all_of(positive, lane="on"))
    assert before.where("file = ''").count() == 0


@pytest.mark.large
def test_files_that_are_gone_or_new_are_an_error(spark, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "rows")
    kept = spark.read.parquet(str(tmp_path / "rows")).transform(el.all_of(positive, lane="on"))
    pq.write_table(drawn(9, 10, 0.0), tmp_path / "rows" / "1.parquet")
    with pytest.raises(Exception, match=r"1\.parquet was written again"):
        kept.count()
    (tmp_path / "rows" / "1.parquet").unlink()
    with pytest.raises(Exception, match=r"1\.parquet was there when Spark listed it"):
        kept.count()


@pytest.mark.large
def test_a_limit_ends_tasks_early(df):
    kept = df.transform(el.all_of(positive, short, lane="on"))
    assert len(kept.limit(3).collect()) == 3
    assert kept.isEmpty() is False


# -- streams --------------------------------------------------------------------------------------


FILES_ARE_ASKED = pytest.mark.parametrize("asked", ["files"], indirect=True)


def stream_over(spark, folder):
    rows = spark.readStream.schema(schema_of(folder)).option("maxFilesPerTrigger", 1)
    return rows.parquet(str(folder))


def query_over(spark, folder, **options):
    engine = el.Engine(spark)
    engine.stream("s", stream_over(spark, folder))
    for name, fn in (("positive", positive), ("odd", odd)):
        reads = ["double"] if fn is positive else ["whole", "flag"]
        engine.function(name, fn, reads=reads)
    text = "SELECT id, text, double FROM s WHERE positive(double) AND odd(whole, flag)"
    return engine.query(text, name="lane_query", **options)


def started(given, tmp_path, *stream, trigger="available_now"):
    """Start a query, or rules over a stream, that writes files."""
    where = {"path": tmp_path / "out", "checkpoint": tmp_path / "state"}
    return given.start(*stream, "parquet", **where, trigger=trigger)


def ran(given, tmp_path, *stream):
    run = started(given, tmp_path, *stream)
    run.await_termination()
    return run


@FILES_ARE_ASKED
def test_a_stream_reads_files_and_a_restart_may_read_rows(spark, folder, tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    shutil.copy(folder / "0.parquet", source)
    run = ran(query_over(spark, source), tmp_path)
    assert run.plan()["lane"] == FILES
    assert "lane: tasks read the files of each batch" in run.explain()
    assert "files; adapts" in run.explain()
    shutil.copy(folder / "1.parquet", source)
    run = ran(query_over(spark, source, lane="off"), tmp_path)
    assert "lane" not in run.plan()
    assert "lane: no, because the option lane is 'off'" in run.explain()
    shutil.copy(folder / "2.parquet", source)
    run = ran(query_over(spark, source), tmp_path)
    found = spark.read.parquet(str(tmp_path / "out"))
    rows = spark.read.parquet(str(folder))
    expected = rows.transform(el.all_of(positive, odd, lane="off")).select("id", "text", "double")
    assert bits(found.toArrow()) == bits(expected.toArrow())


ASKING = [
    "SELECT id, input_file_name() AS f FROM s WHERE positive(double)",
    "SELECT id FROM s WHERE positive(double) AND INPUT_FILE_NAME() LIKE '%0.parquet'",
    "SELECT id, input_file_block_start() AS f FROM s WHERE positive(double)",
]


@FILES_ARE_ASKED
@pytest.mark.parametrize("text", ASKING)
def test_a_query_that_asks_for_files_keeps_the_scan_of_spark(spark, folder, text):
    engine = el.Engine(spark)
    engine.stream("s", spark.readStream.schema(schema_of(folder)).parquet(str(folder)))
    engine.function("positive", positive, reads=["double"])
    run = engine.query(text, name="asks").start("memory", trigger="available_now")
    run.await_termination()
    assert "lane: no, because the query asks which file a row is of" in run.explain()
    # Spark evaluates the condition behind Python, where it may know of the file no more.
    if "AS f" in text:
        found = run.sink.table()["f"].to_pylist()
        assert found
        assert not {"", -1} & {*found}


@pytest.mark.large
@FILES_ARE_ASKED
def test_a_function_that_takes_the_rows_may_ask_for_their_files(spark, folder, tmp_path):
    files = []

    def take(df, _batch_id):
        files.extend(row.f for row in df.select(F.input_file_name().alias("f")).collect())

    take.takes_all = True
    run = query_over(spark, folder).start(take, trigger="available_now")
    run.await_termination()
    assert len({*files}) == 3
    assert "" not in files


@pytest.mark.large
@FILES_ARE_ASKED
def test_a_person_pins_rows(spark, folder, tmp_path):
    query = query_over(spark, folder)
    run = query.start("memory", checkpoint=tmp_path / "state", trigger="available_now")
    run.pin({"lane": ROWS})
    run.await_termination()
    assert run.plan()["lane"] == ROWS
    assert "rows: pinned by a person before batch 0" in run.explain()
    assert "lane: no, because the plan 'rows' is in force" in run.explain()
    (entry,) = (each for each in run.journal if each["component"] == "lane")
    assert (entry["event"], entry["after"]) == ("pin", ROWS)


@pytest.mark.large
@FILES_ARE_ASKED
def test_a_file_that_is_replaced_in_a_batch_fails_it_and_it_runs_again(
    spark, folder, tmp_path, monkeypatch
):
    source = tmp_path / "in"
    source.mkdir()
    shutil.copy(folder / "0.parquet", source)
    listed = PlainScan.listed

    def replaced(self, files):
        found = listed(self, files)
        shutil.copyfile(folder / "1.parquet", source / "0.parquet")
        return found

    monkeypatch.setattr(PlainScan, "listed", replaced)
    with pytest.raises(Exception, match=r"0\.parquet was written again"):
        ran(query_over(spark, source), tmp_path)
    monkeypatch.undo()
    shutil.copy(folder / "0.parquet", source)
    ran(query_over(spark, source), tmp_path)
    rows = spark.read.parquet(str(folder / "0.parquet"))
    expected = rows.transform(el.all_of(positive, odd, lane="off"))
    assert spark.read.parquet(str(tmp_path / "out")).count() == expected.count()


# -- rules ----------------------------------------------------------------------------------------


RULES = {
    "more": "double > 0",
    "not less": "NOT (double <= 0)",
    "some": "tiny IN (0, 127) AND flag",
    "old": "day < DATE'1970-01-01'",
    "late": "at >= TIMESTAMP'2000-01-01 00:00:00Z' OR text LIKE 'a%'",
    "cheap": "price BETWEEN -1 AND 1",
    "nothing": "text IS NULL AND whole = 0",
    "python": el.predicate(short, reads=["text"], name="short"),
    "never": "long > 3 AND long < 3",
}

OUTPUTS = {
    "matches": lambda rules: rules.matches("found"),
    "every row": lambda rules: rules.matches("found", keep_unmatched=True),
    "structs": lambda rules: rules.matches("found", as_struct=True),
    "some": lambda rules: rules.any(),
    "none": lambda rules: lambda df: rules.split(df)[0],
}


FEW = {"few": "double > 1e300 AND tiny = 0"}


@pytest.fixture(scope="module")
def other_way(df):
    """Return what rules give where Spark reads the files, and what they tell then."""

    @cache
    def run(is_few, output):
        rules = el.RuleSet(FEW if is_few else RULES, lane="off", method="blocks")
        table = df.transform(OUTPUTS[output](rules)).toArrow()
        assert "lane: no, because the option lane is 'off'" in rules.explain()
        return table, rules.facts()

    def other_way(is_few, output):
        """All outputs but structs are parts of every row with its matches."""
        if output in ("structs", "every row"):
            return run(is_few, output)
        table, facts = run(is_few, "every row")
        n_found = pc.list_value_length(table["found"])
        table = table.filter((pc.equal if output == "none" else pc.greater)(n_found, 0))
        return table if output == "matches" else table.drop_columns(["found"]), facts

    return other_way


@pytest.mark.parametrize(
    ("is_few", "output"),
    [
        *((False, output) for output in OUTPUTS),
        *((True, output) for output in ("matches", "every row", "none")),
    ],
)
def test_rules_keep_the_rows_of_the_other_way(df, other_way, is_few, output):
    rules = FEW if is_few else RULES
    expected, off = other_way(is_few, output)
    made = el.RuleSet(rules, lane="on", method="blocks")
    shape = df.transform(OUTPUTS[output](el.RuleSet(rules, lane="off", method="blocks"))).dtypes
    for _ in range(2):  # what was learned of one job is used in the next
        found = df.transform(OUTPUTS[output](made))
        assert found.dtypes == shape
        assert bits(found.toArrow()) == bits(expected)
    assert "lane: tasks read 3 files" in made.explain()
    on = made.facts()
    assert on.n_rows == 2 * off.n_rows
    assert on.n_matches == 2 * off.n_matches
    with pytest.raises(AnalysisException, match="input_file_name"):
        found.withColumn("file", F.input_file_name())


@pytest.mark.large
def test_matches_are_counted_from_files_by_default(df):
    counts = {lane: el.RuleSet(RULES, lane=lane, method="blocks") for lane in ("auto", "on", "off")}
    found = {
        lane: {tuple(row) for row in df.transform(rules.count_by_rule()).collect()}
        for lane, rules in counts.items()
    }
    assert found["auto"] == found["on"] == found["off"]
    assert {name for name, _ in found["off"]} == {*RULES} - {"never"}
    assert "lane: tasks read 3 files" in counts["auto"].explain()
    df.transform(counts["auto"].any()).count()
    assert "lane='on' takes it" in counts["auto"].explain()


@pytest.mark.large
def test_why_rules_read_no_files_is_said(df):
    def told(rules, rows, **options):
        made = el.RuleSet(rules, lane="on", **options)
        rows.transform(made.any()).count()
        return made.explain()

    assert "a rule looks at" in told({"a": "length(text) + id > 3", "b": "id > 3"}, df)
    assert "no rule looks at a column" in told({"a": "TRUE"}, df, method="blocks")
    assert "lane: no, because Filter stands" in told(RULES, df.where("id > 1"))
    assert "one statement of Spark's" in told({"a": "id > 3"}, df, method="statement")
    with pytest.raises(el.errors.OptionError, match="lane"):
        el.RuleSet({"a": "id > 3"}, lane="fast")
    with pytest.raises(el.errors.QueryError, match="eddyline's own"):
        df.transform(el.RuleSet(RULES, lane="on").matches("__eddyline_sent"))


@pytest.mark.large
def test_an_error_of_a_rule_is_that_of_the_other_way(df):
    rule = el.predicate(raises_on_zero, reads=["long"], name="raises_on_zero")
    for lane in ("on", "off"):
        rules = el.RuleSet({"zero": rule}, lane=lane)
        kept = df.transform(rules.any())
        assert ("lane: tasks read 3 files" in rules.explain()) is (lane == "on")
        with pytest.raises(Exception, match="'raises_on_zero' raised ValueError: zero"):
            kept.count()


def test_names_are_made_for_as_many_rows_as_spark_hands_over(change, df, monkeypatch):
    most = 2 * 100 * len("a name of some length")
    monkeypatch.setattr("eddyline.spark.rules.task.MAX_NAMES_BYTES", most)
    names = {"a name of some length": "id >= 0"}
    change(batch=100)
    rules = el.RuleSet(names, lane="on", method="blocks")
    df.transform(rules.matches("found")).count()
    operator = rules._shown
    work = operator.compiled.work(operator._task(Batch()))
    files = listed_scan(df)
    made = FileRules(
        **files.reading(("id",)),
        added=(pa.field("found", pa.list_(pa.string())),),
        rules=work.task,
        keep=Keep.MATCHED,
    )
    sizes = [batch.num_rows for number in (0, 1) for batch in made.kept(number)]
    assert sum(sizes) == 3 * N_ROWS + 2
    assert max(sizes) == 100


@pytest.mark.large
@FILES_ARE_ASKED
def test_rules_over_a_stream_read_files_and_a_restart_may_read_rows(spark, folder, tmp_path):
    def ran_over(*names, lane="auto"):
        for name in names:
            shutil.copy(folder / f"{name}.parquet", source)
        rules = el.RuleSet(RULES, lane=lane, method="blocks", name="watched")
        return ran(rules, tmp_path, stream_over(spark, source))

    source = tmp_path / "in"
    source.mkdir()
    run = ran_over(0, 1)
    assert run.plan()["lane"] == FILES
    assert "lane: tasks read the files of each batch" in run.explain()
    run = ran_over(2, lane="off")
    assert "lane" not in run.plan()
    assert not [each for each in run.journal if each["event"] == "drop_state"]
    found = spark.read.parquet(str(tmp_path / "out"))
    rules = el.RuleSet(RULES, lane="off", method="blocks")
    expected = spark.read.parquet(str(folder)).transform(rules.matches("matches"))
    assert bits(found.toArrow()) == bits(expected.toArrow())


@pytest.mark.large
@FILES_ARE_ASKED
def test_rules_that_change_take_the_lane_and_leave_it(spark, folder, tmp_path):
    rules = el.RuleSet({"more": "double > 0"}, method="blocks", name="changed")
    source = tmp_path / "in"
    source.mkdir()
    shutil.copy(folder / "0.parquet", source)
    with started(rules, tmp_path, stream_over(spark, source), trigger="50 milliseconds") as run:
        run.processAllAvailable()
        assert "lane: tasks read the files of each batch" in run.explain()
        rules.add("native", "whole > tiny")
        shutil.copy(folder / "1.parquet", source)
        run.processAllAvailable()
        assert "lane: no, because a rule looks at" in run.explain()
        rules.remove("native")
        shutil.copy(folder / "2.parquet", source)
        run.processAllAvailable()
        assert "lane: tasks read the files of each batch" in run.explain()
    found = spark.read.parquet(str(tmp_path / "out")).where("array_contains(matches, 'more')")
    assert found.count() == spark.read.parquet(str(folder)).where("double > 0").count()


@pytest.mark.large
@FILES_ARE_ASKED
def test_rules_that_send_much_back_are_tried_the_other_way_soon(spark, folder, tmp_path):
    source = tmp_path / "in"
    source.mkdir()
    for number in range(FIRST_TRIAL + 1):
        shutil.copy(folder / f"{number % 3}.parquet", source / f"{number}.parquet")
    rules = el.RuleSet({"all": "id >= 0"}, method="blocks", name="sends")
    run = ran(rules, tmp_path, stream_over(spark, source))
    assert "lane: no, because the plan 'rows' is tried" in run.explain()


@pytest.mark.large
@FILES_ARE_ASKED
def test_a_condition_that_mixes_sql_and_python_is_a_rule_that_reads_files(spark, folder, tmp_path):
    engine = el.Engine(spark)
    engine.stream("s", spark.readStream.schema(schema_of(folder)).parquet(str(folder)))
    engine.function("positive", positive, reads=["double"])
    query = engine.query("SELECT id FROM s WHERE positive(double) OR id < 50", name="mixed")
    run = ran(query, tmp_path)
    assert "lane: tasks read the files of each batch" in run.explain()
    found = spark.read.parquet(str(tmp_path / "out")).toArrow()["id"].to_pylist()
    rows = spark.read.parquet(str(folder)).toPandas()
    assert sorted(found) == sorted(rows["id"][(rows["double"] > 0) | (rows["id"] < 50)])


@pytest.mark.large
def test_a_table_that_is_written_before_the_job_is_counted_as_spark_counts_it(spark):
    spark.sql("CREATE TABLE lane_written (a INT) USING parquet")
    try:
        spark.sql("INSERT INTO lane_written VALUES (1), (2)")
        rules = el.RuleSet({"one": "a = 1", "any": "a > 0"}, method="blocks")
        counts = spark.table("lane_written").transform(rules.count_by_rule())
        assert "lane: no, because a table may be written before the job" in rules.explain()
        spark.sql("INSERT OVERWRITE lane_written VALUES (1)")
        assert sorted(map(tuple, counts.collect())) == [("any", 1), ("one", 1)]
    finally:
        spark.sql("DROP TABLE lane_written")


@pytest.mark.large
@FILES_ARE_ASKED
def test_a_stream_of_a_table_with_defaults_is_read_by_spark(spark, tmp_path):
    spark.sql("CREATE TABLE lane_stream (a INT, c CHAR(4)) USING parquet")
    try:
        spark.sql("INSERT INTO lane_stream VALUES (1, 'x')")
        spark.sql("ALTER TABLE lane_stream ADD COLUMN (t STRING DEFAULT 'given')")
        rules = el.RuleSet({"one": "a = 1", "given": "t = 'given'"}, method="blocks")
        run = rules.start(spark.readStream.table("lane_stream"), trigger="available_now")
        run.await_termination()
        (row,) = run.to_df().collect()
        assert (row.t, row.matches) == ("given", ["one", "given"])
        assert "the table gives" in run.explain()
    finally:
        spark.sql("DROP TABLE lane_stream")
