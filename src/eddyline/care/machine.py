"""Whether eddyline can run here: Python, Java, packages, room on the disk, the environment."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from eddyline.care.findings import Finding
from eddyline.options import OFF_SWITCH, adaptation_is_off
from eddyline.report.formatting import size
from eddyline.spark import java

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eddyline.care.findings import Level

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
    given = os.environ.get("SPARK_LOCAL_DIRS", "")
    return [Path(each) for each in given.split(",") if each] or [Path(tempfile.gettempdir())]


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
    found = platform.python_version()
    if Requirement(f"python{needed}").specifier.contains(found, prereleases=True):
        return Finding("Python", "ok", f"{found} ({sys.executable})")
    said = f"eddyline needs Python {needed}, this is {found}; make an environment with one"
    return Finding("Python", "error", said)


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
        found = _package(needed)
        if found.level != "ok":
            yield Finding(found.what, "warning", f"{found.said} (it is optional)")


def _extras(names: Sequence[str]) -> Finding:
    """Say which extras can be used, and how to get the others."""
    of_users = sorted(set(names) - FOR_DEVELOPERS)
    missing = [each for each in of_users if _lacks("eddyline", each)]
    found = ", ".join(each for each in of_users if each not in missing) or "none"
    more = f"; for more: pip install 'eddyline[{','.join(missing)}]'" if missing else ""
    return Finding("extras", "ok", f"{found}{more}")


def _lacks(package: str, extra: str) -> bool:
    """Tell whether a package misses something that one of its extras needs."""
    every = map(Requirement, metadata.requires(package) or ())
    needed = [
        each
        for each in every
        if each.marker is not None
        and each.marker.evaluate({"extra": extra})
        and not each.marker.evaluate({"extra": ""})
    ]
    return any(
        _installed(each.name) is None or any(_lacks(each.name, inner) for inner in each.extras)
        for each in needed
    )


def _package(needed: Requirement) -> Finding:
    version = _installed(needed.name)
    supported = ",".join(sorted(map(str, needed.specifier), reverse=True))
    advice = f"pip install '{needed.name}{supported}'"
    if version is None:
        return Finding(needed.name, "error", f"not installed; {advice}")
    if needed.specifier.contains(version, prereleases=True):
        return Finding(needed.name, "ok", version)
    said = f"{version} is installed, {supported} is supported; {advice}"
    return Finding(needed.name, "error", said)


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
        return [Finding("Arrow", "error", said) for said in wrong]
    return [Finding("Arrow", "ok", "rows can cross to Python and back")]


def _environment() -> Iterator[Finding]:
    """Look at variables that change what runs."""
    worker = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if shutil.which(worker) is None:
        said = f"PYSPARK_PYTHON is {worker}, which is not there; unset it, or set it to a Python"
        yield Finding("workers", "error", said)
    elif Path(shutil.which(worker) or "").resolve() != Path(sys.executable).resolve():
        said = (
            f"PYSPARK_PYTHON is {worker}, this is {sys.executable}: both need the same version of "
            f"Python and the same packages; unset it if workers run on this machine"
        )
        yield Finding("workers", "warning", said)
    if adaptation_is_off():
        said = f"{OFF_SWITCH} switches all adaptation off; unset it for plans that are learned"
        yield Finding("adaptation", "warning", said)
