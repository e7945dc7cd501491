"""The rules of a set over one kind of input, followed while the set changes."""

from __future__ import annotations

import hashlib
import json
import threading
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import to_builtins

from eddyline.errors import StateError
from eddyline.rules.description import counts_of, rule_view
from eddyline.rules.record import COMPONENT, RuleRecord
from eddyline.rules.view import RuleCount
from eddyline.runtime.journal import JournalEntry
from eddyline.spark.rules.operator import SETTINGS, RulePipeline
from eddyline.spark.run.run import Run
from eddyline.watch import rules as words
from eddyline.watch.formatting import clipped

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark.sql import DataFrame

    from eddyline.query.conditions import RuleSource, SkippedRule
    from eddyline.rules.view import RuleView
    from eddyline.runtime.records import History
    from eddyline.spark.rules.operator import PendingRules
    from eddyline.spark.rules.rule_set import RuleSet
    from eddyline.watch.sections import Section

MAX_SAVED = 10_000
"""Most rules whose plan and counts are saved; of more, all is measured again after a restart."""

MAX_NAMED = 20
"""Rules that a journal entry names."""

MAX_LINES = 20
"""Rules that the text of a set shows."""

LINE_WIDTH = 160
"""Characters of each."""


class LiveRules:
    """Keeps the pipeline of a set up to date, and what is known of rules that stay.

    Args:
        rules: the set.
    """

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules
        self.pipeline: RulePipeline | None = None
        self._made_for: Any = None
        self._sources: dict[str, RuleSource] = {}
        self._running: dict[str, RuleSource] = {}
        self._past: dict[str, RuleCount] = {}
        self._n_past = 0
        self._entries: list[JournalEntry] = []
        self._lock = threading.RLock()

    def current(self, df: DataFrame, *, batch_id: int = -1) -> RulePipeline:
        """Return the rules of now over an input; other columns or settings start afresh.

        Args:
            df: the input.
            batch_id: the micro-batch, or -1; a change of the rules is noted under it.

        Raises:
            QueryError: a rule does not fit the columns; the message names it.
        """
        with self._lock:
            settings = [str(df.sparkSession.conf.get(each, None)) for each in SETTINGS]
            version, sources = self.rules.now()
            made_for = (df.dtypes, settings)
            if self.pipeline is None or self._made_for != (version, *made_for):
                made = RulePipeline(
                    df,
                    sources,
                    self.rules.options,
                    self.rules.name,
                    skips=self.rules.on_error == "skip",
                    binder=self.rules.binder,
                )
                by_name = {each.name: each for each in sources}
                self.rules.binder.keep(by_name)
                self._follow(made, by_name, batch_id)
                self._made_for = version, *made_for
            return self.pipeline  # type: ignore[return-value]

    def _follow(self, made: RulePipeline, sources: dict[str, RuleSource], batch_id: int) -> None:
        """Go on with another pipeline; rules that stayed keep their counts."""
        if self.pipeline is not None:
            stayed = {name for name, each in sources.items() if self._sources.get(name) is each}
            self._past = {each.name: each for each in self.counts() if each.name in stayed}
            self._n_past += self.pipeline.loop.total.n_rows
            self._entries += self.pipeline.take_entries()
            after = _running(made, sources)
            looked_at = {name for name in sources if name not in stayed or name in self._running}
            skipped = [name for name in sources if name in looked_at and name not in after]
            self._entries += _changes(self._running, after, skipped, batch_id)
        self.pipeline, self._sources = made, sources
        self._running = _running(made, sources)

    def counts(self) -> tuple[RuleCount, ...]:
        """Return what each rule came to since it was added."""
        with self._lock:
            if self.pipeline is None:
                return ()
            loop = self.pipeline.loop
            return tuple(
                _added(self._past.get(each.name), each)
                for each in counts_of(loop.program, loop.total)
            )

    @property
    def skipped(self) -> tuple[SkippedRule, ...]:
        """The rules of the set that do not run, and why; new ones that do not fit a run too."""
        unread, unfit = self.rules.unread, self.rules.unfit
        _, sources = self.rules.now()
        with self._lock:
            if self.pipeline is None:
                return (*unread, *unfit.values())
            met = {each.name for each in sources if self._sources.get(each.name) is each}
            here = [each for each in self.pipeline.bound.skipped if each.name in met]
        return (*unread, *here, *(why for name, why in unfit.items() if name not in met))

    @property
    def text(self) -> str:
        """The rules as they were written, those of the last input; see ``text_of``."""
        with self._lock:
            return text_of(self._sources.values())

    def take_entries(self) -> list[JournalEntry]:
        """Return the decisions since the last call."""
        with self._lock:
            taken, self._entries = self._entries, []
            if self.pipeline is not None:
                taken += self.pipeline.take_entries()
            return taken

    def view(self, notes: tuple[str, ...] = ()) -> RuleView:
        """Return the rules as they stand, once there are any."""
        skipped = self.skipped
        with self._lock:
            pipeline = self.pipeline
            if pipeline is None:
                msg = "view() before current()"
                raise RuntimeError(msg)
            return rule_view(
                self.rules.name,
                pipeline.loop,
                skipped=skipped,
                rules=self.counts(),
                titles=self._titles(),
                n_rows_before=self._n_past,
                notes=(*self._changes_to_come(skipped), *notes),
            )

    def _changes_to_come(self, skipped: Iterable[SkippedRule]) -> tuple[str, ...]:
        """Return in words what was changed in the set since the last input, if anything."""
        _, sources = self.rules.now()
        left_out = {each.name for each in skipped}
        after = {each.name: each for each in sources if each.name not in left_out}
        changed = _changed(self._running, after)
        parts = [f"{len(names)} {what}" for what, names in changed.items() if names]
        if not parts:
            return ()
        n_changed = sum(map(len, changed.values()))
        first, *others = parts
        number, what = first.split()
        noun = "rule" if number == "1" else "rules"
        they = "it counts" if n_changed == 1 else "they count"
        said = ", ".join([f"{number} {noun} {what}", *others])
        return (f"{said} since: {they} from the next micro-batch or transform on",)

    def _titles(self) -> dict[str, str]:
        found = {name: each.info.get("title") for name, each in self._sources.items()}
        return {name: title for name, title in found.items() if isinstance(title, str) and title}

    # -- saving ---------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return what was learned, as plain values; nothing of very many rules."""
        with self._lock:
            pipeline = self.pipeline
            if pipeline is None or pipeline.loop.program.n_rules > MAX_SAVED:
                return {}
            loop = pipeline.loop
            return {
                "rules": self._digest(),
                "plan": to_builtins(loop.snapshot()),
                "rows": self._n_past + loop.total.n_rows,
                "counts": [[c.name, c.n_rows, c.n_met, c.n_matches] for c in self.counts()],
            }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: it is of other rules, or of another input.
        """
        pipeline = self.pipeline
        if pipeline is None or not state:
            return
        if state.get("rules") != self._digest():
            msg = "the rules, their options or the columns have changed"
            raise StateError(msg)
        try:
            past = {each[0]: RuleCount(each[0], *map(int, each[1:])) for each in state["counts"]}
            n_past = int(state.get("rows", 0))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            msg = f"the saved counts are damaged: {error}"
            raise StateError(msg) from error
        pipeline.loop.restore(state.get("plan"))
        self._past, self._n_past = past, n_past

    def _digest(self) -> str:
        """Return what identifies the rules, their options and their input."""
        if self.pipeline is None:
            return ""
        rules = [[rule.name, rule.text] for rule in self.pipeline.bound.rules]
        content = json.dumps([rules, str(self.pipeline.options), self._made_for[1:]])
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


class RuleBatches:
    """The rules of a set over the micro-batches of a run: each with the rules of its moment.

    Args:
        rules: the set.
        source: the stream.
        as_places: whether matches are places in the set, and not names.

    Raises:
        QueryError: a rule does not fit the columns; the message names it.
    """

    def __init__(self, rules: RuleSet, source: DataFrame, *, as_places: bool = False) -> None:
        self.live = LiveRules(rules)
        self.pipeline = self.live.current(source)
        self._as_places = as_places
        self._record: RuleRecord | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The rules of the micro-batch, by their places."""
        return self.pipeline.loop.program.names

    def prepare(
        self,
        df: DataFrame,
        *,
        batch_id: int,
        is_first: bool,  # noqa: ARG002 - of the protocol
    ) -> None:
        """Take in what has changed in the set."""
        self.pipeline = self.live.current(df, batch_id=batch_id)

    def apply_batch(
        self,
        df: DataFrame,
        *,
        batch_id: int,
        expected_rows: int,  # noqa: ARG002 - of the protocol
    ) -> tuple[DataFrame, list[PendingRules]]:
        """Add the temporary column of matches."""
        return self.pipeline.apply(df, batch_id=batch_id, as_places=self._as_places)

    def learn(
        self, reports: Iterable[PendingRules], *, timeout_s: float = 0.0
    ) -> list[PendingRules]:
        """Take in what was reported."""
        before = self.pipeline.loop.total
        waiting = self.pipeline.learn(reports, timeout_s=timeout_s)
        loop = self.pipeline.loop
        self._record = RuleRecord(
            n_rules=loop.program.n_rules,
            plan=str(loop.plan),
            n_met=int(np.sum(loop.total.candidates) - np.sum(before.candidates)),
            n_matches=int(np.sum(loop.total.matches) - np.sum(before.matches)),
        )
        return waiting

    def take_entries(self) -> list[JournalEntry]:
        """Return the decisions since the last call; the set's own journal has them too."""
        taken = self.live.take_entries()
        self.live.rules.note(taken)
        return taken

    def records(self) -> tuple[RuleRecord, ...]:
        """Return how the rules stand after a batch."""
        return () if self._record is None else (self._record,)

    def lines(self) -> tuple[str, ...]:
        """Return how rules are found in words, for the progress."""
        return words.lines(self.records())

    def sections(self, history: History) -> list[Section]:
        """Return for people what the plan is, why, and what it did."""
        return words.sections(self.view(), history)

    def plan(self) -> str:
        """Return the plan in force, in words."""
        return str(self.pipeline.loop.plan)

    def view(self) -> RuleView:
        """Return the rules as they stand."""
        return self.live.view()

    def snapshot(self) -> dict[str, Any]:
        """Return what was learned, as plain values."""
        return self.live.snapshot()

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``snapshot`` returned."""
        self.live.restore(state)


class RuleRun(Run):
    """A run of a rule set."""

    @property
    def text(self) -> str:
        """The rules as they were written: those that its last micro-batch had."""
        batches: RuleBatches = self.chain.operators[0].pipeline  # type: ignore[attr-defined]
        return batches.live.text


def text_of(sources: Collection[RuleSource]) -> str:
    """Return rules as they were written or by their titles, each on a line, the first of many."""
    lines = [
        f"{each.name}: {clipped(str(each.info.get('title') or each.text), LINE_WIDTH)}"
        for each in islice(sources, MAX_LINES)
    ]
    rest = len(sources) - MAX_LINES
    return "\n".join([*lines, *([f"… {rest:,} more"] if rest > 0 else [])])


def _added(past: RuleCount | None, now: RuleCount) -> RuleCount:
    if past is None:
        return now
    return RuleCount(
        now.name,
        past.n_rows + now.n_rows,
        past.n_met + now.n_met,
        past.n_matches + now.n_matches,
    )


def _running(pipeline: RulePipeline, sources: Mapping[str, RuleSource]) -> dict[str, RuleSource]:
    """Return the rules that fit the input of a pipeline."""
    return {each.name: sources[each.name] for each in pipeline.bound.rules}


def _changed(
    before: Mapping[str, RuleSource], after: Mapping[str, RuleSource]
) -> dict[str, list[str]]:
    """Return the names of the rules that differ between two states."""
    return {
        "added": [name for name in after if name not in before],
        "removed": [name for name in before if name not in after],
        "replaced": [name for name, each in after.items() if before.get(name, each) is not each],
    }


def _changes(
    before: Mapping[str, RuleSource],
    after: Mapping[str, RuleSource],
    skipped: list[str],
    batch_id: int,
) -> list[JournalEntry]:
    """Return what has changed between two states of a set, if anything, as an entry.

    Args:
        before: the rules that ran.
        after: the rules that run.
        skipped: names of rules that are new or ran, and do not run.
        batch_id: the micro-batch.
    """
    changed = {**_changed(before, after), "skipped": skipped}
    changed["removed"] = [name for name in changed["removed"] if name not in skipped]
    evidence: dict[str, Any] = {what: names[:MAX_NAMED] for what, names in changed.items() if names}
    if not evidence:
        return []
    return [
        JournalEntry(
            batch_id, COMPONENT, "rules", f"{len(before)} rules", f"{len(after)} rules", evidence
        )
    ]
