"""``el.RuleSet``: many boolean rules over one stream, evaluated together in one pass."""

from __future__ import annotations

import itertools
import threading
import warnings
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Unpack

from pyspark import cloudpickle
from pyspark.sql import functions as F

from eddyline.errors import EddylineWarning, OptionError, QueryError
from eddyline.options import SharingOptions
from eddyline.query.steps import ReadStep
from eddyline.registry import checked_text
from eddyline.report import rules as words
from eddyline.report.formatting import counted
from eddyline.report.html import fragment, write_report
from eddyline.report.sections import RunView, arranged
from eddyline.report.terminal import explain
from eddyline.rules.correlations import CorrelationStore
from eddyline.rules.step import RuleStep
from eddyline.rules.store import RuleStore
from eddyline.spark.functions import named_functions
from eddyline.spark.operator import Batch
from eddyline.spark.query import Query
from eddyline.spark.relation import checked_frame, checked_relation
from eddyline.spark.rules.alerts import RENAME, RulesWithAlerts
from eddyline.spark.rules.binding import MAX_INPUTS, RuleBinder
from eddyline.spark.rules.by_hand import RulesByHand
from eddyline.spark.rules.named_stream import engine_of
from eddyline.spark.rules.operator import RuleOperator
from eddyline.spark.rules.output import (
    CountByRule,
    MatchedRows,
    MatchesColumn,
    UnmatchedRows,
    about_rules,
)
from eddyline.spark.run.job import settings_of
from eddyline.spark.run.job_reports import WAIT_S, JobReports

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from eddyline.query.conditions import RuleSource, SkippedRule
    from eddyline.rules.view import RuleView
    from eddyline.spark.operator import Site
    from eddyline.spark.query import Starting
    from eddyline.spark.rules.named_rules import Given, NamedRules
    from eddyline.spark.rules.named_stream import RuleQueries
    from eddyline.spark.rules.output import Output
    from eddyline.spark.run.run import Run
    from eddyline.spark.sinks.sinks import BatchWriter

DEFAULT_NAME = "rules"
"""Of a set without a name, and of its first run."""

KEEPS_RULES = (
    "a plain streaming DataFrame keeps the rules that it was started with; rules.start(…) and "
    "foreachBatch take changes in at the next micro-batch"
)


class RuleSet(RulesWithAlerts):
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
        rules: Mapping[str, Given] | NamedRules | None = None,
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
        self._binder = RuleBinder()
        self._reports = JobReports()
        self._lock = threading.RLock()
        self._transforms: OrderedDict[Any, RuleOperator] = OrderedDict()
        """By kind of input: each has a plan of its own."""
        self._queries: weakref.WeakSet[RuleOperator] = weakref.WeakSet()
        self._shown: RuleOperator | None = None
        """The operator that met an input last."""
        self.add({} if rules is None else rules)

    # -- the rules ----------------------------------------------------------------------------

    @property
    def skipped(self) -> tuple[SkippedRule, ...]:
        """The rules that do not run, and why.

        Those that do not fit the columns of the input are known once the set was applied to one,
        and those that do not fit the stream of an active run as soon as they are added.
        Correlations that do not run are known once a query of the set was made.
        """
        shown = self._shown
        found = self.store.skipped({}, ()) if shown is None else shown.skipped
        return (*found, *self.correlated.unfit)

    @property
    def info(self) -> dict[str, Mapping[str, Any]]:
        """Facts about each rule: its text, and those of its source (title, level, tags).

        Once the set was applied, ``fields_found`` and ``fields_missing`` list the fields of a Sigma
        rule that the input had or lacked.
        """
        facts, shown = super().info, self._shown
        if shown is None:
            return facts
        lacking = {} if shown.missing is None else shown.missing.by_rule
        return {
            name: {**each, **_fields_of(each["fields"], lacking.get(name, ()))}
            if "fields" in each
            else each
            for name, each in facts.items()
        }

    def _unfit(self, rules: Collection[RuleSource], skips: bool) -> list[SkippedRule]:
        """Return the rules that do not fit the stream of an active run."""
        if not rules:
            return []
        running = [each for each in self._queries if each.is_running]
        found = [self._binder.bind(each.source, rules, skips=skips) for each in running]
        return [why for bound in found for why in bound.skipped]

    def _changed_since(self, version: int) -> None:
        """Warn, if the rules are others than before, that a plain streaming query keeps its own."""
        has_changed = self.store.now()[0] != version
        if has_changed and any(each.may_run() for each in self._reports.streams):
            msg = (
                f"the rules of {self.name!r} have changed, but a streaming query that was started "
                f"with rules.matches(…) keeps those it was started with, as Spark lays its plan "
                f"once; run it by rules.start(…), or transform inside foreachBatch, to have "
                f"changes take effect at the next micro-batch"
            )
            warnings.warn(msg, EddylineWarning, stacklevel=3)

    # -- transforms ---------------------------------------------------------------------------

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
        valid, quarantine = self._applied(df, UnmatchedRows(), bad)
        return valid, quarantine

    def any(self) -> Callable[[DataFrame], DataFrame]:
        """Return a transform that keeps the rows for which some rule is true."""
        return lambda df: self._applied(df, MatchedRows())[0]

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
            known = about_rules(self.store.now()[1].values()).to_pylist()
            about = df.sparkSession.createDataFrame(known, "id string, title string, level string")
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

            return [laid(each) for each in outputs]

    def _operator_over(self, df: DataFrame) -> RuleOperator:
        """Return the operator over inputs like this one, with the rules of now."""
        with self._lock:
            kind = (tuple(df.dtypes), df.isStreaming)
            if kind in self._transforms:
                self._transforms[kind].prepare(df, Batch())
            else:
                self._transforms[kind] = RuleOperator(self.store, self._binder, MatchesColumn(), df)
            self._transforms.move_to_end(kind)
            while len(self._transforms) > MAX_INPUTS:
                self._transforms.popitem(last=False)
            return self._transforms[kind]

    # -- queries ------------------------------------------------------------------------------

    def operator(self, step: RuleStep, site: Site) -> RuleOperator:
        """Return the operator of a query's step with these rules."""
        output = MatchesColumn(step.column, step.keep_unmatched, as_struct=step.as_struct)
        output.check(site.df)
        made = self.query_operator(site.df, output, site.query)
        made.by_hand = RulesByHand(self, made, self._reports.note)
        return made

    def query_operator(self, df: DataFrame, output: MatchesColumn, query: str) -> RuleOperator:
        """Return an operator whose decisions the set's journal has, too."""
        made = RuleOperator(
            self.store, self._binder, output, df, query=query, note=self._reports.note
        )
        self._queries.add(made)
        self._shown = made
        return made

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
            is_again = any(isinstance(each, RuleStep) and each.rules is self for each in before)
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
        taken = {each.name for each in spark.streams.active}
        numbered = (f"{DEFAULT_NAME}_{number}" for number in itertools.count(2))
        return next(name for name in itertools.chain([DEFAULT_NAME], numbered) if name not in taken)

    # -- what was learned ---------------------------------------------------------------------

    def explain(self, *, width: int = 100) -> str:
        """Return in words how the rules are evaluated, and on what evidence.

        Args:
            width: columns of the text.

        Raises:
            QueryError: the rules were not applied to any DataFrame yet.
        """
        view = self.view()
        sections = arranged(words.sections(view, self._reports.history()))
        return explain(view.name, sections, width=width)

    def _repr_html_(self) -> str:
        """Return the explanation for notebooks; the rules before there is one."""
        if self._shown is None:
            return fragment(self.name, [], steps=self.text.splitlines())
        return fragment(self.name, words.sections(self.view(), self._reports.history()))

    def view(self) -> RuleView:
        """Return the rules as they stand, as values: over the input they last met.

        Raises:
            QueryError: the rules were not applied to any DataFrame yet.
        """
        self._reports.learn(WAIT_S)
        if self._shown is None:
            msg = f"{self.name}: not applied to a DataFrame yet; use df.transform(…) first"
            raise QueryError(msg, name=self.name)
        notes = (*self.notes, *([KEEPS_RULES] if self._reports.streams else []))
        return self._shown.view(notes)

    def report(self, path: str | Path) -> Path:
        """Write what is known of the rules as one self-contained HTML page.

        Raises:
            QueryError: the rules were not applied to any DataFrame yet.
            EddylineError: the extra ``report`` is not installed.
        """
        view, history = self.view(), self._reports.history()
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
        known = tuple(sources.values()), self.store.unread, self.correlated.sources
        made = type(self), known, self._made_with()
        # A decorated function is not what its module has by its name: it travels by value.
        return _again, (cloudpickle.dumps(made),)  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"RuleSet({counted(len(self.store.now()[1]), 'rule')})"


def _fields_of(fields: Collection[str], missing: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    found = tuple(each for each in fields if each not in missing)
    return {"fields_found": found, "fields_missing": missing}


def _again(packed: bytes) -> RuleSet:
    cls, known, options = cloudpickle.loads(packed)
    made: RuleSet = cls.of(*known, **options)
    return made
