"""Learned state of a run, saved beside its checkpoint and restored on restart.

Learned state belongs to one query: it is dropped when the query's text changes. It is at most one
batch older than the stream; that changes the work of a batch, never an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from eddyline.data.durable_files import replace_file
from eddyline.errors import StateError

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 2
"""Version of the file; another one is not read."""


class _Head(msgspec.Struct):
    """The part of a file that every format has."""

    format: int


class Saved(msgspec.Struct):
    """Contents of the file."""

    format: int
    fingerprint: str
    batch_id: int
    state: dict[str, Any]
    """By operator: what its ``snapshot`` returned."""


class SnapshotFile:
    """The learned state of one run as a JSON file, replaced atomically.

    State of another fingerprint, which is that of another query's text, is not used.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path = path
        self.fingerprint = fingerprint

    def save(self, state: dict[str, Any], batch_id: int) -> None:
        """Replace the saved state.

        Raises:
            StateError: it cannot be written.
        """
        saved = Saved(FORMAT, self.fingerprint, batch_id, state)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, msgspec.json.encode(saved))
        except OSError as error:
            msg = f"cannot save the learned state to {self.path}: {error}; make room or rights"
            raise StateError(msg, path=str(self.path)) from error

    def load(self) -> tuple[dict[str, Any], int] | str | None:
        """Return the saved state and its last batch, None if there is none, or why not."""
        if not self.path.exists():
            return None
        try:
            content = self.path.read_bytes()
            found = msgspec.json.decode(content, type=_Head).format
            if found != FORMAT:
                return f"format {found}, expected {FORMAT}"
            saved = msgspec.json.decode(content, type=Saved)
        except (OSError, ValueError) as error:
            return f"the file cannot be read: {error}"
        if saved.fingerprint != self.fingerprint:
            return "the query's text has changed"
        return saved.state, saved.batch_id
