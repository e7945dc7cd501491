"""What a worker keeps of a bucket, left in a file for the other workers of its machine.

Which worker a task comes to is Spark's choice, and most workers lack what another one kept. A file
is a copy of what was kept after a batch, written whole or not at all; whether it fits a batch is
said by the names of runs in it, as with what is in memory. Files of another run of the query are
not read: what a machine that broke down left is not trusted. None is needed; all may be removed at
any time.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.joins.caches.between_batches import BucketCaches
from eddyline.joins.caches.hash_store import KeptRows
from eddyline.joins.caches.prefix_invariant import Store

if TYPE_CHECKING:
    from eddyline.joins.graph import JoinGraph

CACHES = "caches"
"""Folder of the files, beside that of the runs."""

N_ARRAYS = 9
"""Arrays of a store; see ``KeptRows.arrays``."""


def write_copy(folder: str, bucket: int, run: str, caches: BucketCaches) -> None:
    """Leave a copy of what is kept of a bucket; not to be able to is no error.

    Args:
        folder: of the query's window state, on this machine.
        bucket: its number.
        run: of the query.
        caches: what is kept.
    """
    path = _path(folder, bucket)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    stores = {store: rows for store, rows in caches.stores.items() if rows.n_entries}
    plain = {
        "run": run,
        "after": caches.after,
        "numbers": caches.numbers,
        "next_number": caches.next_number,
        "stores": [
            {
                "windows": sorted(store.windows),
                "key": store.key,
                "closed": sorted(store.closed),
                "horizon": rows.horizon,
                "alive": rows.alive,
            }
            for store, rows in stores.items()
        ],
    }
    try:
        path.parent.mkdir(exist_ok=True)
        with part.open("wb") as out:
            head = np.frombuffer(json.dumps(plain).encode(), np.uint8)
            np.save(out, head, allow_pickle=False)
            for rows in stores.values():
                for array in rows.arrays:
                    np.save(out, np.ascontiguousarray(array), allow_pickle=False)
        os.replace(part, path)
    except OSError:
        part.unlink(missing_ok=True)


def read_copy(folder: str, bucket: int, run: str, graph: JoinGraph) -> BucketCaches | None:
    """Return the copy that was left of a bucket; None if there is none that can be read.

    Args:
        folder: of the query's window state, on this machine.
        bucket: its number.
        run: of the query.
        graph: what is joined with what.
    """
    try:
        with _path(folder, bucket).open("rb") as source:
            plain = json.loads(np.load(source, allow_pickle=False).tobytes())
            if plain["run"] != run:
                return None
            caches = BucketCaches(
                after={name: tuple(runs) for name, runs in plain["after"].items()},
                numbers=plain["numbers"],
                next_number=plain["next_number"],
            )
            for each in plain["stores"]:
                rows = _read_store(each, graph, source)
                caches.stores[rows.store] = rows
    except (OSError, ValueError, KeyError, TypeError, EOFError):
        return None
    return caches


def _read_store(plain: dict[str, Any], graph: JoinGraph, source: Any) -> KeptRows:
    windows, closed = frozenset(plain["windows"]), frozenset(plain["closed"])
    rows = KeptRows(Store(windows, tuple(plain["key"]), closed), graph, 0)
    arrays = [np.load(source, allow_pickle=False) for _ in range(N_ARRAYS)]
    rows.filled(arrays, plain["alive"])
    rows.horizon = plain["horizon"]
    return rows


def _path(folder: str, bucket: int) -> Path:
    return Path(folder) / CACHES / f"{bucket}.npy"
