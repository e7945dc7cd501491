"""Nexmark's queries beside Flink, which publishes them; those whose results both engines append.

Not among them, and why:

- 4, 6, 9 and 19: eddyline has none of them, see ``benchmarks.aggregates.nexmark``.
- 13 looks up a side input. Flink's files offer no look-up, and a join would keep every bid.
- 15, 16, 17 and 18 have a result at every change. Flink takes earlier results back, which its CSV
  files cannot say, and two readers give it the changes in no fixed order.

Instants of events, a tenth of a millisecond apart, are cut to whole milliseconds.
"""

from __future__ import annotations

import math
import re
import shutil
from typing import Any

import pyarrow as pa

from benchmarks.aggregates.nexmark import QUERIES, TIMES
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.statistics import median
from benchmarks.joins.data import nexmark_batches_v2
from benchmarks.peers.query import PeerQuery, columns_of, written
from benchmarks.peers.race import race, ratios

_HOP = "TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"

_COUNTS = (
    f"SELECT auction, count(*) AS num, window_start AS starttime, window_end AS endtime "
    f"FROM {_HOP} GROUP BY auction, window_start, window_end"
)

_Q7 = """
SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra
FROM bid B JOIN (
    SELECT max(price) AS maxprice, window_end AS endtime
    FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
    GROUP BY window_start, window_end
) M ON B.price = M.maxprice
WHERE B.dateTime BETWEEN M.endtime - INTERVAL '10' SECOND AND M.endtime
"""

_Q8 = """
SELECT P.id, P.name, P.starttime
FROM (
    SELECT id, name, window_start AS starttime, window_end AS endtime
    FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
    GROUP BY id, name, window_start, window_end
) P JOIN (
    SELECT seller, window_start AS starttime, window_end AS endtime
    FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
    GROUP BY seller, window_start, window_end
) A ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime
"""

_Q11 = """
SELECT bidder, count(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end
"""

_Q14 = QUERIES[14].asked.text.replace("length(extra) -", "char_length(extra) -")

_Q22 = """
SELECT auction, bidder, price, channel, split_index(url, '/', 3) AS dir1,
    split_index(url, '/', 4) AS dir2, split_index(url, '/', 5) AS dir3
FROM bid
"""

FLINK: dict[int, str] = {
    3: QUERIES[3].asked.text,
    5: f"SELECT A.auction, A.num FROM ({_COUNTS}) A JOIN (SELECT max(num) AS maxn, starttime, "
    f"endtime FROM ({_COUNTS}) GROUP BY starttime, endtime) M ON A.starttime = M.starttime "
    f"AND A.endtime = M.endtime AND A.num >= M.maxn",
    7: _Q7,
    8: _Q8,
    11: _Q11,
    14: _Q14,
    20: QUERIES[20].asked.text,
    22: _Q22,
    **{number: QUERIES[number].asked.text for number in (0, 1, 2)},
}
"""Queries as Flink reads them, by number."""

PRICE = "DECIMAL(24, 3)"

TYPES = {
    **dict.fromkeys(("dateTime", "bid_dateTime", "auction_dateTime"), "TIMESTAMP"),
    **dict.fromkeys(("expires", "starttime", "endtime"), "TIMESTAMP"),
    **dict.fromkeys(("auction", "bidder", "price", "id", "num", "bid_count"), "BIGINT"),
    **dict.fromkeys(("c_counts", "initialBid", "reserve", "seller", "category"), "BIGINT"),
}
"""Types of the columns of results that are no text, by name."""

COLUMNS = {
    0: "auction bidder price dateTime extra",
    1: "auction bidder price dateTime extra",
    2: "auction price",
    3: "name city state id",
    5: "auction num",
    7: "auction price bidder dateTime extra",
    8: "id name starttime",
    11: "bidder bid_count starttime endtime",
    14: "auction bidder price bidTimeType dateTime extra c_counts",
    20: "auction bidder price channel url bid_dateTime bid_extra itemName description initialBid "
    "reserve auction_dateTime expires seller category auction_extra",
    22: "auction bidder price channel dir1 dir2 dir3",
}
"""Columns of results, in order."""

OF_DECIMALS = 1, 14
"""Queries whose prices are converted."""


def query_of(number: int) -> PeerQuery:
    """Return a query of Nexmark as both engines read it."""
    source = QUERIES[number]
    results = {name: TYPES.get(name, "STRING") for name in COLUMNS[number].split()}
    if number in OF_DECIMALS:
        results["price"] = PRICE
    key = next(name for name in ("auction", "bidder", "id") if name in results)
    times = {name: TIMES[name] for name in source.streams}
    # Ids of the last rows are negative.
    return PeerQuery(
        source.asked.text,
        quoted(FLINK[number]),
        results,
        f"{key} >= 0",
        times,
        source.asked.results,
    )


def quoted(text: str) -> str:
    """Return a query with the column ``dateTime`` quoted: to Flink the bare word is a keyword."""
    return re.sub(r"\bdateTime\b", "`dateTime`", text)


def tables_v1(n_events: int, seed: int) -> dict[str, pa.Table]:
    """Return persons, auctions and bids with instants of whole milliseconds."""
    (batch,) = nexmark_batches_v2(1, n_events, seed)
    return {name: _in_milliseconds(table) for name, table in batch.items()}


def _in_milliseconds(table: pa.Table) -> pa.Table:
    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            instants = table[field.name].cast(pa.timestamp("ms", "UTC"), safe=False)
            plain = instants.cast(pa.int64()).cast(pa.timestamp("ms"))
            table = table.set_column(number, field.name, plain)
    return table


def beside_flink(settings: Settings) -> Measurement:
    """Time of Flink over ours, geometric mean of the queries; the worst is in the note."""
    n_events = settings.pick(2_400_000, 240_000)
    tables = tables_v1(n_events, settings.unseen)
    times: dict[int, Any] = {}
    folder = written(tables, TIMES)
    try:
        for number in sorted(FLINK):
            query = query_of(number)
            times[number] = race(query.job(folder, columns_of(tables)), 1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    gains = {number: median(ratios(runs)) for number, runs in times.items()}
    worst = min(gains, key=gains.__getitem__)
    value = math.exp(sum(map(math.log, gains.values())) / len(gains))
    words = ", ".join(
        f"{number}: {gain:.2f} (Flink {times[number]['flink'][0]['seconds']:.3g} s)"
        for number, gain in gains.items()
    )
    version = times[worst]["flink"][0]["version"]
    note = f"Flink {version}; {n_events:,} events; worst query {worst}, {gains[worst]:.2f}; {words}"
    return Measurement(value, note, {str(number): runs for number, runs in times.items()})


RUNS: Runs = {"peers_flink_nexmark": beside_flink}
