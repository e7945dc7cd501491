"""A bundle: one archive with what helps to find a fault of a query, without values of rows."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyarrow import fs

from eddyline.care.checkpoints import check_checkpoint, last_batches
from eddyline.care.findings import findings_json
from eddyline.care.machine import check_machine
from eddyline.care.redaction import Redaction, error_class, settings, titles, without_literals
from eddyline.errors import EddylineError, StateError
from eddyline.report.stored import read_run
from eddyline.runtime.checkpoint import LEARNED, STATE, find_runs, own_folder, read_format
from eddyline.runtime.progress import StoredRecord, line_of
from eddyline.runtime.snapshot import Head
from eddyline.state.manifest import ManifestFolder
from eddyline.state.place import names_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eddyline.report.stored import StoredRun
    from eddyline.runtime.operator import Record
    from eddyline.runtime.records import BatchRecord

MAX_FILES = 20_000
"""Files of a checkpoint that are listed; of more, the first ones by name."""

INSIDE = """\
about.json       versions, and what `eddyline doctor` says of this machine and the checkpoint
NAME/run.json    each query without literals, its steps, options and titles of its explanation; its
                 last error by its class; the last batches
NAME/journal.jsonl   its decisions: plans by names, of the evidence what counts and measures
NAME/progress.jsonl  its batches: rows, seconds, and the counts of its operators
NAME/state.json  the heads of its learned state and of its manifests
NAME/files.json  names, sizes and times of the files of the checkpoint
Left out: rows, state and learned state; literals and comments of queries; sampled values, keys of
groups and frequent keys, bounds of classes; sentences of errors and explanations. Names of queries,
columns, functions, folders and files are in it: look through it before you send it on.
"""
"""What a bundle says of itself."""


def write_bundle(checkpoint: str | Path, out: Path) -> Path:
    """Pack what helps to find a fault of the queries of a checkpoint.

    What cannot be read is named in the bundle, and the rest is packed.

    Args:
        checkpoint: its folder, or one with those of several queries.
        out: the archive to write; missing folders are made.

    Raises:
        StateError: the folder holds no checkpoint, or the archive cannot be written.
    """
    folders = find_runs(checkpoint)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("README.txt", INSIDE)
            archive.writestr("about.json", _json(_about(Path(checkpoint))))
            for folder in folders:
                inner = folder.relative_to(checkpoint)
                for name, content in _contents(folder):
                    archive.writestr((inner / name).as_posix(), content)
    except OSError as error:
        msg = f"cannot write the bundle {out}: {error}; give another file by --out"
        raise StateError(msg, path=str(out)) from error
    return out


def default_file(checkpoint: str | Path) -> Path:
    """Return the file that a bundle is written to if none is said."""
    return Path(f"eddyline-bundle-{Path(checkpoint).absolute().name}.zip")


def _about(checkpoint: Path) -> dict[str, Any]:
    packages = sorted({each.name: each.version for each in metadata.distributions()}.items())
    return {
        "written_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "eddyline": metadata.version("eddyline"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": dict(packages),
        "machine": findings_json(check_machine()),
        "checkpoint": _without_errors(checkpoint),
    }


def _without_errors(checkpoint: Path) -> list[dict[str, Any]]:
    """Return findings on a checkpoint but for errors of queries, whose sentences may quote rows."""
    found = check_checkpoint(checkpoint)
    return findings_json(each for each in found if not each.what.endswith("last run"))


def _contents(checkpoint: Path) -> Iterator[tuple[str, str]]:
    """Yield the files of a bundle about one checkpoint, and their content."""
    redaction = Redaction()
    try:
        run = read_run(checkpoint)
    except StateError as error:
        yield "run.json", _json({"unreadable": error.message})
    else:
        yield "run.json", _json(_run(run, checkpoint))
        yield "journal.jsonl", _lines(redaction.entry(each) for each in run.journal)
        batches = (_batch(each, redaction) for each in run.batches)
        yield "progress.jsonl", "".join(line_of(each).decode() + "\n" for each in batches)
    yield "state.json", _json(_state(checkpoint))
    yield "files.json", _json(_files(checkpoint))


def _run(run: StoredRun, checkpoint: Path) -> dict[str, Any]:
    began, done = last_batches(checkpoint)
    return {
        "query": run.query,
        "text": without_literals(run.text),
        "steps": [without_literals(each) for each in run.steps],
        "settings": settings(run.settings),
        "sections": titles(run.sections),
        "status": run.status,
        "error": error_class(run.error),
        "written_at": run.written_at,
        "last_batch_begun": began,
        "last_batch_done": done,
    }


def _batch(batch: BatchRecord, redaction: Redaction) -> BatchRecord:
    operators = tuple(_stored(each, redaction) for each in batch.operators)
    return replace(batch, lines=(), operators=operators)


def _stored(record: Record, redaction: Redaction) -> StoredRecord:
    stored = StoredRecord.of(record, 0)
    return msgspec.structs.replace(stored, plan=redaction.plan(record.plan))


def _state(checkpoint: Path) -> dict[str, Any]:
    own = own_folder(checkpoint)
    return {
        "format": _read(lambda: msgspec.to_builtins(read_format(own))),
        "learned": _read(lambda: _head(own / LEARNED)),
        "manifests": _read(lambda: _manifests(own / STATE)),
    }


def _read(look: Callable[[], Any]) -> Any:
    """Return what a look finds, or why it finds nothing."""
    try:
        return look()
    except (EddylineError, OSError, ValueError, RecursionError) as error:
        return {"unreadable": type(error).__name__}


def _head(path: Path) -> Any:
    return msgspec.to_builtins(msgspec.json.decode(path.read_bytes(), type=Head))


def _manifests(folder: Path) -> Any:
    """Return the heads of the newest manifest: its batch, and the files of each operator."""
    local = fs.LocalFileSystem()
    if not any(name.startswith("manifest-") for name in names_in(local, str(folder))):
        return None
    manifest = ManifestFolder(local, str(folder)).latest()
    if manifest is None:
        return None
    n_files = {without_literals(name): len(part.files) for name, part in manifest.parts.items()}
    return {"batch_id": manifest.batch_id, "n_files": n_files}


def _files(checkpoint: Path) -> list[dict[str, Any]]:
    found = []
    paths = sorted(Path(name, each) for name, _, names in os.walk(checkpoint) for each in names)
    for path in paths[:MAX_FILES]:
        with contextlib.suppress(OSError):  # such as of a file that a run has removed meanwhile
            stat = path.stat()
            name = path.relative_to(checkpoint).as_posix()
            found.append({"name": name, "bytes": stat.st_size, "changed_at": stat.st_mtime})
    return found


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, default=str) + "\n"


def _lines(values: Iterator[Any]) -> str:
    return "".join(json.dumps(each, default=str) + "\n" for each in values)
