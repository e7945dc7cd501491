"""Rows that hardly any new row asks for any more, by one rule or another: counts of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(slots=True)
class DoneCounts:
    """How many rows of an input were done by a rule, and the work of letting them go."""

    n_new: int = 0
    """New rows."""
    n_new_done: int = 0
    """Those of them that were done when their batch ended."""
    n_old_done: int = 0
    """Older rows that were seen to be done."""
    n_left: int = 0
    """Rows of merged runs that left for it."""
    ns: int = 0
    """Time that it took to find them, and to write apart what left, with its filter (ns)."""
    n_merged: int = 0
    """Rows that were merged."""
    merge_ns: int = 0
    """Time that it took to merge them, and to write those that stay (ns)."""

    def add(self, other: DoneCounts) -> None:
        """Count those of another part, too."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


Done = dict[tuple[str, str], DoneCounts]
"""Counts by rule and input."""

MATCHED = "matched"
"""The rule of rows that were in their only result."""

PASSED = "passed"
"""The rule of rows whose key the others have passed."""

CLOSED = "closed"
"""The rule of rows whose key has come in all other streams, and comes no more."""


def merged_counts(parts: Iterable[Done], rule: str) -> Mapping[str, DoneCounts]:
    """Return the counts of several buckets by one rule, by input."""
    whole: dict[str, DoneCounts] = {}
    for part in parts:
        for (of, name), counts in part.items():
            if of == rule:
                whole.setdefault(name, DoneCounts()).add(counts)
    return whole
