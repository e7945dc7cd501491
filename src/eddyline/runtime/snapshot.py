"""Learned state of a run, saved beside its checkpoint and restored on restart.

Learned state belongs to one query; the state of another query is dropped. It may be one batch older
than the stream. That changes the work of a batch, never an answer.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from eddyline.data.files import replace_file
from eddyline.errors import StateError
from eddyline.query.identity import hash_of
from eddyline.runtime.records import Counters

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

FORMAT = 4
"""Version of the file; another one is not read."""


class Head(msgspec.Struct):
    """The part of a file that every format has."""

    format: int
    batch_id: int = -1
    """The last batch of which it knows."""


class _Named(Head):
    """The part that names the query."""

    identity: str = ""


def identity_in(path: Path) -> str | None:
    """Return the mark of the query that a file belongs to; None without a file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Named).identity or None
    except (OSError, ValueError, RecursionError):
        return None


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
        identity: the mark of the query; see ``query.identity``.
        accepts: hashes of the marks of earlier queries whose state is also valid.
    """

    def __init__(self, path: Path, identity: str, accepts: Collection[str] = ()) -> None:
        self.path = path
        self.identity = identity
        self._accepts = {hash_of(identity), *accepts}
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
        """Return the saved state and its last batch, None if there is none, or why not."""
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
        self.counters = saved.counters
        if hash_of(saved.identity) not in self._accepts:
            return "it is of another query: the columns of its streams, or its steps, have changed"
        self._saved = saved
        return (saved.state, saved.batch_id) if saved.batch_id >= 0 else None
