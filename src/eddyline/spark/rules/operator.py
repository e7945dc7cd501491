"""Operator of a rule set that changes while it runs.

Each micro-batch has the rules of the moment it starts. What a job observed belongs to the rules it
was laid with; a job that ends after a change feeds their choice, not that of the rules of now.
"""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import Struct
from pyspark.sql import Observation

from eddyline.errors import StateError
from eddyline.options import SharingOptions
from eddyline.query.rules.sources import PredicateRule
from eddyline.report import rules as words
from eddyline.report.formatting import clipped, counted
from eddyline.rules.choice import RuleChoice
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.description import counts_of, entries_of, rows_of, rule_view, to_come
from eddyline.rules.plan import SharingProfile
from eddyline.rules.planning.planner import is_long
from eddyline.rules.store import RuleStore
from eddyline.rules.view import COMPONENT, RuleCount, added
from eddyline.runtime.journal import decisions_of
from eddyline.spark.lane import KeptOfFiles, Lane, Refused, guarded
from eddyline.spark.operator import Laid, Operator, Pending
from eddyline.spark.rules.binding import RuleBinder, session_settings
from eddyline.spark.rules.output import RowsWhere, Statement, observed_profile
from eddyline.spark.rules.task import Keep, RuleTask
from eddyline.spark.rules.udf import Work, column_of_text, loader
from eddyline.spark.run.observations import PendingMetrics
from eddyline.spark.task_results import TaskResults

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark.sql import DataFrame

    from eddyline.query.conditions import BoundRules, MissingFields, RuleSource, SkippedRule
    from eddyline.query.steps import FilterStep
    from eddyline.report.sections import Section
    from eddyline.rules.compile.program import Program
    from eddyline.rules.store import RuleStep
    from eddyline.rules.view import RuleRecord, RuleView
    from eddyline.runtime.choice import Choice
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import History
    from eddyline.spark.lane import PlainScan
    from eddyline.spark.operator import Batch, Observed, Site
    from eddyline.spark.rules.output import MatchesColumn, Output

MAX_SAVED = 10_000
"""Most rules whose plan and counts are saved; of more, all is measured again after a restart."""

MAX_LINES = 20
"""Rules that the text of a set shows."""

LINE_WIDTH = 160
"""Characters of each."""

STATED = "the rules are one statement of Spark's"
"""Why tasks read no files."""


class RulesState(Struct):
    """The saved state of rules."""

    rules: str
    """Identifies the rules, their options and their input."""
    plan: Any
    """The choice's own."""
    rows: int | None
    """Rows evaluated so far; None: not counted."""
    counts: list[tuple[str, int | None, int, int]]
    """Of each rule, by its name: rows that it was there for, was decided for, was true for."""
    lane: Any = None
    """The choice between files and rows, where there is one."""


@dataclass(frozen=True, eq=False)
class Compiled:
    """The rules of one moment over one kind of input."""

    made_for: tuple[Any, ...]
    """Version of the set, columns, settings of the session."""
    sources: Mapping[str, RuleSource]
    """All rules of the set."""
    bound: BoundRules
    """Those that fit the columns, and why others do not."""
    choice: RuleChoice
    load: Callable[[], Program]
    """Gives workers the compiled rules."""
    program_id: str
    digest: str
    """Identifies the rules, without titles and the like, their options and their input."""

    @property
    def running(self) -> dict[str, RuleSource]:
        """The rules that fit."""
        return {rule.name: self.sources[rule.name] for rule in self.bound.rules}

    @cached_property
    def statement(self) -> Statement | None:
        """The rules as one statement of Spark's, if they can be one."""
        program = self.choice.program
        if not program.conditions:
            return None
        rules = list(self.running.values())
        return Statement(program.conditions, rules, is_long=is_long(program))

    def stated(self, df: DataFrame, output: Output, observe: Callable[[], Any]) -> DataFrame | None:
        """Return the output as one Spark statement; None if the plan uses tasks."""
        if not self.choice.sharing.is_statement or self.statement is None:
            return None
        return output.state(df, self.statement, observe)

    def work(self, task: RuleTask) -> Work:
        """Return what workers do."""
        program = self.choice.program
        rules = [self.sources[name] for name in program.names]
        whole = {native.sql: native.needs for native in program.natives if native.may_raise}
        return Work(task, program.columns, rules, whole)


class RuleOperator(Operator):
    """Finds the rules of a set that are true for each row, and learns how.

    The name of the set is part of the seed of every sample. The operators of a set share a binder;
    those of transforms have no query. Each decision is noted for the journal of the set.
    """

    name = COMPONENT
    adjustable = ("sample_prob",)

    def __init__(
        self,
        store: RuleStore,
        binder: RuleBinder,
        output: MatchesColumn | RowsWhere,
        df: DataFrame,
        *,
        query: str = "",
        note: Callable[[Sequence[JournalEntry]], None] = lambda _entries: None,
    ) -> None:
        self.store = store
        self.options = store.options.resolved()
        self.source = df
        self.query = query
        self._binder = binder
        self._output = output
        self._note = note
        self._past: dict[str, RuleCount] = {}
        self._n_past: int | None = 0
        self._n_learned = 0
        self._entries: list[JournalEntry] = []
        self._lock = threading.RLock()
        """Reports of plain streaming queries arrive on Spark's listener thread."""
        self.compiled = self._compile(df)
        self._entries += self.compiled.choice.chosen_way(-1)
        self.lane = Lane(self, "lane", self.options.lane, is_adaptive=self.options.adaptive)

    @property
    def may_read_files(self) -> bool:
        """Whether its tasks are to read the files of the next batch, if there are files."""
        return self.lane.may_read

    @classmethod
    def from_step(cls, step: RuleStep, site: Site) -> Operator:
        """Return the operator of a step."""
        operator: Operator = step.rules.operator(step, site)
        return operator

    def adjust(self, options: SharingOptions) -> None:
        """Go on with other options; rows are sampled by them from the next batch on."""
        with self._lock:
            super().adjust(options)
            self.compiled.choice.options = options

    # -- the rules of the moment ------------------------------------------------------------------

    def prepare(self, df: DataFrame, batch: Batch) -> None:
        """Take in what has changed in the set; other columns or settings start afresh too."""
        with self._lock:
            self._entries += self.store.follow(batch.id)
            if self._is_current(df):
                return
            version, sources = self.store.now()
            before = self.compiled
            same_rules = list(sources.items()) == list(before.sources.items())
            if same_rules and before.made_for[1:] == _kind(df):  # other titles, levels or tags
                made_for = (version, *before.made_for[1:])
                self.compiled = replace(before, made_for=made_for, sources=sources)
            else:
                self._follow(self._compile(df), batch.id)

    def _is_current(self, df: DataFrame) -> bool:
        return self.compiled.made_for == (self.store.now()[0], *_kind(df))

    def _compile(self, df: DataFrame) -> Compiled:
        version, sources = self.store.now()
        bound = self._binder.bind(df, sources.values(), skips=self.store.skips)
        self._binder.keep(sources)
        program = compile_rules(bound.rules)
        kind = _kind(df)
        running = {rule.name: sources[rule.name] for rule in bound.rules}
        # What a person has adjusted ends with the run, and plans that are saved do not.
        digest = _digest(running, self.store.options.resolved(), kind)
        choice = RuleChoice(program, self.options, may_be_stated=True, logged_as=digest)
        return Compiled(
            made_for=(version, *kind),
            sources=sources,
            bound=bound,
            choice=choice,
            load=loader(df.sparkSession, program),
            program_id=uuid.uuid4().hex,
            digest=digest,
        )

    def _follow(self, compiled: Compiled, batch_id: int) -> None:
        """Go on with the rules as they are now; those that stayed keep their counts."""
        old = self.compiled
        stayed = {
            name for name, source in compiled.sources.items() if old.sources.get(name) == source
        }
        self._past = {count.name: count for count in self.counts() if count.name in stayed}
        self._n_past = added(self._n_past, rows_of(old.choice.total))
        before, after = old.running, compiled.running
        looked_at = (name for name in compiled.sources if name not in stayed or name in before)
        skipped = [name for name in looked_at if name not in after]
        self._entries += entries_of(before, after, skipped, batch_id)
        self._entries += compiled.choice.chosen_way(batch_id)
        self.compiled = compiled

    @property
    def is_running(self) -> bool:
        """Whether a run of the query is active."""
        active = self.source.sparkSession.streams.active
        return self.query != "" and any(query.name == self.query for query in active)

    @property
    def names(self) -> tuple[str, ...]:
        """The rules that run, by their places."""
        return self.compiled.choice.program.names

    @property
    def skipped(self) -> tuple[SkippedRule, ...]:
        """The rules of the set that do not run, and why; new ones that do not fit a run too."""
        compiled = self.compiled
        return self.store.skipped(compiled.sources, compiled.bound.skipped)

    @property
    def text(self) -> str:
        """The rules of the last micro-batch that run, as they were written; see ``text_of``."""
        return text_of(self.compiled.running.values())

    # -- a batch ----------------------------------------------------------------------------------

    def lay(
        self,
        df: DataFrame,
        batch: Batch,
        *,
        output: Output | None = None,
        observation: Callable[[str, Any], Any] = lambda _name, _facts: Observation(),
    ) -> Laid:
        """Find the rules that are true for each row, with the plan in force.

        An output may take the place of the operator's own; ``observation`` makes what
        ``DataFrame.observe`` takes: an Observation or a name.
        """
        seen: list[Any] = []

        def observe() -> Any:
            seen.append(observation(self.name, compiled))
            return seen[-1]

        with self._lock:
            compiled = self.compiled
            result = self._result(df, batch, output or self._output, observe)
        pending = [
            Pending(self.name, PendingMetrics(observed), compiled)
            for observed in seen
            if not isinstance(observed, str)
        ]
        if isinstance(result, TaskResults):
            return Laid(self.shape(df), tuple(pending), tasks=result)
        return Laid(result, tuple(pending))

    def _result(
        self, df: DataFrame, batch: Batch, output: Output, observe: Callable[[], Any]
    ) -> DataFrame | TaskResults:
        """Return the result of the rules of now; the caller holds the lock."""
        stated = self.compiled.stated(df, output, observe)
        if stated is not None:
            self.lane.note_not_asked(STATED)
            return stated
        work = self.compiled.work(self._task(batch))
        files = self.lane.files(df, batch, keeps_plan=output.has_rows)
        if files is None:
            return output.lay(df, work, observe)
        read = output.read(files, work, observe)
        if isinstance(read, KeptOfFiles):
            if batch.takes_tasks:
                return read.task_results()
            read = read.as_dataframe()
        return guarded(df, read) if output.has_rows and batch.id < 0 else read

    def _task(self, batch: Batch) -> RuleTask:
        compiled = self.compiled
        return RuleTask(
            program_id=compiled.program_id,
            load=compiled.load,
            plan=compiled.choice.sharing,
            is_measured=compiled.choice.is_measured,
            options=replace(self.options, adaptive=compiled.choice.is_learning),
            run_id=f"{batch.id}.{self._n_learned}",
            batch_id=batch.id,
            name=self.store.name,
        )

    def shape(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame with the columns of the result, for analysis only."""
        return self._output.shape(df)

    def learn(self, observed: Sequence[Observed], batch: Batch) -> list[JournalEntry]:
        """Take in the reports of tasks, each by the rules that they were laid with."""
        entries: list[JournalEntry] = []
        with self._lock:
            if not observed:  # nothing of this batch is known, and nothing of the last one counts
                self.compiled.choice.step(
                    SharingProfile.empty(self.compiled.choice.program), batch.id
                )
            for observation in observed:
                reports, choice = observation.reports("rules"), observation.facts.choice
                entries += decisions_of(reports, batch.id)
                profiles = [report.profile for report in reports]
                if "rules" not in observation.metrics:
                    profiles = [observed_profile(choice.program, observation.metrics, batch.n_rows)]
                whole = SharingProfile.empty(choice.program).merge(*profiles)
                entries += choice.step(whole, batch.id)
                # What all tasks learned together is more than what a worker remembers of its own.
                self._n_learned += bool(reports)
            entries += self.lane.learn(observed, batch)
        self._note(entries)
        return entries

    # -- the lane ---------------------------------------------------------------------------------

    def follow_stream(self, site: Site) -> None:
        """Let tasks read the files of a query's stream, if it reads one."""
        if site.is_source and site.is_alone and site.df.isStreaming:
            self.lane.follow(site.df, asks_files=site.asks_files)

    def check_may_read(self) -> None:
        """Tasks may read files, whatever the input is."""

    def check_fits(self, scan: PlainScan) -> None:
        """Raise Refused if rules need more than columns of a scan, or no tasks at all."""
        compiled = self.compiled
        if compiled.choice.sharing.is_statement and compiled.statement is not None:
            raise Refused(STATED)
        columns = compiled.choice.program.columns
        if not columns:
            raise Refused("no rule looks at a column")
        by_text = column_of_text(scan)
        for text in columns:
            if text not in by_text:
                raise Refused(f"a rule looks at {text}, which is no column of the files")

    def take_entries(self) -> list[JournalEntry]:
        """Return the changes of the set since the last call."""
        with self._lock:
            taken, self._entries = self._entries, []
        self._note(taken)
        return taken

    # -- what people see --------------------------------------------------------------------------

    def counts(self) -> tuple[RuleCount, ...]:
        """Return the counts of each rule since it was added."""
        with self._lock:
            choice = self.compiled.choice
            counts = counts_of(choice.program, choice.total)
            return tuple(
                count + self._past[count.name] if count.name in self._past else count
                for count in counts
            )

    def facts(self, notes: tuple[str, ...] = ()) -> RuleView:
        """Return the rules as they stand."""
        skipped = self.skipped
        left_out = {rule.name for rule in skipped}
        _, sources = self.store.now()
        with self._lock:
            after = {name: source for name, source in sources.items() if name not in left_out}
            return rule_view(
                self.store.name,
                self.compiled.choice,
                skipped=skipped,
                rules=self.counts(),
                titles=_titles(self.compiled.sources),
                n_rows_before=self._n_past,
                notes=(
                    *to_come(self.compiled.running, after),
                    *(f"not taken in: {trouble}" for trouble in self.store.troubles),
                    *self._fields_said(),
                    *([self.lane.note] if self.lane.note else []),
                    *notes,
                ),
            )

    @property
    def missing(self) -> MissingFields | None:
        """The fields of rules that the input lacks; None if it has all."""
        return self.compiled.bound.missing

    def _fields_said(self) -> tuple[str, ...]:
        """Return a line about the fields that the input lacks."""
        missing = self.missing
        if missing is None:
            return ()
        blind = f"{len(missing.blind):,} of {counted(missing.n_asking, 'rule')}"
        return (f"{blind} find none of their fields; the input lacks {missing.text}",)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Choices: how matching rules are found, and who reads files."""
        return (self.compiled.choice, *self.lane.choices)

    def records(self) -> tuple[RuleRecord, ...]:
        """Return the record after a batch."""
        record = self.compiled.choice.record()
        n_troubles = len(self.store.troubles)
        return (replace(record, n_skipped=len(self.skipped), n_troubles=n_troubles),)

    def describe(self, history: History) -> list[Section]:
        """Return for people how rules are found, and what that came to."""
        return words.sections(self.facts(), history)

    # -- saving -----------------------------------------------------------------------------------

    def snapshot(self) -> RulesState | None:
        """Return the plan and the counts; nothing of very many rules."""
        with self._lock:
            choice = self.compiled.choice
            if choice.program.n_rules > MAX_SAVED:
                return None
            counts = [(c.name, c.n_rows, c.n_met, c.n_matches) for c in self.counts()]
            n_rows = added(self._n_past, rows_of(choice.total))
            lane = next((lane_choice.snapshot() for lane_choice in self.lane.choices), None)
            return RulesState(self.compiled.digest, choice.snapshot(), n_rows, counts, lane)

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned, if it is of these rules and this input."""
        try:
            saved = msgspec.convert(state, RulesState)
        except msgspec.ValidationError as error:
            msg = f"the saved state of the rules is damaged: {error}"
            raise StateError(msg) from error
        with self._lock:
            if not self._is_current(self.source):
                self.compiled = self._compile(self.source)
            if saved.rules != self.compiled.digest:
                msg = "the rules, their options or the columns have changed"
                raise StateError(msg)
            self.compiled.choice.restore(saved.plan)
            self._past = {count[0]: RuleCount(*count) for count in saved.counts}
            self._n_past = saved.rows
            if saved.lane is not None:
                self.lane.choice.restore(saved.lane)


def _digest(
    running: Mapping[str, RuleSource], options: SharingOptions, kind: tuple[Any, ...]
) -> str:
    """Return what identifies rules by what they mean, and by what plans and counts depend on."""
    means = [[name, source.meaning] for name, source in running.items()]
    # Who reads files makes no difference to plans.
    content = json.dumps([means, str(replace(options, lane="auto")), kind])
    return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def _kind(df: DataFrame) -> tuple[Any, ...]:
    """Return on what else it depends what rules mean: columns, and settings of the session."""
    return df.dtypes, session_settings(df.sparkSession)


def _titles(sources: Mapping[str, RuleSource]) -> dict[str, str]:
    titles = {name: source.info.get("title") for name, source in sources.items()}
    return {name: title for name, title in titles.items() if isinstance(title, str) and title}


def text_of(sources: Collection[RuleSource]) -> str:
    """Return rules as they were written or by their titles, each on a line, the first of many."""
    lines = [
        f"{source.name}: {clipped(str(source.info.get('title') or source.text), LINE_WIDTH)}"
        for source in islice(sources, MAX_LINES)
    ]
    rest = len(sources) - MAX_LINES
    return "\n".join([*lines, *([f"… {rest:,} more"] if rest > 0 else [])])


class RuleFilter(RuleOperator):
    """Keeps the rows for which a conjunction, the only rule of its set, is true."""

    takes = SharingOptions

    @classmethod
    def from_step(cls, step: FilterStep, site: Site) -> Self:  # type: ignore[override]
        """Return the operator of a step."""
        options, _ = SharingOptions.taken(site.options)
        store = RuleStore(site.query, options, {})
        store.put({site.query: PredicateRule(site.query, step.predicates, noun="query")})
        operator = cls(store, RuleBinder(), RowsWhere(Keep.MATCHED), site.df, query=site.query)
        operator.follow_stream(site)
        return operator
