"""Batches of one bucket, run without Spark: what each reported, and the results."""

from __future__ import annotations

import tempfile

from pyarrow import fs

from eddyline.models.bucket import BucketBatch
from eddyline.models.streaming import BucketState
from eddyline.state.place import StatePlace


def reported(plan, table, cuts, **more):
    """Run rows in the order of time, cut into batches, and a last batch that ends all.

    Args:
        plan: of one input.
        table: with ``CODE`` and ``ts``, in the order of time.
        cuts: places between batches.
        more: arguments of ``BucketBatch``.
    """
    times = table.column("ts").cast("int64").to_numpy()
    edges, state, reports, results = [0, *sorted(cuts), len(table)], BucketState(), [], []
    with tempfile.TemporaryDirectory() as folder:
        place = StatePlace(fs.LocalFileSystem(), folder, "models")
        fs.LocalFileSystem().create_dir(place.runs)
        for low, high in zip(edges, [*edges[1:], None], strict=True):
            until = 2**62 if high is None else int(times[high - 1]) if high else -(2**62)
            batch = BucketBatch(plan, place, state, 0, until, **more)
            rows = None if high is None or high == low else table.slice(low, high - low)
            results += list(batch.run([rows]))
            reports.append(batch.report)
            state = batch.report.after
    return reports, results
