"""Rows that are dropped tell the time all the same, so that any cut gives the same answer."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

import eddyline as el
from tests.spark.joins.join_streams import ended, stream_of, write_batch

pytestmark = pytest.mark.spark

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ROWS = [(1, 0, 5), (1, 2, 6)]
"""Key, second and value."""

DROPPED = {
    "no key": [(None, 1000, 5), (None, 1001, 5), (None, 1001, 5)],
    "a condition": [(1, 1000, -1), (None, 1001, -1), (1, 1001, -1)],
    "a stream of a query": [(1, 1000, -1), (None, 1001, -1), (1, 1001, -1)],
}
"""Rows of no result, by what drops them."""

CUTS = [[5], [2, 3], [1, 2, 2], [1] * 5]
"""Rows of each batch."""


def table_of(rows):
    keys, seconds, values = zip(*rows, strict=True)
    times = pa.array([T0 + dt.timedelta(seconds=each) for each in seconds])
    return pa.table(
        {
            "ts": times.cast(pa.timestamp("us", "UTC")),
            "k": pa.array(keys, pa.int64()),
            "v": pa.array(values, pa.int64()),
        }
    )


def answer(spark, folder, text, rows, sizes, *, derived):
    """Return the results of a query over s and t, which come in batches of some sizes."""
    engine = el.Engine(spark)
    for name in ("s", "t"):
        first = 0
        for number, size in enumerate(sizes):
            write_batch(folder, name, number, table_of(rows[first : first + size]))
            first += size
        source = f"raw_{name}" if derived else name
        frame = stream_of(spark, folder, name)
        engine.stream(source, frame, time="ts", lateness="0 seconds")
        if derived:
            engine.stream(name, engine.query(f"SELECT k, v, ts FROM raw_{name} WHERE v >= 0"))
    run = ended(engine.query(text, name="q"))
    return sorted(tuple(row.values()) for row in run.to_arrow().to_pylist())


ANSWERS = {
    "DSTREAM": ("RANGE 10 SECONDS", [(5, 5), (5, 6), (6, 5), (6, 6)]),
    # The rows at second 1000 are instants of the streams; nothing lives then.
    "RSTREAM": ("RANGE 10 SECONDS", [(5, 5), (5, 5), (5, 6), (6, 5), (6, 6)]),
    "ISTREAM": ("ROWS 2", [(5, 5), (5, 6), (6, 5), (6, 6)]),
}
"""Windows and results, by what a query emits."""

CASES = [
    (emits, by, CUTS[(at + number) % 3])
    for at, emits in enumerate(ANSWERS)
    for number, by in enumerate(DROPPED)
]
"""Each pair of a query, what drops rows, and a cut."""

CASES += [(emits, by, CUTS[3]) for emits, by in zip(ANSWERS, DROPPED, strict=True)]


@pytest.mark.large
@pytest.mark.parametrize(("emits", "by", "sizes"), CASES)
def test_any_cut_gives_the_same_answer(spark, tmp_path, emits, by, sizes):
    window, wanted = ANSWERS[emits]
    derived = by == "a stream of a query"
    where = "s.k = t.k" if derived else "s.k = t.k AND s.v >= 0 AND t.v >= 0"
    text = f"{emits}(SELECT s.v AS a, t.v AS b FROM s [{window}], t [{window}] WHERE {where})"
    assert answer(spark, tmp_path, text, ROWS + DROPPED[by], sizes, derived=derived) == wanted
