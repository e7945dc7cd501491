"""Operators of a query in their order, and pinned plans.

Each operator extends the result of the one before. ``Chain``: a batch starts from the manifest of
the batch before. When its results are safe, the states of all operators are committed in one
manifest, and only then do the operators learn.

``Steering``: what a person decides about a query that runs, such as pinned plans, plans that adapt
again, and rules. A decision is written down and journaled at once. A plan that is not in force yet
is from the next micro-batch on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from eddyline.errors import OptionError, PlanError, QueryError, StateError
from eddyline.options import ADJUSTABLE, check_names
from eddyline.query.identity import hash_of
from eddyline.registry import unknown
from eddyline.report import decisions as words
from eddyline.runtime.by_hand import BY_PERSON, Pins, Property
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.plan_log import PlanLog
from eddyline.runtime.watch import Watch
from eddyline.spark.operator import Batch, Laid, Stateful
from eddyline.state.manifest import RESTORE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from eddyline.report.sections import Section
    from eddyline.runtime.by_hand import ChangeableRules, PinView, RuleChange
    from eddyline.runtime.choice import Choice
    from eddyline.runtime.records import History, Record
    from eddyline.runtime.watch import Watched
    from eddyline.spark.operator import Covering, Observed, Operator, Pending
    from eddyline.spark.task_results import ArrowStep
    from eddyline.state.manifest import Manifest, ManifestFolder, StatePart

WHOLE_WAIT_S = 60.0
"""Longest wait for the metrics of a job that has run to its end (s)."""

LOGGED, WATCHED = "plan log", "watched series"
"""Names of the log of plans and of what is watched beside the states of operators, none of which
has a space."""

Awaited = dict[str, tuple["Pending", ...]]
"""Observations that a job will make, by operator."""

Seen = dict[str, list["Observed"]]
"""Observations of a job, by operator."""


class Chain:
    """The operators of one query, of unique names, in the order in which rows pass them.

    ``folder`` returns the folder of durable state, and is called if there is state. State is valid
    if its mark is that of the query or has an accepted hash. Batches up to ``empty_until`` have no
    state. If it ``recalls``, plans are taken again where their conditions come again. Detectors
    watch the series that are ``watched``.

    Raises:
        StateError: the folder holds the state of another query, or cannot be read.
    """

    def __init__(
        self,
        operators: Sequence[Operator],
        folder: Callable[[], ManifestFolder],
        identity: str,
        *,
        accepts: Collection[str] = (),
        empty_until: int = -1,
        recalls: bool = True,
        watched: Sequence[Watched] = (),
    ) -> None:
        self.operators = tuple(operators)
        self.log = PlanLog(recalls=recalls)
        self.watch = Watch(watched)
        self.identity = identity
        self._accepts = {hash_of(identity), *accepts}
        self._empty_until = empty_until
        self._stateful = tuple(each for each in operators if isinstance(each, Stateful))
        self._n_ahead = 0
        """The operators that Spark computes where it reads the stream."""
        self._covered: set[Operator] = set()
        """The filters that operators behind them evaluate in the batch that is laid."""
        self._folder: ManifestFolder | None = None
        if self._stateful:
            self._folder = folder()
            for each in self._stateful:
                each.attach(self._folder.place(each.name))
            self._start(self._folder)

    def _start(self, folder: ManifestFolder) -> None:
        """Let the operators know the newest state, for people to see before the first batch."""
        latest = folder.latest()
        if latest is not None:
            for each in self._stateful:
                each.open(self._part(latest, each.name), None, Batch(latest.batch_id + 1))

    def _part(self, manifest: Manifest | None, name: str) -> StatePart | None:
        """Return the state of an operator; None before the first batch.

        Raises:
            StateError: the manifest is of another query, or the operator's part is missing.
        """
        if manifest is None:
            return None
        assert self._folder is not None
        if hash_of(manifest.identity) not in self._accepts:
            msg = (
                f"{self._folder.folder} holds the state of another query ({manifest.identity}); "
                f"this one is {self.identity}. Give another checkpoint, or the query as it was"
            )
            raise StateError(msg, folder=self._folder.folder)
        if name not in manifest.parts:
            msg = (
                f"the state after batch {manifest.batch_id} in {self._folder.folder} has no part "
                f"of {name!r}, only of {', '.join(manifest.parts) or 'nothing'}; {RESTORE}"
            )
            raise StateError(msg, folder=self._folder.folder, part=name)
        return manifest.parts[name]

    def forget_attempts(self) -> None:
        """Remove what attempts of a run left that never had state, and whose checkpoint is gone."""
        if self._folder is not None:
            self._folder.clear()

    @property
    def has_state(self) -> bool:
        """Whether an earlier run has committed state."""
        return self._folder is not None and self._folder.latest() is not None

    # -- a batch ----------------------------------------------------------------------------------

    def ahead(self, stream: DataFrame) -> DataFrame:
        """Return a stream with the operators that come first laid over it, if they are plain.

        A batch that Spark hands to a function is behind a wall: what is laid over it is analysed
        and planned for each batch, and no optimizer looks through.
        """
        plain = [*takewhile(lambda each: each.is_plain, self.operators)]
        self._n_ahead = len(plain)
        for each in plain:
            stream = each.shape(stream)
        return stream

    @property
    def is_ahead(self) -> bool:
        """Whether the rows of a batch are results already."""
        return 0 < self._n_ahead == len(self.operators)

    def open(self, batch: Batch) -> None:
        """Let each operator with state start from that after the batch before.

        Raises:
            StateError: it is not there, or cannot be read.
        """
        if self._folder is None:
            return
        before, again = self._folder.before(batch.id, self._empty_until)
        for each in self._stateful:
            each.open(self._part(before, each.name), self._part(again, each.name), batch)

    def lay(
        self, rows: DataFrame, batch: Batch, observed: DataFrame | None = None
    ) -> tuple[Laid, Awaited]:
        """Prepare the operators for a batch and lay them over its rows.

        Returns the results, and what is to be waited for.

        The first is laid over the rows with an observation of them, if there is one; it looks at
        the others before, as an observation belongs to one job. So does one behind an operator that
        says which rows to look at.
        """
        return self._laid(rows if observed is None else observed, batch, rows)

    def _laid(self, df: DataFrame, batch: Batch, look_at: DataFrame | None) -> tuple[Laid, Awaited]:
        """Lay the operators; they are prepared for the batch if there are rows to look at."""
        awaited: Awaited = {each.name: () for each in self.operators[: self._n_ahead]}
        is_prepared, results = look_at is not None, Laid(df)
        self._covered = set()
        asked: list[Covering] = []
        for at, each in enumerate(self.operators[self._n_ahead :], self._n_ahead + 1):
            if (by := each.covered_by) is not None:
                if is_prepared and by not in asked:
                    by.plan_coverage(df, batch)
                    asked.append(by)
                if by.is_covering:
                    self._covered.add(each)
                    awaited[each.name] = ()
                    continue
            if results.table is not None or results.tasks is not None:
                laid = _after_step(each.arrow_step, results)
            else:
                own = batch
                if batch.takes_arrow and any(
                    other.arrow_step is None for other in self.operators[at:]
                ):
                    own = replace(batch, takes_arrow=False, takes_tasks=False)
                if is_prepared:
                    each.prepare(df if look_at is None or each.runs_ahead else look_at, own)
                laid = each.lay(df, own)
            df, look_at, awaited[each.name] = laid.df, laid.look_at, laid.pending
            results = replace(
                laid,
                pending=(),
                counted=results.counted if each.is_plain else laid.counted,
                is_local=laid.is_local or (results.is_local and (each.is_plain or each.keeps_few)),
            )
        return results, awaited

    @staticmethod
    def collect(awaited: Awaited, timeout_s: float) -> Seen:
        """Return the observations of a job that come in time."""
        deadline = time.monotonic() + timeout_s
        seen: Seen = {}
        for name, pending in awaited.items():
            found = (each.observed(max(0.0, deadline - time.monotonic())) for each in pending)
            seen[name] = [each for each in found if each is not None]
        return seen

    def whole(self, df: DataFrame, batch: Batch, seen: Seen) -> Seen:
        """Return the observations of a job that did all the work that states need.

        A sink may have taken no rows, or a part of them: the job then runs once more, to its end.

        Raises:
            StateError: Spark does not tell.
        """
        lacking = [each.name for each in self._stateful if not each.is_whole(seen[each.name])]
        if not lacking:
            return seen
        # Not prepared anew: a rule set that changed would make the state of other results.
        results, awaited = self._laid(
            df, replace(batch, takes_arrow=False, takes_tasks=False), None
        )
        results.df.write.format("noop").mode("overwrite").save()
        self.collect({name: awaited[name] for name in lacking}, WHOLE_WAIT_S)
        # What an operator that ran ahead read is not read again: that was told before.
        again = self.collect(awaited, 0.0)
        seen = {name: again[name] or found for name, found in seen.items()}
        if not all(each.is_whole(seen[each.name]) for each in self._stateful):
            msg = (
                f"batch {batch.id}: Spark did not tell what its job observed within "
                f"{WHOLE_WAIT_S:.0f} s; start the query again: the batch runs again, nothing is "
                f"lost"
            )
            raise StateError(msg, batch_id=batch.id)
        return seen

    def commit(self, seen: Seen, batch: Batch) -> None:
        """Commit the states of all operators after a batch, in one manifest.

        Raises:
            StateError: it cannot be written; the batch runs again.
        """
        if self._folder is not None:
            parts = {each.name: each.close(seen[each.name], batch) for each in self._stateful}
            self._folder.commit(batch.id, self.identity, parts)

    def learn(self, seen: Seen, batch: Batch) -> list[JournalEntry]:
        """Let each operator take in what it observed; returns the decisions.

        How many rows the batch has is told to those that are laid over all of them.
        """
        targets = self.choices
        ran_under = {
            name: choice.plan for name, choice in targets.items() if not choice.why_unlogged
        }
        n_rows, entries = batch.n_rows or 0, []
        for at, each in enumerate(self.operators):
            if each not in self._covered:
                entries += each.learn(seen[each.name], batch)
            if at >= self._n_ahead and not each.passes_all:
                batch = replace(batch, n_rows=None)
        return entries + self.log.step(targets, ran_under, n_rows, batch.id)

    def take_entries(self) -> list[JournalEntry]:
        """Return the decisions that were taken outside of ``learn`` since the last call."""
        return [entry for each in self.operators for entry in each.take_entries()]

    # -- what a person pins ---------------------------------------------------------------------

    @property
    def choices(self) -> dict[str, Choice]:
        """The choices of all operators, by component."""
        return {choice.component: choice for each in self.operators for choice in each.choices}

    def chosen(self, name: str | None = None) -> dict[str, Choice]:
        """Return the choices that a person means, by component.

        Args:
            name: an operator or a component; all of the query if omitted.

        Raises:
            PlanError: there is none of that name, or none at all.
        """
        known = self.choices
        if not known:
            msg = "the query has no plan to pin: none of its operators has a choice"
            raise PlanError(msg)
        of_operator = {
            choice.component
            for each in self.operators
            for choice in each.choices
            if each.name == name
        }
        meant = {
            component: choice
            for component, choice in known.items()
            if name in (None, component) or component in of_operator
        }
        if not meant:
            raise PlanError(unknown("component", str(name), list(known)), component=name)
        return meant

    # -- what people see ------------------------------------------------------------------------

    def plan(self) -> dict[str, Any]:
        """Return the plans in force that could be others, by component."""
        return {component: choice.plan for component, choice in self.choices.items()}

    def records(self) -> tuple[Record, ...]:
        """Return the state of each part of each operator after a batch."""
        return tuple(record for each in self.operators for record in each.records())

    def describe(self, history: History) -> list[Section]:
        """Return for people what the operators do, and why."""
        found = [section for each in self.operators for section in each.describe(history)]
        return [*found, *words.log_sections(self.log.views(self.choices))]

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the learned state, by operator."""
        states = {each.name: each.snapshot() for each in self.operators}
        states[LOGGED] = self.log.snapshot() or None
        states[WATCHED] = self.watch.snapshot()
        return {name: state for name, state in states.items() if state is not None}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: it is damaged, or of something else.
        """
        for each in self.operators:
            if each.name in state:
                each.restore(state[each.name])
        if LOGGED in state:
            self.log.restore(state[LOGGED], self.choices)
        if WATCHED in state:
            self.watch.restore(state[WATCHED])


class Steering:
    """The hand of a person on the plans of a run.

    Args:
        path: file of the pins.
        chain: returns the operators of the run.
        note: appends decisions to the journal.
        last_batch: returns the newest micro-batch that is done, -1 before the first.

    Raises:
        StateError: the pins cannot be read.
    """

    def __init__(
        self,
        path: Path,
        chain: Callable[[], Chain],
        note: Callable[[list[JournalEntry]], None],
        last_batch: Callable[[], int],
    ) -> None:
        self.deciding = threading.Lock()
        """Held while plans are decided: by operators that learn, or by a person."""
        self._chain = chain
        self._note = note
        self._last_batch = last_batch
        self._pins = Pins(path)
        self._adjusted: dict[tuple[str, str], str] = {}

    def plan(self) -> dict[str, Any]:
        """Return the plans in force that could be others, by component."""
        return {name: each.plan for name, each in self._chain().chosen().items()}

    def plans_in_words(self) -> dict[str, Any]:
        """Return the same plans as people are told of them."""
        choices = self._chain().chosen().items()
        return {name: choice.in_words(choice.plan) for name, choice in choices}

    def pin(self, plan: Any, component: str | None) -> None:
        """Pin plans; see ``RunFace.pin``."""
        targets = self._chain().chosen(component)
        with self.deciding:
            plans = _plans(plan, targets, component)
            self._note(self._pins.pin(targets, plans, self._last_batch()))

    def adapt(self, component: str | None) -> None:
        """Let plans adapt again; see ``RunFace.adapt``."""
        targets = self._chain().chosen(component)
        able = {name: each for name, each in targets.items() if each.is_adaptive}
        if not able:
            msg = (
                f"{', '.join(targets)} cannot adapt: adaptation is switched off; start the query "
                f"with adaptive=True"
            )
            raise PlanError(msg, components=list(targets))
        with self.deciding:
            self._note(self._pins.adapt(able, self._last_batch()))

    def properties(self) -> list[Property]:
        """Return the options that a person may change."""
        return [
            Property(each.name, name, each.option(name), ADJUSTABLE[name])
            for each in self._chain().operators
            for name in each.adjustable
        ]

    def adjust(self, component: str | None, values: Mapping[str, float]) -> None:
        """Give options other values; see ``RunFace.adjust``."""
        able = [each for each in self._chain().operators if each.adjustable]
        if not able:
            raise OptionError("the query has no option that can be changed while it runs")
        if component is not None:
            known = [each.name for each in able]
            able = [each for each in able if each.name == component]
            if not able:
                msg = unknown("operator with options to change", component, known)
                raise OptionError(msg, component=component)
        names = dict.fromkeys(name for each in able for name in each.adjustable)
        check_names("option that can be changed", values, [*names])
        asked = {
            each: {name: values[name] for name in each.adjustable if name in values}
            for each in able
            if values.keys() & {*each.adjustable}
        }
        entries = []
        with self.deciding:
            before = {each: each.options for each in asked}
            was = {each: {name: each.option(name) for name in own} for each, own in asked.items()}
            try:
                for each, own in asked.items():
                    each.adjust(each.with_options(own))
            except OptionError:  # of one that is not possible nothing is changed
                for each in asked:
                    each.adjust(before[each])
                raise
            for each, own in asked.items():
                entries.append(
                    JournalEntry(self._last_batch(), each.name, "adjust", was[each], own, BY_PERSON)
                )
                self._adjusted |= {(each.name, name): str(value) for name, value in own.items()}
            self._note(entries)

    def settings(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the options of a query as texts, with the values that a person has changed."""
        found = dict(given)
        for (operator, name), value in self._adjusted.items():
            own = f"{name} of {operator}"
            found[own if own in found or name not in found else name] = value
        return found

    def rules(self) -> ChangeableRules | None:
        """Return the rules that a person may change.

        None of a query without rules, and of one with several sets.
        """
        found = [each.by_hand for each in self._chain().operators if each.by_hand is not None]
        return found[0] if len(found) == 1 else None

    def change_rules(self, change: RuleChange) -> None:
        """Change the rules from the next micro-batch on; see ``ChangeableRules.change``.

        Raises:
            QueryError: it is not possible, or the query has no rules to change.
        """
        rules = self.rules()
        if rules is None:
            msg = "the query has no rules that can be changed"
            raise QueryError(msg)
        self._note([rules.change(change, self._last_batch())])

    def apply(self) -> None:
        """Put pinned plans in force; called where a run starts, and before each micro-batch."""
        with self.deciding:
            self._note(self._pins.apply(self._chain().choices, self._last_batch()))

    @property
    def n_pinned(self) -> int:
        """Number of pinned plans."""
        return len(self._pins)

    def views(self) -> tuple[PinView, ...]:
        """Return what is pinned."""
        with self.deciding:
            return self._pins.views(self._chain().choices)

    def lines(self) -> tuple[str, ...]:
        """Return what is pinned on a line for the progress; none if nothing is."""
        return words.pin_lines(self.views())

    def sections(self) -> list[Section]:
        """Return for people each plan in force, what is pinned, and the evidence on it."""
        with self.deciding:
            chosen = words.choice_sections([*self._chain().choices.values()])
        return [*chosen, *words.pin_sections(self.views())]


def _after_step(step: ArrowStep | None, results: Laid) -> Laid:
    """Return results after one more operator, which makes its own of Arrow tables."""
    assert step is not None
    table = None if results.table is None else step.result(results.table)
    return Laid(
        step.empty_result,
        table=table,
        tasks=None if results.tasks is None else results.tasks.then(step),
    )


def _plans(plan: Any, targets: Mapping[str, Choice], component: str | None) -> dict[str, Any]:
    """Return plans by component from what was given as one.

    Raises:
        PlanError: it is of no component of the query, or it is not told of which.
    """
    if plan is None:
        return {name: each.plan for name, each in targets.items()}
    if isinstance(plan, Mapping) and not (len(targets) == 1 and component in targets):
        for name in plan:
            if name not in targets:
                raise PlanError(unknown("component", str(name), list(targets)), component=name)
        return dict(plan)
    if len(targets) > 1:
        msg = (
            f"{plan!r:.300} does not say of which component it is; give a dict with plans of some "
            f"of {', '.join(targets)}, or component="
        )
        raise PlanError(msg, components=list(targets))
    return dict.fromkeys(targets, plan)
