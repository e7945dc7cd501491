"""Reader of rules over DataFrame columns, with a memory."""

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
            rule_input = self._input(df)
            reads = rule_input.read(df, sources)
            missing = rule_input.missing(reads)
        rules: list[Rule] = []
        skipped: list[SkippedRule] = []
        for read in reads:
            if isinstance(read.rule, Rule):
                rules.append(read.rule)
            elif skips:
                name, text = read.source.name, read.source.text
                skipped.append(SkippedRule(name, read.rule.message, text))
            else:
                read.rule.facts["rule"] = read.source.name
                raise read.rule
        if (
            missing is not None
            and len(missing.blind) == missing.n_asking
            and rule_input.first_time()
        ):
            msg = (
                f"none of {counted(missing.n_asking, 'rule')} finds any of its fields, so "
                f"their tests are unknown for every event. Missing: {missing.text}"
            )
            warnings.warn(msg, MissingFieldsWarning, stacklevel=own_frames())
        return BoundRules(tuple(rules), tuple(skipped), missing)

    def keep(self, names: Collection[str]) -> None:
        """Forget the rules that are no longer there."""
        with self._lock:
            for rule_input in self._inputs.values():
                rule_input.keep(names)

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
        new = made_of(self._bound, (source for source in sources if not self._is_known(source)))
        self._read_timestamps(df.sparkSession, new)
        self._check_by_spark(df, new)
        self._known.update((read.source.name, read) for read in new)
        return [self._known[source.name] for source in sources]

    def missing(self, rules: Collection[_Read]) -> MissingFields | None:
        """Return the fields of rules that the input lacks."""
        by_rule = {read.source.name: read.lacking for read in rules if read.lacking}
        if not by_rule:
            return None
        asked = {read.source.name: {*read.source.info.get("fields", ())} for read in rules}
        blind = [name for name, lacking in by_rule.items() if asked[name] == {*lacking}]
        asking = [read.source for read in rules if asked[read.source.name]]
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
            self._known = {name: read for name, read in self._known.items() if name in names}
            self._analysed = {}

    def _is_known(self, source: RuleSource) -> bool:
        read = self._known.get(source.name)
        return read is not None and read.source == source

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
        for read in new:
            if isinstance(read.rule, Rule) and (
                moments := dict.fromkeys(moments_of(read.rule.tree))
            ):
                dated.append((read, read.rule))
                literals |= moments
        micros = micros_of(spark, list(literals))
        for read, rule in dated:
            read.rule = replace(rule, tree=with_moments(rule.tree, micros))

    def _check_by_spark(self, df: DataFrame, new: Collection[_Read]) -> None:
        """Refuse the rules that look at an expression that Spark refuses, or at no condition."""
        looks = [
            (read, read.rule, dict.fromkeys(looked_at(read.rule.tree)))
            for read in new
            if isinstance(read.rule, Rule)
        ]
        texts = dict.fromkeys(text for *_, looked in looks for text in looked)
        unknown = [text for text in texts if text not in self._analysed]
        kinds = analysed(df, [operand(df, text) for text in unknown])
        self._analysed.update(zip(unknown, kinds, strict=True))
        for read, rule, looked in looks:
            read.rule = self._error(read.source, rule, looked) or rule

    def _error(self, source: RuleSource, rule: Rule, texts: Iterable[str]) -> QueryError | None:
        """Return the error of a rule that looks at texts, if one of them cannot stand there."""
        conditions = {node.sql for node in rule.tree.walk() if isinstance(node, NativeTest)}
        for text in texts:
            kind = self._analysed[text]
            if isinstance(kind, AnalysisException):
                what = f"{rule.called}: Spark cannot resolve {text}"
                return refused(what, kind, getattr(source, "functions", ()), name=rule.name)
            if text in conditions and not isinstance(kind, BooleanType | NullType):
                reason = f"{text} is of type {kind.simpleString()}; compare it with something"
                return QueryError(f"{rule.called} is not a condition: {reason}", name=rule.name)
        return None


def _no_hints(*_: Any) -> dict[str, str]:
    """Return no likely columns, for rules that know none."""
    return {}


def session_settings(spark: SparkSession) -> list[str]:
    """Return the settings of a session on which it depends what a rule means."""
    return [str(spark.conf.get(setting, None)) for setting in SETTINGS]


def micros_of(spark: SparkSession, moments: Sequence[Moment]) -> dict[Moment, int]:
    """Return the microseconds since 1970 (UTC) of moments, in the time zone of the session."""
    if not moments:
        return {}
    rows = pa.table(
        {"text": [moment.text for moment in moments], "kind": [moment.kind for moment in moments]}
    )
    # Rows that come from here: Spark computes them while it plans, without a job.
    table = spark.createDataFrame(rows).selectExpr(_MICROS).toArrow()
    return dict(zip(moments, table["micros"].to_pylist(), strict=True))


def looked_at(node: Node) -> Iterator[str]:
    """Yield the columns and SQL expressions that a rule reads."""
    for part in node.walk():
        if isinstance(part, FunctionTest):
            yield from part.predicate.reads
        elif isinstance(part, NativeTest):
            yield part.sql
        elif isinstance(part, ValueComparison | IsNull | Raise):
            yield part.operand.sql
