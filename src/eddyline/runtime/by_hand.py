"""Rules of a query that a person may change while it runs: what they see, and what they ask for.

A change is checked first, in full; one that is not possible changes nothing. It is in force from
the next micro-batch on and ends with the process: the program that starts the query has its own
rules.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.runtime.journal import JournalEntry


@dataclass(frozen=True, slots=True)
class RuleShown:
    """A rule as a person sees it who may change it."""

    name: str
    text: str
    """As its author wrote it."""
    level: str = ""
    """Empty if it has none."""
    is_sql: bool = True
    """Whether the text is the condition in SQL; else it is Sigma, or names a function."""
    why_not: str = ""
    """Why it does not run; empty if it does."""
    is_in_force: bool = True
    """Whether the last micro-batch had it as it stands."""
    n_rows: int | None = None
    """Rows that it was there for; None if it is not known."""
    n_matches: int | None = None
    """Of those, rows that it was true for."""

    @property
    def mark(self) -> str:
        """Tells this text from another one that the rule may have later."""
        return hashlib.blake2b(self.text.encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class RuleList:
    """Some of the rules of a query."""

    name: str
    """Of the set."""
    rules: Sequence[RuleShown]
    n_found: int
    """Rules that were looked for, of which these are the first."""
    n_all: int
    """Rules of the set."""
    follows: str = ""
    """The folder or file that decides what rules there are; empty if a person may."""
    notes: tuple[str, ...] = ()
    """What no micro-batch has met yet."""


@dataclass(frozen=True, slots=True)
class RuleChange:
    """What a person asks for: ``add``, ``replace`` or ``remove``."""

    how: str
    name: str
    text: str = ""
    """The new condition, as SQL."""
    level: str = ""
    """Of a rule that is added; one that is replaced keeps its own."""
    mark: str = ""
    """``RuleShown.mark`` of the rule that the person saw; empty if there was none."""


class ChangeableRules(Protocol):
    """The rules of a query that runs; from any thread."""

    def found(self, part: str, most: int) -> RuleList:
        """Return the first rules whose names have a part, in upper or lower case.

        Args:
            part: of the name; empty for all.
            most: rules that are returned at most.
        """
        ...

    def rule(self, name: str) -> RuleShown:
        """Return one rule.

        Raises:
            QueryError: there is none of that name.
        """
        ...

    def check(self, change: RuleChange) -> None:
        """Raise if a change is not possible; nothing is changed.

        Raises:
            QueryError: the set follows files; the name is taken, or unknown; the rule is another
                one than the person saw; the condition cannot be read, does not fit the stream, or
                calls Java.
            OptionError: an unknown level.
        """
        ...

    def change(self, change: RuleChange, batch_id: int) -> JournalEntry:
        """Change the rules, from the next micro-batch on; raises as ``check`` does.

        Args:
            change: what a person asks for.
            batch_id: the newest micro-batch that is done.

        Returns:
            The decision, for the journal.
        """
        ...
