"""``el.RuleSet``: many boolean rules over one stream, evaluated together in one pass.

A set has named rules, which may change at any time, and correlations of them. Transforms and runs
have the rules of the moment: each input has an operator, which follows the set. Batches of events
have alerts, too. ``RulesByHand`` is what a person sees and changes of the rules while a run has
them; see ``runtime.by_hand``.
"""

from __future__ import annotations

import itertools
import threading
import warnings
import weakref
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack

from pyspark import cloudpickle
from pyspark.sql import functions as F

from eddyline.data.memory import LastUsed
from eddyline.errors import EddylineWarning, OptionError, QueryError
from eddyline.options import SharingOptions
from eddyline.query.predicates import named_functions
from eddyline.query.rules.rule import Rule
from eddyline.query.rules.sources import SqlRule, functions_of
from eddyline.query.steps import ReadStep
from eddyline.registry import checked_text, unknown
from eddyline.report import rules as words
from eddyline.report.formatting import counted
from eddyline.report.html import fragment, write_report
from eddyline.report.sections import RunView, arranged
from eddyline.report.terminal import explain
from eddyline.rules.description import to_come
from eddyline.rules.store import CorrelationStore, RuleStep, RuleStore, rules_by_name
from eddyline.rules.view import COMPONENT
from eddyline.runtime.by_hand import BY_PERSON, RuleList, RuleShown
from eddyline.runtime.journal import JournalEntry
from eddyline.spark.analysis import column_types
from eddyline.spark.operator import Batch
from eddyline.spark.query import Query
from eddyline.spark.relation import checked_frame, checked_relation
from eddyline.spark.rules.binding import MAX_INPUTS, RuleBinder
from eddyline.spark.rules.correlations import ALERTS, Correlating
from eddyline.spark.rules.operator import MAX_LINES, RuleOperator, text_of
from eddyline.spark.rules.output import CountByRule, MatchesColumn, RowsWhere, about_rules
from eddyline.spark.rules.task import Keep
from eddyline.spark.run.job import settings_of
from eddyline.spark.run.observations import WAIT_S, JobReports
from eddyline.sql.functions import JAVA_CALLS, as_name
from eddyline.sql.parsing import parse_condition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from eddyline.query.conditions import RuleSource, SkippedRule
    from eddyline.query.correlations import CorrelationSource
    from eddyline.query.predicates import FunctionPredicate, Predicate
    from eddyline.query.rules.rule import Facts
    from eddyline.query.steps import Step
    from eddyline.rules.view import RuleView
    from eddyline.runtime.by_hand import RuleChange
    from eddyline.spark.operator import Site
    from eddyline.spark.query import Starting
    from eddyline.spark.rules.output import Output
    from eddyline.spark.run.run import Run
    from eddyline.spark.sinks.sinks import BatchWriter

    Given = str | Predicate | Rule
    """A condition as SQL text or predicate, or one with its level, tags and title."""

DEFAULT_NAME = "rules"
"""Of a set without a name, and of its first run."""

RENAME = "el.RuleSet(…, name='…') or el.sigma.load(…, name='…')"
"""The ways to give a set another name."""

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
        rules: each a condition as SQL text, or a predicate, by its name; or ``el.Rule``, which has
            one with its level, tags and title; or another set.
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
        rules: Mapping[str, Given] | RuleSet | None = None,
        *,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        on_error: str = "raise",
        name: str | None = None,
        **options: Any,
    ) -> None:
        self.name = DEFAULT_NAME if name is None else checked_text("name of a set", name)
        self._is_named = name is not None
        self.options = SharingOptions.of(**options)
        self.on_error = on_error
        self.store = RuleStore(
            self.name, self.options, named_functions(functions or {}), on_error, self._unfit
        )
        self.correlated = CorrelationStore()
        """The correlations of the rules."""
        self._binder = RuleBinder()
        self._reports = JobReports()
        self._lock = threading.RLock()
        self._transforms: LastUsed[Any, RuleOperator] = LastUsed(MAX_INPUTS)
        """By kind of input: each has a plan of its own."""
        self._queries: weakref.WeakSet[RuleOperator] = weakref.WeakSet()
        self._shown: RuleOperator | None = None
        """The operator that met an input last."""
        self.add({} if rules is None else rules)

    @classmethod
    def of(
        cls,
        sources: Iterable[RuleSource],
        skipped: Sequence[SkippedRule] = (),
        correlations: Sequence[CorrelationSource] = (),
        **options: Any,
    ) -> Self:
        """Return a set of rules that were read elsewhere, and correlations of them.

        Rules that could not be read are listed in ``skipped``; options are as for ``RuleSet``, but
        a rule that is added by itself and cannot be read, or does not fit, is always an error.

        Raises:
            QueryError: two rules have one name.
        """
        rules = cls(**options)
        by_name: dict[str, RuleSource] = {}
        for source in sources:
            if by_name.setdefault(source.name, source) is not source:
                msg = f"two rules are called {source.name!r}; names are unique in a set"
                raise QueryError(msg, name=source.name)
        rules.store.put(by_name)
        rules.store.unread = tuple(skipped)
        rules.store.skips_new = False
        rules.correlated = CorrelationStore(correlations)
        return rules

    # -- the rules -----------------------------------------------------------------------------

    @property
    def skipped(self) -> tuple[SkippedRule, ...]:
        """The rules that do not run, and why.

        Those that do not fit the columns of the input are known once the set was applied to one,
        and those that do not fit the stream of an active run as soon as they are added.
        Correlations that do not run are known once a query of the set was made.
        """
        shown = self._shown
        skipped = self.store.skipped({}, ()) if shown is None else shown.skipped
        return (*skipped, *self.correlated.unfit)

    @property
    def names(self) -> tuple[str, ...]:
        """The rules that run, in the order of the set."""
        skipped = {rule.name for rule in self.skipped}
        return tuple(name for name in self.store.now()[1] if name not in skipped)

    @property
    def info(self) -> dict[str, Mapping[str, Any]]:
        """Facts about each rule: its text, and those of its source (title, level, tags).

        Once the set was applied, ``fields_found`` and ``fields_missing`` list the fields of a Sigma
        rule that the input had or lacked.
        """
        _, sources = self.store.now()
        facts: dict[str, Mapping[str, Any]] = {
            name: {"text": source.text, **source.info} for name, source in sources.items()
        }
        shown = self._shown
        if shown is None:
            return facts
        lacking = {} if shown.missing is None else shown.missing.by_rule
        return {
            name: {**info, **_fields_of(info["fields"], lacking.get(name, ()))}
            if "fields" in info
            else info
            for name, info in facts.items()
        }

    @property
    def correlations(self) -> dict[str, Mapping[str, Any]]:
        """The correlations of the set's rules by their names: text, title, level, type, rules.

        A run finds their alerts where its stream has an event time; see ``start``.
        """
        sources = self.correlated.sources
        return {source.name: {"text": source.text, **source.info} for source in sources}

    @property
    def functions(self) -> dict[str, FunctionPredicate]:
        """The Python functions that the rules call, by their names in the rules."""
        sources = self.store.now()[1].values()
        return {
            name: function for source in sources for name, function in functions_of(source).items()
        }

    @property
    def text(self) -> str:
        """The rules as they were written or by their titles, each on a line, the first of many."""
        return text_of(self.store.now()[1].values())

    @property
    def notes(self) -> tuple[str, ...]:
        """The correlations in words, the first of many."""
        lines = [
            f"correlation {name}: {info.get('type')} {info.get('condition')} of "
            f"{', '.join(info.get('rules') or ())} in {info.get('timespan')}"
            for name, info in islice(self.correlations.items(), MAX_LINES)
        ]
        rest = len(self.correlations) - MAX_LINES
        return (*lines, *([f"{rest:,} more correlations"] if rest > 0 else []))

    def add(self, rules: str | Mapping[str, Given] | RuleSet, rule: Given | None = None) -> None:
        """Add rules: ``add("r1", "a > 5")``, several by their names, or those of another set.

        Instead of a condition, ``el.Rule`` gives one with its level, tags and title.

        With ``on_error="skip"`` a rule that cannot be read, or does not fit the columns of a stream
        that an active run of the set reads, is listed in ``skipped`` at once. What another set (one
        of ``el.sigma.load``, say) has skipped is skipped here too.

        Raises:
            QueryError: a name is taken; or with ``on_error="raise"``, or in a set that was read
                from files, a rule is no condition or does not fit the stream of an active run. Then
                none is added.
        """
        version, _ = self.store.now()
        if isinstance(rules, RuleSet):
            self.correlated.check_new(rules.correlated, self.info)
            self.store.add_rules(rules.store.now()[1], rules.store.unread)
            self.correlated.add(rules.correlated)
        else:
            self.store.add(rules_by_name(rules, rule))
        self._changed_since(version)

    def select(self, *names: str, name: str | None = None, **facts: Unpack[Facts]) -> Self:
        """Return a set of some of the rules, which from then on is a set of its own.

        It has the functions and options of this one. Of what is said all has to hold:
        ``select(min_level="high", tag="pii")`` are the rules with that tag from that level on.
        Correlations come along where all of their rules do.

        Args:
            *names: of rules; without any, those of all names.
            name: what the new set is called, as for ``RuleSet``.
            **facts: ``level`` (exactly this one, or one of several), ``min_level`` (this or a
                higher one: informational < low < medium < high < critical) and ``tag`` (this one,
                or one of several). A rule without a level is of none.

        Raises:
            QueryError: nothing is said, there is no rule of a name, or none has the tag.
            OptionError: an unknown level.
        """
        if not names and all(fact is None for fact in facts.values()):
            msg = "select takes names of rules, level=…, min_level=… or tag=…; got none of them"
            raise QueryError(msg, rules=self.name)
        chosen, unread = self.store.chosen(names, facts)
        with_rules = self.correlated.of(chosen)
        rules = type(self).of(
            chosen.values(), unread, with_rules, **{**self._made_with(), "name": name}
        )
        rules.store.skips_new = self.store.skips_new
        return rules

    def remove(self, *names: str, **facts: Unpack[Facts]) -> None:
        """Remove rules by their names, or by level or tag as ``select`` chooses them.

        Correlations go with any of their rules.

        Raises:
            QueryError: there is no rule of a name, or none has the tag; then none is removed.
            OptionError: an unknown level.
        """
        version, _ = self.store.now()
        self.store.remove(names, facts)
        self.correlated = CorrelationStore(self.correlated.of(self.info))
        self._changed_since(version)

    def replace(self, name: str | RuleSet, rule: Given | None = None) -> None:
        """Replace a rule, or several by the rules of another set; each keeps its place in the set.

        Level, tags and title are those of the new rule. If only these change, counts and plan stay.

        Raises:
            QueryError: there is no rule of a name, the new one is no condition, or it does not
                fit the columns of a stream that an active run of the set reads. Then the old rules
                stay, whatever ``on_error`` is.
        """
        version, _ = self.store.now()
        if isinstance(name, RuleSet):
            self.store.replace_rules(name.store.now()[1], name.store.unread)
        else:
            ((name, source),) = rules_by_name(name, rule).items()
            self.store.replace(name, source)
        self._changed_since(version)

    def _unfit(self, rules: Collection[RuleSource], skips: bool) -> list[SkippedRule]:
        """Return the rules that do not fit the stream of an active run."""
        if not rules:
            return []
        running = [operator for operator in self._queries if operator.is_running]
        bound_rules = [
            self._binder.bind(operator.source, rules, skips=skips) for operator in running
        ]
        return [why for bound in bound_rules for why in bound.skipped]

    def _changed_since(self, version: int) -> None:
        """Warn, if the rules are others than before, that a plain streaming query keeps its own."""
        has_changed = self.store.now()[0] != version
        if has_changed and any(stream.may_run() for stream in self._reports.streams):
            msg = (
                f"the rules of {self.name!r} have changed, but a streaming query over "
                f"rules.matches(…) keeps its first rules, because Spark makes its plan once. Run "
                f"it by rules.start(…), or transform inside foreachBatch: then changes take effect "
                f"at the next micro-batch"
            )
            warnings.warn(msg, EddylineWarning, stacklevel=3)

    # -- transforms ----------------------------------------------------------------------------

    def matches(
        self, column: str = "matches", *, keep_unmatched: bool = False, as_struct: bool = False
    ) -> Callable[[DataFrame], DataFrame]:
        """Return a transform that adds the names of the rules that are true for each row.

        Args:
            column: the new column, an ``array<string>`` in the order of the set.
            keep_unmatched: whether rows for which no rule is true are kept, with an empty array.
            as_struct: whether rules are told by ``id`` (the name), ``title`` and ``level``, in an
                ``array<struct>``; title or level are NULL where a rule has none.
        """
        checked_text("column of matches", column)
        output = MatchesColumn(column, keep_unmatched, as_struct=as_struct)

        def transform(df: DataFrame) -> DataFrame:
            output.check(checked_frame("the input of rules", df))
            return self._applied(df, output)[0]

        return transform

    def split(
        self, df: DataFrame, *, column: str = "matches", as_struct: bool = False
    ) -> tuple[DataFrame, DataFrame]:
        """Return the rows for which no rule is true, and those for which one is.

        A rule describes the bad rows: what is wrong with them. Where it is unknown (NULL) a row is
        valid; ``(n >= 0) IS NOT TRUE`` also finds the rows of which that is not known. Each row of
        the input is in one of the two, and both have the rules of now. Each evaluates them when it
        is used; ``docs/sharing.md`` shows a split in one pass.

        Args:
            df: a batch or streaming DataFrame.
            column: the new column of the second, as for ``matches``.
            as_struct: as for ``matches``.

        Returns:
            The valid rows with the columns of ``df``, and the others with ``column``, too.

        Raises:
            QueryError: the column exists already, or a rule does not fit.
        """
        checked_text("column of matches", column)
        bad = MatchesColumn(column, as_struct=as_struct)
        bad.check(checked_frame("the input of rules", df))
        valid, quarantine = self._applied(df, RowsWhere(Keep.UNMATCHED), bad)
        return valid, quarantine

    def any(self) -> Callable[[DataFrame], DataFrame]:
        """Return a transform that keeps the rows for which some rule is true."""
        return lambda df: self._applied(df, RowsWhere(Keep.MATCHED))[0]

    def count_by_rule(self, *, as_struct: bool = False) -> Callable[[DataFrame], DataFrame]:
        """Return a transform to the columns ``rule`` and ``count``: rows that each is true for.

        Rules that are true for no row are not among them. On a streaming DataFrame it is an
        aggregation, for the output modes ``complete`` and ``update``.

        Args:
            as_struct: whether the column ``rule`` is a struct of ``id`` (the name), ``title`` and
                ``level``. A title or level is NULL if the rule has none.
        """

        def transform(df: DataFrame) -> DataFrame:
            (counts,) = self._applied(df, CountByRule())
            if not as_struct:
                return counts
            rows = about_rules(self.store.now()[1].values()).to_pylist()
            about = df.sparkSession.createDataFrame(rows, "id string, title string, level string")
            joined = counts.join(F.broadcast(about), counts["rule"] == about["id"])
            return joined.select(F.struct("id", "title", "level").alias("rule"), "count")

        return transform

    def _applied(self, df: DataFrame, *outputs: Output) -> list[DataFrame]:
        """Return outputs over a DataFrame, all of the same rules."""
        checked_frame("the input of rules", df)
        self._reports.learn(0.0)
        with self._lock:  # in which alone operators of transforms take in changes
            operator = self._shown = self._operator_over(df)

            def laid(output: Output) -> DataFrame:
                return self._reports.lay(
                    df,
                    operator,
                    lambda seen: operator.lay(df, Batch(), output=output, observation=seen),
                )

            return [laid(output) for output in outputs]

    def _operator_over(self, df: DataFrame) -> RuleOperator:
        """Return the operator over inputs like this one, with the rules of now."""
        with self._lock:
            kind = (tuple(df.dtypes), df.isStreaming)
            if kind in self._transforms:
                self._transforms[kind].prepare(df, Batch())
            return self._transforms.get_or_make(
                kind, lambda: RuleOperator(self.store, self._binder, MatchesColumn(), df)
            )

    # -- alerts of correlations ----------------------------------------------------------------

    def alerts(self, time: str) -> Callable[[DataFrame], DataFrame]:
        """Return a transform of batches of events to the alerts of the set's correlations.

        Its columns are ``id title level type group first last events value``; see
        ``docs/sigma.md``. Correlations that do not run are listed in ``skipped``. On a stream,
        ``start`` gives alerts.

        Args:
            time: the event-time column.

        Raises:
            QueryError: there is no such column, or no correlation that runs; or on a stream.
        """
        checked_text("time of events", time)

        def transform(df: DataFrame) -> DataFrame:
            rows = self.with_alerts(df, time)
            if ALERTS not in rows.columns:
                msg = f"{self.name}: no correlation runs over these events; see .skipped of the set"
                raise QueryError(msg, rules=self.name)
            return rows.where(f"{ALERTS} IS NOT NULL").select(f"{ALERTS}.*")

        return transform

    def with_alerts(
        self, df: DataFrame, time: str, *, column: str = "matches", keep_unmatched: bool = False
    ) -> DataFrame:
        """Return a batch of events with their rules, and alerts: what ``start`` gives of a stream.

        Arguments are as for ``start``. Where no correlation runs, there is no column of alerts.

        Raises:
            QueryError: there is no such time column, or on a stream.
        """
        if checked_frame("the input of rules", df).isStreaming:
            msg = "alerts of a stream come from rules.start(stream, …, time='…')"
            raise QueryError(msg, rules=self.name)
        shape = {"column": column, "keep_unmatched": keep_unmatched, "as_struct": False}
        relation = checked_relation("the events of rules", df, time, None)
        steps = (ReadStep("events", "events"), *self.steps("events", df, time, **shape))
        return Query(self.name, "", steps, {"events": relation}, {}, rename=RENAME).to_df()

    def steps(self, input: str, df: DataFrame, time: str | None, **shape: Any) -> tuple[Step, ...]:
        """Return the steps of a query of these rules, and of the correlations that run.

        Args:
            input: the relation.
            df: its rows.
            time: their event-time column; None if they have none.
            **shape: ``column``, ``keep_unmatched`` and ``as_struct`` of the step.

        Raises:
            QueryError: ``on_error="raise"`` and a correlation does not run, or the rows have a
                column of the name that alerts are told in.
        """
        step = RuleStep(input, self, **shape)
        if not self.correlated.sources:
            return (step,)
        columns, is_timed = column_types(df), time is not None
        correlations = self.correlated.bound(columns, has_time=is_timed, why_not=self._why_not(df))
        self._tell_unfit()
        if not correlations or time is None:
            return (step,)
        return Correlating(
            correlations, columns, time, replace(step, output=f"rules of {input}")
        ).steps()

    def _why_not(self, df: DataFrame) -> Callable[[str], str | None]:
        """Return what says of a rule why it does not run over an input, or None."""
        sources = self.store.now()[1]
        bound = self._binder.bind(df, sources.values(), skips=True)
        unfit = {rule.name: rule for rule in (*self.store.skipped({}, ()), *bound.skipped)}

        def why_not(name: str) -> str | None:
            if name in unfit:
                return f"it refers to {name!r}, which does not run: {unfit[name].reason}"
            return None if name in sources else f"it refers to {name!r}, which is not in the set"

        return why_not

    def _tell_unfit(self) -> None:
        """Warn of correlations that do not run, or raise if they must."""
        unfit = self.correlated.unfit
        if not unfit:
            return
        n = len(unfit)
        msg = (
            f"{n} correlation{'' if n == 1 else 's'} of {self.name!r} {'does' if n == 1 else 'do'} "
            f"not run; see .skipped of the set. The first: {unfit[0].name}: {unfit[0].reason}"
        )
        if self.on_error == "raise":
            raise QueryError(msg, rules=self.name)
        warnings.warn(msg, EddylineWarning, stacklevel=4)

    # -- queries -------------------------------------------------------------------------------

    def operator(self, step: RuleStep, site: Site) -> RuleOperator:
        """Return the operator of a query's step with these rules."""
        output = MatchesColumn(step.column, step.keep_unmatched, as_struct=step.as_struct)
        output.check(site.df)
        operator = self.query_operator(site.df, output, site.query)
        operator.by_hand = RulesByHand(self, operator, self._reports.note)
        operator.follow_stream(site)
        return operator

    def query_operator(self, df: DataFrame, output: MatchesColumn, query: str) -> RuleOperator:
        """Return an operator whose decisions the set's journal has, too."""
        operator = RuleOperator(
            self.store, self._binder, output, df, query=query, note=self._reports.note
        )
        self._queries.add(operator)
        self._shown = operator
        return operator

    def start(
        self,
        stream: DataFrame | str,
        sink: str | BatchWriter = "memory",
        *,
        engine: RuleQueries | None = None,
        time: str | None = None,
        lateness: str | None = None,
        column: str = "matches",
        keep_unmatched: bool = False,
        as_struct: bool = False,
        **starting: Unpack[Starting],
    ) -> Run:
        """Run the rules on a stream; each micro-batch has the rules of the moment it starts.

        A micro-batch that runs again after a failure may have newer rules than the first time.
        Correlations of the set are those of the start. Where they run, results are events and
        alerts: these have the id of their correlation in ``column``, what is known of them in the
        column ``alert``, and NULL in the columns of events but for the time.

        Args:
            stream: a streaming DataFrame, or the name of a stream of ``engine``.
            sink: as for ``Query.start``.
            engine: the ``el.Engine`` that knows the name; the run is one of its queries, called
                like the set.
            time: the event-time column of a DataFrame, as for ``Engine.stream``; a named stream has
                its own.
            lateness: how much earlier than the latest row before it a row may be, as for
                ``Engine.stream``.
            column: as for ``matches``.
            keep_unmatched: as for ``matches``.
            as_struct: as for ``matches``.
            **starting: as for ``Query.start``.

        Returns:
            The run, which behaves like a StreamingQuery.

        Raises:
            QueryError: no streaming DataFrame, a name without an engine or unknown to it, a column
                that exists already, a rule that does not fit, or a run of that name is active.
            OptionError: an unknown sink or trigger, a path that is missing, an engine beside a
                DataFrame, or a lateness that is none, has no time, or is given for a named stream.
            SourceError: the sink's path cannot be written.
        """
        checked_text("column of matches", column)
        shape: dict[str, Any] = {
            "column": column,
            "keep_unmatched": keep_unmatched,
            "as_struct": as_struct,
        }
        if isinstance(stream, str):
            engine = engine_of(stream, engine, time, lateness)
            name = self._run_name(engine.spark)
            before = engine.queries[name].steps if name in engine.queries else ()
            is_again = any(isinstance(step, RuleStep) and step.rules is self for step in before)
            query = engine.rules(name, self, stream=stream, **shape, replace=is_again)
            return query.start(sink, **starting)
        if not checked_frame("the stream of rules", stream).isStreaming:
            msg = (
                f"start needs a streaming DataFrame (spark.readStream…), got a batch one; use "
                f"df.transform(rules.matches({column!r}))"
            )
            raise QueryError(msg, rules=self.name)
        if engine is not None:
            msg = (
                "rules on a DataFrame run without an engine; leave engine= out, or name one of the "
                "engine's streams: start('events', engine=engine)"
            )
            raise OptionError(msg, rules=self.name)
        relation = checked_relation("the stream of rules", stream, time, lateness)
        query = Query(
            self._run_name(stream.sparkSession),
            "",
            (ReadStep("stream", "stream"), *self.steps("stream", stream, time, **shape)),
            {"stream": relation},
            {},
            rename=RENAME,
        )
        return query.start(sink, **starting)

    def _run_name(self, spark: SparkSession) -> str:
        """Return the name of the set, or a free one for a run of a set without one."""
        if self._is_named:
            return self.name
        taken = {query.name for query in spark.streams.active}
        numbered = (f"{DEFAULT_NAME}_{number}" for number in itertools.count(2))
        return next(name for name in itertools.chain([DEFAULT_NAME], numbered) if name not in taken)

    # -- what was learned ----------------------------------------------------------------------

    def explain(self, *, width: int = 100) -> str:
        """Return in words how the rules are evaluated, and on what evidence.

        Args:
            width: columns of the text.

        Raises:
            QueryError: the rules were not applied to any DataFrame yet.
        """
        view = self.facts()
        sections = arranged(words.sections(view, self._reports.history()))
        return explain(view.name, sections, width=width)

    def _repr_html_(self) -> str:
        """Return the explanation for notebooks; the rules before there is one."""
        if self._shown is None:
            return fragment(self.name, [], steps=self.text.splitlines())
        return fragment(self.name, words.sections(self.facts(), self._reports.history()))

    def facts(self) -> RuleView:
        """Return the rules as they stand, as values: over the input they last met.

        Raises:
            QueryError: the rules were not applied to any DataFrame yet.
        """
        self._reports.learn(WAIT_S)
        if self._shown is None:
            msg = f"{self.name}: not applied to a DataFrame yet; use df.transform(…) first"
            raise QueryError(msg, name=self.name)
        notes = (*self.notes, *([KEEPS_RULES] if self._reports.streams else []))
        return self._shown.facts(notes)

    def report(self, path: str | Path) -> Path:
        """Write what is known of the rules as one self-contained HTML page.

        Raises:
            QueryError: the rules were not applied to any DataFrame yet.
            EddylineError: the extra ``report`` is not installed.
        """
        view, history = self.facts(), self._reports.history()
        run = RunView(
            query=self.name,
            text=self.text if self._shown is None else self._shown.text,
            history=history,
            sections=tuple(words.sections(view, history)),
            settings=settings_of(self.options),
        )
        return write_report(run, path)

    @property
    def journal(self) -> list[dict[str, Any]]:
        """Every decision so far, as rows: those of its runs too."""
        self._reports.learn(WAIT_S)
        return self._reports.rows()

    def _made_with(self) -> dict[str, Any]:
        return {
            **{name: getattr(self.options, name) for name in self.options.__dataclass_fields__},
            "functions": self.store.functions,
            "on_error": self.on_error,
            "name": self.name if self._is_named else None,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        # The rules travel, and what was learned of them stays: it belongs to jobs of this process.
        _, sources = self.store.now()
        contents = tuple(sources.values()), self.store.unread, self.correlated.sources
        recipe = type(self), contents, self._made_with()
        # A decorated function is not what its module has by its name: it travels by value.
        return _again, (cloudpickle.dumps(recipe),)  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"RuleSet({counted(len(self.store.now()[1]), 'rule')})"


def _fields_of(fields: Collection[str], missing: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    present = tuple(field for field in fields if field not in missing)
    return {"fields_found": present, "fields_missing": missing}


def _again(packed: bytes) -> RuleSet:
    cls, contents, options = cloudpickle.loads(packed)
    rules: RuleSet = cls.of(*contents, **options)
    return rules


# -- rules over a stream that an engine knows by its name ------------------------------------------


class RuleQueries(Protocol):
    """An engine that makes queries of rules over its streams; ``el.Engine`` is one."""

    spark: SparkSession
    queries: dict[str, Query]

    @property
    def rules(self) -> Callable[..., Query]:
        """See ``Engine.rules``."""


def engine_of(
    stream: str, engine: RuleQueries | None, time: str | None, lateness: str | None
) -> RuleQueries:
    """Return the engine of a named stream, whose time and lateness are its own."""
    if engine is None:
        msg = (
            f"rules start on a streaming DataFrame, or on a named stream of an engine; say which "
            f"engine has {stream!r}: start({stream!r}, …, engine=engine)"
        )
        raise QueryError(msg, stream=stream)
    if not hasattr(engine, "queries"):
        msg = f"engine= must be the el.Engine that has the stream, got {engine!r:.60}"
        raise OptionError(msg, stream=stream)
    arguments = {"time": time, "lateness": lateness}
    if listed := ", ".join(
        f"{name}={value!r}" for name, value in arguments.items() if value is not None
    ):
        msg = (
            f"stream {stream!r} has the time and lateness that engine.stream gave it; leave out "
            f"{listed}"
        )
        raise OptionError(msg, stream=stream)
    return engine


# -- changes by hand -------------------------------------------------------------------------------

DONE = {"add": "added", "replace": "replaced", "remove": "removed"}
"""What was done, as the journal has it of changes by programs."""


class RulesByHand:
    """The rules of a set in one run; a ``ChangeableRules``.

    Args:
        rules: the set.
        operator: finds them in the run.
        note: tells the journal of the set.
    """

    def __init__(
        self,
        rules: RuleSet,
        operator: RuleOperator,
        note: Callable[[Sequence[JournalEntry]], None],
    ) -> None:
        self._rules = rules
        self._store = rules.store
        self._operator = operator
        self._note = note
        self._changing = threading.Lock()

    # -- what a person sees -----------------------------------------------------------------------

    def found(self, part: str, most: int) -> RuleList:
        """Return the first rules whose names have a part; see ``ChangeableRules``."""
        _, sources = self._store.now()
        skipped = {rule.name: rule for rule in self._operator.skipped}
        names = [*sources, *(name for name in skipped if name not in sources)]
        matching = [name for name in names if part.casefold() in name.casefold()]
        follower = self._store.follower
        after = {name: source for name, source in sources.items() if name not in skipped}
        return RuleList(
            name=self._rules.name,
            rules=self._shown(matching[:most]),
            n_found=len(matching),
            n_all=len(names),
            follows="" if follower is None else follower.place,
            notes=to_come(self._operator.compiled.running, after),
        )

    def rule(self, name: str) -> RuleShown:
        """Return one rule; see ``ChangeableRules``."""
        shown = self._shown([name])
        if not shown:
            raise QueryError(unknown("rule", name, list(self._store.now()[1])), name=name)
        return shown[0]

    def _shown(self, names: Iterable[str]) -> tuple[RuleShown, ...]:
        """Return rules of some names, without those that there are not."""
        wanted = dict.fromkeys(names)
        _, sources = self._store.now()
        skipped = {rule.name: rule for rule in self._operator.skipped}
        counts = {count.name: count for count in self._operator.counts() if count.name in wanted}
        met = self._operator.compiled.sources

        def shown(name: str) -> RuleShown:
            source, why = sources.get(name), skipped.get(name)
            if source is None:
                return _unread(skipped[name])
            is_met = met.get(name) == source
            count = counts.get(name) if is_met else None
            return RuleShown(
                name=name,
                text=source.text,
                level=str(source.info.get("level") or ""),
                is_sql=isinstance(source, SqlRule),
                why_not="" if why is None else why.reason,
                is_in_force=is_met,
                n_rows=None if count is None else count.n_rows,
                n_matches=None if count is None else count.n_matches,
            )

        return tuple(shown(name) for name in wanted if name in sources or name in skipped)

    # -- what a person changes --------------------------------------------------------------------

    def check(self, change: RuleChange) -> None:
        """Raise if a change is not possible; see ``ChangeableRules``."""
        if self._store.follower is not None:
            msg = (
                f"the rules of {self._rules.name!r} follow {self._store.follower.place}; change "
                f"its files: changes are in force from the next micro-batch on"
            )
            raise QueryError(msg, rules=self._rules.name)
        if change.how != "add":
            self._check_is_seen(change)
        if change.how != "remove":
            _check_calls_no_java(change)
            self._store.check(change.name, self._made(change), is_new=change.how == "add")

    def _check_is_seen(self, change: RuleChange) -> None:
        now = self.rule(change.name)
        if now.mark != change.mark:
            msg = (
                f"rule {change.name!r} has been changed since it was shown; it is now "
                f"{now.text!r:.300}"
            )
            raise QueryError(msg, name=change.name)
        if change.how == "replace" and change.text == now.text:
            msg = f"rule {change.name!r} has this text already"
            raise QueryError(msg, name=change.name)

    def _made(self, change: RuleChange) -> Rule:
        """Return the new rule: one that takes the place of another keeps its level, title, tags."""
        source: Any = self._store.now()[1].get(change.name)
        if source is None or change.how == "add":
            return Rule(change.text, level=change.level or None)
        before = Rule.of(source)
        return Rule(change.text, level=before.level, tags=before.tags, title=before.title)

    def change(self, change: RuleChange, batch_id: int) -> JournalEntry:
        """Change the rules from the next micro-batch on; see ``ChangeableRules``."""
        with self._changing:
            self.check(change)
            before = None if change.how == "add" else self.rule(change.name).text
            if change.how == "add":
                self._rules.add(change.name, self._made(change))
            elif change.how == "replace":
                self._rules.replace(change.name, self._made(change))
            else:
                self._rules.remove(change.name)
        evidence = {**BY_PERSON, DONE[change.how]: [change.name]}
        after = None if change.how == "remove" else change.text
        entry = JournalEntry(batch_id, COMPONENT, "rules", before, after, evidence)
        self._note([entry])
        return entry


def _unread(skipped: SkippedRule) -> RuleShown:
    return RuleShown(skipped.name, skipped.text, is_sql=False, why_not=skipped.reason)


def _check_calls_no_java(change: RuleChange) -> None:
    """Raise if a condition calls Java: who may change rules may not run anything else."""
    try:
        tree = parse_condition(change.text, f"rule {change.name!r}")
    except QueryError:
        return  # whoever reads the whole rule says better what is wrong
    called = next((name for node in tree.walk() if (name := as_name(node)) in JAVA_CALLS), None)
    if called is not None:
        msg = (
            f"rule {change.name!r} calls {called}, which can run any method of Java: only "
            f"the program itself may add such a rule"
        )
        raise QueryError(msg, name=change.name)
