"""Outputs of rules: a column of matches, a filter, or counts.

Tasks or one statement of Spark's compute them. Each output is made of what tasks find (``lay``;
``read`` where they read the files themselves), or of one statement of Spark's, where the plan is
that.

Of a statement no row goes to Python. Rows for which no rule is true are dropped first; names are
made for the others alone, and the matches of each rule are counted behind the filter. How many rows
there are in all is not counted: that would cost half as much again as the statement. Of many tests
the rules are the bits of a number, in a form of which Spark makes code that Java compiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, IntegerType, StringType

from eddyline.errors import QueryError
from eddyline.query.rules.rule import Rule
from eddyline.rules.plan import SharingProfile
from eddyline.spark.operator import PREFIX
from eddyline.spark.rules.task import Keep
from eddyline.spark.rules.udf import (
    ABOUT_RULE,
    add_matches,
    read_counts,
    read_matches,
    with_counts,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.query.conditions import RuleSource
    from eddyline.rules.compile.program import Program
    from eddyline.spark.lane import KeptOfFiles, ListedScan
    from eddyline.spark.rules.udf import Work

    Observe = Callable[[], Any]
    """Returns an Observation or a name, for what a job will report."""

STRUCT = f"{PREFIX}_rules"
"""The temporary column of matches and reports."""


class Output(Protocol):
    """Makes a result of rows and the rules that are true for them.

    ``observe`` is called once by tasks, whose reports are the metric ``rules`` of what is observed,
    and at most once by a statement.
    """

    has_rows: ClassVar[bool]
    """Whether the result has rows of the input, with its columns."""

    def lay(self, df: DataFrame, work: Work, observe: Observe) -> DataFrame:
        """Return the result by tasks that are handed the rows."""

    def read(self, files: ListedScan, work: Work, observe: Observe) -> KeptOfFiles | DataFrame:
        """Return the result by tasks that read files, which have all rows."""

    def state(self, df: DataFrame, statement: Statement, observe: Observe) -> DataFrame | None:
        """Return the result by one statement of Spark's; None if it takes tasks."""


@dataclass(frozen=True, slots=True)
class MatchesColumn:
    """A column of the rules that are true."""

    column: str = "matches"
    keep_unmatched: bool = False
    """Whether rows for which no rule is true are kept, with an empty array."""
    as_places: bool = False
    """Whether rules are told by their places in the set, and not by their names."""
    as_struct: bool = False
    """Whether they are told by id, title and level."""
    has_rows: ClassVar[bool] = True

    def check(self, df: DataFrame) -> None:
        """Raise QueryError if a column of the input would be replaced, or one of ours."""
        if self.column.startswith(PREFIX):
            msg = f"names that start with {PREFIX} are eddyline's own; choose another column"
            raise QueryError(msg, column=self.column)
        if self.column.lower() in (column.lower() for column in df.columns):
            msg = (
                f"the input has a column {self.column!r} already; choose another: matches('…') or "
                f"column='…'"
            )
            raise QueryError(msg, column=self.column)

    @property
    def kind(self) -> ArrayType:
        """The Spark type of the column."""
        element = IntegerType() if self.as_places else StringType()
        return ArrayType(ABOUT_RULE if self.as_struct else element, containsNull=False)

    def lay(self, df: DataFrame, work: Work, observe: Observe) -> DataFrame:
        """Add the column."""
        rows = add_matches(df, self._telling(work), STRUCT, observe())
        kept = rows if self.keep_unmatched else rows.where(_IS_KEPT[Keep.MATCHED])
        return kept.withColumn(self.column, F.col(f"{STRUCT}.matches")).drop(STRUCT)

    def read(self, files: ListedScan, work: Work, observe: Observe) -> KeptOfFiles:
        """Add the column to rows of files."""
        keep = Keep.EVERY if self.keep_unmatched else Keep.MATCHED
        return read_matches(files, self._telling(work), keep, observe(), column=self.column)

    def _telling(self, work: Work) -> Work:
        """Return the work that tells of rules what the column has."""
        if self.as_struct:
            return replace(work, task=replace(work.task, about=about_rules(work.rules)))
        return _by_place(work) if self.as_places else work

    def state(self, df: DataFrame, statement: Statement, observe: Observe) -> DataFrame:
        """Add the column."""
        rows = statement.every(df) if self.keep_unmatched else statement.matched(df)
        counted = statement.counted(rows, observe(), is_all=self.keep_unmatched)
        if self.as_struct:
            values = statement.structs
        else:
            values = statement.places if self.as_places else statement.names
        return statement.bare(counted.withColumn(self.column, as_told(values)))

    def shape(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame with the columns of the result, for analysis only."""
        return df.withColumn(self.column, F.lit(None).cast(self.kind))


@dataclass(frozen=True, slots=True)
class RowsWhere:
    """The rows for which some rule is true, or those for which none is."""

    keep: Keep
    has_rows: ClassVar[bool] = True

    def lay(self, df: DataFrame, work: Work, observe: Observe) -> DataFrame:
        """Keep them."""
        rows = add_matches(df, _by_place(work), STRUCT, observe())
        return rows.where(_IS_KEPT[self.keep]).drop(STRUCT)

    def read(self, files: ListedScan, work: Work, observe: Observe) -> KeptOfFiles:
        """Keep them, of files."""
        return read_matches(files, _by_place(work), self.keep, observe())

    def state(self, df: DataFrame, statement: Statement, observe: Observe) -> DataFrame:
        """Keep them; where no rule is true there are no matches to count."""
        if self.keep == Keep.UNMATCHED:
            return statement.unmatched(df)
        return statement.bare(statement.counted(statement.matched(df), observe()))

    def shape(self, df: DataFrame) -> DataFrame:
        """Return a DataFrame with the columns of the result, for analysis only."""
        return df


class CountByRule:
    """For how many rows each rule is true."""

    has_rows: ClassVar[bool] = False

    def lay(self, df: DataFrame, work: Work, observe: Observe) -> DataFrame:
        """Count them in tasks."""
        return with_counts(df, work, observe())

    def read(self, files: ListedScan, work: Work, observe: Observe) -> DataFrame:
        """Count them in tasks that read files."""
        return read_counts(files, work, observe())

    def state(self, df: DataFrame, statement: Statement, observe: Observe) -> DataFrame | None:
        """Count them, in a batch: the state of a streaming aggregate is no plan's to change."""
        return None if df.isStreaming else statement.counts(df, observe())


def about_rules(sources: Iterable[RuleSource]) -> pa.StructArray:
    """Return what is told of rules, by their places; see ``ABOUT_RULE``."""
    rules = ((source.name, Rule.of(source)) for source in sources)
    about = [{"id": name, "title": rule.title, "level": rule.level} for name, rule in rules]
    kind = pa.struct([(name, pa.string()) for name in ("id", "title", "level")])
    return pa.array(about, kind)


def _by_place(work: Work) -> Work:
    """Return the work with rules told by place, which skips their names."""
    return replace(work, task=replace(work.task, about=None))


_IS_KEPT = {
    Keep.MATCHED: f"size({STRUCT}.matches) > 0",
    Keep.UNMATCHED: f"size({STRUCT}.matches) = 0",
}


MASK = f"{PREFIX}_mask"
"""The temporary column of a bit for each rule of a long statement."""

_PART = f"{PREFIX}_part"

N_MATCHED, N_ROWS = "matched", "rows"
"""Metrics: rows for which some rule is true, and all rows where they are counted."""


@dataclass(frozen=True)
class Statement:
    """The rules of a set as SQL, by their places; its columns are made once."""

    conditions: tuple[str, ...]
    rules: Sequence[RuleSource]
    is_long: bool
    """Whether the code that Spark makes of all of them must be cut, so that Java compiles it."""

    # -- rows -----------------------------------------------------------------------------------

    def matched(self, df: DataFrame) -> DataFrame:
        """Return the rows for which some rule is true."""
        return self._cut(df, f"{MASK} <> 0L") if self.is_long else df.where(self._some)

    def unmatched(self, df: DataFrame) -> DataFrame:
        """Return the rows for which no rule is true."""
        if self.is_long:
            return self.bare(self._cut(df, f"{MASK} = 0L"))
        return df.where(~F.coalesce(self._some, F.lit(False)))

    def every(self, df: DataFrame) -> DataFrame:
        """Return all rows."""
        return df.withColumns(self._marks) if self.is_long else df

    def bare(self, df: DataFrame) -> DataFrame:
        """Return rows without the bits of their rules, if they have them."""
        return df.drop(*self._marks) if self.is_long else df

    def _cut(self, df: DataFrame, condition: str) -> DataFrame:
        """Return the rows with their bits that a condition on these keeps.

        Spark would move the condition below the bits, into code that it cannot cut. It does not
        move what is beside a column that is not deterministic.
        """
        return df.withColumns(self._marks).where(f"{condition} AND {_PART} >= 0")

    def counted(self, rows: DataFrame, observation: Any, *, is_all: bool = False) -> DataFrame:
        """Return rows, the matches of each rule observed; of those matched, or of all."""
        return rows.observe(observation, *(self._all_counts if is_all else self._counts))

    def counts(self, df: DataFrame, observation: Any) -> DataFrame:
        """Return ``rule`` and ``count`` of a batch, as ``udf.with_counts`` does."""
        # A single row, so that it costs nothing to look at.
        sums = df.agg(*self._sums).observe(observation, *self._sums_seen)
        counted = sums.select(self._by_rule).where("count > 0")
        return counted.select(as_told("rule").alias("rule"), as_told("count").alias("count"))

    # -- columns --------------------------------------------------------------------------------

    @cached_property
    def _some(self) -> Column:
        return F.expr(" OR ".join(f"({condition}\n)" for condition in self.conditions))

    @cached_property
    def _marks(self) -> dict[str, Column]:
        """A bit for each rule of a long statement, and what keeps it in its place.

        What stands there twice is computed once, by a method of its own. Of the same operators in
        both halves, Spark would make one method of all.
        """
        bits = [
            f"IF({condition}\n, {_bit(number)}L, 0L)"
            for number, condition in enumerate(self.conditions)
        ]
        mask = f"({' | '.join(bits)}) | ({' ^ '.join(reversed(bits))})"
        return {MASK: F.expr(mask), _PART: F.spark_partition_id()}

    def _holds(self, number: int) -> Column:
        """Return whether a rule is true for a row that may have its bits."""
        return F.expr(
            f"{MASK} & {_bit(number)}L <> 0L" if self.is_long else self.conditions[number]
        )

    @cached_property
    def _metrics(self) -> list[str]:
        return [f"r{number}" for number in range(len(self.conditions))]

    @cached_property
    def _counts(self) -> list[Column]:
        return [
            F.count(F.lit(1)).alias(N_MATCHED),
            *(
                F.count_if(self._holds(number)).alias(name)
                for number, name in enumerate(self._metrics)
            ),
        ]

    @cached_property
    def _all_counts(self) -> list[Column]:
        is_matched = F.expr(f"{MASK} <> 0L") if self.is_long else self._some
        n_matched = F.count_if(is_matched).alias(N_MATCHED)
        return [F.count(F.lit(1)).alias(N_ROWS), n_matched, *self._counts[1:]]

    @cached_property
    def _sums(self) -> list[Column]:
        counts = (f"count_if({condition}\n)" for condition in self.conditions)
        named = (F.expr(text).alias(name) for text, name in zip(counts, self._metrics, strict=True))
        return [F.count(F.lit(1)).alias(N_ROWS), *named]

    @cached_property
    def _sums_seen(self) -> list[Column]:
        return [F.max(name).alias(name) for name in (N_ROWS, *self._metrics)]

    @cached_property
    def _by_rule(self) -> Column:
        counts = (
            F.struct(F.lit(rule.name).alias("rule"), F.col(name).alias("count"))
            for rule, name in zip(self.rules, self._metrics, strict=True)
        )
        return F.inline(F.array(*counts))

    @cached_property
    def names(self) -> Column:
        """The names of the rules that are true."""
        return self._told([F.lit(rule.name) for rule in self.rules])

    @cached_property
    def places(self) -> Column:
        """Their places in the set."""
        return self._told([F.lit(number) for number in range(len(self.rules))])

    @cached_property
    def structs(self) -> Column:
        """Id, title and level of each."""
        rules = [(rule.name, Rule.of(rule)) for rule in self.rules]
        return self._told(
            [
                F.struct(
                    F.lit(name).alias("id"),
                    F.lit(rule.title).cast("string").alias("title"),
                    F.lit(rule.level).cast("string").alias("level"),
                )
                for name, rule in rules
            ]
        )

    def _told(self, values: Sequence[Column]) -> Column:
        # Spark has no code for array_compact, and would interpret all conditions inside.
        return F.concat(
            *(
                F.when(self._holds(number), F.array(value)).otherwise(F.array())
                for number, value in enumerate(values)
            )
        )


def as_told(column: Column | str) -> Column:
    """Return what is never NULL as the type that tasks give, of which Spark does not know that."""
    return F.nullif(column, F.lit(None))


def _bit(rule: int) -> int:
    """Return the bit of a rule as Spark has it: the highest of 64 is the sign.

    >>> _bit(3), _bit(63) == -(2**63)
    (8, True)
    """
    return 1 << rule if rule < 63 else -(1 << 63)


def observed_profile(
    program: Program, metrics: Mapping[str, Any], n_rows: int | None
) -> SharingProfile:
    """Return what a statement has observed; the rows of its job count where it counted none."""
    matches = [int(metrics[f"r{number}"] or 0) for number in range(program.n_rules)]
    n_all, n_matched = metrics.get(N_ROWS, n_rows), metrics.get(N_MATCHED)
    return SharingProfile.stated(program, matches, n_all, n_matched)
