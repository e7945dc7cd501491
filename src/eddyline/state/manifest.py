"""Durable state of a query after a batch.

One manifest has all operators. Manifest ``n`` is written when the rows of batch ``n`` have reached
the sink. A batch that runs again starts from the manifest of the batch before, so what a failed
attempt wrote is never seen. All files that a manifest names are on the disk before it is, and it is
there whole or not at all.

``ManifestFolder`` reads and commits manifests, ``StatePlace`` names the folders that an operator's
tasks write to, and ``check_state`` compares all files with their checksums and changes nothing.
"""

from __future__ import annotations

import os
import re
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from eddyline.data.files import DRAFT, is_local, replace_in
from eddyline.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyarrow import fs

FORMAT = 5
"""Number of the layout of manifests; another one cannot be read."""

KEPT = 2
"""Manifests that are kept: Spark may run the batch after the one before the last again."""

VERSIONS = "versions"
"""The folder of the versions of tables, in that of the state; see ``Versions``."""

IS_OWN = re.compile(
    r".*[0-9a-f]{32}.*|.*[.](index|rows|held|filter|dropped|groups|ends)[.]arrow([.].*)?"
    r"|[0-9]{8}[.]json.*",
    re.DOTALL,
)
"""Names of files of runs, which operators make unique, and of versions of tables. No other file of
their folders is removed."""

RESTORE = "restore it from a backup"
"""Advice about state that is damaged."""

ContentT = TypeVar("ContentT", bound=msgspec.Struct)


class StatePart(msgspec.Struct, frozen=True):
    """The state of one operator."""

    files: tuple[str, ...]
    """Names of its files in the folder of runs, without their endings."""
    content: msgspec.Raw
    """Description of the state by the operator, in JSON; only the operator knows its type."""

    @classmethod
    def from_content(cls, content: msgspec.Struct, files: Iterable[str]) -> StatePart:
        """Return the state that a value describes, with the run files that it names."""
        return cls(tuple(files), msgspec.Raw(msgspec.json.encode(content)))

    def read(self, kind: type[ContentT]) -> ContentT:
        """Return the description of a kind, as ``of`` was given it.

        Raises:
            StateError: the content is damaged, or of another operator.
        """
        try:
            return msgspec.json.decode(self.content, type=kind)
        except (ValueError, RecursionError) as error:
            msg = f"the saved state cannot be read as {kind.__name__}: {error}; {RESTORE}"
            raise StateError(msg, kind=kind.__name__) from error


class Manifest(msgspec.Struct, frozen=True):
    """The durable state of a query after a batch."""

    batch_id: int
    identity: str
    """Identity of the query: its state is of no use for another one."""
    parts: dict[str, StatePart]
    """By the name of the operator."""

    @property
    def names(self) -> set[str]:
        """The names of all run files."""
        return {name for part in self.parts.values() for name in part.files}


class _Head(msgspec.Struct):
    """The part of a manifest that every format has."""

    format: int


class _File(_Head):
    """The content of a file."""

    checksum: int
    """CRC-32 of the manifest's text."""
    manifest: msgspec.Raw

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> _File:
        text = msgspec.json.encode(manifest)
        return cls(FORMAT, zlib.crc32(text), msgspec.Raw(text))

    def read(self, batch_id: int) -> Manifest:
        if zlib.crc32(self.manifest) != self.checksum:
            msg = "it is not what was written"
            raise ValueError(msg)
        manifest = msgspec.json.decode(self.manifest, type=Manifest)
        if manifest.batch_id != batch_id:
            msg = f"it is that of batch {manifest.batch_id}"
            raise ValueError(msg)
        return manifest


class ManifestFolder:
    """The manifests of one query in a folder (made if need be), beside its run files."""

    def __init__(self, files: fs.FileSystem, folder: str) -> None:
        self.files = files
        self.folder = folder
        self._runs = self.place("").runs
        self._known: dict[int, set[str]] = {}
        """Names of the run files of manifests that this process has written."""
        self._stems: dict[str, str] = {}
        """What was in the folder of runs at the last commit; see ``_stem``."""
        files.create_dir(self._runs, recursive=True)

    def place(self, operator: str) -> StatePlace:
        """Return the folders for the files of an operator."""
        place = StatePlace(self.files, self.folder, operator)
        if operator:
            self.files.create_dir(place.late, recursive=True)
        return place

    def latest(self) -> Manifest | None:
        """Return the manifest of the last batch; None if there is none.

        Raises:
            StateError: it cannot be read.
        """
        present = self._present()
        return self.read(present[-1]) if present else None

    def read(self, batch_id: int) -> Manifest | None:
        """Return the manifest of a batch; None if there is none.

        Raises:
            StateError: it cannot be read.
        """
        path = self._path(batch_id)
        if batch_id not in self._present():
            return None
        try:
            with self.files.open_input_file(path) as source:
                content = source.read()
            version = msgspec.json.decode(content, type=_Head).format
            if version == FORMAT:
                return msgspec.json.decode(content, type=_File).read(batch_id)
        except (OSError, ValueError, RecursionError) as error:
            msg = f"the state {path} cannot be read ({error}); {RESTORE}"
            raise StateError(msg, path=path) from error
        msg = (
            f"the state {path} cannot be read: it is of format {version}, this version of eddyline "
            f"reads {FORMAT}; start the query with an empty checkpoint, or go on with the version "
            f"that wrote it"
        )
        raise StateError(msg, path=path, format=version)

    def clear(self) -> None:
        """Remove all state except late rows.

        Raises:
            StateError: a file cannot be removed.
        """
        try:
            for batch_id in self._present():
                self.files.delete_file(self._path(batch_id))
            for folder in (self._runs, f"{self.folder}/{VERSIONS}"):
                for name in names_in(self.files, folder):
                    if IS_OWN.fullmatch(name):
                        self.files.delete_file(f"{folder}/{name}")
        except OSError as error:
            msg = f"the state in {self.folder} cannot be removed: {error}; remove it"
            raise StateError(msg, folder=self.folder) from error
        self._known.clear()

    def before(
        self, batch_id: int, empty_until: int = -1
    ) -> tuple[Manifest | None, Manifest | None]:
        """Return the manifest that a batch starts from, and that of an earlier attempt at it.

        The first one is None only for batch 0, and for the batch behind ``empty_until``.

        Raises:
            StateError: there is no state to start from, or it cannot be read.
        """
        before = self.read(batch_id - 1)
        if before is None and batch_id > empty_until + 1:
            msg = (
                f"the state after batch {batch_id - 1} is not in {self.folder}, so batch "
                f"{batch_id} cannot go on from it; restore the folder, or start with an empty "
                f"checkpoint"
            )
            raise StateError(msg, folder=self.folder, batch_id=batch_id)
        return before, self.read(batch_id)

    def commit(self, batch_id: int, identity: str, parts: Mapping[str, StatePart]) -> Manifest:
        """Write a manifest, whole or not at all, and remove what no kept one needs any more.

        The files of the operators' parts are closed.

        Raises:
            StateError: it cannot be written, or a file that it names is not there; what was there
                before is still there.
        """
        manifest, path = Manifest(batch_id, identity, dict(parts)), self._path(batch_id)
        kept = range(batch_id - KEPT + 1, batch_id)
        before = {
            name for number in self._present() if number in kept for name in self._names(number)
        }
        try:
            present, stems = names_in(self.files, self._runs), self._stems
            there = {
                name: stems.get(name) or _stem(name) for name in present if IS_OWN.fullmatch(name)
            }
            needed = manifest.names
            new = needed - before
            if missing := new.difference(there.values()):
                msg = (
                    f"the state of batch {batch_id} names {len(missing)} files that are not in "
                    f"{self._runs}, such as {min(missing)}; start the query again: the batch runs "
                    f"again. If another query was started with this folder, give it its own"
                )
                raise StateError(msg, folder=self._runs)
            runs = [f"{self._runs}/{name}" for name, stem in there.items() if stem in new]
            needs = [self._runs, *runs] if runs else []
            replace_in(self.files, path, msgspec.json.encode(_File.from_manifest(manifest)), needs)
        except OSError as error:
            msg = (
                f"the state of batch {batch_id} cannot be written to {path}: {error}; the batch "
                f"runs again when the query is started anew"
            )
            raise StateError(msg, path=path) from error
        self._known = {number: self._known[number] for number in kept if number in self._known}
        self._known[batch_id] = needed
        self._stems = there
        with suppress(OSError):  # the next commit tries again
            self._clean(batch_id, there, before | needed)
        return manifest

    def _clean(self, batch_id: int, there: Mapping[str, str], needed: set[str]) -> None:
        """Remove old manifests, and the run files (with their stems) that no kept one names.

        Files of attempts that failed are named by no manifest, and go as well. Files of a later
        batch cannot be there: it starts after this commit.
        """
        for number in self._present():
            if not batch_id - KEPT < number <= batch_id:
                self.files.delete_file(self._path(number))
        for name in names_in(self.files, self.folder):
            if name.endswith(DRAFT):
                self.files.delete_file(f"{self.folder}/{name}")
        for name, stem in there.items():
            if stem not in needed:
                self.files.delete_file(f"{self._runs}/{name}")

    def _names(self, batch_id: int) -> set[str]:
        if batch_id not in self._known and (manifest := self.read(batch_id)):
            self._known[batch_id] = manifest.names
        return self._known.get(batch_id, set())

    def _path(self, batch_id: int) -> str:
        return f"{self.folder}/manifest-{batch_id:08d}.json"

    def _present(self) -> list[int]:
        names = names_in(self.files, self.folder)
        return sorted(
            int(name[len("manifest-") : -len(".json")])
            for name in names
            if name.startswith("manifest-") and name.endswith(".json")
        )


def _stem(name: str) -> str:
    """Return the name by which a manifest names a file of the folder of runs."""
    return name.partition(".")[0]


@dataclass(frozen=True, slots=True)
class StatePlace:
    """The folder of a query's state, as one of its operators uses it; goes to tasks."""

    files: fs.FileSystem
    folder: str
    """Folder of the query's state; see ``ManifestFolder``."""
    operator: str
    """Name of the operator, unique in the query."""

    @property
    def runs(self) -> str:
        """Folder of the run files of all operators: their names are unique."""
        return f"{self.folder}/runs"

    @property
    def late(self) -> str:
        """Folder of the operator's late rows."""
        return f"{self.folder}/late/{quote(self.operator, safe='')}"


def names_in(files: fs.FileSystem, folder: str) -> list[str]:
    """Return the names of all files and folders in a folder; none if it is not there."""
    from pyarrow import fs  # noqa: PLC0415

    if is_local(files):  # without a look at each of them
        try:
            return os.listdir(folder)
        except FileNotFoundError:
            return []
    chosen = fs.FileSelector(folder, allow_not_found=True)
    return [info.base_name for info in files.get_file_info(chosen)]


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
    from eddyline.state.run_files import open_tables  # noqa: PLC0415 - the driver reads no files

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
        file["name"]: (file["n_bytes"], file["checksum"])
        for content in contents
        for file in _descriptions(content)
    }


def _descriptions(value: Any) -> Iterator[dict[str, Any]]:
    """Yield what stands for a file, in the state of any operator."""
    if isinstance(value, dict) and {"name", "n_bytes", "checksum"} <= value.keys():
        yield value
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict | list):
            yield from _descriptions(part)


# -- versions of tables ------------------------------------------------------------------------

Versions = dict[str, dict[str, Any]]
"""Version of each table that a batch reads, by its name; JSON.

The state folder notes them before the batch runs. A batch that was killed has no manifest. It runs
again in a process that may find newer versions, and has to read those of its first attempt. A batch
has one note for all operators of its query, so all of them read one version of a table.
"""

ENDING = ".json"


def noted_versions(place: StatePlace, batch_id: int) -> Versions:
    """Return the versions of a batch; none if it never began.

    Raises:
        StateError: the note cannot be read.
    """
    path = _path(place, batch_id)
    try:
        with place.files.open_input_file(path) as source:
            return msgspec.json.decode(source.read(), type=Versions)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        msg = f"the versions of tables of batch {batch_id} cannot be read from {path}: {error}"
        raise StateError(f"{msg}; {RESTORE}", path=path) from error


def note_versions(place: StatePlace, batch_id: int, versions: Versions) -> None:
    """Write the versions of a batch, and remove notes that no batch needs any more.

    Raises:
        StateError: they cannot be written.
    """
    path, folder = _path(place, batch_id), _folder(place)
    try:
        place.files.create_dir(folder, recursive=True)
        replace_in(place.files, path, msgspec.json.encode(versions))
    except OSError as error:
        msg = (
            f"the versions of tables of batch {batch_id} cannot be written to {path}: {error}; see "
            f"that the disk has room, then start the query again: nothing is lost"
        )
        raise StateError(msg, path=path) from error
    with suppress(OSError):  # the next batch tries again
        for name in names_in(place.files, folder):
            number = name.partition(".")[0]
            if number.isdecimal() and not batch_id - KEPT < int(number) <= batch_id:
                place.files.delete_file(f"{folder}/{name}")


def _folder(place: StatePlace) -> str:
    return f"{place.folder}/{VERSIONS}"


def _path(place: StatePlace, batch_id: int) -> str:
    return f"{_folder(place)}/{batch_id:08d}{ENDING}"
