"""Queries with MODEL that start together share their models, and mean the same as alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import eddyline as el
from tests.spark.models.tracks import FIRST_S, SECOND, copied, rounded, stream_of, write_files

SHIPS = "s MODEL x WITHIN 1 MAX GAP 20 SECONDS BY ship WITH (degree = 1, prefix_rows = 16)"
ASKED = {
    "high": f"SELECT ship, x FROM {SHIPS} WHERE x > 0 CHANGES",
    "mean": f"SELECT ship, avg(x) AS m FROM {SHIPS} [RANGE 10 SECONDS SLIDE 3 SECONDS] "
    "HAVING avg(x) > 1",
    "kept": f"SELECT ship AS k, x AS y FROM {SHIPS}",
    "greatest": f"SELECT ship, max(x) AS z FROM {SHIPS} [RANGE 9 SECONDS] "
    "WHERE x <> 2 HAVING max(x) > 1 CHANGES",
    "joined": f"SELECT a.x FROM {SHIPS} AS a JOIN {SHIPS} AS b ON a.ship = b.ship CHANGES",
    "top": f"SELECT max(x) AS top FROM {SHIPS} SAMPLE EVERY 5 SECONDS",
    "other": f"SELECT ship, x FROM {SHIPS.replace('WITHIN 1', 'WITHIN 2')} CHANGES",
    "docked": f"SELECT s.ship, s.x FROM {SHIPS} JOIN ports p ON s.ship = p.ship CHANGES",
}
TOGETHER = {"high", "mean", "kept", "greatest"}
"""A join leaves out rows without a ship, that with a table other rows, too; and another bound is
another model."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tracks")
    rng = np.random.default_rng(4)
    seconds = np.append(np.cumsum(rng.choice([0, 1, 2, 40], 400, p=[0.2, 0.6, 0.19, 0.01])), 90_000)
    times = pa.array((seconds + FIRST_S) * SECOND).cast(pa.timestamp("us", "UTC"))
    x = np.cumsum(rng.integers(-2, 3, 401)) / 2
    table = pa.table({"ship": np.append(rng.integers(0, 4, 400), 99), "ts": times, "x": x})
    return write_files(folder, (table.slice(140 * n, 140) for n in range(3)))


def engine_of(spark, folder, names):
    engine = el.Engine(spark)
    engine.stream("s", stream_of(spark, folder), time="ts", lateness="1 second")
    engine.table("ports", spark.range(3).withColumnRenamed("id", "ship"))
    for name in names:
        engine.query(ASKED[name], name=name)
    return engine


def shown(rows):
    return sorted(map(rounded, rows), key=repr)


@pytest.mark.large("runs six queries alone and together, with a restart after one has left")
def test_queries_that_share_models_give_what_each_gives_alone(spark, folder, tmp_path):
    where = {"trigger": "available_now"}
    for number, names in enumerate(
        [[*ASKED], [*ASKED], [each for each in ASKED if each != "mean"]]
    ):
        copied(folder, tmp_path / "seen", [number])
        engine = engine_of(spark, tmp_path / "seen", names)
        places = {"path": str(tmp_path / "out"), "checkpoint": str(tmp_path / "checkpoint")}
        runs = dict(zip(names, engine.start_all("parquet", **places, **where), strict=True))
        for run in runs.values():
            run.await_termination()
        if not number:
            alone = " ".join(runs["other"].explain().split())
            assert "makes the same models of the same rows" in alone
        assert len(engine.groups) == 1
        (group,) = engine.groups
        assert {each.name for each in group.runs} == TOGETHER & {*names}
    said = " ".join(runs["high"].explain().split())
    assert "rows become segments once, and each query is solved on these" in said
    lone = engine_of(spark, folder, ASKED)
    for name in set(ASKED) - {"mean"}:
        places = {"path": str(tmp_path / "alone" / name), "checkpoint": str(tmp_path / "c" / name)}
        lone.queries[name].start("parquet", **places, **where).await_termination()
        wanted = shown(spark.read.parquet(places["path"]).collect())
        found = spark.read.parquet(str(tmp_path / "out" / name))
        assert found.columns == lone.queries[name].shape.columns
        assert shown(found.collect()) == wanted
        assert len(wanted) > 4
