"""Whether a query can go on from its checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from pyarrow import fs

from eddyline.care.findings import Finding
from eddyline.care.machine import room
from eddyline.errors import StateError
from eddyline.report.formatting import count, counted, size
from eddyline.report.stored import read_run
from eddyline.runtime.checkpoint import (
    LEARNED,
    PINS,
    SPARK,
    STATE,
    find_runs,
    newest_batch,
    own_folder,
    read_format,
)
from eddyline.runtime.journal import n_left_out
from eddyline.runtime.pins import Pins
from eddyline.runtime.records import n_batches
from eddyline.runtime.snapshot import FORMAT as LEARNED_FORMAT
from eddyline.runtime.snapshot import Head
from eddyline.state.checking import check_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def check_checkpoint(folder: Path) -> list[Finding]:
    """Look at every checkpoint in a folder.

    Raises:
        StateError: there is none.
    """
    return [found for each in find_runs(folder) for found in _check(each, _name(each, folder))]


def last_batches(checkpoint: Path) -> tuple[int, int]:
    """Return the last micro-batch that began, and the last that is done; -1 if none is."""
    log = checkpoint / SPARK
    return newest_batch(log / "offsets"), newest_batch(log / "commits")


def _name(checkpoint: Path, common: Path) -> str:
    inner = checkpoint.relative_to(common).as_posix()
    return "checkpoint" if inner == "." else inner


def _check(checkpoint: Path, name: str) -> Iterator[Finding]:
    yield room(name, own_folder(checkpoint))
    yield from _tried(name, lambda: _format(checkpoint, name))
    yield from _tried(name, lambda: _history(checkpoint, name))
    yield from _learned(checkpoint, name)
    yield from _tried(name, lambda: _pinned(checkpoint, name))
    yield from _batches(checkpoint, name)
    yield from _tried(name, lambda: _state(checkpoint, name))


def _tried(name: str, look: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """Return what a look finds; an error where it cannot be read."""
    try:
        return list(look())
    except StateError as error:
        return [Finding(name, "error", error.message)]


def _format(checkpoint: Path, name: str) -> Iterator[Finding]:
    found = read_format(own_folder(checkpoint))
    said = "of a version before formats had numbers; the next start notes it"
    if found is not None:
        said = f"format {found.format}, written by eddyline {found.eddyline}"
    yield Finding(f"{name}: format", "ok", said)


def _history(checkpoint: Path, name: str) -> Iterator[Finding]:
    run = read_run(checkpoint)
    decisions = counted(len(run.journal), "decision")
    if left_out := n_left_out(run.journal):
        decisions += f" and {count(left_out)} that were only counted"
    said = f"query {run.query!r}, {count(n_batches(run.batches))} micro-batches, {decisions}"
    yield Finding(f"{name}: history", "ok", said)
    if run.status == "failed":
        said = f"the last run failed: {run.error}; repair the cause and start the query again"
        yield Finding(f"{name}: last run", "warning", said)


def _learned(checkpoint: Path, name: str) -> Iterator[Finding]:
    """Look at what was learned; without it a query starts with its plan as written."""
    path, what = own_folder(checkpoint) / LEARNED, f"{name}: learned state"
    again = "it is dropped at the next start, and learned again; no answer changes"
    if not path.exists():
        yield Finding(what, "ok", "none yet")
        return
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Head)
    except (OSError, ValueError, RecursionError) as error:
        yield Finding(what, "warning", f"{path} cannot be read ({error}): {again}")
        return
    if found.format != LEARNED_FORMAT:
        said = f"{path} is of format {found.format}, this version reads {LEARNED_FORMAT}: {again}"
        yield Finding(what, "warning", said)
    else:
        yield Finding(what, "ok", f"format {found.format}, after batch {found.batch_id}")


def _pinned(checkpoint: Path, name: str) -> Iterator[Finding]:
    n = len(Pins(own_folder(checkpoint) / PINS))
    yield Finding(f"{name}: pinned plans", "ok", count(n) if n else "none")


def _batches(checkpoint: Path, name: str) -> Iterator[Finding]:
    began, done = last_batches(checkpoint)
    if began < 0:
        said = "no batch has begun"
    elif began == done:
        said = f"batch {done} is done"
    else:
        said = f"batch {began} has begun; where nobody runs the query, the next start runs it again"
    yield Finding(f"{name}: batches", "ok", said)


def _state(checkpoint: Path, name: str) -> Iterator[Finding]:
    """Look at durable state in the checkpoint; that of another folder is not known here."""
    folder, what = own_folder(checkpoint) / STATE, f"{name}: state"
    found = check_state(fs.LocalFileSystem(), str(folder))
    if found is None:
        yield Finding(what, "ok", "no windows are kept in the checkpoint")
        return
    for said in found.faults:
        advice = "restore the checkpoint from a backup, or start with an empty one"
        yield Finding(what, "error", f"{said}; {advice}")
    _, done = last_batches(checkpoint)
    if found.manifest.batch_id < done:
        said = (
            f"batch {done} is done, and the newest state in {folder} is that after batch "
            f"{found.manifest.batch_id}; restore it from the same backup as {SPARK}/"
        )
        yield Finding(what, "error", said)
    elif not found.faults:
        n_files = counted(len(found.manifest.names), "file")
        said = f"{n_files} after batch {found.manifest.batch_id}, {size(found.n_bytes)}, as written"
        yield Finding(what, "ok", said)
