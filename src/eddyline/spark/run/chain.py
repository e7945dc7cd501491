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
        self._stateful = tuple(operator for operator in operators if isinstance(operator, Stateful))
        self._n_ahead = 0
        """The operators that Spark computes where it reads the stream."""
        self._covered: set[Operator] = set()
        """The filters that operators behind them evaluate in the batch that is laid."""
        self._folder: ManifestFolder | None = None
        if self._stateful:
            self._folder = folder()
            for operator in self._stateful:
                operator.attach(self._folder.place(operator.name))
            self._start(self._folder)

    def _start(self, folder: ManifestFolder) -> None:
        """Let the operators know the newest state, for people to see before the first batch."""
        latest = folder.latest()
        if latest is not None:
            for operator in self._stateful:
                operator.open(self._part(latest, operator.name), None, Batch(latest.batch_id + 1))

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
        plain = [*takewhile(lambda operator: operator.is_plain, self.operators)]
        self._n_ahead = len(plain)
        for operator in plain:
            stream = operator.shape(stream)
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
        for operator in self._stateful:
            operator.open(
                self._part(before, operator.name), self._part(again, operator.name), batch
            )

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
        awaited: Awaited = {operator.name: () for operator in self.operators[: self._n_ahead]}
        is_prepared, results = look_at is not None, Laid(df)
        self._covered = set()
        asked: list[Covering] = []
        for place, operator in enumerate(self.operators[self._n_ahead :], self._n_ahead + 1):
            if (by := operator.covered_by) is not None:
                if is_prepared and by not in asked:
                    by.plan_coverage(df, batch)
                    asked.append(by)
                if by.is_covering:
                    self._covered.add(operator)
                    awaited[operator.name] = ()
                    continue
            if results.table is not None or results.tasks is not None:
                laid = _after_step(operator.arrow_step, results)
            else:
                its_batch = batch
                if batch.takes_arrow and any(
                    other.arrow_step is None for other in self.operators[place:]
                ):
                    its_batch = replace(batch, takes_arrow=False, takes_tasks=False)
                if is_prepared:
                    operator.prepare(
                        df if look_at is None or operator.runs_ahead else look_at, its_batch
                    )
                laid = operator.lay(df, its_batch)
            df, look_at, awaited[operator.name] = laid.df, laid.look_at, laid.pending
            results = replace(
                laid,
                pending=(),
                counted=results.counted if operator.is_plain else laid.counted,
                is_local=laid.is_local
                or (results.is_local and (operator.is_plain or operator.keeps_few)),
            )
        return results, awaited

    @staticmethod
    def collect(awaited: Awaited, timeout_s: float) -> Seen:
        """Return the observations of a job that come in time."""
        deadline = time.monotonic() + timeout_s
        seen: Seen = {}
        for name, pending in awaited.items():
            answers = (
                waiting.observed(max(0.0, deadline - time.monotonic())) for waiting in pending
            )
            seen[name] = [answer for answer in answers if answer is not None]
        return seen

    def whole(self, df: DataFrame, batch: Batch, seen: Seen) -> Seen:
        """Return the observations of a job that did all the work that states need.

        A sink may have taken no rows, or a part of them: the job then runs once more, to its end.

        Raises:
            StateError: Spark does not tell.
        """
        lacking = [
            operator.name
            for operator in self._stateful
            if not operator.is_whole(seen[operator.name])
        ]
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
        seen = {name: again[name] or observed for name, observed in seen.items()}
        if not all(operator.is_whole(seen[operator.name]) for operator in self._stateful):
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
            parts = {
                operator.name: operator.close(seen[operator.name], batch)
                for operator in self._stateful
            }
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
        for number, operator in enumerate(self.operators):
            if operator not in self._covered:
                entries += operator.learn(seen[operator.name], batch)
            if number >= self._n_ahead and not operator.passes_all:
                batch = replace(batch, n_rows=None)
        return entries + self.log.step(targets, ran_under, n_rows, batch.id)

    def take_entries(self) -> list[JournalEntry]:
        """Return the decisions that were taken outside of ``learn`` since the last call."""
        return [entry for operator in self.operators for entry in operator.take_entries()]

    # -- what a person pins ---------------------------------------------------------------------

    @property
    def choices(self) -> dict[str, Choice]:
        """The choices of all operators, by component."""
        return {
            choice.component: choice for operator in self.operators for choice in operator.choices
        }

    def chosen(self, name: str | None = None) -> dict[str, Choice]:
        """Return the choices that a person means, by component.

        Args:
            name: an operator or a component; all of the query if omitted.

        Raises:
            PlanError: there is none of that name, or none at all.
        """
        choices = self.choices
        if not choices:
            msg = "the query has no plan to pin: none of its operators has a choice"
            raise PlanError(msg)
        of_operator = {
            choice.component
            for operator in self.operators
            for choice in operator.choices
            if operator.name == name
        }
        meant = {
            component: choice
            for component, choice in choices.items()
            if name in (None, component) or component in of_operator
        }
        if not meant:
            raise PlanError(unknown("component", str(name), list(choices)), component=name)
        return meant

    # -- what people see ------------------------------------------------------------------------

    def plan(self) -> dict[str, Any]:
        """Return the plans in force that could be others, by component."""
        return {component: choice.plan for component, choice in self.choices.items()}

    def records(self) -> tuple[Record, ...]:
        """Return the state of each part of each operator after a batch."""
        return tuple(record for operator in self.operators for record in operator.records())

    def describe(self, history: History) -> list[Section]:
        """Return for people what the operators do, and why."""
        sections = [
            section for operator in self.operators for section in operator.describe(history)
        ]
        return [*sections, *words.log_sections(self.log.views(self.choices))]

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the learned state, by operator."""
        states = {operator.name: operator.snapshot() for operator in self.operators}
        states[LOGGED] = self.log.snapshot() or None
        states[WATCHED] = self.watch.snapshot()
        return {name: state for name, state in states.items() if state is not None}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: it is damaged, or of something else.
        """
        for operator in self.operators:
            if operator.name in state:
                operator.restore(state[operator.name])
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
        return {name: choice.plan for name, choice in self._chain().chosen().items()}

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
        able = {name: choice for name, choice in targets.items() if choice.is_adaptive}
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
            Property(operator.name, name, operator.option(name), ADJUSTABLE[name])
            for operator in self._chain().operators
            for name in operator.adjustable
        ]

    def adjust(self, component: str | None, values: Mapping[str, float]) -> None:
        """Give options other values; see ``RunFace.adjust``."""
        able = [operator for operator in self._chain().operators if operator.adjustable]
        if not able:
            raise OptionError("the query has no option that can be changed while it runs")
        if component is not None:
            operator_names = [operator.name for operator in able]
            able = [operator for operator in able if operator.name == component]
            if not able:
                msg = unknown("operator with options to change", component, operator_names)
                raise OptionError(msg, component=component)
        names = dict.fromkeys(name for operator in able for name in operator.adjustable)
        check_names("option that can be changed", values, [*names])
        asked = {
            operator: {name: values[name] for name in operator.adjustable if name in values}
            for operator in able
            if values.keys() & {*operator.adjustable}
        }
        entries = []
        with self.deciding:
            before = {operator: operator.options for operator in asked}
            was = {
                operator: {name: operator.option(name) for name in its_values}
                for operator, its_values in asked.items()
            }
            try:
                for operator, its_values in asked.items():
                    operator.adjust(operator.with_options(its_values))
            except OptionError:  # of one that is not possible nothing is changed
                for operator in asked:
                    operator.adjust(before[operator])
                raise
            for operator, its_values in asked.items():
                entries.append(
                    JournalEntry(
                        self._last_batch(),
                        operator.name,
                        "adjust",
                        was[operator],
                        its_values,
                        BY_PERSON,
                    )
                )
                self._adjusted |= {
                    (operator.name, name): str(value) for name, value in its_values.items()
                }
            self._note(entries)

    def settings(self, options: Mapping[str, str]) -> dict[str, str]:
        """Return the options of a query as texts, with the values that a person has changed."""
        texts = dict(options)
        for (operator, name), value in self._adjusted.items():
            full_name = f"{name} of {operator}"
            texts[full_name if full_name in texts or name not in texts else name] = value
        return texts

    def rules(self) -> ChangeableRules | None:
        """Return the rules that a person may change.

        None of a query without rules, and of one with several sets.
        """
        changeable = [
            operator.by_hand for operator in self._chain().operators if operator.by_hand is not None
        ]
        return changeable[0] if len(changeable) == 1 else None

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
        return {name: choice.plan for name, choice in targets.items()}
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
