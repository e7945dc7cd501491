"""Whether durable state is there and is what was written; nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from eddyline.state.manifest import ManifestFolder
from eddyline.state.place import names_in
from eddyline.state.run_files import open_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyarrow import fs

    from eddyline.state.manifest import Manifest

MAX_TRIES = 3
"""Looks at state that a run replaces meanwhile."""


@dataclass(frozen=True, slots=True)
class CheckedState:
    """Durable state after a batch."""

    manifest: Manifest
    """The newest one."""
    n_bytes: int
    """Size of the files that have a checksum."""
    faults: tuple[str, ...]
    """Files that are missing or damaged, one sentence each."""


def check_state(files: fs.FileSystem, folder: str) -> CheckedState | None:
    """Read the newest manifest, and compare the checksum of each file that it names.

    Args:
        files: where it is.
        folder: of the state.

    Returns:
        What was found; None if no state is there.

    Raises:
        StateError: the manifest cannot be read.
    """
    if not any(name.startswith("manifest-") for name in names_in(files, folder)):
        return None
    folders = ManifestFolder(files, folder)
    manifest = folders.latest()
    for _ in range(MAX_TRIES):
        if manifest is None:
            return None
        runs = folders.place("").runs
        checksums = _checksums(manifest)
        faults = [*_faults(files, runs, manifest.names, checksums)]
        newest = folders.latest()
        if not faults or newest == manifest:
            break
        manifest = newest  # a run that goes on has removed what it needs no more
    assert manifest is not None
    n_bytes = sum(size for size, _ in checksums.values())
    return CheckedState(manifest, n_bytes, tuple(faults))


def _faults(
    files: fs.FileSystem,
    folder: str,
    named: Iterable[str],
    checksums: Mapping[str, tuple[int, int]],
) -> Iterator[str]:
    """Yield the faults of the files of a manifest."""
    there: dict[str, list[str]] = {}
    for name in sorted(names_in(files, folder)):
        there.setdefault(name.partition(".")[0], []).append(f"{folder}/{name}")
    for name in sorted(named):
        if name not in there:
            yield f"{folder}/{name}.* is missing"
        elif name in checksums:
            try:
                open_tables(files, there[name], checksums[name][1])
            except OSError as error:
                yield str(error)


def _checksums(manifest: Manifest) -> dict[str, tuple[int, int]]:
    """Return size (bytes) and checksum of the files that operators describe, by name."""
    contents = [msgspec.json.decode(part.content) for part in manifest.parts.values()]
    return {
        each["name"]: (each["n_bytes"], each["checksum"])
        for content in contents
        for each in _descriptions(content)
    }


def _descriptions(value: Any) -> Iterator[dict[str, Any]]:
    """Yield what stands for a file, in the state of any operator."""
    if isinstance(value, dict) and {"name", "n_bytes", "checksum"} <= value.keys():
        yield value
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            yield from _descriptions(each)
