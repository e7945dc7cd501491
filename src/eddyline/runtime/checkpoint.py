"""What eddyline keeps in the folder of a checkpoint, beside what Spark keeps there.

``CHECKPOINT/spark`` is Spark's, ``CHECKPOINT/eddyline`` is ours. Of several queries that start
together, each has a checkpoint in a folder of a common one; see ``find_runs``.
"""

from __future__ import annotations

import os
from pathlib import Path

from eddyline.errors import StateError

SPARK, OWN = "spark", "eddyline"
"""The two folders of a checkpoint."""

JOURNAL, PROGRESS, VIEW = "journal.jsonl", "progress.jsonl", "view.json"
"""For people: decisions, batches, and how the run stood last."""

LEARNED, STATE = "state.json", "state"
"""What was learned, and the folder of durable state."""

MAX_DEPTH = 4
"""Folders below a common one in which checkpoints are looked for."""


def own_folder(checkpoint: str | Path) -> Path:
    """Return the folder of what eddyline keeps.

    Raises:
        StateError: the folder is no checkpoint.
    """
    own = Path(checkpoint) / OWN
    if not own.is_dir():
        msg = (
            f"{checkpoint} is no checkpoint of eddyline: it has no folder {OWN}/; give the folder "
            f"that a query was started with"
        )
        raise StateError(msg, path=str(checkpoint))
    return own


def find_runs(folder: str | Path) -> list[Path]:
    """Return the checkpoints of runs in a folder, by name: itself, or those of queries below it.

    Raises:
        StateError: there is none.
    """
    root, found = Path(folder), []
    for name, inner, _ in os.walk(root):
        here = Path(name)
        if (here / OWN / JOURNAL).is_file():
            found.append(here)
            inner.clear()
        elif len(here.relative_to(root).parts) >= MAX_DEPTH:
            inner.clear()
    if not found:
        msg = (
            f"{folder} holds no checkpoint of eddyline; give the folder that queries were started "
            f"with"
        )
        raise StateError(msg, path=str(folder))
    return sorted(found)
