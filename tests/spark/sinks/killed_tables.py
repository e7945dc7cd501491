"""A query from a Delta table into another table; as a script, to be killed on the way."""

from __future__ import annotations

import sys

import pyarrow as pa
from deltalake import write_deltalake

import eddyline as el
from tests.sources.iceberg_tables import catalog_in
from tests.spark.processes import main

N_BATCHES, BATCH_ROWS = 12, 60_000


def write_input(folder):
    """Write a version of the input for each batch."""
    for number in range(N_BATCHES):
        ids = pa.array(range(number * BATCH_ROWS, (number + 1) * BATCH_ROWS))
        write_deltalake(str(folder / "in"), pa.table({"id": ids}), mode="append")


def start(session, folder):
    """Start the query."""
    engine = el.Engine(session)
    engine.stream("s", el.delta(folder / "in", max_per_batch=BATCH_ROWS))
    query = engine.query("SELECT id, id % 7 AS k FROM s WHERE id >= 0", name="q")
    out, kind = folder / "out", sys.argv[2]
    place = {"path": out / "out"}
    if kind == "iceberg":
        place = {"table": "db.out", "catalog": catalog_in(out)}
    return [query.start(kind, checkpoint=folder / "ckpt", availableNow=True, **place)]


if __name__ == "__main__":
    main(start)
