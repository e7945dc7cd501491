"""A set of rules over the columns of one input: compiled, shipped, and learned from.

The driver's half of the loop: builds the DataFrame of a batch from the plan in force, and feeds
what the batch observed back.
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import Observation
from pyspark.sql import functions as F

from eddyline.errors import EddylineError, QueryError
from eddyline.query.rules import BoundRules, SkippedRule
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.rule_loop import COMPONENT, RuleLoop
from eddyline.sharing.profile import SharingProfile, merge
from eddyline.sharing.program import compile_rules
from eddyline.spark.binding import PREFIX, check_names, column_types
from eddyline.spark.harvest import PendingMetrics, as_bytes
from eddyline.spark.rule_block import add_matches, loader, operand
from eddyline.spark.rule_worker import RuleBlock, RuleReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame

    from eddyline.options import SharingOptions
    from eddyline.query.rules import Rule, RuleSource

STRUCT = f"{PREFIX}_rules"
"""The temporary column of matches and reports."""


@dataclass(frozen=True, slots=True)
class PendingRules:
    """What a job will observe."""

    pending: PendingMetrics
    batch_id: int


def bind_rules(df: DataFrame, sources: Iterable[RuleSource], *, skips: bool) -> BoundRules:
    """Read rules over the columns of a DataFrame.

    Args:
        df: the input.
        sources: the rules.
        skips: whether rules that do not fit are skipped, and not an error.

    Raises:
        QueryError: a rule does not fit; the message names it and points at the place.
    """
    check_names(df)
    types = column_types(df)
    ansi = str(df.sparkSession.conf.get("spark.sql.ansi.enabled", "true")).lower() == "true"
    rules: list[Rule] = []
    skipped: list[SkippedRule] = []
    for source in sources:
        try:
            rules.append(source.bind(types, ansi=ansi))
        except EddylineError as error:
            if not skips:
                raise
            skipped.append(SkippedRule(source.name, error.message, source.text))
    return BoundRules(tuple(rules), tuple(skipped))


class RulePipeline:
    """The rules of one set over one input, and what has been learned of them.

    Args:
        df: an input; others must have the same columns.
        sources: the rules.
        options: how the plan is made.
        name: of the set or query.
        skips: whether rules that do not fit are skipped, and not an error.

    Raises:
        QueryError: a rule does not fit; the message names it.
    """

    def __init__(
        self,
        df: DataFrame,
        sources: Sequence[RuleSource],
        options: SharingOptions,
        name: str,
        *,
        skips: bool,
    ) -> None:
        self.options = options = options.resolved()
        self.name = name
        bound = bind_rules(df, sources, skips=skips)
        program = compile_rules(bound.rules)
        refused = _refused_by_spark(df, program.columns)
        if refused:
            bound = _without(bound, refused, skips=skips)
            program = compile_rules(bound.rules)
        self.bound = bound
        self.loop = RuleLoop(program, options)
        self.entries: list[JournalEntry] = []
        self.notes: list[str] = []
        self._load = loader(df.sparkSession, program)
        self._program_id = uuid.uuid4().hex
        self._n_learned = 0
        self._lock = threading.RLock()
        """Reports of streaming queries arrive on Spark's listener thread."""

    def apply(
        self,
        df: DataFrame,
        *,
        batch_id: int = -1,
        as_places: bool = False,
        observation: Callable[[], Any] = Observation,
    ) -> tuple[DataFrame, list[PendingRules]]:
        """Add the temporary column of matches, with the plan in force.

        Args:
            df: the input.
            batch_id: the micro-batch, or -1 if the driver does not know it.
            as_places: whether matches are places in the set, and not names.
            observation: makes what ``DataFrame.observe`` takes: an Observation or a name.

        Returns:
            The DataFrame with ``STRUCT``, and what it will report when it runs.
        """
        with self._lock:
            loop = self.loop
            block = RuleBlock(
                program_id=self._program_id,
                load=self._load,
                plan=loop.plan,
                is_measured=loop.is_measured,
                options=self.options,
                run_id=f"{batch_id}.{self._n_learned}",
                batch_id=batch_id,
                name=self.name,
                as_places=as_places,
            )
        seen = observation()
        result = add_matches(df, block, loop.program.columns, STRUCT, seen)
        if isinstance(seen, str):
            return result, []
        return result, [PendingRules(PendingMetrics(seen), batch_id)]

    def learn(
        self, reports: Iterable[PendingRules], *, timeout_s: float = 0.0
    ) -> list[PendingRules]:
        """Feed what has been reported into the loop.

        Args:
            reports: what jobs will report.
            timeout_s: how long to wait for each (s).

        Returns:
            The reports whose jobs have not run yet.
        """
        waiting = []
        for report in reports:
            metrics = report.pending.get(timeout_s)
            if metrics is None:
                waiting.append(report)
            else:
                self.learn_packed(as_bytes(metrics, "rules"), report.batch_id)
        return waiting

    def learn_packed(self, packed: list[bytes], batch_id: int) -> None:
        """Feed the reports of a job's tasks into the loop, each task once."""
        tasks: dict[int, RuleReport] = {}
        for data in packed:
            task = RuleReport.from_bytes(data)
            known = tasks.get(task.partition)
            if known is None or task.attempt >= known.attempt:
                tasks[task.partition] = task
        if not tasks:
            return
        with self._lock:
            for task in tasks.values():
                self.entries += [_of_task(entry, task.partition) for entry in task.entries]
                if n_left_out := task.n_entries - len(task.entries):
                    evidence = {"partition": task.partition, "entries": n_left_out}
                    entry = JournalEntry(batch_id, COMPONENT, "left_out", evidence=evidence)
                    self.entries.append(entry)
            nothing = SharingProfile.empty(self.loop.program)
            whole = merge([nothing, *(task.profile for task in tasks.values())])
            self.entries += self.loop.observe(whole, batch_id)
            self._n_learned += 1

    def take_entries(self) -> list[JournalEntry]:
        """Return the decisions since the last call."""
        with self._lock:
            taken, self.entries = self.entries, []
        return taken


def _refused_by_spark(df: DataFrame, columns: Sequence[str]) -> dict[str, str]:
    """Return what Spark refuses of the columns that rules look at, and why."""
    try:
        df.select(*(operand(df, text) for text in columns)).schema  # noqa: B018 - is the analysis
    except AnalysisException:
        refused = {}
        for text in columns:
            try:
                df.select(operand(df, text)).schema  # noqa: B018
            except AnalysisException as error:
                refused[text] = str(error)
        return refused
    return {}


def _without(bound: BoundRules, refused: dict[str, str], *, skips: bool) -> BoundRules:
    """Return the rules that look at nothing that Spark refuses.

    Raises:
        QueryError: there are others, and they are not to be skipped.
    """
    kept, skipped = [], list(bound.skipped)
    for rule in bound.rules:
        wrong = [text for text in compile_rules([rule]).columns if text in refused]
        if not wrong:
            kept.append(rule)
            continue
        msg = f"rule {rule.name!r}: Spark cannot resolve {wrong[0]}: {refused[wrong[0]]}"
        if not skips:
            raise QueryError(msg, name=rule.name)
        skipped.append(SkippedRule(rule.name, msg, rule.text))
    return BoundRules(tuple(kept), tuple(skipped))


def _of_task(entry: dict[str, Any], partition: int) -> JournalEntry:
    found = JournalEntry(**entry)
    return replace(found, evidence={**found.evidence, "partition": partition})


def matched(df: DataFrame) -> DataFrame:
    """Return the rows of ``apply`` for which some rule is true."""
    return df.where(F.size(f"{STRUCT}.matches") > 0)
