"""The journal: every decision with its evidence."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from eddyline.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One decision: what changed, from what to what, and why."""

    batch_id: int
    """Micro-batch after which it was taken; -1 before the first batch or in a batch job."""
    component: str
    """Name of what decided: a block (``native``, ``arrow``; of a task, whose partition the evidence
    names, or of the driver) or the ``run``."""
    event: str
    """The decision: ``order`` (another order), ``stale`` (evidence let go), ``sample`` (a sample
    confirmed the order), ``left_out`` (so many older entries of a task were only counted),
    ``restore`` and ``drop_state`` (at a restart), ``pin``, ``adapt`` and ``stop`` (by a person, or
    because of what the evidence names); of joins ``grid`` (rows are cut into other buckets, or a
    frequent key into several), ``tree`` (the ways between inputs) and ``caches``; of rules
    ``rules`` (some came, went or changed), ``broken`` (a file of them was not taken in) and
    ``sharing`` (how they are looked for); their
    ``order`` is that of one rule's Python tests."""
    before: Any = None
    """The plan before, as plain values; a list of texts is an order."""
    after: Any = None
    """The plan after."""
    evidence: dict[str, Any] = field(default_factory=dict)
    """Plain values that a person can check."""
    at: str = field(default="", compare=False)
    """When the driver noted it (UTC, ISO 8601); empty before that."""

    @property
    def is_of_task(self) -> bool:
        """Whether a task decided, for the rows of its partition alone."""
        return "partition" in self.evidence

    def to_json(self) -> str:
        """Return the entry as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=False, default=str)


class Journal:
    """An append-only list of entries, mirrored to a file of JSON lines if a path is given.

    Args:
        path: file to append to; it is read first if it exists, and created if not.

    Raises:
        StateError: the file cannot be read; the message says where.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._entries: list[JournalEntry] = []
        if path is not None and path.exists():
            self._entries = _read(path)
        elif path is not None:
            _append(path, "")

    def extend(self, entries: Iterable[JournalEntry]) -> None:
        """Append entries, and write them to the file in one go.

        Raises:
            StateError: the file cannot be written.
        """
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        new = [replace(entry, at=entry.at or now) for entry in entries]
        if not new:
            return
        self._entries.extend(new)
        if self.path is not None:
            _append(self.path, "".join(entry.to_json() + "\n" for entry in new))

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[JournalEntry]:
        return iter(self._entries)

    def __getitem__(self, index: int) -> JournalEntry:
        return self._entries[index]

    def rows(self) -> list[dict[str, Any]]:
        """Return the entries as dicts, ready for a DataFrame."""
        return [asdict(entry) for entry in self._entries]


def _read(path: Path) -> list[JournalEntry]:
    """Return the entries of a file; half a last line, left by a killed process, is cut off."""
    entries: list[JournalEntry] = []
    try:
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            os.truncate(path, len(whole))
        entries.extend(JournalEntry(**json.loads(line)) for line in whole.splitlines())
    except OSError as error:
        msg = f"cannot read the journal {path}: {error}; make it readable or move it away"
        raise StateError(msg, path=str(path)) from error
    except (ValueError, TypeError) as error:
        number = len(entries) + 1
        msg = f"line {number} of the journal {path} is no entry: {error}; move the file away"
        raise StateError(msg, path=str(path), line=number) from error
    return entries


def _append(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        msg = f"cannot write the journal {path}: {error}; make room or rights"
        raise StateError(msg, path=str(path)) from error
