"""Forms of SQL that are read as other forms: as streams they have the results of DuckDB."""

from __future__ import annotations

import datetime as dt
import random

import duckdb
import pyarrow.parquet as pq
import pytest

from tests.spark.joins.join_streams import ended, run_to_end, write_batch
from tests.spark.joins.test_partners_against_duckdb import (
    LAST,
    LAST_OF_T,
    WHEN,
    engine_of,
    rows_of,
    table_of,
    write_streams,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

S = table_of(rows_of(41))
T = table_of([row for row in rows_of(42) for _ in range(1 + (row["id"] % 9 == 0))])
"""The rows of the second stream; some are there twice."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The rows in three batches, and one that moves the time on."""
    made = tmp_path_factory.mktemp("forms")
    streams = {"s": [*S.to_pylist(), LAST], "t": [*T.to_pylist(), LAST_OF_T]}
    write_streams(made, streams, "some", random.Random(7))
    return made


@pytest.fixture(scope="module")
def engine(spark, folder):
    made = engine_of(spark, folder)
    made.table("few", spark.sql("SELECT CAST(id AS BIGINT) AS k FROM range(2)"))
    return made


def plain(table):
    """Return rows as sorted texts; instants are seconds."""
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return sorted(
        str([each.timestamp() if isinstance(each, dt.datetime) else each for each in row])
        for row in rows
    )


def of_duckdb(text):
    with duckdb.connect() as db:
        db.register("s", S)
        db.register("t", T)
        db.execute("CREATE VIEW few AS SELECT k FROM (VALUES (0::BIGINT), (1::BIGINT)) few(k)")
        return plain(db.sql(text).to_arrow_table())


FORMS = {
    "a star of columns that both inputs have": (
        "SELECT * FROM s [RANGE 20 SECONDS], t [RANGE 7 SECONDS] WHERE s.k = t.k",
        f"SELECT s.*, t.* FROM s JOIN t ON s.k = t.k AND {WHEN}",
    ),
    "a right join with a star and USING": (
        "SELECT * FROM s [RANGE 20 SECONDS] RIGHT JOIN t [RANGE 7 SECONDS] USING (k)",
        "SELECT t.k, s.ts, s.id, s.name, s.x, s.v, t.ts, t.id, t.name, t.x, t.v "
        f"FROM s RIGHT JOIN t ON s.k = t.k AND {WHEN}",
    ),
    "a right join with conditions": (
        "SELECT s.id, t.id AS tid FROM s [RANGE 20 SECONDS] RIGHT OUTER JOIN "
        "t [RANGE 7 SECONDS] ON s.name = t.name AND t.v > 1 AND s.v > 1 WHERE t.k IS NOT NULL",
        "SELECT s.id, t.id FROM s RIGHT JOIN t ON s.name = t.name AND t.v > 1 AND s.v > 1 "
        f"AND {WHEN} WHERE t.k IS NOT NULL",
    ),
    "names that are read twice": (
        "WITH s AS (SELECT ts, id, k, v FROM s WHERE v > 1), t AS (SELECT * FROM t WHERE v < 4) "
        "SELECT s.id, t.id AS tid, u.id AS uid FROM s [RANGE 20 SECONDS], t [RANGE 7 SECONDS], "
        "s AS u [NOW] WHERE s.k = t.k AND u.k = s.k AND u.id = s.id",
        "WITH s AS (SELECT ts, id, k, v FROM s WHERE v > 1), t AS (SELECT * FROM t WHERE v < 4) "
        f"SELECT s.id, t.id, s.id FROM s JOIN t ON s.k = t.k AND {WHEN} AND t.ts <= s.ts",
    ),
    "names of aggregates": (
        "WITH unused AS (SELECT k FROM s), n AS (SELECT k, count(*) AS n, window.end AS e FROM s "
        "[RANGE 30 SECONDS SLIDE 30 SECONDS] GROUP BY k) SELECT k, n FROM n WHERE n > 1",
        "WITH n AS (SELECT k, count(*) AS n, time_bucket(INTERVAL 30 SECOND, ts) AS e FROM s "
        "GROUP BY ALL) SELECT k, n FROM n WHERE n > 1",
    ),
    "rows in what a stream has": (
        "SELECT id, v FROM s [RANGE 20 SECONDS] WHERE v < 4 AND (k, name) IN "
        "(SELECT DISTINCT t.k, name FROM t [RANGE 7 SECONDS] WHERE v > s.v - 1)",
        "SELECT id, v FROM s WHERE v < 4 AND EXISTS (SELECT 1 FROM t WHERE s.k = t.k AND "
        f"s.name = t.name AND t.v > s.v - 1 AND {WHEN})",
    ),
    "rows in what a table has": (
        "SELECT id, k FROM s WHERE (k) IN (SELECT k FROM few) AND v > 1",
        "SELECT id, k FROM s WHERE (k) IN (SELECT k FROM few) AND v > 1",
    ),
    "a filter of rows that stay": (
        "SELECT ISTREAM(*) FROM t [ROWS UNBOUNDED] WHERE v > 1 AND id >= 0",
        "SELECT * FROM t WHERE v > 1",
    ),
    "a filter of rows for their instant": (
        "RSTREAM(SELECT k, id FROM t [NOW] AS x WHERE x.id >= 0)",
        "SELECT k, id FROM t",
    ),
}


@pytest.mark.large("runs a stream for each of nine queries")
@pytest.mark.parametrize("form", FORMS)
def test_results_are_those_of_duckdb(engine, form):
    text, wanted = FORMS[form]
    run = ended(engine.query(text, name="q", replace=True))
    assert plain(run.to_arrow()) == of_duckdb(wanted) != []


def test_a_star_names_the_columns_of_files_and_of_streams_of_results(spark, tmp_path):
    for name in ("s", "t"):
        write_batch(tmp_path, name, 0, S.slice(0, 3))
    engine = engine_of(spark, tmp_path)
    query = engine.query("SELECT * FROM s [NOW], t [NOW] WHERE s.id = t.id", name="both")
    run_to_end(query, tmp_path)
    own = [f"{each}_{name}" for each in "st" for name in S.column_names]
    assert pq.read_table(tmp_path / "out").column_names == own
    engine.stream("both", query)
    names = engine.query("SELECT s_id, t_ts AS ts FROM both WHERE s_v = t_v", name="again").columns
    assert [*names] == ["s_id", "ts"]


def test_a_name_that_hides_a_stream_has_an_event_time_of_its_own(engine):
    query = engine.query(
        "WITH s AS (SELECT k, count(*) AS n, window.end AS e FROM s "
        "[RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY k) "
        "SELECT n, count(*) AS m FROM s GROUP BY n, window(e, '1 hour')",
        name="hidden",
    )
    assert [*query.columns] == ["n", "m"]


@pytest.mark.large("runs two queries, one after the other")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "WITH x AS (SELECT ts, k, v FROM s WHERE v > 1) SELECT k, count(*) AS n FROM x "
            "[RANGE 30 SECONDS SLIDE 30 SECONDS] GROUP BY k",
            "SELECT k, count(*) AS n FROM (SELECT ts, k, v FROM s WHERE v > 1) AS y "
            "[RANGE 30 SECONDS SLIDE 30 SECONDS] GROUP BY k",
        ),
        (
            "SELECT s.id, t.id AS tid FROM s [RANGE 20 SECONDS] RIGHT JOIN t [RANGE 7 SECONDS] "
            "ON s.k = t.k",
            "SELECT a.id, b.id AS tid FROM t AS b [RANGE 7 SECONDS] LEFT JOIN s AS a "
            "[RANGE 20 SECONDS] ON b.k = a.k",
        ),
    ],
)
def test_a_checkpoint_goes_on_with_the_form_that_means_the_same(spark, tmp_path, one, other):
    rows = {"s": S.to_pylist(), "t": T.to_pylist()}
    for name, half in (("s", len(S) // 2), ("t", len(T) // 2)):
        write_batch(tmp_path, name, 0, table_of(rows[name][:half]))
    run_to_end(engine_of(spark, tmp_path).query(one, name="q"), tmp_path)
    for name, half, last in (("s", len(S) // 2, LAST), ("t", len(T) // 2, LAST_OF_T)):
        write_batch(tmp_path, name, 1, table_of([*rows[name][half:], last]))
    run_to_end(engine_of(spark, tmp_path).query(other, name="q"), tmp_path)
    whole = tmp_path / "whole"
    for name, last in (("s", LAST), ("t", LAST_OF_T)):
        write_batch(whole, name, 0, table_of([*rows[name], last]))
    run_to_end(engine_of(spark, whole).query(one, name="q"), whole)
    found = [plain(pq.read_table(each / "out")) for each in (tmp_path, whole)]
    assert found[0] == found[1] != []
