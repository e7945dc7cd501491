"""The folders of an operator's state: run files, and late rows beside them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from eddyline.data.files import is_local

if TYPE_CHECKING:
    from pyarrow import fs


@dataclass(frozen=True, slots=True)
class StatePlace:
    """The folder of a query's state, as one of its operators uses it; goes to tasks."""

    files: fs.FileSystem
    folder: str
    """Folder of the query's state; see ``manifest.ManifestFolder``."""
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
