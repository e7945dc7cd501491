"""Reads rules over the columns of DataFrames, and remembers those that it has read."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from eddyline.data.gc_pause import made_of
from eddyline.errors import EddylineError, QueryError
from eddyline.query.conditions import (
    BoundRules,
    FunctionTest,
    IsNull,
    NativeTest,
    Raise,
    Rule,
    SkippedRule,
    ValueComparison,
)
from eddyline.query.rules.timestamps import moments_of, with_moments
from eddyline.spark.analysis import analysed, check_names, column_types
from eddyline.spark.rules.timestamps import micros_of
from eddyline.spark.rules.udf import operand
from eddyline.spark.session import is_ansi

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from eddyline.query.conditions import Node, RuleSource
    from eddyline.sql.literals import Moment

SETTINGS = (
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.session.timeZone",
    "spark.sql.timestampType",
)
"""Settings of the session on which it depends what a rule means."""

MAX_INPUTS = 4
"""Kinds of input over which read rules are remembered."""

SPARE_RULES = 1_000
"""Rules that are remembered although they are gone."""


class RuleBinder:
    """Reads rules over the columns of DataFrames, and remembers those that it has read.

    A set that gets one more rule reads one rule, not all of them.
    """

    def __init__(self) -> None:
        self._inputs: OrderedDict[Any, _Input] = OrderedDict()
        self._lock = threading.Lock()

    def bind(self, df: DataFrame, sources: Iterable[RuleSource], *, skips: bool) -> BoundRules:
        """Read rules over the columns of a DataFrame.

        Args:
            df: the input.
            sources: the rules.
            skips: whether rules that do not fit are skipped, and not an error.

        Raises:
            QueryError: a rule does not fit; the message names it and points at the place.
        """
        check_names(df)
        with self._lock:
            known = self._input(df)
            found = made_of(known.bound, sources)
            rules = [each for each in found if isinstance(each, Rule)]
            wrong = [each for each in found if not isinstance(each, Rule)]
            if wrong and not skips:
                raise wrong[0].error
            rules = known.told(df.sparkSession, rules)
            refused = known.refused_by_spark(df, rules)
        bound = BoundRules(tuple(rules), tuple(each.skipped for each in wrong))
        return _without(bound, refused, skips=skips) if refused else bound

    def keep(self, names: Collection[str]) -> None:
        """Forget the rules that are no longer there."""
        with self._lock:
            for known in self._inputs.values():
                known.keep(names)

    def _input(self, df: DataFrame) -> _Input:
        types = column_types(df)
        key = (tuple(types.items()), *settings_of(df.sparkSession))
        if key not in self._inputs:
            self._inputs[key] = _Input(types, is_ansi(df.sparkSession))
            while len(self._inputs) > MAX_INPUTS:
                self._inputs.popitem(last=False)
        self._inputs.move_to_end(key)
        return self._inputs[key]


@dataclass(frozen=True, slots=True)
class _Wrong:
    """A rule that does not fit an input."""

    source: RuleSource
    error: EddylineError

    @property
    def skipped(self) -> SkippedRule:
        return SkippedRule(self.source.name, self.error.message, self.source.text)


class _Input:
    """The rules that were read over one kind of input."""

    def __init__(self, types: dict[str, str], ansi: bool) -> None:
        self._types = types
        self._ansi = ansi
        self._known: dict[str, tuple[RuleSource, Rule | _Wrong]] = {}
        self._columns: dict[str, tuple[Rule, frozenset[str]]] = {}
        self._asked: dict[str, str | None] = {}
        self._micros: dict[Moment, int] = {}

    def bound(self, source: RuleSource) -> Rule | _Wrong:
        """Return a rule over the input; read once, as long as it is the same."""
        known = self._known.get(source.name)
        if known is not None and known[0] is source:
            return known[1]
        found: Rule | _Wrong
        try:
            found = source.bind(self._types, ansi=self._ansi)
        except EddylineError as error:
            found = _Wrong(source, error)
        self._known[source.name] = source, found
        return found

    def told(self, spark: SparkSession, rules: Sequence[Rule]) -> list[Rule]:
        """Return rules over the input in which every moment is a number, and remember them so."""
        moments = {rule.name: dict.fromkeys(moments_of(rule.tree)) for rule in rules}
        new = dict.fromkeys(each for found in moments.values() for each in found)
        self._micros |= micros_of(spark, [each for each in new if each not in self._micros])
        found = []
        for rule in rules:
            now = rule
            if moments[rule.name]:
                now = replace(rule, tree=with_moments(rule.tree, self._micros))
                self._known[rule.name] = self._known[rule.name][0], now
            found.append(now)
        return found

    def keep(self, names: Collection[str]) -> None:
        """Forget the other rules; as long as they are few, what they were is not worth it."""
        if len(self._known) <= 2 * len(names) + SPARE_RULES:
            return
        self._known = {name: each for name, each in self._known.items() if name in names}
        self._columns = {name: each for name, each in self._columns.items() if name in names}
        read = {text for _, columns in self._columns.values() for text in columns}
        self._asked = {text: why for text, why in self._asked.items() if text in read}

    def refused_by_spark(self, df: DataFrame, rules: Sequence[Rule]) -> dict[str, str]:
        """Return the columns that rules look at and Spark refuses, and why."""
        columns = {text for rule in rules for text in self._columns_of(rule)}
        new = [text for text in columns if text not in self._asked]
        self._asked.update(dict.fromkeys(new) | _refused_by_spark(df, new))
        found = {text: self._asked[text] for text in columns}
        return {text: why for text, why in found.items() if why is not None}

    def _columns_of(self, rule: Rule) -> frozenset[str]:
        known = self._columns.get(rule.name)
        if known is None or known[0] is not rule:
            known = self._columns[rule.name] = rule, frozenset(looked_at(rule.tree))
        return known[1]


def settings_of(spark: SparkSession) -> list[str]:
    """Return the settings of a session on which it depends what a rule means."""
    return [str(spark.conf.get(each, None)) for each in SETTINGS]


def _refused_by_spark(df: DataFrame, columns: Sequence[str]) -> dict[str, str]:
    """Return the columns that rules look at and Spark refuses, and why."""
    found = analysed(df, [operand(df, text) for text in columns])
    paired = zip(columns, found, strict=True)
    return {text: str(each) for text, each in paired if isinstance(each, AnalysisException)}


def _without(bound: BoundRules, refused: dict[str, str], *, skips: bool) -> BoundRules:
    """Return the rules all of whose columns Spark knows.

    Raises:
        QueryError: there are others, and they are not to be skipped.
    """
    kept, skipped = [], list(bound.skipped)
    for rule in bound.rules:
        wrong = [text for text in looked_at(rule.tree) if text in refused]
        if not wrong:
            kept.append(rule)
            continue
        msg = f"rule {rule.name!r}: Spark cannot resolve {wrong[0]}: {refused[wrong[0]]}"
        if not skips:
            raise QueryError(msg, name=rule.name)
        skipped.append(SkippedRule(rule.name, msg, rule.text))
    return BoundRules(tuple(kept), tuple(skipped))


def looked_at(node: Node) -> Iterator[str]:
    """Yield the columns and SQL expressions that a rule reads."""
    for each in node.walk():
        if isinstance(each, FunctionTest):
            yield from each.predicate.reads
        elif isinstance(each, NativeTest):
            yield each.sql
        elif isinstance(each, ValueComparison | IsNull | Raise):
            yield each.operand.sql
