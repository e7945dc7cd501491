"""``el.RuleSet``: many boolean rules over one stream, evaluated together in one pass."""

from __future__ import annotations

import itertools
import re
import threading
import uuid
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from pyspark import cloudpickle
from pyspark.sql import functions as F

from eddyline.errors import EddylineError, OptionError, QueryError
from eddyline.options import SharingOptions
from eddyline.query.conditions import SkippedRule
from eddyline.query.rules.sources import check_rule, rule_source
from eddyline.registry import unknown
from eddyline.runtime.journal import Journal
from eddyline.runtime.records import History
from eddyline.spark.filters.conjunction import HARVEST_WAIT_S, MAX_PENDING
from eddyline.spark.functions import named_functions
from eddyline.spark.operator import Laid, Operator
from eddyline.spark.rules.live import LiveRules, RuleBatches, RuleRun, text_of
from eddyline.spark.rules.operator import MAX_INPUTS, STRUCT, RuleBinder, RulePipeline, matched
from eddyline.spark.run.legacy import LegacyOperator
from eddyline.spark.run.observed_metrics import as_bytes, listener
from eddyline.spark.run.run import Job, SinkOutlet, settings_of
from eddyline.spark.sinks.sinks import sink_of
from eddyline.watch import rules as words
from eddyline.watch.formatting import clipped
from eddyline.watch.html.report import write_report
from eddyline.watch.sections import RunView
from eddyline.watch.terminal.explain import explain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from eddyline.query.conditions import RuleSource
    from eddyline.query.predicates import Predicate
    from eddyline.query.rules.sources import PredicateRule, SqlRule
    from eddyline.rules.view import RuleView
    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.operator import Batch
    from eddyline.spark.rules.operator import PendingRules
    from eddyline.spark.run.run import Run
    from eddyline.spark.sinks.sinks import BatchWriter
    from eddyline.watch.sections import Section

DEFAULT_NAME = "rules"
"""Of a set without a name, and of its first run."""

ON_ERROR = ("raise", "skip")

MAX_NAMED = 10
"""Rules that an error names."""

SIGMA = re.compile(r"^\s*(detection|logsource)\s*:", re.MULTILINE)
"""How a Sigma rule is told."""

HOW_TO_ADD = (
    "write add('r1', \"a > 5\") or add({'r1': \"a > 5\"}); Sigma rules, as YAML or files, come "
    "with add(el.sigma.load(…))"
)

MAX_STREAMS = 64
"""Plain streaming queries whose reports are awaited; of more, the oldest are let go."""

MAX_CHECKED = 10_000
"""Rules added at once that are read at once; of more, each is read when it meets columns."""

KEEPS_RULES = (
    "a plain streaming DataFrame keeps the rules that it was started with; rules.start(…) and "
    "foreachBatch take changes in at the next micro-batch"
)


class RuleSet:
    """Named boolean rules over one schema, evaluated together.

    Make transforms of it and hand them to ``DataFrame.transform``, batch or streaming, with any
    sink and inside ``foreachBatch``. Rules may be added, removed and replaced at any time; what is
    laid over a DataFrame afterwards, such as the next micro-batch, has them.

    Args:
        rules: each a condition as SQL text, or a predicate, by its name; or another set.
        functions: what the texts may call, by name: Python predicates made by ``el.predicate``, or
            functions over Arrow arrays, whose arguments are named like columns.
        on_error: ``raise``, or ``skip``: a rule that cannot be read or does not fit the columns is
            listed in ``skipped``, and the rest run.
        name: what the set and its runs are called in journals and reports; no two runs of one name
            are active at a time. Without one, ``rules``, and further runs ``rules_2``, ….
        **options: see ``eddyline.options.SharingOptions``.

    Raises:
        QueryError: a rule is no condition, or a function is none; the message names it.
        OptionError: an unknown option, or a value out of range.

    Example:
        >>> rules = el.RuleSet({"r1": "a > 5 AND b = 'x'"})  # doctest: +SKIP
        >>> events.transform(rules.matches("matches"))  # doctest: +SKIP
    """

    def __init__(
        self,
        rules: Mapping[str, str | Predicate] | RuleSet | None = None,
        *,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        on_error: str = "raise",
        name: str | None = None,
        **options: Any,
    ) -> None:
        if on_error not in ON_ERROR:
            raise OptionError(unknown("on_error", on_error, ON_ERROR), on_error=on_error)
        self.name = DEFAULT_NAME if name is None else name
        self._is_named = name is not None
        self.options = SharingOptions.of(**options)
        self.on_error = on_error
        self._functions = named_functions(functions or {})
        self.binder = RuleBinder()
        self.unread: tuple[SkippedRule, ...] = ()
        """Rules that could not be read at all, and why."""
        self.unfit: dict[str, SkippedRule] = {}
        """Rules that do not fit the stream of a run, and why; known before a batch meets them."""
        self._sources: dict[str, RuleSource] = {}
        self._version = 0
        self._lock = threading.RLock()
        self._journal = Journal()
        self._lives: OrderedDict[Any, LiveRules] = OrderedDict()
        self._shown = LiveRules(self)
        self._waiting: list[tuple[RulePipeline, PendingRules]] = []
        self._streams: list[_StreamReports] = []
        self._runs: weakref.WeakSet[Run] = weakref.WeakSet()
        self.add({} if rules is None else rules)

    @classmethod
    def of(
        cls,
        sources: Iterable[RuleSource],
        skipped: Sequence[SkippedRule] = (),
        **options: Any,
    ) -> Self:
        """Return a set of rules that were read elsewhere.

        Args:
            sources: the rules.
            skipped: rules that could not be read, and why; listed in ``skipped``.
            **options: as for ``RuleSet``.

        Raises:
            QueryError: two rules have one name.
        """
        made = cls(**options)
        made.unread = tuple(skipped)
        by_name: dict[str, RuleSource] = {}
        for source in sources:
            if by_name.setdefault(source.name, source) is not source:
                msg = f"two rules are called {source.name!r}; names are unique in a set"
                raise QueryError(msg, name=source.name)
        made._put(by_name, skips=made.on_error == "skip")
        return made

    # -- the rules ----------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """The rules that run, in the order of the set."""
        skipped = {each.name for each in self.skipped}
        with self._lock:
            return tuple(name for name in self._sources if name not in skipped)

    @property
    def skipped(self) -> tuple[SkippedRule, ...]:
        """The rules that do not run, and why.

        Those that do not fit the columns of the input are known once the set was applied to one,
        and those that do not fit the stream of an active run as soon as they are added.
        """
        return self._shown.skipped

    @property
    def info(self) -> dict[str, Mapping[str, Any]]:
        """What is known of each rule: its text, and what its source tells (title, level, tags)."""
        with self._lock:
            return {
                name: {"text": source.text, **source.info} for name, source in self._sources.items()
            }

    def add(
        self,
        rules: str | Mapping[str, str | Predicate] | RuleSet,
        rule: str | Predicate | None = None,
    ) -> None:
        """Add rules: ``add("r1", "a > 5")``, several by their names, or those of another set.

        With ``on_error="skip"`` a rule that cannot be read, or does not fit the columns of a stream
        that an active run of the set reads, is listed in ``skipped`` at once. What another set (one
        of ``el.sigma.load``, say) has skipped is skipped here too.

        Raises:
            QueryError: a name is taken, or with ``on_error="raise"`` a rule is no condition or does
                not fit the stream of an active run; then none is added.
        """
        if isinstance(rules, RuleSet):
            self._add_set(rules)
            return
        given = _given(rules, rule)
        with self._lock:
            self._check_new(given)
            made = {name: self._source(name, each) for name, each in given.items()}
            unread: list[SkippedRule] = []
            if len(made) <= MAX_CHECKED:
                wrong = [(each, self._why_unreadable(each)) for each in made.values()]
                unread = [SkippedRule(each.name, why, each.text) for each, why in wrong if why]
            skipped = {each.name for each in unread}
            fine = {name: source for name, source in made.items() if name not in skipped}
            self._put(fine, unread, skips=self.on_error == "skip")

    def _add_set(self, other: RuleSet) -> None:
        sources, unread = other._now_by_name()
        with self._lock:
            self._check_new([*sources, *(each.name for each in unread)])
            self._put(sources, unread, skips=self.on_error == "skip")

    def remove(self, *names: str) -> None:
        """Remove rules.

        Raises:
            QueryError: there is no rule of a name; then none is removed.
        """
        with self._lock:
            for name in names:
                self._check_known(name)
            for name in names:
                self._sources.pop(name, None)
            self.unfit = {n: why for n, why in self.unfit.items() if n not in names}
            self.unread = tuple(each for each in self.unread if each.name not in names)
            self._version += 1
        self._warn_of_streams()

    def replace(self, name: str | RuleSet, rule: str | Predicate | None = None) -> None:
        """Replace a rule, or several by the rules of another set; each keeps its place in the set.

        Raises:
            QueryError: there is no rule of a name, the new one is no condition, or it does not
                fit the columns of a stream that an active run of the set reads. Then the old rules
                stay, whatever ``on_error`` is.
        """
        if isinstance(name, RuleSet):
            self._replace_by(name)
            return
        ((name, given),) = _given(name, rule).items()
        with self._lock:
            self._check_known(name)
            made = self._source(name, given)
            self._check_readable(made)
            self._put({name: made})

    def _replace_by(self, other: RuleSet) -> None:
        sources, unread = other._now_by_name()
        with self._lock:
            for name in (*sources, *(each.name for each in unread)):
                self._check_known(name)
            for each in unread:
                if each.name in self._sources:
                    msg = (
                        f"rule {each.name!r} is not replaced: the new one is skipped: {each.reason}"
                    )
                    raise QueryError(msg, name=each.name)
            self._put(sources, unread)

    def now(self) -> tuple[int, tuple[RuleSource, ...]]:
        """Return the rules as they are, and a number that is another one after each change."""
        with self._lock:
            return self._version, tuple(self._sources.values())

    def _source(self, name: Any, rule: Any) -> SqlRule | PredicateRule:
        if not isinstance(name, str) or not name:
            msg = f"a rule is named by a text that is not empty, got {name!r}"
            raise QueryError(msg, name=name)
        return rule_source(name, rule, self._functions)

    def _now_by_name(self) -> tuple[dict[str, RuleSource], tuple[SkippedRule, ...]]:
        """Return the rules as they are, and those that could not be read."""
        with self._lock:
            return dict(self._sources), self.unread

    def _why_unreadable(self, source: SqlRule | PredicateRule) -> str:
        """Return why a rule cannot be read, if so; what it names is known when it meets columns."""
        try:
            self._check_readable(source)
        except EddylineError as error:
            if self.on_error == "raise":
                raise
            return error.message
        return ""

    def _check_readable(self, source: SqlRule | PredicateRule) -> None:
        try:
            check_rule(source)
        except EddylineError as error:
            if not SIGMA.search(source.text):
                raise
            msg = f"rule {source.name!r} is no SQL condition but a Sigma rule; {HOW_TO_ADD}"
            raise QueryError(msg, name=source.name) from error

    def _check_known(self, name: str) -> None:
        known = [*self._sources, *(each.name for each in self.unread)]
        if name not in known:
            raise QueryError(unknown("rule", name, known), name=name)

    def _check_new(self, names: Iterable[str]) -> None:
        taken = [name for name in names if name in self._sources]
        if len(taken) == 1:
            msg = f"rule {taken[0]!r} exists already; use replace({taken[0]!r}, …)"
            raise QueryError(msg, name=taken[0])
        if taken:
            more = f", … {len(taken) - MAX_NAMED:,} more" if len(taken) > MAX_NAMED else ""
            said = ", ".join(map(repr, taken[:MAX_NAMED])) + more
            msg = f"rules {said} exist already; use replace"
            raise QueryError(msg, names=tuple(taken))

    def _put(
        self,
        made: Mapping[str, RuleSource],
        unread: Iterable[SkippedRule] = (),
        *,
        skips: bool = False,
    ) -> None:
        """Take rules in.

        Args:
            made: the rules.
            unread: rules that could not be read.
            skips: whether those that do not fit the stream of a run are skipped, and not an error.
        """
        with self._lock:
            unfit = self._unfit_of(made, skips=skips) if made else {}
            skipped = {each.name: each for each in unread}
            new = {*made, *skipped}
            self.unread = (
                *(each for each in self.unread if each.name not in new),
                *skipped.values(),
            )
            if not made:
                return
            self.unfit = {n: why for n, why in self.unfit.items() if n not in made} | unfit
            self._sources.update(made)
            self._version += 1
        self._warn_of_streams()

    def _unfit_of(self, made: Mapping[str, RuleSource], *, skips: bool) -> dict[str, SkippedRule]:
        """Return the rules that do not fit the stream of a run: better here than in the run."""
        unfit: dict[str, SkippedRule] = {}
        for run in [each for each in self._runs if each.isActive]:
            bound = self.binder.bind(run.source, made.values(), skips=skips)
            unfit |= {each.name: each for each in bound.skipped}
        return unfit

    def _warn_of_streams(self) -> None:
        """Warn that a plain streaming query does not follow."""
        if any(each.may_run() for each in self._streams):
            msg = (
                f"the rules of {self.name!r} have changed, but a streaming query that was started "
                f"with rules.matches(…) keeps those it was started with, as Spark lays its plan "
                f"once; run it by rules.start(…), or transform inside foreachBatch, to have "
                f"changes take effect at the next micro-batch"
            )
            warnings.warn(msg, UserWarning, stacklevel=4)

    # -- transforms ---------------------------------------------------------------------------

    def matches(
        self, column: str = "matches", *, keep_unmatched: bool = False
    ) -> Callable[[DataFrame], DataFrame]:
        """Return a transform that adds the names of the rules that are true for each row.

        Args:
            column: the new column, an ``array<string>`` in the order of the set.
            keep_unmatched: whether rows for which no rule is true are kept, with an empty array.
        """

        def transform(df: DataFrame) -> DataFrame:
            _check_free(df, column)
            found = self._applied(df)
            return with_matches(found, column, keep_unmatched=keep_unmatched)

        return transform

    def any(self) -> Callable[[DataFrame], DataFrame]:
        """Return a transform that keeps the rows for which some rule is true."""

        def transform(df: DataFrame) -> DataFrame:
            found = self._applied(df, partial(RulePipeline.apply, as_places=True))
            return matched(found).drop(STRUCT)

        return transform

    def count_by_rule(self) -> Callable[[DataFrame], DataFrame]:
        """Return a transform to the columns ``rule`` and ``count``: rows that each is true for.

        Rules that are true for no row are not among them. On a streaming DataFrame it is an
        aggregation, for the output modes ``complete`` and ``update``.
        """

        def transform(df: DataFrame) -> DataFrame:
            return self._applied(df, RulePipeline.count)

        return transform

    def start(
        self,
        stream: DataFrame,
        sink: str | BatchWriter = "memory",
        *,
        column: str = "matches",
        keep_unmatched: bool = False,
        path: str | None = None,
        checkpoint: str | None = None,
        trigger: str | None = None,
    ) -> Run:
        """Run the rules on a stream; each micro-batch has the rules of the moment it starts.

        A micro-batch that runs again after a failure may have newer rules than the first time.

        Args:
            stream: a streaming DataFrame.
            sink: ``parquet``, ``memory``, ``console``, or a function of (df, batch_id).
            column: as for ``matches``.
            keep_unmatched: as for ``matches``.
            path: where the sink writes, if it writes somewhere.
            checkpoint: folder from which a later start continues; a temporary one if omitted.
            trigger: ``available_now`` (what is there, then stop), ``once``, or an interval such
                as ``5 seconds``; as fast as possible if omitted.

        Returns:
            The run, which behaves like a StreamingQuery.

        Raises:
            QueryError: no streaming DataFrame, a column that exists already, a rule that does not
                fit, or a run of that name is active.
            OptionError: an unknown sink or trigger, or a path that is missing.
            SourceError: the sink's path cannot be written.
        """
        if not stream.isStreaming:
            msg = (
                f"start needs a streaming DataFrame (spark.readStream…), got a batch one; use "
                f"df.transform(rules.matches({column!r}))"
            )
            raise QueryError(msg, rules=self.name)
        _check_free(stream, column)
        batches = RuleBatches(self, stream)
        taken = [batches]

        def operators(_: Path) -> list[Operator]:
            batches = taken.pop() if taken else RuleBatches(self, stream)
            return [LegacyOperator("rules", batches), MatchesOperator(column, keep_unmatched)]

        job = Job(
            name=self.name if self._is_named else _free_name(stream),
            text=self.text,
            identity=f"rules {self.name}",
            source=stream,
            settings=settings_of(self.options),
            operators=operators,
            rename="el.RuleSet(…, name='…') or el.sigma.load(…, name='…')",
        )

        run = RuleRun(job, SinkOutlet(sink_of(sink, path)), checkpoint, trigger)
        self._shown = run.chain.operators[0].pipeline.live  # type: ignore[attr-defined]
        self._runs.add(run)
        return run

    @property
    def text(self) -> str:
        """The rules as they were written or by their titles, each on a line, the first of many."""
        _, sources = self.now()
        return text_of(sources)

    def _applied(
        self,
        df: DataFrame,
        apply: Callable[..., tuple[DataFrame, list[PendingRules]]] = RulePipeline.apply,
    ) -> DataFrame:
        self._learn(0.0)
        live = self._live_over(df)
        pipeline = live.current(df)
        self._shown = live
        if df.isStreaming:
            reports = _StreamReports(pipeline, df)
            self._streams = [*self._streams, reports][-MAX_STREAMS:]
            listener(df).take(reports.name, reports.take)
            return apply(pipeline, df, observation=lambda: reports.name)[0]
        result, pending = apply(pipeline, df)
        with self._lock:
            new = [(pipeline, each) for each in pending]
            self._waiting = (self._waiting + new)[-MAX_PENDING:]
        return result

    def _live_over(self, df: DataFrame) -> LiveRules:
        """Return the rules over inputs like this one: each kind has a plan of its own."""
        with self._lock:
            kind = (tuple(df.dtypes), df.isStreaming)
            live = self._lives.setdefault(kind, LiveRules(self))
            self._lives.move_to_end(kind)
            while len(self._lives) > MAX_INPUTS:
                _, gone = self._lives.popitem(last=False)
                self.note(gone.take_entries())
            return live

    # -- what was learned ---------------------------------------------------------------------

    def explain(self, *, width: int = 100) -> str:
        """Return in words how the rules are evaluated, and on what evidence.

        Args:
            width: columns of the text.

        Raises:
            QueryError: the rules were not applied to any DataFrame yet.
        """
        view = self.view()
        return explain(view.name, self._sections(view), width=width)

    def view(self) -> RuleView:
        """Return how the rules are evaluated, as values: over the input they last met.

        Raises:
            QueryError: the rules were not applied to any DataFrame yet.
        """
        self._learn(HARVEST_WAIT_S)
        if self._shown.pipeline is None:
            msg = f"{self.name}: not applied to a DataFrame yet; use df.transform(…) first"
            raise QueryError(msg, name=self.name)
        notes = (KEEPS_RULES,) if self._streams else ()
        return self._shown.view(notes)

    def report(self, path: str | Path) -> Path:
        """Write what is known of the rules as one self-contained HTML page.

        Raises:
            QueryError: the rules were not applied to any DataFrame yet.
            EddylineError: the extra ``report`` is not installed.
        """
        sections = self._sections(self.view())
        run = RunView(
            query=self.name,
            text=self._shown.text,
            history=self._history(),
            sections=tuple(sections),
            settings=settings_of(self.options),
        )
        return write_report(run, path)

    def _sections(self, view: RuleView) -> list[Section]:
        return words.sections(view, self._history())

    def _history(self) -> History:
        with self._lock:
            return History(journal=tuple(self._journal))

    @property
    def journal(self) -> list[dict[str, Any]]:
        """Every decision so far, as rows: those of its runs too."""
        self._learn(HARVEST_WAIT_S)
        with self._lock:
            return self._journal.rows()

    def note(self, entries: Iterable[JournalEntry]) -> None:
        """Take in decisions of a run."""
        with self._lock:
            self._journal.extend(entries)

    def _learn(self, timeout_s: float) -> None:
        with self._lock:  # what one thread has taken, no other learns again
            taken, self._waiting = self._waiting, []
        left = [
            (pipeline, each)
            for pipeline, report in taken
            for each in pipeline.learn([report], timeout_s=timeout_s)
        ]
        with self._lock:
            self._waiting = (left + self._waiting)[-MAX_PENDING:]
            lives = list(self._lives.values())
        for live in lives:
            self.note(live.take_entries())
        for stream in self._streams:
            self.note(stream.pipeline.take_entries())

    def __reduce__(self) -> tuple[Any, ...]:
        # The rules travel, and what was learned of them stays: it belongs to jobs of this process.
        with self._lock:
            options = {
                **{name: getattr(self.options, name) for name in self.options.__dataclass_fields__},
                "functions": self._functions,
                "on_error": self.on_error,
                "name": self.name if self._is_named else None,
            }
            made = type(self), tuple(self._sources.values()), self.unread, options
        # A decorated function is not what its module has by its name: it travels by value.
        return _again, (cloudpickle.dumps(made),)  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"RuleSet({len(self._sources)} rules)"


def _again(packed: bytes) -> RuleSet:
    cls, sources, skipped, options = cloudpickle.loads(packed)
    made: RuleSet = cls.of(sources, skipped, **options)
    return made


class _StreamReports:
    """Feeds what a streaming query's tasks report into the loop of its rules."""

    def __init__(self, pipeline: RulePipeline, df: DataFrame) -> None:
        self.name = f"rules_{uuid.uuid4().hex}"
        self.pipeline = pipeline
        self._session = df.sparkSession

    def take(self, metrics: dict[str, Any], batch_id: int) -> None:
        """Take in what one micro-batch reported."""
        self.pipeline.learn_packed(as_bytes(metrics, "rules"), batch_id)

    def may_run(self) -> bool:
        """Return whether the streaming query may be running: one that tells, or has not yet."""
        try:
            active = self._session.streams.active
            progress = [query.lastProgress for query in active]
        except Exception:  # noqa: BLE001 - the session was stopped, and its queries with it
            return False
        return any(each is None or self.name in (each.observedMetrics or {}) for each in progress)


def _given(rules: Any, rule: Any) -> dict[str, Any]:
    """Return rules by their names.

    Raises:
        QueryError: they have none.
    """
    if isinstance(rules, Mapping):
        return dict(rules)
    if isinstance(rules, str) and rule is not None:
        return {rules: rule}
    got = f"the text {clipped(rules)!r} alone" if isinstance(rules, str) else type(rules).__name__
    msg = f"rules are given by their names, got {got}; {HOW_TO_ADD}"
    raise QueryError(msg, got=got)


class MatchesOperator(Operator):
    """Puts the matches of rules into a column of their own."""

    name = "matches"

    def __init__(self, column: str, keep_unmatched: bool) -> None:
        self.column = column
        self.keep_unmatched = keep_unmatched

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002 - the same for every batch
        """Add the column."""
        return Laid(with_matches(df, self.column, keep_unmatched=self.keep_unmatched))


def with_matches(found: DataFrame, column: str, *, keep_unmatched: bool) -> DataFrame:
    """Return rows with the names of their rules in a column of their own."""
    kept = found if keep_unmatched else matched(found)
    return kept.withColumn(column, F.col(f"{STRUCT}.matches")).drop(STRUCT)


def _free_name(stream: DataFrame) -> str:
    """Return a name for a run of a set without one."""
    taken = {each.name for each in stream.sparkSession.streams.active}
    numbered = (f"{DEFAULT_NAME}_{number}" for number in itertools.count(2))
    return next(name for name in itertools.chain([DEFAULT_NAME], numbered) if name not in taken)


def _check_free(df: DataFrame, column: str) -> None:
    """Refuse to replace a column of the input."""
    if column.lower() in (each.lower() for each in df.columns):
        msg = f"the input has a column {column!r} already; choose another: matches('…')"
        raise QueryError(msg, column=column)
