"""Learned state of a run, saved beside its checkpoint and restored on restart.

Learned state belongs to one query, and so does its checkpoint: state of another text is refused,
that of the same text over other columns dropped. It is at most one batch older than the stream;
that changes the work of a batch, never an answer.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from eddyline.data.durable_files import replace_file
from eddyline.errors import StateError
from eddyline.runtime.counters import Counters

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 3
"""Version of the file; another one is not read."""


class Head(msgspec.Struct):
    """The part of a file that every format has."""

    format: int
    batch_id: int = -1
    """The last batch of which it knows."""


class Saved(msgspec.Struct):
    """Contents of the file."""

    format: int
    identity: str
    batch_id: int
    state: dict[str, Any]
    """By operator: what its ``snapshot`` returned."""
    counters: Counters = msgspec.field(default_factory=Counters)
    """Counts over the whole life of the query."""


class SnapshotFile:
    """The learned state of one run as a JSON file, replaced atomically.

    Args:
        path: of the file.
        identity: of the query: its text, and `` #`` with a hash of what it is over.
    """

    def __init__(self, path: Path, identity: str) -> None:
        self.path = path
        self.identity = identity
        self.counters = Counters()
        """Counts over the whole life of the query, which are saved with the state."""
        self._saved = Saved(FORMAT, identity, -1, {})

    def save(self, state: dict[str, Any], batch_id: int) -> None:
        """Replace the saved state.

        Raises:
            StateError: it cannot be written.
        """
        self._saved = Saved(FORMAT, self.identity, batch_id, state)
        self.save_counters()

    def count_failure(self) -> None:
        """Count a batch that failed; that the count cannot be saved is no news beside it."""
        self.counters.n_failures += 1
        with suppress(StateError):
            self.save_counters()

    def save_counters(self) -> None:
        """Save the counters with the state that was saved last.

        Raises:
            StateError: they cannot be written.
        """
        saved = self._saved
        saved.counters = self.counters
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, msgspec.json.encode(saved))
        except OSError as error:
            msg = f"cannot save the learned state to {self.path}: {error}; make room or rights"
            raise StateError(msg, path=str(self.path)) from error

    def load(self) -> tuple[dict[str, Any], int] | str | None:
        """Return the saved state and its last batch, None if there is none, or why not.

        Raises:
            StateError: it is that of another query.
        """
        if not self.path.exists():
            return None
        try:
            content = self.path.read_bytes()
            found = msgspec.json.decode(content, type=Head).format
            if found != FORMAT:
                return f"format {found}, expected {FORMAT}"
            saved = msgspec.json.decode(content, type=Saved)
        except (OSError, ValueError, RecursionError) as error:
            return f"the file cannot be read: {error}"
        theirs, own = (each.rsplit(" #", 1)[0] for each in (saved.identity, self.identity))
        if theirs != own:
            msg = (
                f"{self.path.parent.parent} is the checkpoint of another query ({theirs}); this "
                f"one is {own}. Give another checkpoint and path, or the query as it was; to go on "
                f"with the new one where the other one stopped, remove {self.path}"
            )
            raise StateError(msg, path=str(self.path), query=theirs)
        self.counters = saved.counters
        if saved.identity != self.identity:
            return "the columns of its streams, or its steps, have changed"
        self._saved = saved
        return (saved.state, saved.batch_id) if saved.batch_id >= 0 else None
