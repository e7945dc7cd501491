"""``el.RuleSet``: many boolean rules over one stream, evaluated together in one pass."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import functions as F

from eddyline.errors import EddylineError, OptionError, QueryError
from eddyline.options import SharingOptions
from eddyline.query.rule_reader import check_rule, rule_source
from eddyline.query.rules import SkippedRule
from eddyline.registry import unknown
from eddyline.runtime.journal import Journal
from eddyline.spark.conjunction import HARVEST_WAIT_S, MAX_PENDING, SETTINGS
from eddyline.spark.harvest import as_bytes, listener
from eddyline.spark.rule_pipeline import STRUCT, RulePipeline, matched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from eddyline.query.predicates import FunctionPredicate, Predicate
    from eddyline.query.rule_reader import PredicateRule, SqlRule
    from eddyline.query.rules import RuleSource
    from eddyline.spark.rule_pipeline import PendingRules

ON_ERROR = ("raise", "skip")

MAX_CHECKED = 10_000
"""Rules added at once that are read at once; of more, each is read when it meets columns."""


class RuleSet:
    """Named boolean rules over one schema, evaluated together.

    Make transforms of it and hand them to ``DataFrame.transform``, batch or streaming, with any
    sink and inside ``foreachBatch``. Rules may be added, removed and replaced at any time; what is
    laid over a DataFrame afterwards, such as the next micro-batch, has them.

    Args:
        rules: each a condition as SQL text, or a predicate, by its name.
        functions: Python predicates that the texts may call, by name.
        on_error: ``raise``, or ``skip``: a rule that cannot be read or does not fit the columns is
            listed in ``skipped``, and the rest run.
        name: what the set is called in journals and reports.
        **options: see ``eddyline.options.SharingOptions``.

    Raises:
        QueryError: a rule is no condition; the message names it.
        OptionError: an unknown option, or a value out of range.

    Example:
        >>> rules = el.RuleSet({"r1": "a > 5 AND b = 'x'"})  # doctest: +SKIP
        >>> events.transform(rules.matches("matches"))  # doctest: +SKIP
    """

    def __init__(
        self,
        rules: Mapping[str, str | Predicate] | None = None,
        *,
        functions: Mapping[str, FunctionPredicate] | None = None,
        on_error: str = "raise",
        name: str = "rules",
        **options: Any,
    ) -> None:
        if on_error not in ON_ERROR:
            raise OptionError(unknown("on_error", on_error, ON_ERROR), on_error=on_error)
        self.name = name
        self.options = SharingOptions.of(**options)
        self.on_error = on_error
        self._functions = dict(functions or {})
        self._sources: dict[str, RuleSource] = {}
        self._unread: tuple[SkippedRule, ...] = ()
        self._version = 0
        self._lock = threading.RLock()
        self._journal = Journal()
        self._pipeline: RulePipeline | None = None
        self._bound_for: Any = None
        self._waiting: list[PendingRules] = []
        self._streams: list[_StreamReports] = []
        self.add(rules or {})

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
        """
        made = cls(**options)
        made._unread = tuple(skipped)
        made._put({source.name: source for source in sources})
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

        Those that do not fit the columns of the input are known once the set was applied to one.
        """
        with self._lock:
            bound = () if self._pipeline is None else self._pipeline.bound.skipped
            here = tuple(each for each in bound if each.name in self._sources)
            return (*self._unread, *here)

    @property
    def info(self) -> dict[str, Mapping[str, Any]]:
        """What is known of each rule: its text, and what its source tells (title, level, tags)."""
        with self._lock:
            return {
                name: {"text": source.text, **source.info} for name, source in self._sources.items()
            }

    def add(
        self, rules: str | Mapping[str, str | Predicate], rule: str | Predicate | None = None
    ) -> None:
        """Add rules: ``add("r1", "a > 5")``, or several by their names.

        Raises:
            QueryError: a name is taken, or a rule is no condition.
        """
        given = {rules: rule} if isinstance(rules, str) else dict(rules)
        made = {name: self._source(name, each) for name, each in given.items()}
        if len(made) <= MAX_CHECKED:
            made = {name: source for name, source in made.items() if self._is_readable(source)}
        with self._lock:
            for name in made:
                if name in self._sources:
                    msg = f"rule {name!r} exists already; use replace({name!r}, …)"
                    raise QueryError(msg, name=name)
            self._put(made)

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
            self._version += 1

    def replace(self, name: str, rule: str | Predicate) -> None:
        """Replace a rule; it keeps its place in the set.

        Raises:
            QueryError: there is no rule of that name, or the new one is no condition.
        """
        made = self._source(name, rule)
        with self._lock:
            self._check_known(name)
            self._put({name: made})

    def _source(self, name: Any, rule: Any) -> SqlRule | PredicateRule:
        if not isinstance(name, str) or not name:
            msg = f"a rule is named by a text that is not empty, got {name!r}"
            raise QueryError(msg, name=name)
        return rule_source(name, rule, self._functions)

    def _is_readable(self, source: SqlRule | PredicateRule) -> bool:
        """Return whether a rule can be read; what it names is known when it meets columns."""
        try:
            check_rule(source)
        except EddylineError as error:
            if self.on_error == "raise":
                raise
            skipped = SkippedRule(source.name, error.message, source.text)
            self._unread = (*self._unread, skipped)
            return False
        return True

    def _check_known(self, name: str) -> None:
        if name not in self._sources:
            raise QueryError(unknown("rule", name, self._sources), name=name)

    def _put(self, made: Mapping[str, RuleSource]) -> None:
        with self._lock:
            self._sources.update(made)
            self._version += 1

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
            kept = found if keep_unmatched else matched(found)
            return kept.withColumn(column, F.col(f"{STRUCT}.matches")).drop(STRUCT)

        return transform

    def any(self) -> Callable[[DataFrame], DataFrame]:
        """Return a transform that keeps the rows for which some rule is true."""

        def transform(df: DataFrame) -> DataFrame:
            return matched(self._applied(df)).drop(STRUCT)

        return transform

    def count_by_rule(self) -> Callable[[DataFrame], DataFrame]:
        """Return a transform to the columns ``rule`` and ``count``: rows that each is true for.

        Rules that are true for no row are not among them. On a streaming DataFrame it is an
        aggregation, for the output modes ``complete`` and ``update``.
        """

        def transform(df: DataFrame) -> DataFrame:
            found = self._applied(df).select(F.explode(f"{STRUCT}.matches").alias("rule"))
            return found.groupBy("rule").count()

        return transform

    def pipeline(self, df: DataFrame) -> RulePipeline:
        """Return the rules over an input; other columns, settings or rules start afresh.

        Raises:
            QueryError: a rule does not fit the columns; the message names it.
        """
        with self._lock:
            settings = [str(df.sparkSession.conf.get(each, None)) for each in SETTINGS]
            wanted = (self._version, df.dtypes, settings)
            if self._pipeline is None or self._bound_for != wanted:
                self._take_entries()
                self._pipeline = RulePipeline(
                    df,
                    tuple(self._sources.values()),
                    self.options,
                    self.name,
                    skips=self.on_error == "skip",
                )
                self._bound_for, self._waiting = wanted, []
            return self._pipeline

    def _applied(self, df: DataFrame) -> DataFrame:
        self._learn(0.0)
        pipeline = self.pipeline(df)
        if df.isStreaming:
            reports = _StreamReports(pipeline)
            self._streams.append(reports)
            listener(df).take(reports.name, reports.take)
            return pipeline.apply(df, observation=lambda: reports.name)[0]
        result, pending = pipeline.apply(df)
        self._waiting = (self._waiting + pending)[-MAX_PENDING:]
        return result

    # -- what was learned ---------------------------------------------------------------------

    @property
    def journal(self) -> list[dict[str, Any]]:
        """Every decision so far, as rows."""
        self._learn(HARVEST_WAIT_S)
        return self._journal.rows()

    def _learn(self, timeout_s: float) -> None:
        if self._pipeline is not None and self._waiting:
            self._waiting = self._pipeline.learn(self._waiting, timeout_s=timeout_s)
        self._take_entries()

    def _take_entries(self) -> None:
        if self._pipeline is not None:
            self._journal.extend(self._pipeline.take_entries())

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"RuleSet({len(self._sources)} rules)"


class _StreamReports:
    """Feeds what a streaming query's tasks report into the loop of its rules."""

    def __init__(self, pipeline: RulePipeline) -> None:
        self.name = f"rules_{uuid.uuid4().hex}"
        self.pipeline = pipeline

    def take(self, metrics: dict[str, Any], batch_id: int) -> None:
        """Take in what one micro-batch reported."""
        self.pipeline.learn_packed(as_bytes(metrics, "rules"), batch_id)


def _check_free(df: DataFrame, column: str) -> None:
    """Refuse to replace a column of the input."""
    if column.lower() in (each.lower() for each in df.columns):
        msg = f"the input has a column {column!r} already; choose another: matches('…')"
        raise QueryError(msg, column=column)
