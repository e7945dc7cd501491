"""Orders per class of rows on Spark: the rows stay the same, and evaluations are really saved."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.errors import QueryError
from eddyline.routing.table import Attribute, Partition, RouteTable
from eddyline.spark.filters.native_block import NativeBlock
from tests.spark.facts import facts_of
from tests.spark.joins.join_streams import stream_of, write_batch

pytestmark = pytest.mark.spark

N_JOBS = 5
"""Jobs in which classes must be found. Costs are measured with a clock, so on busy cores the first
job of six batches may not be sure that they pay."""

CITIES = ["Rome", "Paris", "Oslo", None]
DOUBLES = [None, math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -3.0, 2.0**53, 1e300, 5e-324]


def slow(column, name=None, per_row=100):
    """A predicate that computes about a microsecond per row: worth an order of its own."""

    def passes(values):
        np.sin(np.linspace(0.0, 1.0, per_row * len(values)))
        return pc.less(values, 0.5)

    return el.predicate(passes, reads=[column], name=name or f"{column}_passes")


def rows_by_class(n_rows, seed, *, of_row=None):
    """Rows of four classes; in class k filter k passes 5 % and the others pass 90 %."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 4, n_rows) if of_row is None else of_row(rng)
    table = {"id": np.arange(n_rows)}
    for f in range(4):
        passes = rng.random(n_rows) < np.where(kind == f, 0.05, 0.9)
        table[f"v{f}"] = np.where(passes, 0.0, 1.0) + rng.random(n_rows) * 0.4
    return kind, table


@pytest.fixture(scope="module")
def by_city(spark):
    kind, table = rows_by_class(60_000, 1)
    table["city"] = pa.array([CITIES[k] for k in kind])
    return spark.createDataFrame(pa.table(table)).repartition(2, "id").cache()


def ids(df):
    return sorted(df.select("id").toArrow()["id"].to_pylist())


@cache
def expected(df):
    return ids(df.where(" AND ".join(f"v{f} < 0.5" for f in range(4))))


def find_routes(keep, by_city, column):
    """Run jobs until classes by a column are found; how soon depends on what else the cores do."""
    for _ in range(N_JOBS):
        assert ids(by_city.transform(keep)) == expected(by_city)
        by = [entry["after"]["by"] for entry in keep.journal if entry["event"] == "routes"]
        if by and column in by[-1]:
            return
    raise AssertionError(f"no classes by {column} were found in any job, but by {by}")


@pytest.mark.large
def test_python_predicates_take_an_order_per_class(by_city):
    keep = el.all_of(*[slow(f"v{f}") for f in range(4)])
    find_routes(keep, by_city, "city")
    first_job = keep.facts().blocks[0].totals
    assert ids(by_city.transform(keep)) == expected(by_city)
    view = keep.facts().blocks[0]
    assert view.routed_by == ("city",)
    first = {route.order[0] for route in view.routes}
    assert first == {0, 1, 2, 3}
    assert sum(route.share for route in view.routes) == pytest.approx(1.0)
    text = keep.explain()
    assert "Classes of rows by city" in text
    assert "city = 'Rome'" in text or "city in ('Rome'" in text or ", 'Rome'" in text
    # With one order for all some 2.4 evaluations a row, with one per class some 1.3.
    n_evaluations = view.totals.n_evaluations - first_job.n_evaluations
    assert n_evaluations / (view.totals.n_rows - first_job.n_rows) < 1.6


@pytest.mark.large
def test_a_column_that_every_predicate_reads_beside_its_own_may_tell_classes(by_city):
    def of(column):
        passes = slow(column).fn

        def passes_somewhere(values, cities):
            return pc.and_(passes(values), pc.equal(pc.is_valid(cities), pc.is_valid(cities)))

        return el.predicate(passes_somewhere, reads=[column, "city"], name=f"by {column}")

    keep = el.all_of(*[of(f"v{f}") for f in range(4)])
    find_routes(keep, by_city, "city")
    assert ids(by_city.transform(keep)) == expected(by_city)
    assert keep.facts().blocks[0].routed_by == ("city",)


def test_switched_off_there_are_no_classes(by_city):
    keep = el.all_of(*[slow(f"v{f}") for f in range(4)], routing=False)
    assert ids(by_city.transform(keep)) == expected(by_city)
    assert not [entry for entry in keep.journal if entry["event"] == "routes"]
    assert "Routing" not in keep.explain()
    frozen = el.all_of(*[slow(f"v{f}") for f in range(4)], adaptive=False)
    assert ids(by_city.transform(frozen)) == expected(by_city)
    assert frozen.facts().blocks[0].routes == ()


def test_cheap_predicates_are_not_routed(by_city):
    keep = el.all_of(*[f"v{f} < 0.5" for f in range(4)])
    assert ids(by_city.transform(keep)) == expected(by_city)
    assert keep.facts().blocks[0].routes == ()


@pytest.mark.large
def test_attributes_named_by_the_user(by_city):
    keep = el.all_of(*[slow(f"v{f}") for f in range(4)], route_by=["upper(city)"])
    find_routes(keep, by_city, "upper(city)")
    assert ids(by_city.transform(keep)) == expected(by_city)
    assert keep.facts().blocks[0].routed_by == ("upper(city)",)


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("town", "town"),
        ("array(city)", "cannot tell classes of rows apart"),
        ("rand()", "cannot tell classes of rows apart"),
        ("1 / id", "cannot tell classes of rows apart"),
    ],
)
def test_an_attribute_that_cannot_be_one_says_why(by_city, attribute, message):
    with pytest.raises(QueryError, match=message.replace("(", r"\(")):
        by_city.transform(el.all_of("v0 < 0.5", "v1 < 0.5", route_by=[attribute]))


def many_texts(rng, kind):
    return pa.array([f"{k}-{n}" for k, n in zip(kind, rng.integers(0, 10**9, len(kind)))])  # noqa: B905


ATTRIBUTES = {
    "many_texts": many_texts,
    "nulls": lambda rng, kind: pa.nulls(len(kind), pa.string()),
    "sequence": lambda rng, kind: pa.array(np.arange(len(kind))),
    "odd_doubles": lambda rng, kind: pa.array([DOUBLES[n] for n in rng.integers(0, 11, len(kind))]),
    "nan_class": lambda rng, kind: pa.array(np.where(kind == 0, np.nan, kind + 0.0)),
    "booleans": lambda rng, kind: pa.array([None if k == 1 else bool(k) for k in kind]),
    "dates": lambda rng, kind: pa.array(kind, pa.int32()).cast(pa.date32()),
}


@pytest.fixture(scope="module")
def by_anything(spark):
    kind, table = rows_by_class(20_000, 2)
    for name, attribute in ATTRIBUTES.items():
        table[name] = attribute(np.random.default_rng(3), kind)
    return spark.createDataFrame(pa.table(table)).repartition(2, "id").cache()


@pytest.mark.large
@pytest.mark.parametrize("attribute", ATTRIBUTES)
def test_any_attribute_keeps_the_rows(by_anything, attribute):
    df = by_anything.select("id", *(f"v{f}" for f in range(4)), attribute)
    keep = el.all_of(*[slow(f"v{f}") for f in range(4)])
    for _ in range(2):
        assert ids(df.transform(keep)) == expected(by_anything)


@pytest.mark.large
def test_a_predicate_that_reads_the_attribute_itself(by_city):
    def in_rome(city):
        np.sin(np.linspace(0.0, 1.0, 100 * len(city)))
        return pc.equal(city, "Rome")

    rome = el.predicate(in_rome, reads=["city"], name="in_rome")
    keep = el.all_of(rome, *[slow(f"v{f}") for f in range(4)])
    want = expected(by_city.where("city = 'Rome'"))
    for _ in range(2):
        assert ids(by_city.transform(keep)) == want
    for entry in keep.journal:
        if entry["event"] == "routes" and entry["after"] is not None:
            assert entry["evidence"]["filters"].get("in_rome", {}).get("attribute") != "city"


# -- the native block ---------------------------------------------------------------------------

PARTITIONS = [
    Partition("a", "values", (-3.0, 0.0, 1.5)),
    Partition("a", "ranges", (-3.0, 0.0, 1.5, 1e300)),
    Partition("a", "hash", n_hash=5),
    Partition("a", "values"),
    Partition("a", "ranges", (-math.inf, math.inf)),
]


def test_sql_and_numpy_agree_on_the_group_of_a_row(spark):
    numbers = np.array(DOUBLES, dtype=float)
    df = spark.createDataFrame(
        pa.table({"id": range(len(DOUBLES)), "a": pa.array(DOUBLES, pa.float64())})
    )
    asked, wanted = [], []
    for part in PARTITIONS:
        groups = tuple((bin * 7 + 1) % 3 for bin in range(part.n_bins))
        table = RouteTable(part, ((0, 1, 2), (1, 0, 2), (2, 1, 0)), groups)
        sql = table.conditions("a")
        whens = " ".join(f"WHEN {each} THEN {n + 1}" for n, each in enumerate(sql))
        asked.append(f"CASE {whens} ELSE 0 END")
        wanted.append(table.group_of(numbers).tolist())
    rows = df.selectExpr("id", *(f"{sql} AS c" for sql in asked)).orderBy("id").collect()
    found = [list(column) for column in zip(*rows, strict=True)][1:]
    assert dict(zip(asked, found, strict=True)) == dict(zip(asked, wanted, strict=True))


@pytest.fixture(scope="module")
def traps(spark, tmp_path_factory):
    """Rows where the predicate ``100 / k > 30`` raises, all of them of the class a."""
    folder = str(tmp_path_factory.mktemp("traps") / "rows")
    rows = "id % 5 AS k", "IF(id % 5 = 0 OR id % 2 = 0, 0, 1) AS c", "(id % 7) / 7.0D AS v"
    spark.range(0, 5_000, 1, 2).selectExpr("id", *rows).write.parquet(folder)
    return spark.read.parquet(folder)


CHAINS = {
    "shared by two": ["k <> 0", "100 / k > 30", "100 / k < 90"],
    "in every branch": ["k <> 0", "100 / k > 30", "v < 0.5"],
}


@pytest.mark.large
@pytest.mark.parametrize(
    ("chain", "n_groups", "eager"),
    [
        ("shared by two", 2, "true"),
        ("shared by two", 3, "false"),
        ("in every branch", 2, "false"),
        ("in every branch", 3, "true"),
    ],
)
def test_no_branch_evaluates_what_stands_behind_a_drop(traps, change, chain, n_groups, eager):
    """Common subexpressions of all branches must not be hoisted out of them and run on every row.

    A predicate that raises on the rows that it should never meet is the instrument.
    """
    attribute = Attribute("c", "number", "CAST(c AS DOUBLE)")
    block = NativeBlock(("p", "q", "r"), tuple(CHAINS[chain]), attributes=(attribute,))
    cut = Partition("c", "values", (1.0, 2.0))
    orders = ((0, 1, 2), (1, 0, 2), (1, 2, 0))[:n_groups]
    table = RouteTable(cut, orders, (1, n_groups - 1, 0, 0))
    want = ids(traps.where(block.chain((0, 1, 2))))
    change(**{"spark.sql.subexpressionElimination.filterExec.enabled": eager})
    assert ids(block.apply(traps, (0, 1, 2), table)) == want
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):  # the instrument works
        block.apply(traps, (1, 0, 2)).collect()


@pytest.mark.parametrize(
    ("k", "n_groups"), [("k", 3), pytest.param("coalesce(k, 1)", 2, marks=pytest.mark.large)]
)
def test_a_class_meets_its_own_order_and_not_the_default_one(spark, traps, k, n_groups):
    """Spark must not take the branches for equal because their conjuncts are.

    The default order raises on the rows of class 0, whose own order guards them.
    """
    texts = (f"{k} <> 0", f"100 / {k} > 30", "v < 0.5")
    attribute = Attribute("c", "number", "CAST(c AS DOUBLE)")
    block = NativeBlock(("p", "q", "r"), texts, attributes=(attribute,))
    cut = Partition("c", "values", (0.0, 1.0))
    table = RouteTable(cut, ((1, 0, 2), (0, 1, 2), (1, 2, 0))[:n_groups], (1, n_groups - 1, 0, 0))
    assert ids(block.apply(traps, (1, 0, 2), table)) == ids(traps.where(block.chain((0, 1, 2))))
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        block.apply(traps, (1, 0, 2)).collect()


def regexes():
    """Conditions dear enough for an order per class: each scans a long text."""
    return [f"rlike(t{f}, '[a-z ]*xxy{f}$')" for f in range(3)]


@pytest.fixture(scope="module")
def texts(spark, tmp_path_factory):
    """Texts of three classes, the class as a number; in class k text k seldom matches."""
    rng = np.random.default_rng(5)
    n_rows = 40_000
    kind = rng.integers(0, 3, n_rows)
    table = {"id": np.arange(n_rows), "region": pa.array(kind)}
    for f in range(3):
        matches = rng.random(n_rows) < np.where(kind == f, 0.05, 0.9)
        filler = "lorem ipsum dolor sit amet " * 4
        table[f"t{f}"] = pa.array([filler + (f"xxy{f}" if m else "xxz") for m in matches])
    folder = str(tmp_path_factory.mktemp("texts") / "rows")
    spark.createDataFrame(pa.table(table)).repartition(8).write.parquet(folder)
    return folder


@pytest.mark.large
def test_sql_predicates_of_a_query_take_an_order_per_class(spark, texts, tmp_path):
    df = spark.read.parquet(texts)
    stream = spark.readStream.schema(df.schema).option("maxFilesPerTrigger", 1).parquet(texts)
    engine = el.Engine(spark)
    engine.stream("s", stream)
    condition = " AND ".join(regexes())
    query = engine.query(f"SELECT id, region FROM s WHERE {condition}", name="routed")
    run = query.start("memory", checkpoint=str(tmp_path), trigger="available_now")
    run.await_termination()
    assert sorted(run.to_arrow()["id"].to_pylist()) == ids(df.where(condition))
    view = facts_of(run).blocks[0]
    assert view.routed_by == ("region",)
    assert {route.order[0] for route in view.routes} == {0, 1, 2}
    assert "Classes of rows by region" in run.explain()
    routes = [entry for entry in run.journal if entry["event"] == "routes"]
    assert routes[0]["evidence"]["filters"]
    assert run.records[-1].operators[0].routed_by == ("region",)
    report = run.report(tmp_path / "report.html").read_text("utf-8")
    assert "Classes of rows by region" in report

    again = engine.query(f"SELECT id, region FROM s WHERE {condition}", name="again")
    more = again.start("memory", checkpoint=str(tmp_path), trigger="available_now")
    more.await_termination()
    assert [entry["event"] for entry in more.journal][-1] == "restore"
    assert facts_of(more).blocks[0].routed_by == ("region",)


@pytest.mark.large
def test_a_class_that_appears_moves_to_another_column_and_disappears(spark, tmp_path):
    """Four phases: no class, by ``a``, by ``b``, no class again. The rows are always the same."""
    rng = np.random.default_rng(6)
    tables, n_rows = [], 25_000
    for number in range(16):
        kind, table = rows_by_class(n_rows, 100 + number)
        other = rng.integers(0, 4, len(kind))
        noise = rng.integers(0, 4, len(kind))
        phase = number // 4
        table["a"] = kind if phase == 1 else other
        table["b"] = kind if phase == 2 else noise
        if phase in {0, 3}:
            for f in range(4):
                rng.shuffle(table[f"v{f}"])
        tables.append(pa.table(table | {"id": table["id"] + number * n_rows}))
    for number, table in enumerate(tables):
        write_batch(tmp_path, "in", number, table)
    df = spark.read.parquet(str(tmp_path / "in"))
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, tmp_path, "in"))
    for f in range(4):
        engine.function(f"g{f}", slow(f"v{f}"))
    query = engine.query(
        "SELECT id FROM s WHERE g0() AND g1() AND g2() AND g3()",
        name="moving",
        sample_prob=0.05,
        max_overhead=0.1,
    )
    run = query.start("memory", trigger="available_now")
    run.await_termination()
    assert sorted(run.to_arrow()["id"].to_pylist()) == expected(df)
    used = {name for record in run.records for name in record.operators[0].routed_by}
    assert used & {"a", "b"}  # both, unless the machine is too busy to tell what a filter costs


@pytest.mark.large
def test_tenants_in_files_that_are_scanned(spark, tmp_path):
    """Scanning Parquet, Spark hands over batches of 4,096 rows: too few for eight orders."""
    n_tenants, n_rows = 8, 400_000
    rng = np.random.default_rng(17)
    tenant = rng.integers(0, n_tenants, n_rows)
    columns = {"tenant": tenant}
    for k in range(n_tenants):
        columns[f"v{k}"] = (rng.random(n_rows) > np.where(tenant == k, 0.05, 0.95)) * 1.0
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet", row_group_size=100_000)
    rows = spark.read.parquet(str(tmp_path))
    keep = el.all_of(*(slow(f"v{k}", per_row=25) for k in range(n_tenants)))
    want = rows.where(" AND ".join(f"v{k} < 0.5" for k in range(n_tenants))).count()
    assert rows.transform(keep).count() == want
    # On a busy machine the second job may still be the one that learns what routing gains.
    evaluated = []
    for _ in range(2):
        before = keep.facts().blocks[0].totals.n_evaluations
        assert rows.transform(keep).count() == want
        (block,) = keep.facts().blocks
        evaluated.append((block.totals.n_evaluations - before) / n_rows)
    assert block.routed_by == ("tenant",)
    assert min(evaluated) < 2.1, "4.2 in one order, 1.4 in the best"
