"""What the windows of a join hold after a batch: the runs by bucket and input, committed at once.

Manifest ``n`` is written when the rows of batch ``n`` have reached the sink. A batch that runs
again starts from the manifest of the batch before, so what a failed attempt wrote is never seen.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from eddyline.errors import StateError
from eddyline.state.grid import Grid
from eddyline.state.run_files import FORMAT, RunFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyarrow import fs

    from eddyline.state.grid import Split

KEPT = 2
"""Manifests that are kept: Spark may run the batch after the one before the last again."""

RUNS, LATE = "runs", "late"
"""Folders of the runs that manifests name, and of late rows."""

Windows = dict[int, dict[str, tuple[RunFile, ...]]]
"""The runs by bucket and input, the oldest first."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the windows hold after a batch."""

    batch_id: int
    identity: str
    """Of the query: its windows are of no use for another one."""
    grid: Grid
    """How rows are cut into buckets."""
    windows: Windows = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)
    """The latest event time of each stream so far (µs)."""
    n_late: dict[str, int] = field(default_factory=dict)
    """The rows of each input that came too late so far."""

    def names(self) -> set[str]:
        """Return the names of all runs."""
        return {
            file.name for inputs in self.windows.values() for f in inputs.values() for file in f
        }


class ManifestFolder:
    """The manifests of one query in a folder, and the runs beside them.

    Args:
        files: where the folder is.
        folder: made if it is not there.
    """

    def __init__(self, files: fs.FileSystem, folder: str) -> None:
        self.files = files
        self.folder = folder
        self.runs = f"{folder}/{RUNS}"
        self.late = f"{folder}/{LATE}"
        for each in (self.runs, self.late):
            files.create_dir(each, recursive=True)

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
                return _from_plain(json.loads(source.read()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            msg = f"the window state {path} cannot be read ({error}); restore it from a backup"
            raise StateError(msg, path=path) from error

    def commit(self, manifest: Manifest) -> None:
        """Write a manifest, whole or not at all, and remove what no kept one needs any more.

        Raises:
            StateError: it cannot be written; what was there before is still there.
        """
        path = self._path(manifest.batch_id)
        plain = json.dumps({"format": FORMAT} | _plain(manifest), default=_plain).encode()
        try:
            with self.files.open_output_stream(f"{path}.part") as out:
                out.write(plain)
            self.files.move(f"{path}.part", path)
        except OSError as error:
            msg = (
                f"the window state of batch {manifest.batch_id} cannot be written to {path}: "
                f"{error}; the batch runs again when the query is started anew"
            )
            raise StateError(msg, path=path) from error
        self._clean(manifest)

    def _clean(self, manifest: Manifest) -> None:
        """Remove old manifests and the runs that only they name.

        Runs of attempts that failed are named by no manifest, and go as well. Runs of a later
        batch cannot be there: it starts after this commit.
        """
        needed = manifest.names()
        for batch_id in self._present():
            if batch_id > manifest.batch_id or batch_id <= manifest.batch_id - KEPT:
                self.files.delete_file(self._path(batch_id))
            elif batch_id < manifest.batch_id and (kept := self.read(batch_id)):
                needed |= kept.names()
        for name in names_in(self.files, self.runs):
            if name.split(".")[0] not in needed:
                self.files.delete_file(f"{self.runs}/{name}")

    def _path(self, batch_id: int) -> str:
        return f"{self.folder}/manifest-{batch_id:08d}.json"

    def _present(self) -> list[int]:
        names = [name for name in names_in(self.files, self.folder) if name.startswith("manifest-")]
        return sorted(int(name[9:17]) for name in names if name.endswith(".json"))


def names_in(files: fs.FileSystem, folder: str) -> list[str]:
    """Return the names of all files and folders in a folder."""
    from pyarrow import fs  # noqa: PLC0415

    return [info.base_name for info in files.get_file_info(fs.FileSelector(folder))]


def _plain(said: Manifest | RunFile | Grid | Split) -> dict[str, Any]:
    """Return the fields as they are: ``asdict`` copies all that they hold."""
    return {each.name: getattr(said, each.name) for each in fields(said)}


def _from_plain(plain: Mapping[str, Any]) -> Manifest:
    if plain["format"] != FORMAT:
        msg = f"format {plain['format']}, this version reads {FORMAT}"
        raise ValueError(msg)
    windows = {
        int(bucket): {name: _files(each) for name, each in inputs.items()}
        for bucket, inputs in plain["windows"].items()
    }
    return Manifest(
        plain["batch_id"],
        plain["identity"],
        Grid.of(plain["grid"]),
        windows,
        plain["latest"],
        plain["n_late"],
    )


def _files(plain: Iterable[Mapping[str, Any]]) -> tuple[RunFile, ...]:
    return tuple(RunFile(**each) for each in plain)
