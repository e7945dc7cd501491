"""Versions of tables that a batch reads.

The state folder notes them before the batch runs. A batch that was killed has no manifest. It runs
again in a process that may find newer versions, and has to read those of its first attempt. A batch
has one note for all operators of its query, so all of them read one version of a table.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from eddyline.data.files import replace_in
from eddyline.errors import StateError
from eddyline.state.manifest import KEPT, RESTORE, VERSIONS, names_in

if TYPE_CHECKING:
    from eddyline.state.manifest import StatePlace

Versions = dict[str, dict[str, Any]]
"""Version of each table, by the name of the table; JSON."""

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
