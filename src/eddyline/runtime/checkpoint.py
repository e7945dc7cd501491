"""What eddyline keeps in the folder of a checkpoint, beside what Spark keeps there.

``CHECKPOINT/spark`` is Spark's, ``CHECKPOINT/eddyline`` is ours. Of several queries that start
together, each has a checkpoint in a folder of a common one; see ``find_runs``.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import msgspec

from eddyline.data.files import replace_file
from eddyline.errors import StateError

SPARK, OWN = "spark", "eddyline"
"""The two folders of a checkpoint."""

JOURNAL, PROGRESS, VIEW = "journal.jsonl", "progress.jsonl", "view.json"
"""For people: decisions, batches, and how the run stood last."""

LEARNED, STATE = "state.json", "state"
"""What was learned, and the folder of durable state."""

QUERY = "query.json"
"""The query that the checkpoint belongs to; see ``runtime.query_file``."""

PINS = "pins.json"
"""Plans that a person has pinned; no file before the first."""

LOCK = "lock"
"""The file that locks the folder; it names the run that has the lock."""

FORMAT_FILE = "format.json"
"""The version of the format of a checkpoint, and who wrote it."""

FORMAT = 1
"""Number of the layout of this folder. It grows when a file changes in a way that versions before
cannot read. State has numbers of its own as well: learned state of another number is dropped,
durable state of another number is refused (``runtime.snapshot``, ``state.manifest``)."""

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


class Format(msgspec.Struct, frozen=True):
    """The content of the file; the fields that every version has."""

    format: int
    eddyline: str
    """Version that wrote it."""


def read_format(own: Path) -> Format | None:
    """Return the format of a checkpoint; None before the first version that wrote one.

    Args:
        own: the folder that eddyline keeps.

    Raises:
        StateError: it is of a later version, or cannot be read.
    """
    path = own / FORMAT_FILE
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Format)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        msg = (
            f"cannot read {path}: {error}; restore it from a backup, or remove it if the "
            f"checkpoint is of eddyline {version('eddyline')} or older"
        )
        raise StateError(msg, path=str(path)) from error
    if found.format > FORMAT:
        msg = (
            f"the checkpoint {own.parent} is of format {found.format}, written by eddyline "
            f"{found.eddyline}; this is eddyline {version('eddyline')}, which reads formats up to "
            f"{FORMAT}: install eddyline {found.eddyline} or newer, or start the query with an "
            f"empty checkpoint"
        )
        raise StateError(msg, path=str(path), format=found.format)
    return found


def write_format(own: Path) -> None:
    """Note the format of a checkpoint that this version goes on with.

    Raises:
        StateError: the checkpoint is of a later version, or cannot be written.
    """
    new = Format(FORMAT, version("eddyline"))
    if read_format(own) == new:
        return
    try:
        own.mkdir(parents=True, exist_ok=True)
        replace_file(own / FORMAT_FILE, msgspec.json.encode(new))
    except OSError as error:
        msg = f"cannot write to the checkpoint {own}: {error}; make room or rights"
        raise StateError(msg, path=str(own)) from error


def newest_batch(log: Path) -> int:
    """Return the newest micro-batch in a folder of Spark's log; -1 if there is none.

    Args:
        log: ``offsets``, of batches that began, or ``commits``, of those that are done.
    """
    names = (path.name for path in log.glob("*"))
    return max((int(name) for name in names if name.isdecimal()), default=-1)


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
