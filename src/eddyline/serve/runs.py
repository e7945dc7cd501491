"""Runs for the page, and the changes that a person may make.

A ``RunSource`` knows the runs: those of this process, or those that checkpoints have (``stored``).
A ``WatchedRun`` tells its records, decisions, backlog and explanation. A run of this process is
also ``Steerable``: a person may pin plans, stop it and change its rules. ``HANDS`` and
``RULE_HANDS`` list the buttons of the page. A ``Failure`` says what a run failed with. Its text may
quote a row, so it is hidden unless values are shown.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from eddyline.errors import (
    EddylineError,
    NotSupportedError,
    OptionError,
    PlanError,
    PluginError,
    QueryError,
    SourceError,
    StateError,
)
from eddyline.report.formatting import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eddyline.report.sections import RunView
    from eddyline.runtime.by_hand import ChangeableRules, Property, RuleChange
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import Backlog, BatchRecord


class WatchedRun(Protocol):
    """A run that people look at. Methods are called from the server's thread, one at a time."""

    @property
    def name(self) -> str:
        """Name of the query."""
        ...

    @property
    def place(self) -> str:
        """What tells it from a run of the same name, such as a folder; empty if there is none."""
        ...

    def is_running(self) -> bool:
        """Tell whether it runs; asked again until it does not."""
        ...

    def error(self) -> Failure | None:
        """Return what a run failed with that has ended."""
        ...

    def records_after(self, batch_id: int) -> Sequence[BatchRecord]:
        """Return the records of the batches after one, the oldest first."""
        ...

    def decisions(self) -> Sequence[JournalEntry]:
        """Return every decision so far, as far as they are kept."""
        ...

    def phases(self) -> Mapping[int, Mapping[str, float]]:
        """Return in what time each part of the newest batches was done (s), by batch and part."""
        ...

    def backlog(self) -> Backlog:
        """Return the input that has arrived and is not processed; asked only of runs that run."""
        ...

    def run_view(self) -> RunView:
        """Return the whole run as values; a costly question, as is that for the backlog."""
        ...


class RunSource(Protocol):
    """Knows the runs that there are."""

    def runs(self) -> Sequence[WatchedRun]:
        """Return the runs, the same object for the same run; one for each name and place."""
        ...


def key_of(run: WatchedRun) -> str:
    """Return what names a run in addresses; the same after a restart of the server."""
    named = f"{run.name}\0{run.place}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(named, digest_size=6).hexdigest()


@runtime_checkable
class Steerable(Protocol):
    """A run that a person may change; those of other processes are none."""

    def plans(self) -> Mapping[str, Any]:
        """Return the plans in force that could be others, by component.

        Raises:
            PlanError: it has none.
        """
        ...

    def pin(self, component: str | None) -> None:
        """Keep the plan in force of a component, or of all."""
        ...

    def adapt(self, component: str | None) -> None:
        """Let plans adapt again."""
        ...

    def properties(self) -> Sequence[Property]:
        """Return the numeric options that a person may change."""
        ...

    def adjust(self, component: str, name: str, value: float) -> None:
        """Give an option another value from the next micro-batch on.

        Raises:
            OptionError: there is no such option, or the value is out of its range.
        """
        ...

    def stop(self) -> None:
        """Stop the run; a batch that is under way is interrupted."""
        ...

    def rules(self) -> ChangeableRules | None:
        """Return the rules that a person may change; None if it has none."""
        ...

    def change_rules(self, change: RuleChange) -> None:
        """Change its rules from the next micro-batch on.

        Raises:
            EddylineError: that is not possible; nothing is changed.
        """
        ...


def rules_of(run: object) -> ChangeableRules | None:
    """Return the rules of a run that a person may change, if it has some."""
    return run.rules() if isinstance(run, Steerable) else None


@dataclass(frozen=True, slots=True)
class Hand:
    """One thing that a person may do with a run, or with its rules."""

    label: str
    says: str
    """What it would do."""
    is_of_plans: bool = False
    """Whether it is about the plan of a component, or of all."""


HANDS = {
    "pin": Hand(
        "Pin the plan",
        "The plan in force stays whatever the evidence says, also over restarts, until somebody "
        "lets it adapt again. Answers are the same under every plan.",
        is_of_plans=True,
    ),
    "adapt": Hand(
        "Adapt again",
        "Plans that are pinned follow the evidence again, from the next batch on.",
        is_of_plans=True,
    ),
    "stop": Hand(
        "Stop the run",
        "The run stops, in the middle of a batch if one is under way. From its checkpoint it goes "
        "on where it was when somebody starts it again: that batch then runs again.",
    ),
}
"""What a person may do with a run: the method of ``Steerable``, which addresses name, too."""

RULE_HANDS = {
    "add": Hand("Add a rule", "Rows are tested against this rule, too."),
    "replace": Hand("Replace the rule", "Rows are tested against the new condition only."),
    "remove": Hand(
        "Remove the rule",
        "No row is tested against it any more, and a correlation that refers to it finds nothing "
        "new.",
    ),
}
"""What a person may do with rules, by the name in addresses."""


WIDTH = 2_000
"""Most characters of an error that are shown."""

PLAIN = {
    kind.__name__
    for kind in (
        NotSupportedError,
        OptionError,
        PlanError,
        PluginError,
        QueryError,
        SourceError,
        StateError,
    )
}
"""Errors that name queries, files and options. Predicates and aggregates raise on a row and quote
it, and so may any error of Spark's."""

HIDDEN = (
    "Its text may quote rows and is hidden; run.exception() has it, and serve(values=True), or "
    "--values, shows it."
)

_PREDICATE = re.compile(r"^predicate '([^']*)'")
_CONDITION = re.compile(r"^\[([A-Z][A-Z0-9_.]*)\]")


@dataclass(frozen=True, slots=True)
class Failure:
    """What a run failed with."""

    kind: str
    """The type of the error."""
    text: str

    @classmethod
    def from_error(cls, error: BaseException) -> Failure:
        """Return an error as a value."""
        text = error.message if isinstance(error, EddylineError) else str(error)
        return cls(type(error).__name__, text)

    def told(self, *, values: bool) -> str:
        """Return the failure in words; without values, what may quote a row is left out."""
        if values or self.kind in PLAIN:
            return one_line(self.text)[:WIDTH]
        predicate, condition = _PREDICATE.search(self.text), _CONDITION.search(self.text)
        who = f" of predicate {predicate[1]}" if predicate else ""
        which = f" ({condition[1]})" if condition else ""
        return one_line(f"{self.kind}{which}{who}. {HIDDEN}")
