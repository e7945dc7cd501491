"""Classes of the rows of a stream join tables in orders of their own: equal answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import eddyline as el
from eddyline.joins import tables as deciding
from eddyline.joins.orders import classes
from eddyline.spark.joins import tables
from tests.spark.facts import facts_of
from tests.spark.joins.join_streams import run_to_end, stream_of, told, write_batch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

START = datetime(2026, 1, 1, tzinfo=UTC)
N_ROWS, N_BATCHES, N_KEYS, N_MANY = 3_000, 6, 50, 5
TENANTS = ("ann", "bob", None)
DIMENSIONS = ("t", "u", "w")
CHANCES = np.array([[0.0, 0.1, 0.9], [0.9, 0.1, 0.0], [0.1, 0.9, 0.1]])
"""How often the rows of a tenant find many partners in each dimension."""
MISSES = np.array([[0.9, 0.1, 0.0], [0.0, 0.1, 0.9], [0.2, 0.0, 0.2]])
"""How often they find none."""
ON = " AND ".join(f"s.k_{name} = {name}.key" for name in DIMENSIONS)


@pytest.fixture(autouse=True)
def _cheap_to_route(monkeypatch):
    """Rows of a test are few: calls take longer than orders save, and tables would be small."""

    def alike(self, *_):
        self._ns[:], self._n[:] = 1_000.0, 1.0

    monkeypatch.setattr(classes.ProbeRoutes, "_count_work", alike)
    monkeypatch.setattr(classes, "CALL_NS", 1.0)
    monkeypatch.setattr(classes, "ROUTE_NS", 1.0)
    monkeypatch.setattr(deciding, "MOST_ROWS", 0)
    monkeypatch.setattr(tables, "MOST_ROWS", 0)


def facts(number):
    """The rows of a batch of s: of each tenant others find partners."""
    rng = np.random.default_rng(number)
    tenants = rng.integers(0, len(TENANTS), N_ROWS)
    chance = rng.random((N_ROWS, 3))
    misses, many = MISSES[tenants], CHANCES[tenants]
    group = np.where(chance < misses, 2, np.where(chance < misses + many, 1, 0))
    keys = rng.integers(0, N_KEYS, (N_ROWS, 3)) + N_KEYS * group
    nulls = rng.random((N_ROWS, 3)) < 0.01
    at = [START + timedelta(seconds=60 * number + n % 60) for n in range(N_ROWS)]
    scores = np.where(rng.random(N_ROWS) < 0.1, np.nan, rng.random(N_ROWS))
    columns = {f"k_{name}": pa.array(keys[:, n], mask=nulls[:, n]) for n, name in enumerate("tuw")}
    return pa.table(
        {
            "id": np.arange(N_ROWS) + number * N_ROWS,
            "ts": pa.array(at),
            "tenant": [TENANTS[each] for each in tenants],
            "score": scores,
            **columns,
        }
    )


def dimension(name):
    """A key has one row, or many."""
    keys = np.concatenate([np.arange(N_KEYS), np.repeat(np.arange(N_KEYS, 2 * N_KEYS), N_MANY)])
    ts = pa.array([START] * keys.size)
    return pa.table({"key": keys, "v": np.arange(keys.size) + 1000 * ord(name), "ts": ts})


def write(folder, numbers):
    for number in numbers:
        write_batch(folder, "s", number, facts(number))


def query_of(spark, folder, **options):
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, folder, "s"), time="ts", lateness="0 seconds")
    for name in DIMENSIONS:
        engine.table(name, spark.read.parquet(str(folder / name)).drop("ts"))
    text = "SELECT s.id, s.tenant, s.score, t.v AS a, u.v AS b, w.v AS c FROM s [RANGE 1 HOUR], "
    text += f"{', '.join(DIMENSIONS)} WHERE {ON}"
    return engine.query(text, name="routed", buckets=2, **options)


def bag(rows):
    return sorted(map(repr, rows))


def found(folder):
    table = pq.read_table(folder / "out", columns=["id", "tenant", "score", "a", "b", "c"])
    return bag(zip(*(column.to_pylist() for column in table.columns), strict=True))


def wanted(spark, folder):
    for name in ("s", *DIMENSIONS):
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    text = f"SELECT s.id, s.tenant, s.score, t.v, u.v, w.v FROM s, t, u, w WHERE {ON}"
    return bag(map(tuple, spark.sql(text).collect()))


@pytest.mark.large("runs four batches, and two more after a restart")
def test_answers_stay_and_classes_outlive_a_restart(spark, tmp_path):
    for name in DIMENSIONS:
        write_batch(tmp_path, name, 0, dimension(name))
    write(tmp_path, range(N_BATCHES - 2))
    run = run_to_end(query_of(spark, tmp_path, routing=True), tmp_path)
    routed = [each for each in run.journal if each["component"] == "routes s"]
    assert [each["event"] for each in routed][:1] == ["routes"]
    assert routed[0]["after"]["by"] == ["tenant"]
    view = next(each for each in facts_of(run).pipelines if each.name == "s")
    assert len({each.order for each in view.classes}) > 1
    assert "other rows" in told(run)
    assert "tenant = ann" in told(run) or "tenant = bob" in told(run)
    assert f"after classes by tenant in {len(routed[-1]['after']['orders'])} orders" in told(run)
    write(tmp_path, range(N_BATCHES - 2, N_BATCHES))
    again = run_to_end(query_of(spark, tmp_path, routing=True), tmp_path)
    (view,) = (each for each in facts_of(again).pipelines if each.name == "s")
    assert len({each.order for each in view.classes}) > 1
    assert found(tmp_path) == wanted(spark, tmp_path)


@pytest.mark.large("runs four batches")
def test_without_routing_all_rows_take_one_order(spark, tmp_path):
    for name in DIMENSIONS:
        write_batch(tmp_path, name, 0, dimension(name))
    write(tmp_path, range(4))
    run = run_to_end(query_of(spark, tmp_path), tmp_path)
    assert not [each for each in run.journal if each["event"] == "routes"]
    assert "Classes of rows" not in told(run)
    assert found(tmp_path) == wanted(spark, tmp_path)
