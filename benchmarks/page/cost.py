"""Time of a processor that who looks takes beside a query that is never idle.

Who looks is the server of the page, or the feed of the stream about the system.
"""

from __future__ import annotations

import http.client
import threading
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import eddyline as el
from benchmarks.harness.scenario import Measurement, Settings
from benchmarks.harness.spark import spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness.scenario import Runs

TEXT = "SELECT value FROM s WHERE value % 3 = 0 AND value % 5 < 4 AND value % 7 > 1"
ROWS = 200_000
"""Rows of a batch."""
WARM = 5
"""Batches before it is measured."""
FRESHEN_S = 1.0
"""Least time between a batch and the question of ``page.js`` for a newer page (s)."""
SERVERS = ("eddyline page", "AnyIO worker")
"""Beginnings of the names of the server's threads."""
FEEDS = ("eddyline system",)
"""The same of feeds."""


def threads_s(names: tuple[str, ...]) -> float:
    """Return the time of a processor that threads have taken whose names begin so (s)."""
    threads = [each for each in threading.enumerate() if each.name.startswith(names)]
    files = [Path(f"/proc/self/task/{each.native_id}/schedstat") for each in threads]
    return sum(int(each.read_text().split()[0]) for each in files) / 1e9


def look(server: Any, query: str, stops: threading.Event, seen: list[int]) -> None:
    """Do what ``page.js`` does with the page of a query: hear of batches, and ask for it anew.

    It asks some time after a batch, not before the server has a newer page, and for a newer one.
    """
    asked = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    asked.request("GET", server.url.removeprefix(server.address.rstrip("/")))
    answer = asked.getresponse()
    answer.read()
    cookie = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
    asked.request("GET", "/", headers=cookie)
    listed = asked.getresponse().read().decode()
    place = next(part for part in listed.split('"') if part.startswith("/run/"))
    assert query in listed
    heard = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    heard.request("GET", f"/events?run={place.removeprefix('/run/')}", headers=cookie)
    known, not_before = "", 0.0
    for line in heard.getresponse():
        if stops.is_set():
            return
        if not line.startswith(b"event: batch") or time.monotonic() < not_before:
            continue
        asked.request("GET", place, headers={**cookie, "if-none-match": known})
        answer = asked.getresponse()
        seen.append(len(answer.read()))
        known = answer.headers["etag"]
        wait_s = float(answer.headers.get("eddyline-wait", 0.0))
        not_before = time.monotonic() + max(wait_s, FRESHEN_S)


@contextmanager
def looked_at(server: Any, query: str) -> Iterator[list[int]]:
    """Have a page open; gives the sizes of what was shown."""
    stops = threading.Event()
    seen: list[int] = []
    browser = threading.Thread(target=look, args=(server, query, stops, seen), daemon=True)
    browser.start()
    try:
        yield seen
    finally:
        stops.set()
        browser.join(10)


def cost(settings: Settings, *, is_open: bool) -> Measurement:
    """Share of a core that the server takes while batches follow each other without a pause."""
    n_batches = settings.pick(200, 30)
    name = f"served_{is_open}".lower()
    engine, query = _query(name)
    start = partial(query.start, _nowhere, checkpoint=mkdtemp(), trigger="0 seconds")
    with engine.serve() as server, start() as run:
        _await(run, WARM)
        page: AbstractContextManager[list[int]]
        page = looked_at(server, name) if is_open else nullcontext([])
        with page as seen:
            _await(run, 2 * WARM)
            seconds, cpu_s, n = _measured(run, n_batches, SERVERS)
    assert bool(seen) == is_open
    note = (
        f"{cpu_s:.3f} s of the server's threads in {seconds:.1f} s of {n} batches of {ROWS:,} "
        f"rows; {len(seen)} questions for the page"
    )
    details = {"cpu_s": cpu_s, "seconds": seconds, "questions": len(seen)}
    return Measurement(cpu_s / seconds, note, details)


def cost_of_feed(settings: Settings) -> Measurement:
    """Share of a core that the feed of the stream about the system takes, of the same query."""
    n_batches = settings.pick(200, 30)
    engine, query = _query("fed")
    with query.start(_nowhere, checkpoint=mkdtemp(), trigger="0 seconds") as run:
        rows = engine.system
        _await(run, WARM)
        seconds, cpu_s, n = _measured(run, n_batches, FEEDS)
        time.sleep(1.0)
        n_told = _n_told(rows)
    assert n_told >= n
    note = f"{cpu_s:.3f} s of the feed's thread in {seconds:.1f} s of {n} batches"
    return Measurement(cpu_s / seconds, note, {"cpu_s": cpu_s, "seconds": seconds})


def _n_told(rows: Any) -> int:
    """Return of how many batches there are rows."""
    run = rows.writeStream.format("memory").queryName("fed_rows").trigger(availableNow=True).start()
    run.awaitTermination()
    found = rows.sparkSession.sql("SELECT DISTINCT batch FROM fed_rows WHERE entity = 'batch'")
    return int(found.count())


def _query(name: str) -> tuple[el.Engine, Any]:
    """Return an engine and a query of it that is never idle."""
    spark = spark_session()
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS)
    engine = el.Engine(spark)
    engine.stream("s", source.option("numPartitions", 2).load())
    return engine, engine.query(TEXT, name=name)


def _measured(run: Any, n_batches: int, names: tuple[str, ...]) -> tuple[float, float, int]:
    """Return the time of so many batches, that of threads meanwhile (s), and their number."""
    first = run.records[-1].batch_id
    began, before = time.monotonic(), threads_s(names)
    _await(run, first + n_batches)
    return time.monotonic() - began, threads_s(names) - before, run.records[-1].batch_id - first


def _await(run: Any, batch_id: int) -> None:
    while not run.records or run.records[-1].batch_id < batch_id:
        assert run.isActive, run.exception()
        time.sleep(0.05)


def _nowhere(df: Any, _: int) -> None:
    df.write.format("noop").mode("append").save()


RUNS: Runs = {
    "page_cost_unseen": partial(cost, is_open=False),
    "page_cost_open": partial(cost, is_open=True),
    "page_cost_system": cost_of_feed,
}
