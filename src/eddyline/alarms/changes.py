"""What has changed in a set of alarms, for the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddyline.rules.description import MAX_NAMED, changed
from eddyline.runtime.journal import JournalEntry

if TYPE_CHECKING:
    from collections.abc import Mapping

COMPONENT = "alarms"
"""The name of alarms in the journal."""


def entries_of(
    before: Mapping[str, str], after: Mapping[str, str], batch_id: int
) -> list[JournalEntry]:
    """Return the entry about a change of the alarms, texts by name, if there is one."""
    found = {what: names for what, names in changed(before, after).items() if names}
    evidence: dict[str, Any] = {what: names[:MAX_NAMED] for what, names in found.items()}
    numbers = f"{len(before)} alarms", f"{len(after)} alarms"
    return [JournalEntry(batch_id, COMPONENT, "alarms", *numbers, evidence)] if evidence else []
