"""Checks of an installation and of the checkpoints of queries.

``check_machine`` looks at Python, Java, packages, room on the disk and the environment.
``check_checkpoint`` looks at the files of each query in a folder. Each gives a ``Finding``: what
was looked at, whether it is right, and what to do if it is not.
"""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from packaging.requirements import Requirement
from pyarrow import fs
from rich.text import Text

from eddyline.errors import StateError
from eddyline.options import OFF_SWITCH, adaptation_is_off
from eddyline.report.formatting import count, counted, one_line, size
from eddyline.report.stored import read_run
from eddyline.runtime.by_hand import Pins
from eddyline.runtime.checkpoint import (
    LEARNED,
    LEARNED_FORMAT,
    PINS,
    SPARK,
    STATE,
    Head,
    find_runs,
    newest_batch,
    own_folder,
    read_format,
)
from eddyline.runtime.journal import n_left_out
from eddyline.runtime.records import n_batches
from eddyline.spark import java
from eddyline.state.manifest import check_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


_STYLES = {"ok": "green", "warning": "yellow", "error": "red"}

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    """Name of the thing."""
    level: Level
    """``ok``; ``warning``: works, but not as it should; ``error``: does not work."""
    said: str
    """What was found, and what to do about it."""


def is_fine(findings: Iterable[Finding]) -> bool:
    """Return whether no finding is an error."""
    return all(finding.level != "error" for finding in findings)


def findings_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings as plain values."""
    return [asdict(finding) for finding in findings]


def told(findings: Iterable[Finding]) -> list[Text]:
    """Return findings as lines for a terminal."""
    return [
        Text.assemble(
            (f"{finding.level:<9}", _STYLES[finding.level]),
            one_line(f"{finding.what}: {finding.said}"),
        )
        for finding in findings
    ]


FEW_BYTES, TOO_FEW_BYTES = 2 << 30, 100 << 20
"""Free room on a disk below which there is a warning, and below which there is an error (bytes)."""

OLD_FORMAT = "ARROW_PRE_0_15_IPC_FORMAT"
"""Variable that has Arrow write as it did in 2019."""

FOR_DEVELOPERS = {"dev", "docs", "release"}
"""Extras that nobody needs who only runs queries."""


def check_machine() -> list[Finding]:
    """Look at everything that a run needs, but for its checkpoint."""
    return [
        _python(),
        _java(),
        *_packages(metadata.requires("eddyline") or ()),
        _extras(metadata.metadata("eddyline").get_all("Provides-Extra") or ()),
        *_arrow(),
        *(room("temporary files", folder) for folder in temporary_folders()),
        *_environment(),
    ]


def temporary_folders() -> list[Path]:
    """Return the folders in which Spark keeps what it shuffles, as far as the environment says."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", "")
    return [Path(folder) for folder in folders.split(",") if folder] or [
        Path(tempfile.gettempdir())
    ]


def room(what: str, folder: Path) -> Finding:
    """Look at the free room of the disk of a folder, and whether files can be written there."""
    try:
        free = shutil.disk_usage(folder).free
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Finding(what, "error", f"cannot write to {folder}: {error}; give rights or room")
    level: Level = "error" if free < TOO_FEW_BYTES else "warning" if free < FEW_BYTES else "ok"
    advice = "" if level == "ok" else "; make room, or take another disk"
    return Finding(what, level, f"{folder} has {size(free)} free{advice}")


def _python() -> Finding:
    needed = metadata.metadata("eddyline")["Requires-Python"]
    version = platform.python_version()
    if Requirement(f"python{needed}").specifier.contains(version, prereleases=True):
        return Finding("Python", "ok", f"{version} ({sys.executable})")
    text = f"eddyline needs Python {needed}, this is {version}; make an environment with one"
    return Finding("Python", "error", text)


def _java() -> Finding:
    if (wrong := java.problem()) is not None:
        return Finding("Java", "error", wrong)
    place, version = java.in_use()
    return Finding("Java", "ok", f"{version} ({place})")


def _packages(requirements: Sequence[str]) -> Iterator[Finding]:
    """Compare installed packages with what is supported; those of extras only where they are."""
    extras: dict[str, Requirement] = {}
    for text in requirements:
        needed = Requirement(text)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            yield _package(needed)
        elif _installed(needed.name) is not None:
            extras.setdefault(needed.name.lower(), needed)
    for needed in extras.values():
        finding = _package(needed)
        if finding.level != "ok":
            yield Finding(finding.what, "warning", f"{finding.said} (it is optional)")


def _extras(names: Sequence[str]) -> Finding:
    """Say which extras can be used, and how to get the others."""
    of_users = sorted(set(names) - FOR_DEVELOPERS)
    missing = [extra for extra in of_users if _lacks("eddyline", extra)]
    usable = ", ".join(extra for extra in of_users if extra not in missing) or "none"
    more = f"; for more: pip install 'eddyline[{','.join(missing)}]'" if missing else ""
    return Finding("extras", "ok", f"{usable}{more}")


def _lacks(package: str, extra: str) -> bool:
    """Tell whether a package misses something that one of its extras needs."""
    every = map(Requirement, metadata.requires(package) or ())
    needed = [
        requirement
        for requirement in every
        if requirement.marker is not None
        and requirement.marker.evaluate({"extra": extra})
        and not requirement.marker.evaluate({"extra": ""})
    ]
    return any(
        _installed(requirement.name) is None
        or any(_lacks(requirement.name, inner) for inner in requirement.extras)
        for requirement in needed
    )


def _package(needed: Requirement) -> Finding:
    version = _installed(needed.name)
    supported = ",".join(sorted(map(str, needed.specifier), reverse=True))
    advice = f"pip install '{needed.name}{supported}'"
    if version is None:
        return Finding(needed.name, "error", f"not installed; {advice}")
    if needed.specifier.contains(version, prereleases=True):
        return Finding(needed.name, "ok", version)
    text = f"{version} is installed, {supported} is supported; {advice}"
    return Finding(needed.name, "error", text)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _arrow() -> list[Finding]:
    """Look at whether rows can cross to Python: broken packages fail when they are imported."""
    wrong = []
    for name in ("pyarrow", "pandas", "numpy", "numba"):
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - a broken package may raise anything
            wrong.append(
                f"{name} cannot be imported: {error}; pip install --force-reinstall {name}"
            )
    if os.environ.get(OLD_FORMAT) == "1":
        wrong.append(f"{OLD_FORMAT} is set, which workers cannot read; unset it")
    if wrong:
        return [Finding("Arrow", "error", text) for text in wrong]
    return [Finding("Arrow", "ok", "rows can cross to Python and back")]


def _environment() -> Iterator[Finding]:
    """Look at variables that change what runs."""
    worker = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if shutil.which(worker) is None:
        text = f"PYSPARK_PYTHON is {worker}, which is not there; unset it, or set it to a Python"
        yield Finding("workers", "error", text)
    elif Path(shutil.which(worker) or "").resolve() != Path(sys.executable).resolve():
        text = (
            f"PYSPARK_PYTHON is {worker}, this is {sys.executable}: both need the same version of "
            f"Python and the same packages; unset it if workers run on this machine"
        )
        yield Finding("workers", "warning", text)
    if adaptation_is_off():
        text = f"{OFF_SWITCH} switches all adaptation off; unset it for plans that are learned"
        yield Finding("adaptation", "warning", text)


def check_checkpoint(folder: Path) -> list[Finding]:
    """Look at every checkpoint in a folder.

    Raises:
        StateError: there is none.
    """
    return [finding for run in find_runs(folder) for finding in _check(run, _name(run, folder))]


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
    noted = read_format(own_folder(checkpoint))
    text = "of a version before formats had numbers; the next start notes it"
    if noted is not None:
        text = f"format {noted.format}, written by eddyline {noted.eddyline}"
    yield Finding(f"{name}: format", "ok", text)


def _history(checkpoint: Path, name: str) -> Iterator[Finding]:
    run = read_run(checkpoint)
    decisions = counted(len(run.journal), "decision")
    if left_out := n_left_out(run.journal):
        decisions += f" and {count(left_out)} that were only counted"
    text = f"query {run.query!r}, {count(n_batches(run.batches))} micro-batches, {decisions}"
    yield Finding(f"{name}: history", "ok", text)
    if run.status == "failed":
        text = f"the last run failed: {run.error}; repair the cause and start the query again"
        yield Finding(f"{name}: last run", "warning", text)


def _learned(checkpoint: Path, name: str) -> Iterator[Finding]:
    """Look at what was learned; without it a query starts with its plan as written."""
    path, what = own_folder(checkpoint) / LEARNED, f"{name}: learned state"
    again = "it is dropped at the next start, and learned again; no answer changes"
    if not path.exists():
        yield Finding(what, "ok", "none yet")
        return
    try:
        head = msgspec.json.decode(path.read_bytes(), type=Head)
    except (OSError, ValueError, RecursionError) as error:
        yield Finding(what, "warning", f"{path} cannot be read ({error}): {again}")
        return
    if head.format != LEARNED_FORMAT:
        text = f"{path} is of format {head.format}, this version reads {LEARNED_FORMAT}: {again}"
        yield Finding(what, "warning", text)
    else:
        yield Finding(what, "ok", f"format {head.format}, after batch {head.batch_id}")


def _pinned(checkpoint: Path, name: str) -> Iterator[Finding]:
    n = len(Pins(own_folder(checkpoint) / PINS))
    yield Finding(f"{name}: pinned plans", "ok", count(n) if n else "none")


def _batches(checkpoint: Path, name: str) -> Iterator[Finding]:
    began, done = last_batches(checkpoint)
    if began < 0:
        text = "no batch has begun"
    elif began == done:
        text = f"batch {done} is done"
    else:
        text = f"batch {began} has begun; where nobody runs the query, the next start runs it again"
    yield Finding(f"{name}: batches", "ok", text)


def _state(checkpoint: Path, name: str) -> Iterator[Finding]:
    """Look at durable state in the checkpoint; that of another folder is not known here."""
    folder, what = own_folder(checkpoint) / STATE, f"{name}: state"
    state = check_state(fs.LocalFileSystem(), str(folder))
    if state is None:
        yield Finding(what, "ok", "no windows are kept in the checkpoint")
        return
    for fault in state.faults:
        advice = "restore the checkpoint from a backup, or start with an empty one"
        yield Finding(what, "error", f"{fault}; {advice}")
    _, done = last_batches(checkpoint)
    if state.manifest.batch_id < done:
        text = (
            f"batch {done} is done, and the newest state in {folder} is that after batch "
            f"{state.manifest.batch_id}; restore it from the same backup as {SPARK}/"
        )
        yield Finding(what, "error", text)
    elif not state.faults:
        n_files = counted(len(state.manifest.names), "file")
        text = f"{n_files} after batch {state.manifest.batch_id}, {size(state.n_bytes)}, as written"
        yield Finding(what, "ok", text)
