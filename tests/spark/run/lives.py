"""Queries of every kind of operator over two streams, and the rows that DuckDB finds of each."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import eddyline as el
from eddyline.alarms.alarm_set import AlarmStep
from eddyline.models.streams.plan import ModelStep
from tests.spark.joins.join_streams import stream_of, write_batch
from tests.spark.run.early_models import ANSWER, SOON, ended, newest
from tests.spark.run.made_steps import ALARMS, CORRELATED, HELD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from eddyline.query.steps import Step

N_BATCHES, N_ROWS, N_LATE = 12, 60, 3
SCHEMA = "id BIGINT, ts TIMESTAMP, k BIGINT"
LATE_ID = 1_000_000
"""Rows of an ``id`` from this on come too late; see ``rows_of``."""


def rows_of(name: str, number: int) -> pa.Table:
    """Return the rows of a stream in one batch: seconds 4n to 4n + 5, so that batches overlap.

    From the third batch on there are some that are 20 seconds older, which is too late. Filters
    keep those (every ``id`` is 1 more than a multiple of 3): of rows that they drop none is late.
    """
    drawn = random.Random(f"{name}{number}")
    ids = [*range(number * N_ROWS, (number + 1) * N_ROWS)]
    seconds = [4 * number + drawn.randrange(6) for _ in ids]
    if number > 2:
        ids += [LATE_ID + 3 * (number * N_LATE + each) for each in range(N_LATE)]
        seconds += [4 * number - 20 for _ in range(N_LATE)]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "ts": pa.array([second * 1_000_000 for second in seconds], pa.timestamp("us", "UTC")),
            "k": pa.array([drawn.randrange(30 if id >= LATE_ID else 40) for id in ids], pa.int64()),
        }
    )


def write(folder: Path, n_batches: int = N_BATCHES) -> None:
    """Write the batches of both streams."""
    for number in range(n_batches):
        for name in "st":
            write_batch(folder, name, number, rows_of(name, number))


@dataclass(frozen=True)
class Kind:
    """Queries that are started at once and run as one."""

    answers: Mapping[str, tuple[str, str]]
    """By name: the query, and its rows as SQL of DuckDB."""
    late: Sequence[str] = ""
    """The inputs of which it keeps late rows, which say their streams (``u`` is ``s`` again); with
    them it has durable state."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the queries."""
    key: str | None = None
    """The key that is declared of the stream ``s``."""
    steps: tuple[Step, ...] = ()
    """Steps that no text of a query has, in place of its own after the first."""
    is_early: bool = False
    """Whether results are given before they are final, so that the newest of each count."""

    def engine(self, spark: SparkSession, folder: Path) -> el.Engine:
        """Return an engine with the queries, over the streams in a folder."""
        engine = el.Engine(spark)
        for name in "st":
            stream = stream_of(spark, folder, name, schema=SCHEMA)
            key = self.key if name == "s" else None
            engine.stream(name, stream, time="ts", lateness="2 seconds", key=key)
        names = [(k, k // 2) for k in range(0, 20, 2)]
        engine.table("names", spark.createDataFrame(names, "k INT, name BIGINT"))
        engine.table("even", spark.range(0, 40, 2).withColumnRenamed("id", "k"))
        engine.function("often", lambda k: pc.less(k, 35), reads=["k"])
        for name, (text, time) in DERIVED.items():
            if any(re.search(rf"\bFROM {name}\b", each) for each, _ in self.answers.values()):
                engine.stream(name, engine.query(text, name=f"{name}_query"), time=time)
                engine.drop(f"{name}_query")
        for name, (text, _) in self.answers.items():
            if text is RULES:
                engine.rules(name, el.RuleSet(RULES_OF_K, name="set"), stream="s")
            else:
                made = engine.query(text, name=name, **self.options)
                if self.steps:
                    engine.queries[name] = made.with_steps(made.steps[0], *self.steps)
        return engine

    def start(self, spark: SparkSession, folder: Path) -> list[Any]:
        """Start the queries over all that is there, with sinks and a checkpoint in a folder."""
        where = {"path": str(folder / "out"), "checkpoint": str(folder / "ckpt")}
        engine = self.engine(spark, folder)
        return engine.start_all("parquet", trigger="available_now", shared="all", **where)

    def all_steps(self, spark: SparkSession, folder: Path) -> list[Step]:
        """Return the steps of the queries."""
        queries = self.engine(spark, folder).queries.values()
        return [step for query in queries for step in query.steps]

    def wanted(self, n_batches: int = N_BATCHES) -> dict[str, list[tuple[Any, ...]]]:
        """Return the rows of each query when all batches have come."""
        with connected(n_batches) as connection:
            return {
                name: rows_in(connection.sql(text).to_arrow_table())
                for name, (_, text) in self.answers.items()
            }

    def written(self, folder: Path) -> dict[str, list[tuple[Any, ...]]]:
        """Return the rows that the sink of each query has."""
        return {name: self._rows(each) for name, each in self._tables(folder).items()}

    def _tables(self, folder: Path) -> dict[str, pa.Table | None]:
        found = {name: sorted((folder / "out" / name).glob("*.parquet")) for name in self.answers}
        return {
            name: pa.concat_tables(map(pq.read_table, files)) if files else None
            for name, files in found.items()
        }

    def _rows(self, written: pa.Table | None) -> list[tuple[Any, ...]]:
        if written is None or not len(written):
            return []
        return rows_in(newest(written) if self.is_early else written)

    def unknown(self, folder: Path, wanted: Mapping[str, list[tuple[Any, ...]]]) -> Counter[str]:
        """Return the rows that sinks have and should not have while batches are to come.

        Of early results these are, of the batches that are over, also those that are lacking.
        """
        found: Counter[str] = Counter()
        for name, written in self._tables(folder).items():
            if written is not None and self.is_early:
                n_batches, over = ended(written)
                so_far = _counted(self.wanted(n_batches)[name] if n_batches else [])
                rows = _counted(self._rows(over))
                found += (so_far - rows) + (rows - so_far)
            else:
                found += _counted(self._rows(written)) - _counted(wanted[name])
        return found


def connected(n_batches: int) -> duckdb.DuckDBPyConnection:
    """Return DuckDB with all rows of each stream, and those that are in time."""
    connection = duckdb.connect()
    connection.sql("SET TimeZone = 'UTC'")
    for name in "st":
        parts = [rows_of(name, number) for number in range(n_batches)]
        connection.register(f"every_{name}", pa.concat_tables(parts))
        connection.sql(f"CREATE VIEW {name} AS SELECT * FROM every_{name} WHERE id < {LATE_ID}")
    return connection


FRAME = (
    "OVER (PARTITION BY k % 7 ORDER BY ts "
    "RANGE BETWEEN INTERVAL '9' SECOND PRECEDING AND CURRENT ROW)"
)
LOW = "(SELECT max(ts) - INTERVAL 2 SECONDS FROM s)"
LOWER = "(SELECT least(max(s.ts), (SELECT max(ts) FROM t)) - INTERVAL 2 SECONDS FROM s)"
"""The instants before which every row has come."""

RULES = "rules"
RULES_OF_K = {"low": "k < 20", "odd": "k % 2 = 1 AND id % 3 = 0"}
PAIRS = (
    "SELECT greatest(s.ts, t.ts) AS ts, s.k AS k, s.id AS a, t.id AS b "
    "FROM s [RANGE 12 SECONDS], t [RANGE 6 SECONDS] "
    "WHERE s.k = t.k AND s.id % 3 <> t.id % 3 AND often(s.k)"
)
ALL_PAIRS = (
    "SELECT greatest(s.ts, t.ts) AS ts, s.k AS k, s.id AS a, t.id AS b FROM s JOIN t "
    "ON s.k = t.k AND s.id % 3 <> t.id % 3 "
    "AND s.ts BETWEEN t.ts - INTERVAL 12 SECONDS AND t.ts + INTERVAL 6 SECONDS"
)


def last_rows(name: str, n_rows: int, groups: str = "") -> str:
    """Return SQL of the rows of a stream, with the last instant of each in a window of N rows."""
    end = f"lead(ts, {n_rows}) OVER ({groups} ORDER BY ts, id) - INTERVAL 1 MICROSECOND"
    return f"SELECT *, coalesce({end}, TIMESTAMPTZ '2100-01-01') AS till FROM {name}"


def slides(rows: str, low: str, groups: str, calls: str, more: str = "") -> str:
    """Return SQL of the aggregates of windows of nine seconds that have ended."""
    return (
        f"WITH r AS ({rows}), w AS (SELECT to_timestamp(3 * n) AS till FROM range(200) AS x(n)) "
        f"SELECT {groups}, {calls}, till FROM w JOIN r "
        f"ON r.ts >= till - INTERVAL 9 SECONDS AND r.ts < till WHERE till <= {low} "
        f"GROUP BY ALL {more}"
    )


def changes(rows: str, low: str, calls: str, having: str = "true") -> str:
    """Return SQL of the aggregates of rows that come and go, wherever a group changes.

    Args:
        rows: with their group ``g``, and the first and last instant at which each is there.
        low: the instant before which every row has come.
        calls: the aggregates, each with a name.
        having: whether a group that has rows has a result.
    """
    names = re.findall(r"AS (\w+)", calls)
    values = ", ".join(names)
    return (
        f"WITH r AS (SELECT *, until + INTERVAL 1 MICROSECOND AS gone FROM ({rows}) "
        f"WHERE since <= until), i AS (SELECT g, since AS till FROM r UNION "
        f"SELECT g, gone FROM r), v AS (SELECT i.g, i.till, count(r.gone) AS here, {calls} "
        f"FROM i LEFT JOIN r ON r.g IS NOT DISTINCT FROM i.g AND r.since <= i.till "
        f"AND i.till < r.gone GROUP BY ALL), "
        f"h AS (SELECT *, here > 0 AND {having} AS holds FROM v), "
        f"l AS (SELECT *, lag((holds, {values})) OVER "
        f"(PARTITION BY g ORDER BY till) AS old FROM h) "
        f"SELECT g, {values}, till FROM l WHERE holds AND till < {low} "
        f"AND (holds, {values}) IS DISTINCT FROM old"
    )


def relation(
    sides: Sequence[str],
    names: str,
    n_times: str,
    low: str,
    *,
    leave: bool = False,
    till: bool = False,
) -> str:
    """Return SQL of the rows that come to be in a relation, or that cease to be.

    Args:
        sides: rows of its parts, with the first and last instant at which each is there.
        names: of the columns.
        n_times: how often a row is there, by how often the parts ``a``, ``b``, … have it.
        low: the instant before which every row has come.
        leave: whether rows that cease to be are asked for.
        till: whether the instant is a column, too.
    """
    letters = "abcd"[: len(sides)]
    parts = zip(letters, sides, strict=True)
    rows = " UNION ALL ".join(f"SELECT *, '{letter}' AS side FROM ({of})" for letter, of in parts)
    counts = ", ".join(f"count(*) FILTER (side = '{letter}') AS {letter}" for letter in letters)
    own = ", ".join(f"i.{name.strip()}" for name in names.split(","))
    same = " AND ".join(
        f"i.{each.strip()} IS NOT DISTINCT FROM q.{each.strip()}" for each in names.split(",")
    )
    change = "was - n" if leave else "n - was"
    return (
        f"WITH q AS (SELECT *, until + INTERVAL 1 MICROSECOND AS gone FROM ({rows}) "
        f"WHERE since <= until), i AS (SELECT {names}, since AS till FROM q UNION "
        f"SELECT {names}, gone FROM q), m AS (SELECT {own}, till, {counts} FROM i LEFT JOIN q "
        f"ON {same} AND since <= till AND till < gone GROUP BY ALL), "
        f"l AS (SELECT *, {n_times} AS n FROM m), w AS (SELECT *, lag(n, 1, 0) OVER "
        f"(PARTITION BY {names} ORDER BY till) AS was FROM l) "
        f"SELECT {names}{', till' * till} FROM w, generate_series(1, {change}) WHERE till < {low}"
    )


def windowed(groups: str, calls: str, where: str = "true", more: str = "") -> tuple[str, str]:
    """Return a query of aggregates over windows of ``s``, and SQL of its rows."""
    return (
        f"SELECT {groups}, {calls}, window.end AS till FROM s [RANGE 9 SECONDS SLIDE 3 SECONDS] "
        f"WHERE {where} GROUP BY {re.sub(r' AS [a-z]+', '', groups)} {more}",
        slides(f"SELECT * FROM s WHERE {where}", LOW, groups, calls, more),
    )


SUMS = windowed("k % 7 AS g", "count(*) AS n", "id % 3 <> 0")
"""The rows of the stream ``sums``."""

BOTH = (
    "SELECT id, ts, k FROM s WHERE id % 3 <> 0 "
    "UNION ALL SELECT id, ts, k FROM t WHERE k < 35 AND id % 3 <> 0"
)

DERIVED = {"pairs": (PAIRS, "ts"), "sums": (SUMS[0], "till"), "both": (BOTH, "ts")}
"""Streams that are results, with their event time; made for the queries that read them."""


def rows_in(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return rows as values in an order: instants as µs, and numbers of any width as integers."""
    kinds = pa.types
    columns = []
    for each in table.columns:
        column = each
        if kinds.is_timestamp(each.type):
            column = each.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        elif kinds.is_decimal(each.type) or kinds.is_floating(each.type):
            column = each.cast(pa.int64())
        columns.append(column.to_pylist())
    return sorted(zip(*columns, strict=True), key=repr)


def _counted(rows: list[tuple[Any, ...]]) -> Counter[str]:
    return Counter(map(repr, rows))


KINDS = {
    "filters": Kind(
        {
            "q": (
                "SELECT id FROM s WHERE often(k) AND k % 7 <> 3",
                "SELECT id FROM every_s WHERE k < 35 AND k % 7 <> 3",
            )
        }
    ),
    "columns": Kind({"q": ("SELECT id + 1 AS id, k FROM s", "SELECT id + 1, k FROM every_s")}),
    "rules": Kind(
        {
            "q": (
                RULES,
                "SELECT id, ts, k, list(name) AS matches FROM (SELECT *, 'low' AS name FROM "
                "every_s WHERE k < 20 UNION ALL SELECT *, 'odd' FROM every_s WHERE k % 2 = 1 AND "
                "id % 3 = 0 ORDER BY name) GROUP BY id, ts, k",
            )
        }
    ),
    "union": Kind(
        {
            "q": (
                "SELECT id, k FROM s WHERE k < 20 UNION ALL SELECT id + 1, k FROM s WHERE k > 9",
                "SELECT id, k FROM every_s WHERE k < 20 "
                "UNION ALL SELECT id + 1, k FROM every_s WHERE k > 9",
            )
        }
    ),
    "filters together": Kind(
        {
            f"q{n}": (
                f"SELECT id, k FROM s WHERE k > {9 * n} AND often(k)",
                f"SELECT id, k FROM every_s WHERE k > {9 * n} AND k < 35",
            )
            for n in range(3)
        }
    ),
    "join": Kind(
        {
            "q": (
                "SELECT s.id AS a, t.id AS b, u.id AS c FROM s [RANGE 12 SECONDS], "
                "t [RANGE 6 SECONDS], s u [RANGE 3 SECONDS] "
                "WHERE s.k = t.k AND t.k = u.k AND s.id % 3 <> u.id % 3",
                "SELECT s.id AS a, t.id AS b, u.id AS c FROM s JOIN t USING (k) "
                "JOIN s AS u USING (k) WHERE s.id % 3 <> u.id % 3 AND greatest(s.ts, t.ts, u.ts) "
                "<= least(s.ts + INTERVAL 12 SECONDS, t.ts + INTERVAL 6 SECONDS, "
                "u.ts + INTERVAL 3 SECONDS)",
            )
        },
        late="stu",
        options={"buckets": 2},
    ),
    "join with a key and a cold tier": Kind(
        {
            "q": (
                "SELECT s.id AS a, t.id AS b, s.k AS k FROM s [RANGE 40 SECONDS], "
                "t [RANGE 40 SECONDS], s u [RANGE 40 SECONDS] "
                "WHERE s.id DIV 6 = t.id DIV 6 AND s.id = u.id",
                "SELECT s.id AS a, t.id AS b, s.k AS k FROM s JOIN t ON s.id // 6 = t.id // 6",
            )
        },
        late="stu",
        options={"buckets": 2, "constraints": "exact"},
        key="id",
    ),
    "join with a table": Kind(
        {
            "q": (
                "SELECT s.id AS a, n.name AS b FROM s [NOW], names n WHERE s.k = n.k AND s.id > 9",
                "SELECT id AS a, k // 2 AS b FROM s WHERE k % 2 = 0 AND k < 20 AND id > 9",
            )
        },
        late="s",
    ),
    "join with a table that drops rows": Kind(
        {
            "q": (
                "SELECT s.id AS a, t.id AS b FROM s [RANGE 12 SECONDS], t [RANGE 6 SECONDS], even "
                "WHERE s.k = t.k AND t.k = even.k",
                "SELECT s.id AS a, t.id AS b FROM s JOIN t ON s.k = t.k AND s.k % 2 = 0 "
                "AND s.ts BETWEEN t.ts - INTERVAL 12 SECONDS AND t.ts + INTERVAL 6 SECONDS",
            )
        },
        late="st",
        options={"buckets": 2},
    ),
    "left join": Kind(
        {
            "q": (
                "SELECT s.id AS a, t.id AS b FROM s [RANGE 12 SECONDS] "
                "LEFT JOIN t [RANGE 6 SECONDS] ON s.k = t.k AND s.id % 3 <> t.id % 3",
                f"WITH w AS ({ALL_PAIRS}) SELECT a, b FROM w UNION ALL SELECT id, NULL FROM s "
                "WHERE id NOT IN (SELECT a FROM w) AND ts + INTERVAL 12 SECONDS < "
                "(SELECT max(ts) - INTERVAL 2 SECONDS FROM t)",
            )
        },
        late="st",
        options={"buckets": 2},
    ),
    "aggregate": Kind(
        {
            "q": windowed(
                "k % 7 AS g",
                "count(*) AS n, sum(id) AS total, count(DISTINCT k) AS d",
                "id % 3 <> 0",
                "HAVING count(*) > 2",
            )
        },
        late="s",
    ),
    "aggregates together": Kind(
        {
            "fine": windowed("k % 7 AS g, k % 2 AS h", "count(*) AS n"),
            "coarse": windowed("k % 7 AS g", "max(id) AS top", "id % 3 <> 0"),
        },
        late="s",
    ),
    "aggregate of a join": Kind(
        {
            "q": (
                "SELECT k % 7 AS g, count(*) AS n, sum(a) AS total, max(b) AS top, window.end AS "
                "till FROM pairs [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY k % 7",
                slides(
                    f"{ALL_PAIRS} AND s.k < 35",
                    LOWER,
                    "k % 7 AS g",
                    "count(*) AS n, sum(a) AS total, max(b) AS top",
                ),
            )
        },
        late="st",
        options={"buckets": 2},
    ),
    "aggregate over a join": Kind(
        {
            "q": (
                "SELECT s.k % 7 AS g, count(*) AS n, sum(s.id) AS total, max(t.id) AS top, "
                "window.end AS till FROM s [RANGE 3 SECONDS], t [RANGE 1 SECOND] "
                "WHERE s.k = t.k AND s.id % 3 <> 0 GROUP BY s.k % 7 HAVING count(*) < 4",
                changes(
                    "SELECT s.k % 7 AS g, s.id AS a, t.id AS b, greatest(s.ts, t.ts) AS since, "
                    "least(s.ts + INTERVAL 3 SECONDS, t.ts + INTERVAL 1 SECOND) AS until "
                    "FROM s JOIN t ON s.k = t.k AND s.id % 3 <> 0",
                    LOWER,
                    "count(a) AS n, sum(a) AS total, max(b) AS top",
                    "n < 4",
                ),
            )
        },
        late="st",
        options={"buckets": 2},
    ),
    "sums over a join by key": Kind(
        {
            "q": (
                "SELECT t.k % 7 AS g, count(*) AS n, sum(s.id) AS total, count(t.id) AS m, "
                "window.end AS till FROM s [RANGE 9 SECONDS], t [RANGE 6 SECONDS] "
                "WHERE s.k = t.k AND s.id % 3 <> 0 AND t.id % 3 <> 0 GROUP BY t.k % 7",
                changes(
                    "SELECT s.k % 7 AS g, s.id AS a, t.id AS b, greatest(s.ts, t.ts) AS since, "
                    "least(s.ts + INTERVAL 9 SECONDS, t.ts + INTERVAL 6 SECONDS) AS until "
                    "FROM s JOIN t ON s.k = t.k AND s.id % 3 <> 0 AND t.id % 3 <> 0",
                    LOWER,
                    "count(a) AS n, sum(a) AS total, count(b) AS m",
                ),
            )
        },
        late="st",
        options={"buckets": 2},
    ),
    "joins together": Kind(
        {
            "wide": (
                "SELECT s.id AS a, t.id AS b FROM s [RANGE 12 SECONDS], t [RANGE 6 SECONDS] "
                "WHERE s.k = t.k AND s.id % 3 <> t.id % 3",
                f"SELECT a, b FROM ({ALL_PAIRS})",
            ),
            "narrow": (
                "SELECT y.id AS b, x.k FROM t [RANGE 1 SECOND] y, s [RANGE 3 SECONDS] x "
                "WHERE y.k = x.k AND x.id % 3 <> 0 AND y.id % 6 < 3",
                "SELECT t.id AS b, s.k FROM s JOIN t ON s.k = t.k AND s.id % 3 <> 0 AND "
                "t.id % 6 < 3 AND s.ts BETWEEN t.ts - INTERVAL 3 SECONDS AND "
                "t.ts + INTERVAL 1 SECOND",
            ),
        },
        late="st",
        options={"buckets": 2},
    ),
    "aggregates over joins together": Kind(
        {
            "sums": (
                "SELECT s.k % 7 AS g, count(*) AS n, sum(s.id) AS total, window.end AS till "
                "FROM s [RANGE 3 SECONDS], t [RANGE 1 SECOND] WHERE s.k = t.k GROUP BY s.k % 7",
                changes(
                    "SELECT s.k % 7 AS g, s.id AS a, greatest(s.ts, t.ts) AS since, "
                    "least(s.ts + INTERVAL 3 SECONDS, t.ts + INTERVAL 1 SECOND) AS until "
                    "FROM s JOIN t ON s.k = t.k",
                    LOWER,
                    "count(a) AS n, sum(a) AS total",
                ),
            ),
            "tops": (
                "SELECT x.k % 2 AS g, max(y.id) AS top, window.end AS till "
                "FROM t [RANGE 2 SECONDS] y, s [NOW] x WHERE x.k = y.k AND x.id % 3 <> y.id % 3 "
                "GROUP BY x.k % 2",
                changes(
                    "SELECT s.k % 2 AS g, t.id AS b, greatest(s.ts, t.ts) AS since, "
                    "least(s.ts, t.ts + INTERVAL 2 SECONDS) AS until "
                    "FROM s JOIN t ON s.k = t.k AND s.id % 3 <> t.id % 3",
                    LOWER,
                    "max(b) AS top",
                ),
            ),
            "pairs": (
                "SELECT s.id AS a, t.id AS b FROM s [RANGE 12 SECONDS], t [RANGE 6 SECONDS] "
                "WHERE s.k = t.k AND s.id % 3 <> t.id % 3",
                f"SELECT a, b FROM ({ALL_PAIRS})",
            ),
        },
        late="st",
    ),
    "set operation": Kind(
        {
            "q": (
                "SELECT k % 7 AS g FROM s [RANGE 3 SECONDS] WHERE id % 3 <> 0 "
                "EXCEPT ALL SELECT k % 7 FROM t [RANGE 1 SECOND] WHERE id % 3 <> 0",
                relation(
                    [
                        f"SELECT k % 7 AS g, ts AS since, ts + INTERVAL {length} SECONDS AS until "
                        f"FROM {name} WHERE id % 3 <> 0"
                        for name, length in (("s", 3), ("t", 1))
                    ],
                    "g",
                    "greatest(a - b, 0)",
                    LOWER,
                ),
            )
        },
        late=("s (1), t (2)",),
        options={"buckets": 2},
    ),
    "joins of a join": Kind(
        {
            "q": (
                "SELECT s.id AS a, t.id AS b FROM s [RANGE 6 SECONDS] "
                "LEFT JOIN t [RANGE 3 SECONDS] ON s.k = t.k WHERE s.id % 3 <> 0 AND NOT EXISTS "
                "(SELECT 1 FROM s u [RANGE 2 SECONDS] WHERE u.k = s.k + 1 AND u.id % 3 <> 0)",
                "WITH w AS (SELECT s.*, t.id AS b, greatest(s.ts, t.ts) AS since, "
                "least(s.ts + INTERVAL 6 SECONDS, t.ts + INTERVAL 3 SECONDS) AS until FROM s "
                "LEFT JOIN t ON s.k = t.k AND greatest(s.ts, t.ts) <= "
                "least(s.ts + INTERVAL 6 SECONDS, t.ts + INTERVAL 3 SECONDS) WHERE s.id % 3 <> 0) "
                "SELECT id AS a, b FROM w WHERE NOT EXISTS (SELECT 1 FROM s AS u WHERE "
                "u.k = w.k + 1 AND u.id % 3 <> 0 AND greatest(w.since, u.ts) <= "
                "least(w.until, u.ts + INTERVAL 2 SECONDS)) AND since + INTERVAL 6 SECONDS < "
                f"{LOW} AND (b IS NOT NULL OR ts + INTERVAL 6 SECONDS < "
                "(SELECT max(ts) - INTERVAL 2 SECONDS FROM t))",
            )
        },
        late="stu",
        options={"buckets": 2},
    ),
    "partners among the last rows": Kind(
        {
            "q": (
                "SELECT s.id AS a, s.k AS b FROM s [RANGE 6 SECONDS] WHERE s.id % 3 <> 0 "
                "AND EXISTS (SELECT 1 FROM t [PARTITION BY k ROWS 2] WHERE t.k = s.k AND t.id % 3 "
                "<> 0) AND NOT EXISTS (SELECT 1 FROM s u [ROWS 30] WHERE u.k = s.k + 1 "
                "AND u.id % 3 <> 0)",
                f"WITH x AS ({last_rows('t', 2, 'PARTITION BY k')}), y AS ({last_rows('s', 30)}) "
                "SELECT id AS a, k AS b FROM s WHERE id % 3 <> 0 AND EXISTS (SELECT 1 FROM x "
                "WHERE x.k = s.k AND x.id % 3 <> 0 AND "
                "greatest(x.ts, s.ts) <= least(x.till, s.ts + INTERVAL 6 SECONDS)) "
                "AND NOT EXISTS (SELECT 1 FROM y WHERE y.k = s.k + 1 AND y.id % 3 <> 0 AND "
                "greatest(y.ts, s.ts) <= least(y.till, s.ts + INTERVAL 6 SECONDS)) "
                f"AND ts + INTERVAL 6 SECONDS < {LOWER}",
            )
        },
        late="stu",
        options={"buckets": 2},
    ),
    "aggregate of a union": Kind(
        {
            "q": (
                "SELECT k % 7 AS g, count(*) AS n, sum(id) AS total, window.end AS till "
                "FROM both [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY k % 7",
                slides(BOTH, LOWER, "k % 7 AS g", "count(*) AS n, sum(id) AS total"),
            )
        },
        late=("s (1), t (2)",),
    ),
    "join of an aggregate": Kind(
        {
            "q": (
                "SELECT m.g, m.n, t.id, m.till FROM sums m [RANGE 3 SECONDS], t [RANGE 6 SECONDS] "
                "WHERE m.g = t.k % 7 AND m.n > 1 AND t.id % 3 <> 0",
                f"SELECT g, n, id, till FROM ({SUMS[1]}) AS m JOIN t ON g = k % 7 AND n > 1 AND "
                "id % 3 <> 0 AND till - INTERVAL 1 MICROSECOND "
                "BETWEEN ts - INTERVAL 3 SECONDS AND ts + INTERVAL 6 SECONDS",
            )
        },
        late="t",
        options={"buckets": 2},
    ),
    "union of results": Kind(
        {
            "q": (
                "SELECT g, n FROM sums WHERE n > 1 UNION ALL SELECT k, b FROM pairs",
                f"SELECT g, n FROM ({SUMS[1]}) AS m WHERE n > 1 "
                f"UNION ALL SELECT k, b FROM ({ALL_PAIRS} AND s.k < 35) AS p",
            )
        },
        late="st",
        options={"buckets": 2},
    ),
    "over": Kind(
        {
            "q": (
                f"SELECT id, count(*) {FRAME} AS n, sum(id) {FRAME} AS total FROM s WHERE k < 30",
                f"SELECT id, n, total FROM (SELECT *, count(*) {FRAME} AS n, sum(id) {FRAME} AS "
                f"total FROM s WHERE k < 30) WHERE ts < {LOW}",
            )
        },
        late="s",
    ),
    "correlation": Kind(
        {
            "q": (
                "SELECT id, ts, k FROM s",
                "WITH e AS (SELECT DISTINCT k, ts, count(*) OVER (PARTITION BY k ORDER BY ts RANGE "
                "BETWEEN INTERVAL '3' SECOND PRECEDING AND CURRENT ROW) AS n FROM s), "
                "l AS (SELECT *, lag(n) OVER own AS n_before, lag(ts) OVER own AS t_before FROM e "
                "WINDOW own AS (PARTITION BY k ORDER BY ts)) SELECT k, ts FROM l WHERE n >= 3 AND "
                "NOT coalesce(n_before >= 3 AND t_before >= ts - INTERVAL '3' SECOND, FALSE) "
                f"AND ts < {LOW}",
            )
        },
        late="s",
        steps=CORRELATED,
    ),
    "models": Kind(
        {
            "q": (
                "SELECT k, x FROM s MODEL x = id HORIZON 1 SECOND BY k "
                "WHERE often(k) AND x > 100 SAMPLE EVERY 1 SECOND",
                "SELECT k, ts AS time, max(id) AS x, 0 AS err_x FROM s WHERE k < 35 GROUP BY k, ts "
                f"HAVING ts + INTERVAL 1 SECOND <= {LOW} AND max(id) > 100",
            )
        },
        late="s",
    ),
    "models together": Kind(
        {
            f"q{n}": (
                "SELECT k, x FROM s MODEL x = id HORIZON 1 SECOND BY k "
                f"WHERE x > {100 * n} SAMPLE EVERY 1 SECOND",
                "SELECT k, ts AS time, max(id) AS x, 0 AS err_x FROM s GROUP BY k, ts "
                f"HAVING ts + INTERVAL 1 SECOND <= {LOW} AND max(id) > {100 * n}",
            )
            for n in (1, 3)
        },
        late="s",
    ),
    "alarms": Kind(
        {
            "q": (
                "SELECT id, ts, k FROM s",
                "WITH e AS (SELECT k, ts, max(id) AS x FROM s GROUP BY k, ts), l AS (SELECT *, "
                "lag(ts) OVER (PARTITION BY k ORDER BY ts) AS before FROM e), n AS (SELECT *, "
                "sum(CASE WHEN before = ts - INTERVAL 1 SECOND THEN 0 ELSE 1 END) OVER "
                "(PARTITION BY k ORDER BY ts) AS number FROM l) SELECT alarm, k, min(ts) AS since, "
                "max(ts) + INTERVAL 1 SECOND AS until, arg_min(x, ts) AS x, 0 AS err_x FROM n "
                "JOIN (VALUES ('any', 0), ('high', 20)) AS a(alarm, least) ON k >= least "
                f"GROUP BY alarm, k, number HAVING max(ts) + INTERVAL 1 SECOND < {LOW}",
            )
        },
        late="s",
        steps=(AlarmStep(("s",), HELD, alarms=ALARMS),),
    ),
    "early models": Kind(
        {"q": ("SELECT id, ts, k FROM s", ANSWER.format(low=LOW))},
        late="s",
        steps=(ModelStep(("s",), SOON),),
        is_early=True,
    ),
}
