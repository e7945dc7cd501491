"""A checkpoint as a run leaves it, without a run."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

from eddyline.joins.view import JoinPart, JoinRecord
from eddyline.report.sections import Column, RunView, Section, Table
from eddyline.report.stored import RunLog
from eddyline.runtime.checkpoint import SnapshotFile, write_format
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import BatchRecord, OrderRecord
from eddyline.state.bucket_state import BucketState
from eddyline.state.grid import Grid
from eddyline.state.manifest import ManifestFolder
from eddyline.state.rows import Rows, SortedRun
from eddyline.state.run_files import write_run

SECRET = "SesameOpen"
"""A value of a row."""

TEXT = f"SELECT v FROM s [RANGE 5 SECONDS] WHERE name = '{SECRET}' AND pin <> 4711 -- {SECRET}"
PREDICATES = (f"name = '{SECRET}'", "pin <> 4711", "is_odd(v)")


@pytest.fixture
def checkpoint(tmp_path):
    """Return the folder of a query that has done two batches; ``SECRET`` and 4711 are of rows."""
    folder = tmp_path / "ckpt"
    own = folder / "eddyline"
    write_format(own)
    log = RunLog(own, is_kept=True)
    evidence = {"n_tuples": 812, "cost_ns": 4.5, "filter": PREDICATES[0], "value": 4711}
    evidence |= {"why": "another tree", "keys": {SECRET: 4711}}
    grids = [2, 1], {"shape": [2, 1], "splits": [f"{SECRET} in 3 parts"]}
    log.note(
        [
            JournalEntry(0, "arrow", "order", list(PREDICATES), list(PREDICATES[::-1]), evidence),
            JournalEntry(1, "join", "grid", *grids, {"why": f"{SECRET}: 4711 rows"}),
        ]
    )
    for batch_id in range(2):
        order = OrderRecord("arrow", PREDICATES, (2, 1, 0), (0.5,) * 3, 40.0, 100.0, 30, 10)
        joined = JoinRecord(("s",), (7,), (560,), 1, 5)
        ran = f"arrow: {PREDICATES[0]} first"
        log.add(BatchRecord(batch_id, 10, 3, 0.5, 1_000.0, (order, joined), (ran,)))
    groups = Table((Column("group"), Column("sum", "number")), ((SECRET, 4711.0),))
    view = RunView(
        "q",
        TEXT,
        (f"filter s: {PREDICATES[0]}",),
        sections=(Section("groups", (groups,)),),
        settings={"policy": "a_greedy", "route_by": f"('name = \\'{SECRET}\\'',)"},
    )
    log.write(lambda: view, "failed", f"PredicateError: [USER] predicate raised for {SECRET!r}")
    SnapshotFile(own / "state.json", f"{TEXT} #1").save({"arrow": {"values": [SECRET]}}, 1)
    for name, last in (("offsets", 1), ("commits", 1)):
        (folder / "spark" / name).mkdir(parents=True)
        for number in range(last + 1):
            (folder / "spark" / name / str(number)).write_text("v1")
    committed(folder, 1)
    return folder


def committed(checkpoint, batch_id):
    """Write the state after a batch: one run of a join."""
    manifests = ManifestFolder(fs.LocalFileSystem(), str(checkpoint / "eddyline" / "state"))
    starts = np.array([1], np.int64)
    rows = Rows({0: starts}, starts, starts + 10, pa.table({"name": [SECRET]}))
    files, runs = manifests.files, manifests.place("").runs
    written = write_run(files, runs, f"r{batch_id}", SortedRun.from_rows(rows))
    bucket = BucketState({"s": (written,)})
    part = JoinPart(Grid((1,)), {0: bucket})
    return manifests.commit(batch_id, "query", {"join": part.packed()})
