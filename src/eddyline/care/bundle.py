"""Archive for finding a fault of a query, without row values.

``write_bundle`` packs journal, batches, heads of state and names of files. ``Redaction`` removes
what may have come from a row: literals, keys, sampled values. Names of queries, columns, functions
and files stay. What is not known to be harmless goes.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import zipfile
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyarrow import fs
from sqlglot import TokenType

from eddyline.care.doctor import check_checkpoint, check_machine, findings_json, last_batches
from eddyline.errors import EddylineError, QueryError, StateError
from eddyline.report.stored import read_run
from eddyline.runtime.checkpoint import LEARNED, STATE, Head, find_runs, own_folder, read_format
from eddyline.runtime.records import StoredRecord, line_of
from eddyline.sql.parsing import tokens_of
from eddyline.state.manifest import ManifestFolder, names_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from eddyline.report.stored import StoredRun
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import BatchRecord, Record


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
    packages = sorted({dist.name: dist.version for dist in metadata.distributions()}.items())
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
    findings = check_checkpoint(checkpoint)
    return findings_json(finding for finding in findings if not finding.what.endswith("last run"))


def _contents(checkpoint: Path) -> Iterator[tuple[str, str]]:
    """Yield the files of a bundle about one checkpoint, and their content."""
    redaction = Redaction()
    try:
        run = read_run(checkpoint)
    except StateError as error:
        yield "run.json", _json({"unreadable": error.message})
    else:
        yield "run.json", _json(_run(run, checkpoint))
        yield "journal.jsonl", _lines(redaction.entry(entry) for entry in run.journal)
        batches = (_batch(batch, redaction) for batch in run.batches)
        yield "progress.jsonl", "".join(line_of(batch).decode() + "\n" for batch in batches)
    yield "state.json", _json(_state(checkpoint))
    yield "files.json", _json(_files(checkpoint))


def _run(run: StoredRun, checkpoint: Path) -> dict[str, Any]:
    began, done = last_batches(checkpoint)
    return {
        "query": run.query,
        "text": without_literals(run.text),
        "steps": [without_literals(step) for step in run.steps],
        "settings": settings(run.settings),
        "sections": titles(run.sections),
        "status": run.status,
        "error": error_class(run.error),
        "written_at": run.written_at,
        "last_batch_begun": began,
        "last_batch_done": done,
    }


def _batch(batch: BatchRecord, redaction: Redaction) -> BatchRecord:
    operators = tuple(_stored(part, redaction) for part in batch.operators)
    return replace(batch, lines=(), operators=operators)


def _stored(record: Record, redaction: Redaction) -> StoredRecord:
    stored = StoredRecord.from_record(record, 0)
    parts = {
        f"{number} {without_literals(name)}": levels
        for number, (name, levels) in enumerate(stored.parts.items(), 1)
    }
    return msgspec.structs.replace(stored, plan=redaction.plan(record.plan), parts=parts)


def _state(checkpoint: Path) -> dict[str, Any]:
    folder = own_folder(checkpoint)
    return {
        "format": _read(lambda: msgspec.to_builtins(read_format(folder))),
        "learned": _read(
            lambda: msgspec.to_builtins(
                msgspec.json.decode((folder / LEARNED).read_bytes(), type=Head)
            )
        ),
        "manifests": _read(lambda: _manifests(folder / STATE)),
    }


def _read(look: Callable[[], Any]) -> Any:
    """Return what a look finds, or why it finds nothing."""
    try:
        return look()
    except (EddylineError, OSError, ValueError, RecursionError) as error:
        return {"unreadable": type(error).__name__}


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
    files = []
    paths = sorted(Path(name, file) for name, _, names in os.walk(checkpoint) for file in names)
    for path in paths[:MAX_FILES]:
        with contextlib.suppress(OSError):  # such as of a file that a run has removed meanwhile
            stat = path.stat()
            name = path.relative_to(checkpoint).as_posix()
            files.append({"name": name, "bytes": stat.st_size, "changed_at": stat.st_mtime})
    return files


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, default=str) + "\n"


def _lines(values: Iterator[Any]) -> str:
    return "".join(json.dumps(value, default=str) + "\n" for value in values)


LEFT_OUT = "left out"
"""Stands for a value."""

_WORD = re.compile(r"[A-Za-z_][A-Za-z_ -]*")
"""A text of words alone, as loops use them for plans and reasons."""

_COUNT = re.compile(
    r"n_\w+|\w+_(ns|s|bytes|frac|prob|ratio|rows|tuples)|ratio|position|partition|\w*batch"
)
"""Names of evidence that count or measure the work, and so are no values of rows."""

_LITERALS = {kind for kind in TokenType if kind.name.endswith("STRING") or kind is TokenType.NUMBER}


def without_literals(text: str) -> str:
    """Return SQL, or a sentence with SQL in it, without its literals and comments.

    >>> without_literals("c = 'x' AND n > 5 -- five")
    'c = ? AND n > ?'
    """
    try:
        tokens = tokens_of(text)
    except QueryError:
        return LEFT_OUT
    parts: list[str] = []
    end = 0
    for token in tokens:
        if token.start < end:  # of a number with a suffix, its type: a token over the same text
            end = max(end, token.end + 1)
            continue
        gap = " " if parts and token.start > end else ""
        parts.append(
            gap + ("?" if token.token_type in _LITERALS else text[token.start : token.end + 1])
        )
        end = token.end + 1
    return "".join(parts)


@dataclass
class Redaction:
    """Redacts what belongs together: texts that are alike without literals stay apart by number."""

    _numbers: dict[str, dict[str, int]] = field(default_factory=dict)
    """By redacted text: the number of each text."""

    def name(self, text: str) -> str:
        """Return the text of a predicate, an attribute or an expression, the same each time."""
        shown = without_literals(text)
        if shown == text:
            return text
        numbers = self._numbers.setdefault(shown, {})
        return f"{shown} #{numbers.setdefault(text, len(numbers) + 1)}"

    def plan(self, plan: Any) -> Any:
        """Return a plan: orders, shapes and words as they are, of anything else what it is."""
        if plan is None or isinstance(plan, bool | int):
            return plan
        if isinstance(plan, str):
            return plan if _WORD.fullmatch(plan) else self.name(plan)
        if isinstance(plan, list | tuple) and all(isinstance(part, str | int) for part in plan):
            return [self.name(part) if isinstance(part, str) else part for part in plan]
        return f"{LEFT_OUT}: {type(plan).__name__}"

    def entry(self, entry: JournalEntry) -> dict[str, Any]:
        """Return a decision with the evidence that counts."""
        plans = {"before": self.plan(entry.before), "after": self.plan(entry.after)}
        return asdict(entry) | plans | {"evidence": evidence(entry.evidence)}


def evidence(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of an evidence that count or measure, and its reasons in words alone."""
    return {name: value if _counts(name, value) else LEFT_OUT for name, value in values.items()}


def _counts(name: str, value: Any) -> bool:
    if isinstance(value, str):
        return name in {"why", "by"} and bool(_WORD.fullmatch(value))
    return isinstance(value, int | float) and bool(_COUNT.fullmatch(name))


def settings(options: Mapping[str, str]) -> dict[str, str]:
    """Return options: numbers and words as they are, expressions without literals."""
    plain = re.compile(r"[\w.+-]*")
    return {
        name: value if plain.fullmatch(value) else without_literals(value)
        for name, value in options.items()
    }


def error_class(error: str) -> str:
    """Return the class of an error, and Spark's name of it; its sentence may quote a value.

    >>> error_class("ArithmeticException: [DIVIDE_BY_ZERO] Division by zero of '[X]'")
    'ArithmeticException [DIVIDE_BY_ZERO]'
    """
    match = re.match(r"([\w.]+):(?: (\[[A-Z][A-Z0-9_.]+\]))?", error)
    return " ".join(filter(None, match.groups())) if match else ""


def titles(sections: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what an explanation had sections about."""
    return [without_literals(str(section.get("title", ""))) for section in sections]
