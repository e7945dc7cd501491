"""Reads rules over the columns of DataFrames, and remembers those that it has read."""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql.types import BooleanType, NullType

from eddyline.data.memory import LastUsed, made_of
from eddyline.errors import EddylineError, MissingFieldsWarning, QueryError, own_frames
from eddyline.query.conditions import (
    BoundRules,
    FunctionTest,
    IsNull,
    MissingFields,
    NativeTest,
    Raise,
    Rule,
    SkippedRule,
    ValueComparison,
)
from eddyline.query.rules.sources import moments_of, with_moments
from eddyline.report.formatting import counted
from eddyline.spark.analysis import analysed, check_names, column_types, operand, refused
from eddyline.spark.session import is_ansi

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

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


# The casts that Spark puts around such constants; a day and a time without a zone become timestamps
# each in their own way where the clock jumps.
_MICROS = """unix_micros(CASE kind
    WHEN 'date' THEN CAST(CAST(text AS DATE) AS TIMESTAMP_LTZ)
    WHEN 'timestamp_ntz' THEN CAST(CAST(text AS TIMESTAMP_NTZ) AS TIMESTAMP_LTZ)
    ELSE CAST(text AS TIMESTAMP_LTZ)
END) AS micros"""


class RuleBinder:
    """Reads rules over the columns of DataFrames, and remembers those that it has read.

    A set that gets one more rule reads one rule, not all of them.
    """

    def __init__(self) -> None:
        self._inputs: LastUsed[Any, _Input] = LastUsed(MAX_INPUTS)
        self._lock = threading.Lock()

    def bind(self, df: DataFrame, sources: Collection[RuleSource], *, skips: bool) -> BoundRules:
        """Read rules over the columns of a DataFrame.

        With ``skips``, rules that do not fit are skipped, and not an error.

        Raises:
            QueryError: a rule does not fit; the message names it and points at the place.
        """
        check_names(df)
        with self._lock:
            known = self._input(df)
            found = known.read(df, sources)
            missing = known.missing(found)
        rules: list[Rule] = []
        skipped: list[SkippedRule] = []
        for each in found:
            if isinstance(each.rule, Rule):
                rules.append(each.rule)
            elif skips:
                name, text = each.source.name, each.source.text
                skipped.append(SkippedRule(name, each.rule.message, text))
            else:
                each.rule.facts["rule"] = each.source.name
                raise each.rule
        if missing is not None and len(missing.blind) == missing.n_asking and known.first_time():
            msg = (
                f"none of {counted(missing.n_asking, 'rule')} finds any of its fields, so "
                f"their tests are unknown for every event. Missing: {missing.text}"
            )
            warnings.warn(msg, MissingFieldsWarning, stacklevel=own_frames())
        return BoundRules(tuple(rules), tuple(skipped), missing)

    def keep(self, names: Collection[str]) -> None:
        """Forget the rules that are no longer there."""
        with self._lock:
            for known in self._inputs.values():
                known.keep(names)

    def _input(self, df: DataFrame) -> _Input:
        types = column_types(df)
        key = (tuple(types.items()), *session_settings(df.sparkSession))
        return self._inputs.get_or_make(key, lambda: _Input(types, is_ansi(df.sparkSession)))


@dataclass(slots=True)
class _Read:
    """A rule over an input, or the error why it does not fit."""

    source: RuleSource
    rule: Rule | EddylineError
    lacking: tuple[str, ...] = ()
    """Fields that the input lacks."""


class _Input:
    """The rules that were read over one kind of input."""

    def __init__(self, types: dict[str, str], ansi: bool) -> None:
        self._types = types
        self._ansi = ansi
        self._known: dict[str, _Read] = {}
        self._is_told = False
        self._analysed: dict[str, DataType | AnalysisException] = {}
        """The type of each column or expression that Spark has analysed, or its error."""

    def read(self, df: DataFrame, sources: Collection[RuleSource]) -> list[_Read]:
        """Return rules over the input; those that are the same as before are not read again."""
        new = made_of(self._bound, (each for each in sources if not self._is_known(each)))
        self._read_timestamps(df.sparkSession, new)
        self._check_by_spark(df, new)
        self._known.update((each.source.name, each) for each in new)
        return [self._known[each.name] for each in sources]

    def missing(self, rules: Collection[_Read]) -> MissingFields | None:
        """Return the fields of rules that the input lacks."""
        by_rule = {each.source.name: each.lacking for each in rules if each.lacking}
        if not by_rule:
            return None
        asked = {each.source.name: {*each.source.info.get("fields", ())} for each in rules}
        blind = [name for name, lacking in by_rule.items() if asked[name] == {*lacking}]
        asking = [each.source for each in rules if asked[each.source.name]]
        fields = dict.fromkeys(field for lacking in by_rule.values() for field in lacking)
        likely: Callable[..., dict[str, str]] = getattr(asking[0], "likely_columns", _no_hints)
        hints = likely(fields, self._types)
        return MissingFields(len(asking), by_rule, tuple(blind), hints)

    def first_time(self) -> bool:
        """Return whether this is the first call."""
        first, self._is_told = not self._is_told, True
        return first

    def keep(self, names: Collection[str]) -> None:
        """Forget the other rules; as long as they are few, what they were is not worth it."""
        if len(self._known) > 2 * len(names) + SPARE_RULES:
            self._known = {name: each for name, each in self._known.items() if name in names}
            self._analysed = {}

    def _is_known(self, source: RuleSource) -> bool:
        known = self._known.get(source.name)
        return known is not None and known.source == source

    def _bound(self, source: RuleSource) -> _Read:
        lacking = getattr(source, "lacking", lambda _: ())(self._types)
        try:
            return _Read(source, source.bind(self._types, ansi=self._ansi), lacking)
        except EddylineError as error:
            return _Read(source, error)

    @staticmethod
    def _read_timestamps(spark: SparkSession, new: Collection[_Read]) -> None:
        """Put numbers in the place of timestamp literals, which only the session can read."""
        dated: list[tuple[_Read, Rule]] = []
        literals: dict[Moment, None] = {}
        for each in new:
            if isinstance(each.rule, Rule) and (own := dict.fromkeys(moments_of(each.rule.tree))):
                dated.append((each, each.rule))
                literals |= own
        micros = micros_of(spark, list(literals))
        for each, rule in dated:
            each.rule = replace(rule, tree=with_moments(rule.tree, micros))

    def _check_by_spark(self, df: DataFrame, new: Collection[_Read]) -> None:
        """Refuse the rules that look at an expression that Spark refuses, or at no condition."""
        looks = [
            (each, each.rule, dict.fromkeys(looked_at(each.rule.tree)))
            for each in new
            if isinstance(each.rule, Rule)
        ]
        texts = dict.fromkeys(text for *_, own in looks for text in own)
        unknown = [text for text in texts if text not in self._analysed]
        found = analysed(df, [operand(df, text) for text in unknown])
        self._analysed.update(zip(unknown, found, strict=True))
        for each, rule, own in looks:
            each.rule = self._error(each.source, rule, own) or rule

    def _error(self, source: RuleSource, rule: Rule, texts: Iterable[str]) -> QueryError | None:
        """Return the error of a rule that looks at texts, if one of them cannot stand there."""
        conditions = {each.sql for each in rule.tree.walk() if isinstance(each, NativeTest)}
        for text in texts:
            kind = self._analysed[text]
            if isinstance(kind, AnalysisException):
                what = f"{rule.called}: Spark cannot resolve {text}"
                return refused(what, kind, getattr(source, "functions", ()), name=rule.name)
            if text in conditions and not isinstance(kind, BooleanType | NullType):
                said = f"{text} is of type {kind.simpleString()}; compare it with something"
                return QueryError(f"{rule.called} is not a condition: {said}", name=rule.name)
        return None


def _no_hints(*_: Any) -> dict[str, str]:
    """Return no likely columns, for rules that know none."""
    return {}


def session_settings(spark: SparkSession) -> list[str]:
    """Return the settings of a session on which it depends what a rule means."""
    return [str(spark.conf.get(each, None)) for each in SETTINGS]


def micros_of(spark: SparkSession, moments: Sequence[Moment]) -> dict[Moment, int]:
    """Return the microseconds since 1970 (UTC) of moments, in the time zone of the session."""
    if not moments:
        return {}
    rows = pa.table(
        {"text": [each.text for each in moments], "kind": [each.kind for each in moments]}
    )
    # Rows that come from here: Spark computes them while it plans, without a job.
    found = spark.createDataFrame(rows).selectExpr(_MICROS).toArrow()
    return dict(zip(moments, found["micros"].to_pylist(), strict=True))


def looked_at(node: Node) -> Iterator[str]:
    """Yield the columns and SQL expressions that a rule reads."""
    for each in node.walk():
        if isinstance(each, FunctionTest):
            yield from each.predicate.reads
        elif isinstance(each, NativeTest):
            yield each.sql
        elif isinstance(each, ValueComparison | IsNull | Raise):
            yield each.operand.sql
