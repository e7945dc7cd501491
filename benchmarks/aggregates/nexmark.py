"""Nexmark: its queries as it publishes them for Flink, as far as the language reaches.

What is other than there: windows stand behind streams (``[RANGE 10 SECONDS SLIDE 2 SECONDS]`` for
``HOP``), subqueries are streams of their own, ``SPLIT_INDEX(url, '/', 3)`` is
``split_part(url, '/', 4)``, and the user's function of query 14 is written out. A query without a
window has a result at every change, as in Flink, but none is ever taken back.

5 (the auctions with most bids) asks for the maximum of each instant by OVER; as the join of both
results that is published it is in ``JOINED``. 7 (the highest bid) takes the row of the maximum by
MAX_BY, of several with one price a single one; 8 (persons who sell in the ten seconds in which they
came) joins first and groups then. 18 (the last bid of each bidder in an auction) is a window of one
row, not a rank.

Not possible, and why:

- 4 (the average of final prices) averages maxima that may still rise: what one query told, and
  another one read, would have to be taken back. Nor can a window end when its row says
  (``expires``).
- 6 (the average of a seller's last ten sales) is over the winning bids of 9; Flink does not run it
  either.
- 9 (winning bids) and 19 (the ten highest bids of an auction) rank rows (``ROW_NUMBER``), and later
  rows change ranks.

Spark has no ``COUNT(DISTINCT …)`` on streams (15, 16). Without a window it tells a group once a
micro-batch, however often it changed (17, 18): less than what we tell; it is checked by what
DuckDB says to that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.aggregates.asked import N_FAR, Asked, written
from benchmarks.aggregates.race import compared, ratios, told
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median, spread
from benchmarks.joins.data import EVENT_US, T0_US, nexmark_batches_v2

TIMES = {"person": "dateTime", "auction": "dateTime", "bid": "dateTime"}

DAY = "date_format(dateTime, 'yyyy-MM-dd')"
DUCKDB_DAY = "strftime(dateTime, '%Y-%m-%d')"

_RANKS = {
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}


@dataclass(frozen=True)
class _Made:
    """What makes the statement of a query for each dialect."""

    number: int
    asked: Asked
    streams: tuple[str, ...] = ("bid",)


def _counts(call: str, name: str, over: str = "") -> str:
    """Return a count of all bids and of those of each rank."""
    ranked = [
        f"{call} FILTER (WHERE {where}){over} AS {rank}_{name}" for rank, where in _RANKS.items()
    ]
    return ", ".join([f"{call}{over} AS total_{name}", *ranked])


def _distinct(over: str = "") -> str:
    return ", ".join(
        [
            _counts("count(*)", "bids", over),
            _counts("count(DISTINCT bidder)", "bidders", over),
            _counts("count(DISTINCT auction)", "auctions", over),
        ]
    )


def _same(text: str) -> Asked:
    return Asked(text, text, text)


_Q3 = """
SELECT P.name, P.city, P.state, A.id
FROM auction AS A INNER JOIN person AS P ON A.seller = P.id
WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')
"""

_Q14 = """
SELECT auction, bidder, 0.908 * price AS price,
    CASE
        WHEN hour(dateTime) >= 8 AND hour(dateTime) <= 18 THEN 'dayTime'
        WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
        ELSE 'otherTime'
    END AS bidTimeType,
    dateTime, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
"""

_Q20 = """
SELECT B.auction, B.bidder, B.price, B.channel, B.url, B.dateTime AS bid_dateTime,
    B.extra AS bid_extra, A.itemName, A.description, A.initialBid, A.reserve,
    A.dateTime AS auction_dateTime, A.expires, A.seller, A.category, A.extra AS auction_extra
FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id
WHERE A.category = 10
"""

_Q22 = """
SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1,
    split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bid
"""

_ENDS = "(epoch_us(dateTime) // 10000000 + 1) * 10"
"""The end of the ten seconds that a row is in, as DuckDB says it (s)."""

_HOPS = (
    "SELECT auction, wend, count(*) AS num FROM (SELECT auction, unnest([0, 2, 4, 6, 8]) + 2 + "
    "epoch_us(dateTime) // 2000000 * 2 AS wend FROM bid) WHERE to_timestamp(wend) <= {low} "
    "GROUP BY ALL"
)

_SESSIONS = (
    "SELECT bidder, count(*) AS bid_count, min(dateTime) AS starttime, "
    "max(dateTime) + INTERVAL 10 SECONDS AS endtime FROM (SELECT *, sum(is_first) OVER w AS number "
    "FROM (SELECT *, CASE WHEN dateTime - lag(dateTime) OVER w <= INTERVAL 10 SECONDS THEN 0 "
    "ELSE 1 END AS is_first FROM bid WINDOW w AS (PARTITION BY bidder ORDER BY dateTime)) "
    "WINDOW w AS (PARTITION BY bidder ORDER BY dateTime)) GROUP BY bidder, number "
    "HAVING max(dateTime) + INTERVAL 10 SECONDS < {low}"
)

_LAST = "price, channel, url, dateTime, extra"


def _running(columns: str, by: str) -> str:
    """Return what DuckDB says to a query without a window: a row for every change."""
    over = f"(PARTITION BY {by} ORDER BY dateTime)"
    rows = columns.format(over=f" OVER {over}")
    return f"SELECT * EXCLUDE (instant) FROM ({rows}) WHERE instant < {{low}}"


_Q17 = (
    f"SELECT auction, {{day}} AS day, {_counts('count(*)', 'bids', '{over}')}, "
    "min(price){over} AS min_price, max(price){over} AS max_price, avg(price){over} AS avg_price, "
    "sum(price){over} AS sum_price"
)


def _queries() -> dict[int, _Made]:
    """Return the queries that are possible, by number."""
    hop = (
        "SELECT auction, count(*) AS num, window.start AS starttime, window.end AS endtime "
        "FROM bid [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY auction"
    )
    most = (
        "SELECT auction, num, max(num) OVER (PARTITION BY starttime, endtime ORDER BY endtime "
        "RANGE BETWEEN CURRENT ROW AND CURRENT ROW) AS maxn FROM counts"
    )
    spark_hop = (
        "SELECT auction, count(*) AS num, window FROM bid "
        "GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')"
    )
    found = [
        _Made(0, _same("SELECT auction, bidder, price, dateTime, extra FROM bid")),
        _Made(
            1,
            _same("SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid"),
        ),
        _Made(2, _same("SELECT auction, price FROM bid WHERE mod(auction, 123) = 0")),
        _Made(3, _same(_Q3), ("auction", "person")),
        _Made(
            5,
            Asked(
                "SELECT auction, num FROM most WHERE num >= maxn",
                f"SELECT A.auction, A.num FROM ({spark_hop}) A JOIN (SELECT max(num) AS maxn, "
                f"window FROM ({spark_hop}) GROUP BY window) M "
                f"ON A.window = M.window AND A.num >= M.maxn",
                f"SELECT auction, num FROM ({_HOPS}) "
                f"QUALIFY num >= max(num) OVER (PARTITION BY wend)",
                results=(("counts", hop, None), ("most", most, None)),
            ),
        ),
        _Made(
            7,
            Asked(
                "SELECT max_by(auction, price) AS auction, max(price) AS price, "
                "max_by(bidder, price) AS bidder, max_by(dateTime, price) AS dateTime, "
                "max_by(extra, price) AS extra FROM bid [RANGE 10 SECONDS SLIDE 10 SECONDS]",
                "SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra FROM bid B JOIN "
                "(SELECT max(price) AS maxprice, window.end AS endtime FROM bid "
                "GROUP BY window(dateTime, '10 seconds')) M ON B.price = M.maxprice "
                "WHERE B.dateTime BETWEEN M.endtime - INTERVAL '10' SECOND AND M.endtime",
                "SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra FROM bid B JOIN "
                f"(SELECT max(price) AS maxprice, to_timestamp({_ENDS}) AS endtime FROM bid "
                "GROUP BY ALL) M ON B.price = M.maxprice WHERE M.endtime <= {low} AND "
                "B.dateTime BETWEEN M.endtime - INTERVAL 10 SECONDS AND M.endtime",
            ),
        ),
        _Made(
            8,
            Asked(
                "SELECT id, name, window.start AS starttime "
                "FROM sold [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY id, name",
                "SELECT P.id, P.name, P.window.start AS starttime FROM (SELECT id, name, window "
                "FROM person GROUP BY id, name, window(dateTime, '10 seconds')) P JOIN "
                "(SELECT seller, window FROM auction GROUP BY seller, "
                "window(dateTime, '10 seconds')) A ON P.id = A.seller AND P.window = A.window",
                f"SELECT P.id, P.name, to_timestamp(P.wend - 10) AS starttime FROM (SELECT "
                f"DISTINCT id, name, {_ENDS} AS wend FROM person) P JOIN (SELECT DISTINCT "
                f"seller, {_ENDS} AS wend FROM auction) A ON P.id = A.seller AND P.wend = A.wend "
                f"WHERE to_timestamp(P.wend) <= {{low}}",
                results=(
                    (
                        "sold",
                        "SELECT P.id, P.name, greatest(P.dateTime, A.dateTime) AS dateTime "
                        "FROM person [RANGE 10 SECONDS] P JOIN auction [RANGE 10 SECONDS] A "
                        "ON P.id = A.seller AND "
                        "unix_seconds(P.dateTime) div 10 = unix_seconds(A.dateTime) div 10",
                        "dateTime",
                    ),
                ),
            ),
            ("person", "auction"),
        ),
        _Made(
            11,
            Asked(
                "SELECT bidder, count(*) AS bid_count, window.start AS starttime, "
                "window.end AS endtime FROM bid [SESSION 10 SECONDS] GROUP BY bidder",
                "SELECT bidder, count(*) AS bid_count, session_window.start AS starttime, "
                "session_window.end AS endtime FROM bid "
                "GROUP BY bidder, session_window(dateTime, '10 seconds')",
                _SESSIONS,
            ),
        ),
        _Made(
            13,
            Asked(
                "SELECT B.auction, B.bidder, B.price, B.dateTime, S.value "
                "FROM bid [NOW] B JOIN side_input S ON mod(B.auction, 10000) = S.key",
                "SELECT B.auction, B.bidder, B.price, B.dateTime, S.value "
                "FROM bid B JOIN side_input S ON mod(B.auction, 10000) = S.key",
                "SELECT B.auction, B.bidder, B.price, B.dateTime, S.value "
                "FROM bid B JOIN side_input S ON mod(B.auction, 10000) = S.key",
                tables=("side_input",),
            ),
        ),
        _Made(14, _same(_Q14)),
        _Made(
            15,
            Asked(
                f"SELECT {DAY} AS day, {_distinct()} FROM bid GROUP BY {DAY}",
                duckdb=_running(
                    f"SELECT {DUCKDB_DAY} AS day, {_distinct('{over}')}, dateTime AS instant "
                    "FROM bid",
                    DUCKDB_DAY,
                ),
            ),
        ),
        _Made(
            16,
            Asked(
                f"SELECT channel, {DAY} AS day, max(date_format(dateTime, 'HH:mm')) AS minute, "
                f"{_distinct()} FROM bid GROUP BY channel, {DAY}",
                duckdb=_running(
                    f"SELECT channel, {DUCKDB_DAY} AS day, "
                    f"max(strftime(dateTime, '%H:%M')){{over}} AS minute, "
                    f" {_distinct('{over}')}, dateTime AS instant FROM bid",
                    f"channel, {DUCKDB_DAY}",
                ),
            ),
        ),
        _Made(
            17,
            Asked(
                _Q17.replace("{day}", DAY).replace("{over}", "")
                + f" FROM bid GROUP BY auction, {DAY}",
                _Q17.replace("{day}", DAY).replace("{over}", "")
                + f" FROM bid GROUP BY auction, {DAY}",
                _running(
                    _Q17.replace("{day}", DUCKDB_DAY) + ", dateTime AS instant FROM bid",
                    f"auction, {DUCKDB_DAY}",
                ),
                mode="update",
                duckdb_of_spark="SELECT * EXCLUDE (instant, batch) FROM ("
                + _Q17.replace("{day}", DUCKDB_DAY).replace(
                    "{over}", f" OVER (PARTITION BY auction, {DUCKDB_DAY} ORDER BY dateTime)"
                )
                + ", dateTime AS instant, {batch} AS batch FROM bid) QUALIFY row_number() OVER "
                "(PARTITION BY auction, day, batch ORDER BY instant DESC) = 1",
            ),
        ),
        _Made(
            18,
            Asked(
                "SELECT auction, bidder, "
                + ", ".join(f"last({each}) AS {each}" for each in _LAST.split(", "))
                + " FROM bid [PARTITION BY bidder, auction ROWS 1] GROUP BY bidder, auction",
                f"SELECT auction, bidder, last.* FROM (SELECT bidder, auction, "
                f"max_by(struct({_LAST}), dateTime) AS last FROM bid GROUP BY bidder, auction)",
                f"SELECT auction, bidder, {_LAST} FROM bid WHERE dateTime < {{low}}",
                mode="update",
                duckdb_of_spark=f"SELECT auction, bidder, {_LAST} FROM bid QUALIFY row_number() "
                "OVER (PARTITION BY bidder, auction, {batch} ORDER BY dateTime DESC) = 1",
            ),
        ),
        _Made(20, _same(_Q20), ("bid", "auction")),
        _Made(22, _same(_Q22)),
    ]
    return {each.number: each for each in found}


QUERIES = _queries()

JOINED = {
    5: replace(
        QUERIES[5],
        asked=replace(
            QUERIES[5].asked,
            text="SELECT A.auction, A.num FROM counts [NOW] A JOIN tops [NOW] M "
            "ON A.endtime = M.till AND A.num >= M.maxn",
            results=(
                (*QUERIES[5].asked.results[0][:2], "endtime"),
                (
                    "tops",
                    "SELECT max(num) AS maxn, window.end AS till "
                    "FROM counts [RANGE 2 SECONDS SLIDE 2 SECONDS]",
                    "till",
                ),
            ),
        ),
    )
}
"""Queries as joins of the results of aggregates, as they are published."""

BY_SPARK = tuple(number for number, each in QUERIES.items() if each.asked.spark)
"""Those that Spark can run."""

N_BATCHES, N_FIRST = 16, 6
"""Micro-batches of a query, and those of them of which the first figure is. The later half says
what a query is at that runs on, when the JVM has compiled what it does."""

EVERY_CHANGE = (15, 16)
"""Those of which a batch gives a result for every row with many counts: on fewer rows."""


def asked_of(number: int, n_batches: int, n_events: int, *, joined: bool = False) -> Asked:
    """Return a query over rows that are written."""
    made = (JOINED if joined else QUERIES)[number]
    times = {name: TIMES[name] for name in made.streams}
    rows = (
        {name: each[name] for name in times} for each in nexmark_batches_v2(n_batches, n_events)
    )
    tables = {}
    if made.asked.tables:
        keys = np.arange(10_000)
        tables["side_input"] = pa.table({"key": keys, "value": [f"value {key}" for key in keys]})
    # In update mode Spark waits for no instant, and tells a group once a batch.
    folder = written(rows, tables, times, n_far=_n_far(made.asked))
    span = n_events * EVENT_US
    batch = f"(epoch_us(dateTime) - {T0_US}) // {span}"
    of_spark = made.asked.duckdb_of_spark.replace("{batch}", batch)
    return replace(made.asked, times=times, folder=folder, duckdb_of_spark=of_spark)


def _n_far(asked: Asked) -> int:
    return 0 if asked.mode == "update" else N_FAR


@cache
def measured(number: int, settings: Settings, *, joined: bool = False) -> dict[str, Any]:
    """Return what was found of a query, by ours and where it can by Spark; see ``compared``."""
    tells_all = number in EVERY_CHANGE
    n_events = settings.pick(300_000, 30_000) // (10 if tells_all else 1)
    n_batches = N_FIRST if tells_all else N_BATCHES
    asked = asked_of(number, settings.pick(n_batches, 3), n_events, joined=joined)
    ways = ("eddyline", *(["spark"] if asked.spark else []))
    return compared(asked, *ways, n_far=_n_far(asked))


def gain(found: dict[str, Any], *, is_steady: bool = False) -> float:
    """Return the time of Spark over ours: of the first batches but one, or of the later half."""
    gains = ratios(found, "spark", "eddyline")
    return median(gains[len(gains) // 2 :] if is_steady else gains[: N_FIRST - 1])


def one(settings: Settings, number: int) -> Measurement:
    """A query beside Spark, or alone where Spark has no such: seconds of a batch."""
    found = measured(number, settings)
    ways = ("eddyline", *(["spark"] if number in BY_SPARK else []))
    note = f"{found['eddyline']['answer'][0]:,} results; {told(found, *ways)}"
    if number in BY_SPARK:
        note = f"later half of the batches {gain(found, is_steady=True):.2f}; {note}"
        return Measurement(gain(found), note, found)
    return Measurement(median(found["eddyline"]["seconds"][1:]), note, found)


def joined(settings: Settings, number: int) -> Measurement:
    """A query as a join of results, beside Spark."""
    found = measured(number, settings, joined=True)
    gains = ratios(found, "spark", "eddyline")
    note = (
        f"later half of the batches {gain(found, is_steady=True):.2f}; ratio of batches "
        f"{spread(gains)}; {told(found, 'eddyline', 'spark')}"
    )
    return Measurement(gain(found), note, found)


def geometric_mean(settings: Settings, *, is_steady: bool = False) -> Measurement:
    """All that Spark can run."""
    gains = _gains(settings, is_steady=is_steady)
    value = math.exp(sum(map(math.log, gains.values())) / len(gains))
    return Measurement(value, _each(gains), {str(number): each for number, each in gains.items()})


def worst(settings: Settings, *, is_steady: bool = False) -> Measurement:
    """The one of least gain."""
    gains = _gains(settings, is_steady=is_steady)
    return Measurement(
        min(gains.values()), _each(gains), {str(k): each for k, each in gains.items()}
    )


def _gains(settings: Settings, *, is_steady: bool) -> dict[int, float]:
    return {number: gain(measured(number, settings), is_steady=is_steady) for number in BY_SPARK}


def _each(gains: dict[int, float]) -> str:
    return ", ".join(f"{number}: {each:.2f}" for number, each in gains.items())


RUNS: Runs = {
    **{f"nexmark_q{number}": partial(one, number=number) for number in QUERIES},
    **{f"nexmark_q{number}_joined": partial(joined, number=number) for number in JOINED},
    "nexmark_geometric_mean": geometric_mean,
    "nexmark_worst": worst,
    "nexmark_steady": partial(geometric_mean, is_steady=True),
    "nexmark_steady_worst": partial(worst, is_steady=True),
}
