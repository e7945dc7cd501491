"""Joins of results: of aggregates, of joins, of OVER and of UNION ALL, with streams and tables."""

from __future__ import annotations

import pyarrow as pa
import pytest

import eddyline as el
from eddyline.errors import QueryError
from tests.spark.aggregates.aggregate_streams import ended
from tests.spark.aggregates.test_composed import (
    N_BATCHES,
    SECOND,
    answers,
    end,
    engine,  # noqa: F401 - a fixture
    low,  # noqa: F401
    of_duckdb,
    rows,
)
from tests.spark.facts import facts_of
from tests.spark.joins.join_streams import stream_of, write_batch

pytestmark = pytest.mark.spark

MINUTES = (
    "SELECT k, window.end AS e, count(*) AS n, sum(v) AS s FROM s "
    "[RANGE {0} SECONDS SLIDE {0} SECONDS] WHERE v < {1} GROUP BY k"
)


def counts(name, slide_s, below):
    """Return the SQL of a view of ``MINUTES``, whose event time is ``at`` (µs)."""
    return (
        f"{name} AS (SELECT k, {end(slide_s)} AS e, {end(slide_s)} - 1 AS at, count(*) AS n, "
        f"sum(v)::BIGINT AS s FROM s WHERE v < {below} GROUP BY ALL)"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The rows of ``test_composed`` in two batches."""
    found = tmp_path_factory.mktemp("composed")
    for number in range(2):
        parts = map(rows, range(number * N_BATCHES // 2, (number + 1) * N_BATCHES // 2))
        write_batch(found, "s", number, pa.concat_tables(parts))
    return found


def made(engine, name, text, time=None):  # noqa: F811
    engine.stream(name, engine.query(text, name=f"q_{name}"), time=time)


@pytest.fixture
def both(engine):  # noqa: F811
    made(engine, "few", MINUTES.format(1, 300), "e")
    made(engine, "all", MINUTES.format(2, 1000), "e")
    return engine


@pytest.mark.large
def test_aggregates_are_joined_with_aggregates(both, folder, low):  # noqa: F811
    run = ended(
        both.query(
            "SELECT f.k, f.e AS fe, a.e AS ae, f.n AS fn, a.n AS an "
            "FROM few f [RANGE 3 SECONDS], all a [RANGE 2 SECONDS] WHERE f.k = a.k AND f.n < a.n"
        )
    )
    text = (
        f"WITH {counts('f', 1, 300)}, {counts('a', 2, 1000)} "
        "SELECT f.k, f.e, a.e, f.n, a.n FROM f JOIN a ON f.k = a.k AND f.n < a.n "
        f"AND a.at - f.at BETWEEN -{2 * SECOND} AND {3 * SECOND} "
        f"WHERE f.e <= {low} AND a.e <= {low}"
    )
    assert answers(run) == of_duckdb(folder, text)
    assert len(answers(run)) > 50


@pytest.mark.large
def test_aggregates_are_joined_with_a_stream_and_aggregated(both, folder, low):  # noqa: F811
    both.stream(
        "busy",
        both.query(
            "SELECT a.k AS k, t.v AS v, greatest(a.e, t.ts) AS at FROM all a [RANGE 2 SECONDS], "
            "t [RANGE 1 SECOND] WHERE a.k = t.k AND t.v > 900 AND a.n > 5 AND a.s < t.v * 1000",
            name="q_busy",
        ),
        time="at",
    )
    run = ended(
        both.query(
            "SELECT k, window.end AS e, count(*) AS n, sum(v) AS s "
            "FROM busy [RANGE 3 SECONDS SLIDE 3 SECONDS] WHERE v < 990 GROUP BY k HAVING n > 1"
        )
    )
    text = (
        f"WITH {counts('a', 2, 1000)}, p AS (SELECT a.k, s.v, greatest(a.e, s.t) AS i FROM a "
        "JOIN s ON a.k = s.k AND s.v > 900 AND a.n > 5 AND a.s < s.v * 1000 "
        f"AND s.t - a.at BETWEEN -{SECOND} AND {2 * SECOND}) "
        f"SELECT k, {end(3, 'i')} AS w, count(*), sum(v)::BIGINT FROM p WHERE v < 990 "
        f"GROUP BY k, w HAVING count(*) > 1 AND w <= {low}"
    )
    assert answers(run) == of_duckdb(folder, text)
    assert len(answers(run)) > 10


@pytest.mark.large
def test_a_join_is_joined_with_its_streams_and_a_table(engine, spark, folder):  # noqa: F811
    made(
        engine,
        "pairs",
        "SELECT s.k AS k, s.v AS sv, t.v AS tv, greatest(s.ts, t.ts) AS at FROM "
        "s [RANGE 100 MILLISECONDS], t [RANGE 100 MILLISECONDS] WHERE s.k = t.k AND s.v < 100",
        "at",
    )
    engine.table("names", spark.sql("SELECT INT(id) AS k, concat('n', id) AS name FROM range(4)"))
    run = ended(
        engine.query(
            "SELECT p.k, p.sv, p.tv, s.v, n.name FROM pairs p [RANGE 200 MILLISECONDS], "
            "s [RANGE 50 MILLISECONDS], names n WHERE p.k = s.k AND s.k = n.k AND s.v > p.tv"
        )
    )
    text = (
        "WITH p AS (SELECT s.k, s.v AS sv, t.v AS tv, greatest(s.t, t.t) AS at FROM s JOIN s AS t "
        "ON s.k = t.k AND s.v < 100 AND abs(s.t - t.t) <= 100000) "
        "SELECT p.k, p.sv, p.tv, s.v, 'n' || p.k FROM p JOIN s ON p.k = s.k AND s.v > p.tv "
        "AND s.t - p.at BETWEEN -50000 AND 200000 WHERE p.k < 4"
    )
    assert answers(run) == of_duckdb(folder, text)
    assert len(answers(run)) > 100


@pytest.mark.large
def test_rows_with_their_aggregates_meet_a_union(engine, folder, low):  # noqa: F811
    made(
        engine,
        "ranked",
        "SELECT k, ts, v, max(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '1' "
        "SECOND PRECEDING AND CURRENT ROW) AS most FROM s WHERE v > 300",
    )
    made(
        engine,
        "either",
        "SELECT k, ts, v FROM s WHERE v > 950 UNION ALL SELECT k, ts, v + 1 FROM t WHERE v < 20",
        "ts",
    )
    run = ended(
        engine.query(
            "SELECT r.k, r.v, e.v AS ev FROM ranked r [RANGE 100 MILLISECONDS], "
            "either e [RANGE 100 MILLISECONDS] WHERE r.k = e.k AND r.v = r.most"
        )
    )
    text = (
        "WITH r AS (SELECT k, t, v, max(v) OVER (PARTITION BY k ORDER BY t RANGE BETWEEN 1000000 "
        "PRECEDING AND CURRENT ROW) AS most FROM s WHERE v > 300), "
        "e AS (SELECT k, t, v FROM s WHERE v > 950 "
        "UNION ALL SELECT k, t, v + 1 FROM s WHERE v < 20) "
        "SELECT r.k, r.v, e.v FROM r JOIN e ON r.k = e.k AND r.v = r.most "
        f"AND abs(r.t - e.t) <= 100000 WHERE r.t < {low}"
    )
    assert answers(run) == of_duckdb(folder, text)
    assert len(answers(run)) > 20


@pytest.mark.large
@pytest.mark.parametrize("kind", ["LEFT", "SEMI", "ANTI"])
def test_rows_wait_for_aggregates_that_are_their_partners(both, folder, low, kind):  # noqa: F811
    columns = "t.v, t.k" + (", a.n" if kind == "LEFT" else "")
    run = ended(
        both.query(
            f"SELECT {columns} FROM t [RANGE 1 SECOND] {kind} JOIN all a [RANGE 1 SECOND] "
            "ON t.k = a.k AND a.n > 20 WHERE t.v < 200"
        )
    )
    met = f"t.k = a.k AND a.n > 20 AND a.at - t.t BETWEEN -{SECOND} AND {SECOND}"
    # Rows to which no partner can come any more; a combination comes at once.
    over = f"t.t + {SECOND} < {low}"
    pairs = f"SELECT {columns} FROM t JOIN a ON {met} WHERE a.e <= {low}"
    none = f"SELECT t.v, t.k{', NULL' if kind == 'LEFT' else ''} FROM t ANTI JOIN a ON {met} "
    some = f"SELECT t.v, t.k FROM t SEMI JOIN a ON {met} WHERE {over}"
    wanted = {"LEFT": f"{pairs} UNION ALL {none} WHERE {over}", "SEMI": some, "ANTI": none}[kind]
    wanted += f" WHERE {over}" if kind == "ANTI" else ""
    found = answers(run)
    every = of_duckdb(
        folder,
        f"WITH {counts('a', 2, 1000)}, t AS (SELECT * FROM s WHERE v < 200) {wanted}",
    )
    assert found == every
    assert len(found) > 5


@pytest.mark.large
def test_what_has_no_event_time_is_not_joined(engine):  # noqa: F811
    engine.stream(
        "counts",
        engine.query("SELECT k, count(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k"),
    )
    with pytest.raises(QueryError, match=r"'counts' cannot be joined: .* window.end of aggregates"):
        engine.query("SELECT counts.n FROM counts [NOW], t [NOW] WHERE counts.k = t.k")


@pytest.mark.large
def test_rows_without_a_time_are_counted_beside_late_ones(spark, tmp_path):
    for number, seconds in enumerate(([100], [60, None, 200])):
        at = [None if each is None else each * SECOND for each in seconds]
        rows = {"k": [1] * len(at), "ts": pa.array(at, pa.timestamp("us", "UTC"))}
        for name in ("s", "t"):
            write_batch(tmp_path, name, number, pa.table(rows))
    streams = el.Engine(spark)
    for name in ("s", "t"):
        rows = stream_of(spark, tmp_path, name)
        streams.stream(name, rows, time="ts", lateness="0 seconds")
    made(streams, "twice", "SELECT k, ts FROM s UNION ALL SELECT k, ts FROM s", "ts")
    text = "SELECT a.k FROM twice a [RANGE 1 SECOND], t [RANGE 1 SECOND] WHERE a.k = t.k"
    twice, other = facts_of(ended(streams.query(text))).inputs
    assert (twice.n_arrived, twice.n_untimed) == (6, 2)
    assert (other.n_arrived, other.n_untimed) == (4, 1), "its late rows are found by its tasks"


@pytest.mark.large
def test_a_join_of_results_goes_on_from_its_checkpoint(spark, folder, low, tmp_path):  # noqa: F811
    """The state of all operators is one; a run that stops at each batch loses nothing."""
    found = []
    (tmp_path / "s").mkdir()
    for file in sorted((folder / "s").glob("*.parquet")):
        (tmp_path / "s" / file.name).hardlink_to(file)
        engine = el.Engine(spark)  # noqa: F811
        for name in ("s", "t"):
            stream = stream_of(spark, tmp_path, "s")
            engine.stream(name, stream, time="ts", lateness="1 second")
        made(engine, "few", MINUTES.format(1, 300), "e")
        query = engine.query(
            "SELECT f.k, f.n, t.v FROM few f [RANGE 1 SECOND], t [RANGE 2 SECONDS] "
            "WHERE f.k = t.k AND t.v > 800",
            name="q",
        )
        found += answers(ended(query, checkpoint=str(tmp_path / "ckpt")))
    text = (
        f"WITH {counts('f', 1, 300)} SELECT f.k, f.n, s.v FROM f JOIN s ON f.k = s.k AND s.v > 800 "
        f"AND s.t - f.at BETWEEN -{2 * SECOND} AND {SECOND} WHERE f.e <= {low}"
    )
    assert sorted(found, key=repr) == of_duckdb(folder, text)
    assert len(found) > 50
