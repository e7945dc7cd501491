"""What a run has learned, saved beside its checkpoint and restored on restart.

Learned state belongs to one query: it is dropped when the query's text changes. It is at most one
batch older than the stream; that changes the work of a batch, never an answer.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from eddyline.data.durable_files import replace_file
from eddyline.errors import StateError

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1
"""Version of the file; another one is not read."""


class SnapshotFile:
    """The learned state of one run as a JSON file, replaced atomically.

    Args:
        path: the file.
        fingerprint: identifies the query's text; state of another text is not used.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path = path
        self.fingerprint = fingerprint

    def save(self, state: dict[str, Any], batch_id: int) -> None:
        """Replace the saved state.

        Raises:
            StateError: it cannot be written.
        """
        content = {
            "format": FORMAT,
            "fingerprint": self.fingerprint,
            "batch_id": batch_id,
            "state": state,
        }
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, json.dumps(content).encode())
        except OSError as error:
            msg = f"cannot save the learned state to {self.path}: {error}; make room or rights"
            raise StateError(msg, path=str(self.path)) from error

    def load(self) -> tuple[dict[str, Any], int] | str | None:
        """Return the saved state and its last batch, None if there is none, or why not."""
        if not self.path.exists():
            return None
        try:
            content = json.loads(self.path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            return f"the file cannot be read: {error}"
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            found = content.get("format") if isinstance(content, dict) else None
            return f"format {found}, expected {FORMAT}"
        if content.get("fingerprint") != self.fingerprint:
            return "the query's text has changed"
        state, batch_id = content.get("state"), content.get("batch_id")
        if not isinstance(state, dict) or not isinstance(batch_id, int):
            return "the file is damaged"
        return state, batch_id
