"""Aggregates over joins in one SELECT: rows of a join come and go, as DuckDB finds them."""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import pyarrow as pa
import pytest

import eddyline as el
from eddyline.errors import NotSupportedError, QueryError
from eddyline.joins import tables
from eddyline.joins.tables import COMBINATIONS, PRODUCTS, RESULTS, ProductChoice
from eddyline.query.identity import differences
from tests.spark.aggregates.aggregate_streams import ended
from tests.spark.joins.join_streams import told, write_batch
from tests.spark.run.lives import changes, rows_in

pytestmark = pytest.mark.spark

SCHEMA = "k INT, v BIGINT, w DOUBLE, ts TIMESTAMP"
N_BATCHES, LATENESS_S = 4, 3
LOW = f"(SELECT least(max(s.ts), (SELECT max(ts) FROM t)) - INTERVAL {LATENESS_S} SECONDS FROM s)"


def batch_of(name, number):
    """Return the rows of a batch: seconds with ties, up to 2 s late; keys and values with NULL."""
    drawn = random.Random(f"{name}{number}")
    rows = [
        (
            drawn.choice([None, 0, 0, 1, 2, 3]),
            drawn.choice([None, *range(-5, 20)]),
            drawn.choice([None, 0.5, 1.5, 8.0]),
            (number * 8 + drawn.randrange(10) - 2 + 100) * 1_000_000,
        )
        for _ in range(14)
    ]
    rows[0] = (*rows[0][:3], (number * 8 + 108) * 1_000_000)
    kinds = pa.int32(), pa.int64(), pa.float64(), pa.timestamp("us", "UTC")
    columns = [
        pa.array(each, kind) for each, kind in zip(zip(*rows, strict=True), kinds, strict=True)
    ]
    return pa.table(dict(zip(("k", "v", "w", "ts"), columns, strict=True)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("joined")
    for number in range(N_BATCHES):
        for name in "stu":
            write_batch(made, name, number, batch_of(name, number))
    return made


def engine_of(spark, folder, *, at_once=False, time="TIMESTAMP"):
    engine = el.Engine(spark)
    for name in "stu":
        schema = SCHEMA.replace("TIMESTAMP", time)
        reader = spark.readStream.schema(schema)
        if not at_once:
            reader = reader.option("maxFilesPerTrigger", 1)
        stream = reader.parquet(str(folder / name))
        engine.stream(name, stream, time="ts", lateness=f"{LATENESS_S} seconds")
    engine.table(
        "names", spark.createDataFrame([(0, "a"), (1, "b"), (1, "c")], "k INT, name STRING")
    )
    return engine


def of_duckdb(text):
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        for name in "stu":
            every = pa.concat_tables([batch_of(name, number) for number in range(N_BATCHES)])
            db.register(name, every)
        db.execute("CREATE TABLE names AS FROM (VALUES (0, 'a'), (1, 'b'), (1, 'c')) x(k, name)")
        return Counter(rows_in(db.sql(text).to_arrow_table()))


def answers(engine, text, **options):
    return Counter(rows_in(ended(engine.query(text, name="q", **options)).to_arrow()))


def until(**lengths):
    """Return SQL of the last instant of a combination of inputs with windows of so many seconds."""
    return f"least({', '.join(f'{k}.ts + INTERVAL {n} SECONDS' for k, n in lengths.items())})"


def pairs(group, *, where="true", until, more="", values="s.v AS v, t.w AS w"):
    return (
        f"SELECT {group} AS g, {values}, greatest(s.ts, t.ts) AS since, {until} AS until "
        f"FROM s JOIN t ON s.k = t.k {more} WHERE {where}"
    )


TWO = "FROM s [RANGE 4 SECONDS], t [RANGE 2 SECONDS] WHERE s.k = t.k"
OF_TWO = until(s=4, t=2)
CASES = {
    "sums by key": (
        f"SELECT s.k AS g, sum(s.v) AS n, count(t.w) AS m, window.end AS till {TWO} GROUP BY s.k",
        changes(pairs("s.k", until=OF_TWO), LOW, "sum(v) AS n, count(w) AS m"),
    ),
    "no group": (
        f"SELECT 0 AS g, count(*) AS n, min(t.w) * 2 AS m, window.end AS till {TWO}",
        changes(pairs("0", until=OF_TWO), LOW, "count(until) AS n, min(w) * 2 AS m"),
    ),
    "a condition on both, HAVING and FILTER": (
        f"SELECT s.k + 1 AS g, count(*) FILTER (WHERE t.w > 1) AS n, max(s.v - t.v) AS m, "
        f"window.end AS till {TWO} AND s.v > t.v AND t.v > -3 GROUP BY s.k + 1 HAVING n > 0",
        changes(
            pairs(
                "s.k + 1", where="s.v > t.v AND t.v > -3", until=OF_TWO, values="s.v, t.w, t.v AS x"
            ),
            LOW,
            "count(*) FILTER (w > 1) AS n, max(v - x) AS m",
            "n > 0",
        ),
    ),
    "values that depend on all rows": (
        f"SELECT s.k AS g, count(DISTINCT s.v) AS n, median(t.v) AS m, window.end AS till {TWO} "
        "GROUP BY s.k",
        changes(
            pairs("s.k", until=OF_TWO, values="s.v, t.v AS x"),
            LOW,
            "count(DISTINCT v) AS n, quantile_disc(x, 0.5) AS m",
        ),
    ),
    "a stream for ever and one for an instant": (
        "SELECT s.k AS g, count(*) AS n, sum(t.v) AS m, window.end AS till "
        "FROM s, t [NOW] WHERE s.k = t.k GROUP BY s.k",
        changes(
            pairs("s.k", until="t.ts", more="AND s.ts <= t.ts", values="t.v"),
            LOW,
            "count(until) AS n, sum(v) AS m",
        ),
    ),
    "no window at all": (
        "SELECT s.k AS g, count(*) AS n, sum(t.v) AS m, window.end AS till "
        "FROM s JOIN t USING (k) GROUP BY k HAVING count(*) < 40",
        changes(
            pairs("s.k", until="TIMESTAMPTZ '2200-01-01'", values="t.v"),
            LOW,
            "count(until) AS n, sum(v) AS m",
            "n < 40",
        ),
    ),
    "a table": (
        "SELECT n.name AS g, sum(s.v) AS n, count(*) AS m, window.end AS till "
        "FROM s [RANGE 4 SECONDS], names n WHERE s.k = n.k GROUP BY n.name",
        changes(
            "SELECT name AS g, v, s.ts AS since, s.ts + INTERVAL 4 SECONDS AS until "
            "FROM s JOIN names USING (k)",
            f"(SELECT max(ts) - INTERVAL {LATENESS_S} SECONDS FROM s)",
            "sum(v) AS n, count(until) AS m",
        ),
    ),
    "three inputs": (
        "SELECT u.k AS g, sum(s.v * t.v) AS n, round(avg(u.w) * 1000) AS m, "
        "window.end AS till "
        "FROM s [RANGE 4 SECONDS], t [RANGE 2 SECONDS], u [RANGE 3 SECONDS] "
        "WHERE s.k = t.k AND t.k = u.k GROUP BY u.k",
        changes(
            "SELECT k AS g, s.v * t.v AS v, u.w AS w, greatest(s.ts, t.ts, u.ts) AS since, "
            f"{until(s=4, t=2, u=3)} AS until FROM s JOIN t USING (k) JOIN u USING (k)",
            "(SELECT min(x) FROM (SELECT max(ts) - INTERVAL 3 SECONDS AS x FROM s UNION ALL "
            "SELECT max(ts) - INTERVAL 3 SECONDS FROM t UNION ALL "
            "SELECT max(ts) - INTERVAL 3 SECONDS FROM u))",
            "sum(v) AS n, round(avg(w) * 1000) AS m",
        ),
    ),
}


def later(low, seconds):
    """Return an instant that is earlier: rows without a partner wait for so long, and 1 µs."""
    return f"({low} - INTERVAL {seconds} SECONDS - INTERVAL {seconds // 3} MICROSECONDS)"


def met(left, right):
    """Return the condition that rows of two streams are in their windows at one instant."""
    (one, a), (other, b) = left, right
    return f"{other}.ts BETWEEN {one}.ts - INTERVAL {b} SECONDS AND {one}.ts + INTERVAL {a} SECONDS"


LOW_OF_ALL = (
    "(SELECT min(x) - INTERVAL 3 SECONDS FROM (SELECT max(ts) AS x FROM s "
    "UNION ALL SELECT max(ts) FROM t UNION ALL SELECT max(ts) FROM u))"
)
ST, SU = met(("s", 4), ("t", 2)), met(("s", 4), ("u", 3))
EXISTS_T = "EXISTS (SELECT 1 FROM t{} WHERE t.k = s.k AND t.w > 1{})"
IN_U = "s.v {} (SELECT u.v FROM u{} WHERE u.v IS NOT NULL AND u.k = s.k{})"


def asking(condition):
    """Return a condition with EXISTS or IN: ours, and that of DuckDB."""
    windows = {"t": (" [RANGE 2 SECONDS]", f" AND {ST}"), "u": (" [RANGE 3 SECONDS]", f" AND {SU}")}
    ours, theirs = condition, condition
    for name, text in (("t", EXISTS_T), ("u", IN_U.replace("{}", "IN", 1))):
        window, bound = windows[name]
        ours = ours.replace(f"<{name}>", text.format(window, ""))
        theirs = theirs.replace(f"<{name}>", text.format("", bound))
    return ours, theirs


def asking_last_rows(condition):
    """Return a condition with EXISTS or IN over windows of N rows: ours, and that of DuckDB."""
    ours, theirs = asking(condition)
    for name, (n_rows, groups) in {"t": (6, ""), "u": (1, "PARTITION BY v ")}.items():
        length, bound = (2, ST) if name == "t" else (3, SU)
        ours = ours.replace(f"{name} [RANGE {length} SECONDS]", f"{name} [{groups}ROWS {n_rows}]")
        by = ", ".join(f"{column} NULLS FIRST" for column in ("ts", "k", "v", "w"))
        end = f"lead(ts, {n_rows}) OVER ({groups}ORDER BY {by}) - INTERVAL 1 MICROSECOND"
        held = f"SELECT *, coalesce({end}, TIMESTAMPTZ '2100-01-01') AS till FROM {name}"
        met_at = f"greatest(s.ts, {name}.ts) <= least(s.ts + INTERVAL 4 SECONDS, {name}.till)"
        theirs = theirs.replace(f"FROM {name} ", f"FROM ({held}) {name} ").replace(bound, met_at)
    return ours, theirs


def of_rows_that_ask(condition, asking=asking):
    """Return aggregates of the rows of ``s`` for which a condition holds."""
    ours, theirs = asking(condition)
    n_waits = condition.count("<")
    return (
        "SELECT s.k AS g, count(*) AS n, sum(v) AS m, window.end AS till "
        f"FROM s [RANGE 4 SECONDS] WHERE {ours} GROUP BY s.k",
        changes(
            "SELECT s.k AS g, s.v, s.ts AS since, s.ts + INTERVAL 4 SECONDS AS until "
            f"FROM s WHERE {theirs}",
            later(LOW_OF_ALL if n_waits > 1 else LOW, 4 * n_waits),
            "count(until) AS n, sum(v) AS m",
        ),
    )


CASES |= {
    "LEFT JOIN": (
        "SELECT s.k AS g, count(*) AS n, sum(t.v) AS m, window.end AS till "
        "FROM s [RANGE 4 SECONDS] LEFT JOIN t [RANGE 2 SECONDS] ON s.k = t.k AND s.v > t.v "
        "GROUP BY s.k",
        changes(
            f"SELECT s.k AS g, t.v, greatest(s.ts, t.ts) AS since, {until(s=4, t=2)} AS until "
            f"FROM s LEFT JOIN t ON s.k = t.k AND s.v > t.v AND {ST}",
            later(LOW, 4),
            "count(until) AS n, sum(v) AS m",
        ),
    ),
    "RIGHT JOIN of an inner join": (
        "SELECT u.k AS g, count(*) AS n, sum(s.v + t.v) AS m, window.end AS till "
        "FROM s [RANGE 4 SECONDS] JOIN t [RANGE 2 SECONDS] ON s.k = t.k "
        "RIGHT JOIN u [RANGE 3 SECONDS] ON u.k = s.k AND u.v > 3 GROUP BY u.k",
        changes(
            "SELECT u.k AS g, st.v, greatest(u.ts, since) AS since, "
            "least(u.ts + INTERVAL 3 SECONDS, until) AS until FROM u LEFT JOIN "
            f"(SELECT s.k, s.v + t.v AS v, greatest(s.ts, t.ts) AS since, {until(s=4, t=2)} AS "
            f"until FROM s JOIN t ON s.k = t.k AND {ST}) st ON u.k = st.k AND u.v > 3 "
            "AND greatest(u.ts, since) <= least(u.ts + INTERVAL 3 SECONDS, until)",
            later(LOW_OF_ALL, 3),
            "count(until) AS n, sum(v) AS m",
        ),
    ),
    "FULL JOIN": (
        "SELECT coalesce(s.k, t.k) AS g, count(s.ts) AS n, count(t.ts) AS m, window.end AS till "
        "FROM s [RANGE 4 SECONDS] FULL JOIN t [RANGE 2 SECONDS] ON s.k = t.k AND s.v > t.v "
        "GROUP BY coalesce(s.k, t.k)",
        changes(
            "SELECT coalesce(s.k, t.k) AS g, s.ts AS a, t.ts AS b, "
            f"greatest(s.ts, t.ts) AS since, {until(s=4, t=2)} AS until "
            f"FROM s FULL JOIN t ON s.k = t.k AND s.v > t.v AND {ST}",
            later(LOW, 4),
            "count(a) AS n, count(b) AS m",
        ),
    ),
    "EXISTS": of_rows_that_ask("<t> AND s.v > -4"),
    "NOT EXISTS and NOT IN": of_rows_that_ask("NOT <t> AND (s.v > 9 OR NOT <u>)"),
    "EXISTS and IN under OR": of_rows_that_ask("s.v > 12 OR <t> OR <u>"),
    "EXISTS and NOT IN over the last rows": of_rows_that_ask("<t> AND NOT <u>", asking_last_rows),
}


@pytest.mark.parametrize(
    "at_once", [True, pytest.param(False, marks=pytest.mark.large("runs streams of four batches"))]
)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=[] if at < 2 else pytest.mark.large("a case of several alike"))
        for at, name in enumerate(CASES)
    ],
)
def test_any_cut_gives_what_duckdb_gives(spark, folder, case, at_once):
    text, of = CASES[case]
    wanted = of_duckdb(of)
    assert len(wanted) > 10
    assert answers(engine_of(spark, folder, at_once=at_once), text) == wanted


OF_ALL = (
    "(SELECT min(x) FROM (SELECT max(ts) - INTERVAL 3 SECONDS AS x FROM s UNION ALL "
    "SELECT max(ts) - INTERVAL 3 SECONDS FROM t UNION ALL "
    "SELECT max(ts) - INTERVAL 3 SECONDS FROM u))"
)
BY_KEY = {name: CASES[name] for name in ("sums by key", "a stream for ever and one for an instant")}
BY_KEY |= {
    "averages and HAVING, by values": (
        "SELECT t.v % 3 AS g, round(avg(s.k) * 1000) AS n, sum(s.v) AS m, count(t.w) AS o, "
        f"window.end AS till {TWO} AND s.v IS DISTINCT FROM 7 GROUP BY t.v % 3 HAVING count(*) > 2",
        changes(
            pairs(
                "t.v % 3",
                where="s.v IS DISTINCT FROM 7",
                until=OF_TWO,
                values="s.k AS k, s.v AS v, t.w AS w",
            ),
            LOW,
            "round(avg(k) * 1000) AS n, sum(v) AS m, count(w) AS o",
            "here > 2",
        ),
    ),
    "three inputs": (
        "SELECT 1 AS g, sum(s.v) AS n, round(avg(u.k) * 1000) AS m, count(*) AS o, sum(t.v) AS p, "
        "window.end AS till FROM s [RANGE 4 SECONDS], t [RANGE 2 SECONDS], u [RANGE 3 SECONDS] "
        "WHERE s.k = t.k AND t.k = u.k",
        changes(
            "SELECT 1 AS g, s.v AS v, t.v AS x, k, greatest(s.ts, t.ts, u.ts) AS since, "
            f"{until(s=4, t=2, u=3)} AS until FROM s JOIN t USING (k) JOIN u USING (k)",
            OF_ALL,
            "sum(v) AS n, round(avg(k) * 1000) AS m, count(until) AS o, sum(x) AS p",
        ),
    ),
}


@pytest.fixture(params=["products", "in turns"])
def results_of_joins(request, monkeypatch):
    """Let joins return products in all batches, or in every other one; return how many came."""
    came = []

    def turn(choice, counts, batch_id=-1):
        came.append((choice.plan, sum(each.n_products for each in counts)))
        if request.param == "in turns":
            choice.plan = RESULTS[choice.plan == COMBINATIONS]
        return []

    monkeypatch.setattr(tables, "COMBINATIONS", PRODUCTS)  # what a choice begins with
    monkeypatch.setattr(ProductChoice, "step", turn)
    return came


@pytest.mark.large("runs a stream of four batches")
@pytest.mark.parametrize("case", BY_KEY)
def test_products_give_what_combinations_do(spark, folder, case, results_of_joins):
    text, of = BY_KEY[case]
    wanted = of_duckdb(of)
    assert len(wanted) > 10
    assert answers(engine_of(spark, folder), text, buckets=2) == wanted
    assert sum(n for plan, n in results_of_joins if plan == PRODUCTS) > 10


@pytest.mark.large("runs a stream of four batches")
@pytest.mark.parametrize("first", ["pairs", "(SELECT k, v, ts FROM s) AS pairs"])
def test_results_of_queries_are_joined_and_aggregated(spark, folder, first):
    engine, rows = engine_of(spark, folder), "SELECT *, ts AS at FROM s"
    if first == "pairs":
        joined = (
            "SELECT s.k AS k, s.v AS v, greatest(s.ts, u.ts) AS at "
            "FROM s [RANGE 2 SECONDS], u [RANGE 1 SECOND] WHERE s.k = u.k"
        )
        engine.stream("pairs", engine.query(joined, name="joined"), time="at")
        rows = (
            "SELECT s.k, s.v, greatest(s.ts, u.ts) AS at FROM s JOIN u ON s.k = u.k "
            f"AND greatest(s.ts, u.ts) <= {until(s=2, u=1)}"
        )
    text = (
        "SELECT t.k AS g, count(*) AS n, sum(pairs.v) AS m, window.end AS till "
        f"FROM {first} [NOW], t [RANGE 3 SECONDS] WHERE pairs.k = t.k GROUP BY t.k"
    )
    of = changes(
        "SELECT t.k AS g, p.v AS v, greatest(p.at, t.ts) AS since, "
        f"least(p.at, t.ts + INTERVAL 3 SECONDS) AS until FROM ({rows}) p JOIN t ON p.k = t.k",
        f"least({LOW}, (SELECT max(ts) - INTERVAL {LATENESS_S} SECONDS FROM u))",
        "count(until) AS n, sum(v) AS m",
    )
    found, wanted = answers(engine, text), of_duckdb(of)
    assert len(wanted) > 10
    assert found <= wanted
    assert len(found) > 8


@pytest.mark.large("runs a stream of four batches")
def test_dstream_gives_what_ceases_to_be(spark, folder):
    text = f"SELECT DSTREAM(s.k AS g, count(*) AS n, window.end AS till) {TWO} GROUP BY s.k"
    of = changes(pairs("s.k", until=OF_TWO), LOW, "count(until) AS n")
    of = of.replace(
        "SELECT g, n, till FROM l WHERE holds", "SELECT g, old[2], till FROM l WHERE old[1]"
    )
    found, wanted = answers(engine_of(spark, folder), text), of_duckdb(of)
    assert len(wanted) > 10
    assert found == wanted


@pytest.mark.large("runs a stream of four batches")
def test_rstream_gives_all_groups_at_each_instant_of_a_joined_row(spark, folder):
    text = (
        f"SELECT RSTREAM(s.k AS g, count(*) AS n, sum(s.v) AS m, window.end AS till) {TWO} "
        "GROUP BY s.k HAVING count(*) > 1"
    )
    rows = pairs("s.k", until=OF_TWO)
    wanted = of_duckdb(
        f"WITH r AS (SELECT * FROM ({rows}) WHERE since <= until), "
        "i AS (SELECT DISTINCT since AS till FROM r) "
        "SELECT g, count(*) AS n, sum(v) AS m, till FROM i JOIN r ON since <= till "
        f"AND till <= until WHERE till < {LOW} GROUP BY g, till HAVING count(*) > 1"
    )
    assert len(wanted) > 10
    assert answers(engine_of(spark, folder), text) == wanted


def test_distinct_rows_of_a_join_and_a_wall_clock(spark, folder, change):
    change(timestamps="TIMESTAMP_NTZ", zone="America/New_York")
    text = "SELECT DISTINCT s.k AS g, window.end AS till " + TWO
    made = engine_of(spark, folder, at_once=True, time="TIMESTAMP_NTZ")
    of = changes(pairs("s.k", until=OF_TWO), LOW, "true AS n")
    wanted = Counter((g, till) for g, _, till in of_duckdb(of))
    assert answers(made, text) == wanted
    assert len(wanted) > 5


def test_the_plan_says_which_rows_are_there(spark, folder):
    made = engine_of(spark, folder)
    query = made.query(f"SELECT s.k, sum(s.v) AS total {TWO} GROUP BY s.k")
    plan = " ".join(query.explain().split())
    assert "aggregate `s ⋈ t` [RANGE 4 SECONDS, RANGE 2 SECONDS]: k_1 AS k" in plan
    assert query.name.startswith("join")
    run = ended(query)
    assert run.to_arrow().column_names == ["k", "total"]
    assert "windows RANGE 4 SECONDS, RANGE 2 SECONDS" in told(run)


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        (
            "SELECT count(*) AS n FROM s [ROWS 3], t [NOW] WHERE s.k = t.k",
            NotSupportedError,
            r"count\(\) over a join with \[ROWS 3\] of 's' is not supported yet; write \[RANGE",
        ),
        (
            "SELECT count(*) AS n FROM (SELECT k FROM s) x [NOW], t [NOW] WHERE x.k = t.k",
            NotSupportedError,
            r"over a join of 'x', which does not keep the event time of a stream, is not supported",
        ),
        (
            "SELECT count(*) AS n FROM sums [NOW], t [NOW] WHERE sums.k = t.k",
            NotSupportedError,
            r"over a join of 'sums', which does not keep the event time of a stream, is not",
        ),
        (
            "SELECT count(*) AS n FROM s, t WHERE s.k = t.k GROUP BY window(s.ts, '1 minute')",
            NotSupportedError,
            r"window\(…\) over a join is not supported yet in one SELECT",
        ),
        (
            "SELECT s.k, sum(v) OVER (ORDER BY s.ts) AS n FROM s, t WHERE s.k = t.k",
            NotSupportedError,
            "OVER.* over a join is not supported yet in one SELECT",
        ),
        (
            "SELECT s.k, count(*) AS n FROM s, t WHERE s.k = t.k GROUP BY t.v",
            QueryError,
            "'k' is neither grouped nor aggregated",
        ),
        (
            "SELECT v, count(*) AS n FROM s, t WHERE s.k = t.k GROUP BY v",
            QueryError,
            r"'v' .*s\.v.*t\.v",
        ),
        (
            "SELECT count(*) AS n FROM s, t WHERE s.k = t.k AND count(*) > 3",
            QueryError,
            r"WHERE: the aggregate count\(\) stands in HAVING",
        ),
        (
            "SELECT count(*) AS n FROM s, t WHERE s.v < t.v",
            NotSupportedError,
            "Cartesian|no key|key",
        ),
    ],
)
def test_what_is_not_run_yet_is_said(spark, folder, text, error, match):
    engine = engine_of(spark, folder)
    ends = "window.end AS till FROM s [RANGE 1 SECOND SLIDE 1 SECOND]"
    sums = f"SELECT k, sum(v) AS v, {ends} GROUP BY k"
    engine.stream("sums", engine.query(sums), time="till")
    with pytest.raises(error, match=match):
        engine.query(text)


def test_a_window_join_says_that_it_does_not_aggregate(spark, folder):
    frames = {name: spark.read.parquet(str(folder / name)) for name in "st"}
    with pytest.raises(NotSupportedError, match=r"returns the rows of a join; engine.query"):
        el.window_join(
            frames, on="s.k = t.k", time=dict.fromkeys("st", "ts"), select="DISTINCT s.k"
        )


def test_names_of_inputs_and_columns_that_nobody_reads_do_not_change_the_query(spark, folder):
    def identity(text, streams):
        engine = el.Engine(spark)
        for name, schema in streams.items():
            rows = spark.readStream.schema(schema).parquet(str(folder / "s"))
            engine.stream(name, rows, time="ts")
        return engine.query(text, name="q").identity

    plain = {"s": SCHEMA, "t": "k INT, ts TIMESTAMP"}
    text = "SELECT s.k, sum(s.v) AS n FROM s [NOW], t [NOW] WHERE s.k = t.k GROUP BY s.k"
    before = identity(text, plain)
    named = text.replace("s.", "a.").replace("FROM s", "FROM s AS a")
    assert not differences(before, identity(named, plain))
    assert not differences(before, identity(text, plain | {"t": SCHEMA}))
    assert differences(before, identity(text.replace("t [NOW]", "t [RANGE 1 SECOND]"), plain))


@pytest.mark.large("runs a stream of four batches")
def test_rows_without_a_partner_are_waited_for_by_aggregates_of_a_left_join(spark, folder):
    engine = engine_of(spark, folder)
    joined = (
        "SELECT s.ts AS sts, t.v AS w FROM s [RANGE 4 SECONDS] LEFT JOIN t [RANGE 2 SECONDS] "
        "ON s.k = t.k AND t.v > 10"
    )
    engine.stream("pairs", engine.query(joined, name="joined"), time="sts")
    text = (
        "SELECT count(*) AS n, count(w) AS m, window.end AS till "
        "FROM pairs [RANGE 2 SECONDS SLIDE 2 SECONDS]"
    )
    found = answers(engine, text)
    wanted = of_duckdb(
        "SELECT count(*), count(w), to_timestamp((epoch_us(ts) // 2000000 + 1) * 2) AS till "
        "FROM (SELECT s.ts, t.v AS w FROM s LEFT JOIN t ON s.k = t.k AND t.v > 10 AND t.ts "
        "BETWEEN s.ts - INTERVAL 2 SECONDS AND s.ts + INTERVAL 4 SECONDS) GROUP BY till"
    )
    assert len(found) > 8
    assert found <= wanted
