"""Changes of a set of rules: as names, as a journal entry, and in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eddyline.rules.view import COMPONENT
from eddyline.runtime.journal import JournalEntry

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eddyline.query.conditions import RuleSource

    Rules = Mapping[str, RuleSource]

MAX_NAMED = 20
"""Rules that a journal entry names."""


def changed(before: Rules, after: Rules) -> dict[str, list[str]]:
    """Return the names of the rules that differ between two states of a set."""
    return {
        "added": [name for name in after if name not in before],
        "removed": [name for name in before if name not in after],
        "replaced": [name for name, each in after.items() if before.get(name, each) is not each],
    }


def entries_of(
    before: Rules, after: Rules, skipped: Collection[str], batch_id: int
) -> list[JournalEntry]:
    """Return the entry about a change, if there is one; skipped are rules that are new or ran."""
    found = {**changed(before, after), "skipped": list(skipped)}
    found["removed"] = [name for name in found["removed"] if name not in skipped]
    evidence: dict[str, Any] = {what: names[:MAX_NAMED] for what, names in found.items() if names}
    if not evidence:
        return []
    numbers = f"{len(before)} rules", f"{len(after)} rules"
    return [JournalEntry(batch_id, COMPONENT, "rules", *numbers, evidence)]


def to_come(before: Rules, after: Rules) -> tuple[str, ...]:
    """Return in words the changes that no micro-batch has met yet, if there are any."""
    found = changed(before, after)
    parts = [f"{len(names)} {what}" for what, names in found.items() if names]
    if not parts:
        return ()
    first, *others = parts
    number, what = first.split()
    noun = "rule" if number == "1" else "rules"
    they = "it counts" if sum(map(len, found.values())) == 1 else "they count"
    listed = ", ".join([f"{number} {noun} {what}", *others])
    return (f"{listed} since: {they} from the next micro-batch or transform on",)
