"""LEFT, SEMI and ANTI joins over windows: the results of DuckDB, whatever the cut into batches."""

from __future__ import annotations

import datetime as dt
import random

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eddyline as el
from tests.spark.joins.join_streams import ended, stream_of, write_batch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LATENESS_S, LEFT_S, RIGHT_S, END_S = 10, 20, 7, 10_000
N_ROWS = 60


def rows_of(seed):
    """Return rows whose event times are out of order by less than the lateness."""
    rng = random.Random(seed)
    keys = [None, 0, 1, 2, 3, 2**40]
    return [
        {
            "ts": T0 + dt.timedelta(seconds=3 * number + rng.choice([-4, 0, 0, 4])),
            "id": number,
            "k": rng.choice(keys),
            "name": rng.choice([None, "", "a", "b", "äß"]),
            "x": rng.choice([None, 0.0, -0.0, float("nan"), 1.5]),
            "v": rng.choice([None, 1, 2, 3, 4]),
        }
        for number in range(N_ROWS)
    ]


SCHEMA = pa.schema(
    {
        "ts": pa.timestamp("us", "UTC"),
        "id": pa.int64(),
        "k": pa.int64(),
        "name": pa.string(),
        "x": pa.float64(),
        "v": pa.int32(),
    }
)


def table_of(rows):
    return pa.Table.from_pylist(rows, SCHEMA)


LAST = {"ts": T0 + dt.timedelta(seconds=END_S), "id": -1, "k": 9, "name": "last", "x": 9.0}
"""A row that moves the time on, so that all before it is decided; itself it waits."""

LAST_OF_T = LAST | {"k": 8, "name": "end", "x": 8.0}

WHEN = f"t.ts BETWEEN s.ts - INTERVAL {RIGHT_S} SECOND AND s.ts + INTERVAL {LEFT_S} SECOND"

FORMS = {
    # name: (output, join words, condition, WHERE)
    "anti": ("s.id, s.v", "LEFT ANTI", "s.k = t.k", ""),
    "left": ("s.id, t.id AS tid, t.name", "LEFT", "s.k = t.k", ""),
    "semi": ("s.id", "LEFT SEMI", "s.k = t.k", ""),
    "left of texts": ("s.id, t.id AS tid", "LEFT", "s.name = t.name AND s.v < t.v", ""),
    "anti of floats": ("s.id", "ANTI", "s.x = t.x", ""),
    "semi with conditions": ("s.*", "SEMI", "s.k = t.k AND s.v + t.v > 4 AND t.v > 1", ""),
    "left, WHERE of both": (
        *("s.id, t.v", "LEFT OUTER", "s.k = t.k AND s.v > 1"),
        "s.v < 4 AND (t.v IS NULL OR t.v > s.v)",
    ),
    "absent by WHERE": ("s.id", "LEFT", "s.k = t.k", "t.id IS NULL AND s.v = 1 + 1"),
    "two keys": ("s.id, t.id AS tid", "LEFT", "s.k = t.k AND s.name = t.name", ""),
    "an equality in WHERE": ("s.id, t.id AS tid", "LEFT", "s.k = t.k", "s.v = t.v"),
}


def sql_of(form):
    output, words, condition, where = FORMS[form]
    where = f" WHERE {where}" if where else ""
    return (
        f"SELECT {output} FROM s [RANGE {LEFT_S} SECONDS] {words} JOIN "
        f"t [RANGE {RIGHT_S} SECONDS] ON {condition}{where}"
    )


def expected(form, s, t):
    output, words, condition, where = FORMS[form]
    where = f" WHERE {where}" if where else ""
    words = words.removeprefix("LEFT ") if words.endswith(("ANTI", "SEMI")) else words
    text = f"SELECT {output} FROM s {words} JOIN t ON {condition} AND {WHEN}{where}"
    return normal(duckdb.sql(text).to_arrow_table())


def normal(table):
    rows = [
        row | ({"ts": row["ts"].timestamp()} if "ts" in row else {}) for row in table.to_pylist()
    ]
    return sorted(str(tuple(row.values())) for row in rows)


def cuts_of(kind, n_rows, rng):
    if kind == "rows":
        return [1] * n_rows
    first, second = sorted(rng.randrange(n_rows) for _ in range(2))
    return [n_rows] if kind == "one" else [first, second - first, n_rows - second]


def write_streams(folder, streams, kind, rng):
    """Write the rows of streams in batches."""
    for name, rows in streams.items():
        first = 0
        for number, size in enumerate(cuts_of(kind, len(rows), rng)):
            write_batch(folder, name, number, table_of(rows[first : first + size]))
            first += size


def engine_of(spark, folder, names=("s", "t")):
    engine = el.Engine(spark)
    for name in names:
        frame = stream_of(spark, folder, name)
        engine.stream(name, frame, time="ts", lateness=f"{LATENESS_S} seconds")
    return engine


def answer(engine, text, **options):
    run = ended(engine.query(text, name="q", **options))
    return normal(run.to_arrow())


IN_ONE = ("anti", "left of texts", "semi with conditions")
"""Forms whose rows come in one batch, too."""


@pytest.mark.large
@pytest.mark.parametrize("form", FORMS)
def test_any_cut(spark, tmp_path, form):
    seed = list(FORMS).index(form)
    s, t = table_of(rows_of(seed)), table_of(rows_of(seed + 100))
    wanted = expected(form, s, t)
    assert wanted
    streams = {"s": [*rows_of(seed), LAST], "t": [*rows_of(seed + 100), LAST_OF_T]}
    for kind in ("one", "some") if form in IN_ONE else ("some",):
        folder = tmp_path / kind
        write_streams(folder, streams, kind, random.Random(seed))
        found = answer(engine_of(spark, folder), sql_of(form))
        assert found == wanted, kind


@pytest.mark.large
@pytest.mark.parametrize("form", ["left of texts", "anti"])
def test_batches_of_a_row(spark, tmp_path, form):
    rows = {"s": [*rows_of(12)[:9], LAST], "t": [*rows_of(13)[:9], LAST_OF_T]}
    s, t = table_of(rows["s"][:-1]), table_of(rows["t"][:-1])
    write_streams(tmp_path, rows, "rows", random.Random(1))
    assert answer(engine_of(spark, tmp_path), sql_of(form)) == expected(form, s, t) != []


@pytest.mark.large
@pytest.mark.parametrize("seed", range(2))
def test_batch_data_frames(spark, seed):
    tables = {"s": table_of(rows_of(seed)), "t": table_of(rows_of(seed + 50))}
    frames = {name: spark.createDataFrame(table) for name, table in tables.items()}
    s, t = tables.values()
    for form in ("left of texts", "two keys", "semi with conditions", "anti"):
        output, words, condition, _ = FORMS[form]
        joined = el.window_join(
            frames,
            on=condition,
            how=words.split(" ")[-1].lower(),
            time={"s": "ts", "t": "ts"},
            windows={"s": f"RANGE {LEFT_S} SECONDS", "t": f"RANGE {RIGHT_S} SECONDS"},
            select=output,
        )
        assert normal(joined.to_df().toArrow()) == expected(form, s, t), form


EXISTS = (
    "SELECT x.id FROM s [RANGE 20 SECONDS] AS x WHERE {} (SELECT 1 FROM t [RANGE 7 SECONDS] AS y "
    "WHERE x.name = y.name AND large(y.v) AND y.v > x.v - 1) AND small(x.v) AND x.id % 2 = 0"
)


@pytest.mark.large
@pytest.mark.parametrize("words", ["NOT EXISTS", "EXISTS"])
def test_exists_with_functions(spark, tmp_path, words):
    streams = {"s": [*rows_of(21), LAST], "t": [*rows_of(22), LAST_OF_T]}
    write_streams(tmp_path, streams, "some", random.Random(2))
    engine = engine_of(spark, tmp_path)
    engine.function("large", lambda v: pc.greater(v, 1), reads=["v"])
    engine.function("small", lambda v: pc.less(v, 4), reads=["v"])
    found = answer(engine, EXISTS.format(words))
    s, t = table_of(rows_of(21)), table_of(rows_of(22))  # noqa: F841 - DuckDB reads them
    wanted = duckdb.sql(
        f"""SELECT s.id FROM s WHERE {words} (SELECT 1 FROM t WHERE s.name = t.name AND t.v > 1
            AND t.v > s.v - 1 AND {WHEN}) AND s.v < 4 AND s.id % 2 = 0"""
    )
    assert found == normal(wanted.to_arrow_table()) != []
