"""``MODEL`` in SQL over several streams, and over a stream and tables."""

from __future__ import annotations

import datetime

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import eddyline as el
from eddyline.errors import NotSupportedError, QueryError, UnboundedStateWarning
from tests.spark.models.tracks import (
    FIRST_S,
    SECOND,
    copied,
    ended,
    rounded,
    stream_of,
    write_files,
)

N_FILES, LAST_S = 3, 400

FIGURE_2_1 = """
    SELECT * from A MODEL A.x = A.x + A.v t
           JOIN   B MODEL B.y = B.v t + B.a t^2
           ON (A.x < B.y)
"""

PORTS = pa.table(
    {
        "id": pa.array([0, 1, 1, 2, None, 7], pa.int64()),
        "most": pa.array([2.0, 1.0, 4.0, None, 0.0, 0.0]),
        "port": ["a", "b", "c", "d", "e", "f"],
        "open": [True, True, True, True, True, False],
    }
)
"""Of ship 1 there are two, of ship 3 none, and one limit is NULL."""


def times(seconds):
    return pa.array((np.asarray(seconds) + FIRST_S) * SECOND).cast(pa.timestamp("us", "UTC"))


def rows_of(rng, **columns):
    """Return rows out of order by at most two seconds, and two that are behind all others."""
    seconds = np.sort(rng.choice(LAST_S, 150, replace=False))
    seconds = np.append(seconds, [LAST_S + 10_000, LAST_S + 20_000])
    order = np.argsort(seconds + rng.integers(0, 3, seconds.size), kind="stable")
    made = {name: make(rng, seconds.size) for name, make in columns.items()}
    return pa.table({"ts": times(seconds)} | made).take(pa.array(order))


def walk(rng, n):
    return np.cumsum(rng.integers(-2, 3, n)) / 2


def slope(rng, n):
    return rng.integers(-2, 3, n) / 4


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(21)
    ships = rows_of(
        rng,
        ship=lambda rng, n: np.append(rng.integers(0, 4, n - 2), [99, 99]),
        x=walk,
        v=slope,
        flag=lambda rng, n: rng.choice(["odd", "even"], n),
    )
    return {
        "A": rows_of(rng, x=walk, v=slope),
        "B": rows_of(rng, v=slope, a=lambda rng, n: rng.integers(-1, 2, n) / 16),
        "s": ships,
    }


@pytest.fixture(scope="module")
def folders(tables, tmp_path_factory):
    made = {}
    for name, table in tables.items():
        size = -(-len(table) // N_FILES)
        parts = (table.slice(size * n, size) for n in range(N_FILES))
        made[name] = write_files(tmp_path_factory.mktemp(name), parts)
    return made


def engine_of(spark, folders, stream, ports):
    """Return an engine whose inputs are streams, or tables, under the same names."""
    engine = el.Engine(spark)
    for name, folder in folders.items():
        if stream:
            engine.stream(name, stream_of(spark, folder), time="ts", lateness="3 seconds")
        else:
            engine.table(name, spark.read.parquet(str(folder)))
    engine.table("ports", ports)
    return engine


@pytest.fixture(scope="module")
def ports(spark):
    found = spark.createDataFrame(PORTS).coalesce(1).persist()
    yield found
    found.unpersist()


@pytest.fixture(scope="module")
def batch(spark, folders, ports):
    return engine_of(spark, folders, False, ports)


def at(text):
    """Return a query over tables, which have no event time of their own."""
    for model in ("A.v t", "t^2", "BY ship"):
        text = text.replace(model, f"{model} AT ts")
    return text


def before_the_end(rows):
    """Return the results that are over before the rows that end all models."""
    end = datetime.datetime.fromtimestamp(FIRST_S + LAST_S)
    kept = [
        row
        for row in rows
        if all(each <= end for each in row if isinstance(each, datetime.datetime))
    ]
    return sorted(map(rounded, kept), key=repr)


SHIPS = "s MODEL x = x + v * t HORIZON 9 SECONDS BY ship"
FITTED = "s MODEL x WITHIN 1 MAX GAP 20 SECONDS BY ship WITH (degree = 1, prefix_rows = 16)"
ASKED = {
    "figure 2.1": FIGURE_2_1,
    "declared and fitted": (
        f"SELECT a.ship, a.x, b.x AS y FROM {SHIPS} AS a JOIN {FITTED} AS b ON a.ship = b.ship "
        "WHERE a.x > b.x AND b.flag = 'odd' AND a.ship <> 2 CHANGES"
    ),
    "a table": (
        f"SELECT c.ship, p.port, c.x - p.most AS over FROM {SHIPS} AS c JOIN ports p "
        "ON p.id = c.ship WHERE c.x > p.most AND c.flag = 'odd' AND p.open CHANGES"
    ),
    "an average by port": (
        f"SELECT port, avg(c.x) AS mean FROM ports p JOIN {SHIPS} AS c "
        "ON p.id = c.ship GROUP BY port HAVING avg(c.x) > -10 SAMPLE EVERY 5 SECONDS"
    ),
}


@pytest.mark.large("runs a stream in four micro-batches, with a restart")
@pytest.mark.filterwarnings("ignore::eddyline.errors.UnboundedStateWarning")
@pytest.mark.parametrize("name", ASKED)
def test_streams_give_what_tables_give_and_go_on_from_their_checkpoint(
    spark, folders, batch, ports, tmp_path, name
):
    wanted = before_the_end(batch.query(at(ASKED[name])).to_df().collect())
    assert len(wanted) > 10
    for numbers in ((0,), (1, 2)):
        for stream, folder in folders.items():
            copied(folder, tmp_path / stream, numbers)
        seen = {stream: tmp_path / stream for stream in folders}
        ended(engine_of(spark, seen, True, ports).query(ASKED[name], name="live"), tmp_path)
    assert before_the_end(spark.read.parquet(str(tmp_path / "out")).collect()) == wanted


def test_figure_2_1_holds_at_the_ticks_at_which_its_rows_say_so(batch, tables):
    rows = batch.query(at(FIGURE_2_1) + " SAMPLE EVERY 1 SECOND").to_df().collect()
    found = sorted(
        (each.time.timestamp() - FIRST_S, each.A_x, each.B_y)
        for each in rows
        if each.time.timestamp() == int(each.time.timestamp())  # points have their own instants
        and each.time.timestamp() < FIRST_S + LAST_S
    )
    a, b = (
        {int(row.pop("ts").timestamp()) - FIRST_S: row for row in tables[name].to_pylist()}
        for name in "AB"
    )
    wanted = []
    for tick in range(LAST_S):
        seconds = [max((each for each in side if each <= tick), default=None) for side in (a, b)]
        if None in seconds:
            continue
        one, other = a[seconds[0]], b[seconds[1]]
        since = tick - seconds[1]
        x = one["x"] + one["v"] * (tick - seconds[0])
        y = other["v"] * since + other["a"] * since**2
        if x < y:
            wanted.append((tick, x, y))
    assert len(wanted) > 50
    np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_a_table_join_gives_at_ticks_what_sql_gives(batch, tables):
    text = ASKED["a table"].replace("CHANGES", "SAMPLE EVERY 1 SECOND")
    found = batch.query(at(text)).to_df().collect()
    found = sorted(
        (each.ship, each.port, each.time.timestamp() - FIRST_S, round(each.over, 6))
        for each in found
        if each.time.timestamp() == int(each.time.timestamp())
        and each.time.timestamp() < FIRST_S + LAST_S
    )
    connection = duckdb.connect()
    seconds = tables["s"].column("ts").cast(pa.int64()).to_numpy() // SECOND - FIRST_S
    connection.register("ships", tables["s"].append_column("second", pa.array(seconds)))
    connection.register("ports", PORTS)
    wanted = connection.sql(f"""
        WITH kept AS (SELECT * FROM ships WHERE flag = 'odd'),
        pieces AS (
            SELECT *, least(second + 9, coalesce(lead(second) OVER (PARTITION BY ship
                   ORDER BY second), second + 9)) AS until FROM kept),
        ticks AS (SELECT range AS tick FROM range({LAST_S}))
        SELECT ship, port, tick, round(x + v * (tick - second) - most, 6) AS over
        FROM pieces JOIN ticks ON tick >= second AND tick < until JOIN ports ON id = ship
        WHERE x + v * (tick - second) > most AND open
    """).fetchall()
    assert len(wanted) > 50
    assert found == sorted(wanted)


@pytest.mark.large
def test_null_limits_are_unknown_wherever_they_stand_in_a_condition(batch):
    asked = f"SELECT c.ship, p.port FROM {SHIPS} AS c JOIN ports p ON p.id = c.ship WHERE "
    for condition in ("c.x > p.most", "NOT c.x <= p.most", "c.x <> p.most"):
        found = batch.query(at(asked + condition)).to_df()
        assert {each.port for each in found.collect()} == {"a", "b", "c"}
    either = batch.query(at(asked + "c.x > p.most OR c.x > -1000")).to_df()
    assert {each.port for each in either.collect()} == {"a", "b", "c", "d"}


def test_a_model_without_a_horizon_warns_that_it_keeps_its_last_row(spark, folders, ports):
    engine = engine_of(spark, folders, True, ports)
    with pytest.warns(UnboundedStateWarning, match="models of 'A' have no horizon"):
        query = engine.query(FIGURE_2_1, name="figure")
    assert query.streams == ("A", "B")


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (f"SELECT c.x FROM {SHIPS} AS c JOIN A ON A.v = c.ship", NotSupportedError,
         "'A' is a stream without MODEL"),
        (f"SELECT c.x FROM {SHIPS} AS c JOIN ports p ON p.id = c.ship WHERE c.x > p.port",
         QueryError, "key 'p_port' is of type string"),
        (f"SELECT c.x FROM {SHIPS} AS c JOIN ports p ON p.nothing = c.ship", QueryError,
         "unknown column 'p.nothing'"),
        (f"SELECT c.x FROM {SHIPS} AS c JOIN ports p ON p.id = c.ship WHERE c.x > p.most + v",
         NotSupportedError, "modelled attributes and of other columns"),
        (f"SELECT c.x FROM {SHIPS} AS c JOIN ports p [RANGE 1 SECOND] ON p.id = c.ship",
         QueryError, "is a table, which has no window"),
        (f"SELECT c.x FROM {SHIPS} AS c LEFT JOIN ports p ON p.id = c.ship", NotSupportedError,
         "inner JOIN"),
        (f"SELECT c.x FROM {SHIPS} AS c JOIN {SHIPS} AS d ON c.ship = d.ship JOIN ports p "
         "ON p.id = c.ship", NotSupportedError, "in a subquery"),
    ],
)  # fmt: skip
def test_what_a_join_does_not_take_is_said_with_its_place(spark, folders, ports, text, kind, said):
    with pytest.raises(kind, match=said) as error:
        engine_of(spark, folders, True, ports).query(text)
    assert type(error.value) is kind
    assert error.value.facts["line"] == 1
