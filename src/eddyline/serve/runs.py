"""Runs for the page, and the changes that a person may make.

A ``RunSource`` knows the runs: those of this process, or those that checkpoints have.
A ``WatchedRun`` tells its records, decisions, backlog and explanation. A run of this process is
also ``Steerable``: a person may pin plans, stop it and change its rules. ``HANDS`` and
``RULE_HANDS`` list the buttons of the page. A ``Failure`` says what a run failed with. Its text may
quote a row, so it is hidden unless values are shown.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
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
from eddyline.report.sections import RunView, nodes_of_plain, sections_of
from eddyline.report.stored import StoredRun, read_run
from eddyline.runtime.checkpoint import JOURNAL, PROGRESS, VIEW, find_runs, own_folder
from eddyline.runtime.records import Backlog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from eddyline.runtime.by_hand import ChangeableRules, Property, RuleChange
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import BatchRecord


class WatchedRun(Protocol):
    """A run that people look at. Methods are called from the server's thread, one at a time."""

    @property
    def name(self) -> str:
        """Name of the query."""

    @property
    def place(self) -> str:
        """What tells it from a run of the same name, such as a folder; empty if there is none."""

    def is_running(self) -> bool:
        """Tell whether it runs; asked again until it does not."""

    def error(self) -> Failure | None:
        """Return what a run failed with that has ended."""

    def records_after(self, batch_id: int) -> Sequence[BatchRecord]:
        """Return the records of the batches after one, the oldest first."""

    def decisions(self) -> Sequence[JournalEntry]:
        """Return every decision so far, as far as they are kept."""

    def phases(self) -> Mapping[int, Mapping[str, float]]:
        """Return in what time each part of the newest batches was done (s), by batch and part."""

    def backlog(self) -> Backlog:
        """Return the input that has arrived and is not processed; asked only of runs that run."""

    def run_view(self) -> RunView:
        """Return the whole run as values; a costly question, as is that for the backlog."""


class RunSource(Protocol):
    """Knows the runs that there are."""

    def runs(self) -> Sequence[WatchedRun]:
        """Return the runs, the same object for the same run; one for each name and place."""


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

    def pin(self, component: str | None) -> None:
        """Keep the plan in force of a component, or of all."""

    def adapt(self, component: str | None) -> None:
        """Let plans adapt again."""

    def properties(self) -> Sequence[Property]:
        """Return the numeric options that a person may change."""

    def adjust(self, component: str, name: str, value: float) -> None:
        """Give an option another value from the next micro-batch on.

        Raises:
            OptionError: there is no such option, or the value is out of its range.
        """

    def stop(self) -> None:
        """Stop the run; a batch that is under way is interrupted."""

    def rules(self) -> ChangeableRules | None:
        """Return the rules that a person may change; None if it has none."""

    def change_rules(self, change: RuleChange) -> None:
        """Change its rules from the next micro-batch on.

        Raises:
            EddylineError: that is not possible; nothing is changed.
        """


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


# -- runs as their checkpoints have them -----------------------------------------------------------
# Runs as their checkpoints have them: of other processes, and of the past. Nothing is changed.
#
# A checkpoint is read again when its files have changed, but not before the last reading was a
# small
# part of the time since.


SHARE = 0.05
"""Most share of a processor that reading one checkpoint takes."""

LEAST_AGE_S = 0.5
"""A checkpoint is never read again earlier (s)."""

LOOK_EVERY_S = 5.0
"""Least time between two looks for new checkpoints (s)."""


class StoredWatch:
    """The run of one checkpoint.

    Args:
        folder: the checkpoint.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = str(folder)
        self._stamp: tuple[tuple[int, int], ...] = ()
        self._due_at = 0.0
        self._failure: Failure | None = None
        self._stored = StoredRun(folder.name, "", 0.0)
        self._read()

    @property
    def name(self) -> str:
        """Name of the query."""
        return self._stored.query

    def is_running(self) -> bool:
        """Tell whether it ran when its files were written; who was killed could not say so."""
        return self._now().status == "running" and self._failure is None

    def error(self) -> Failure | None:
        """Return what the run failed with, or why its checkpoint cannot be read."""
        stored = self._now()
        if self._failure is not None or stored.status != "failed":
            return self._failure
        kind, _, text = stored.error.partition(": ")
        return Failure(kind, text)

    def records_after(self, batch_id: int) -> Sequence[BatchRecord]:
        """Return the records of the batches after one, the oldest first."""
        return [batch for batch in self._now().batches if batch.batch_id > batch_id]

    def decisions(self) -> Sequence[JournalEntry]:
        """Return every decision so far, as far as they are kept."""
        return self._now().journal

    def phases(self) -> Mapping[int, Mapping[str, float]]:
        """Return nothing: Spark's own progress is not kept."""
        return {}

    def backlog(self) -> Backlog:
        """Return that nothing is known: checkpoints have no word of what has arrived since."""
        return Backlog(why="only the process that runs a query knows it")

    def run_view(self) -> RunView:
        """Return the whole run as values."""
        stored = self._now()
        try:
            sections, nodes = sections_of(stored.sections), nodes_of_plain(stored.nodes)
        except StateError as error:
            self._failure, sections, nodes = Failure.from_error(error), [], ()
        return RunView(
            stored.query,
            stored.text,
            stored.steps,
            stored.history,
            tuple(sections),
            stored.settings,
            nodes,
        )

    def _now(self) -> StoredRun:
        """Return what the files say, read again if they have changed."""
        if time.monotonic() >= self._due_at and self._stamp_now() != self._stamp:
            self._read()
        return self._stored

    def _read(self) -> None:
        before = time.thread_time()
        self._stamp = self._stamp_now()
        try:
            self._stored, self._failure = read_run(self.folder), None
        except StateError as error:
            self._failure = Failure.from_error(error)
        took_s = time.thread_time() - before
        self._due_at = time.monotonic() + max(LEAST_AGE_S, took_s / SHARE)

    def _stamp_now(self) -> tuple[tuple[int, int], ...]:
        stamps = []
        with contextlib.suppress(StateError):
            run_folder = own_folder(self.folder)
            for name in (JOURNAL, PROGRESS, VIEW):
                with contextlib.suppress(OSError):
                    stat = (run_folder / name).stat()
                    stamps.append((stat.st_mtime_ns, stat.st_size))
        return tuple(stamps)


class StoredRuns:
    """The runs of checkpoints, and of those that come to be in folders.

    Args:
        folders: checkpoints, or folders of them.

    Raises:
        StateError: a folder has none.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [folder.resolve() for folder in folders]
        self._watches: dict[Path, StoredWatch] = {}
        for folder in self._folders:
            self._take(find_runs(folder))
        self._looked_at = time.monotonic()

    def runs(self) -> Sequence[StoredWatch]:
        """Return the runs that have been found so far."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = now
            for folder in self._folders:
                with contextlib.suppress(StateError):  # it went; what was read stays
                    self._take(find_runs(folder))
        return list(self._watches.values())

    def _take(self, checkpoints: Sequence[Path]) -> None:
        for checkpoint in checkpoints:
            if checkpoint not in self._watches:
                self._watches[checkpoint] = StoredWatch(checkpoint)
