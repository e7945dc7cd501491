"""Rules of a set on Spark, as one Arrow UDF.

The UDF gets the columns that the rules test. It returns, per row, the rules that are true; on the
last row of a partition also what the task observed, which ``observe`` collects. Where only counts
are asked for, tasks return those, and no row goes back.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined] # not in the stubs
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from eddyline.data.memory import collector_paused
from eddyline.lane.task import FileTask
from eddyline.spark.analysis import operand
from eddyline.spark.arrow_tasks import begin_task
from eddyline.spark.lane import KeptOfFiles, read_by_tasks
from eddyline.spark.rules.task import FileRules, Keep, RuleTask
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from eddyline.query.conditions import RuleSource
    from eddyline.rules.compile.program import Program
    from eddyline.spark.lane import ListedScan, PlainScan

COUNTS = "rule string, count bigint, report binary"
"""Columns that counting tasks return: rules, and a row without one for the report."""

ABOUT_RULE = StructType(
    [
        StructField("id", StringType(), nullable=False),
        StructField("title", StringType()),
        StructField("level", StringType()),
    ]
)
"""What is told of a rule that is true, if more is told than its name."""

# No ``from __future__ import annotations`` here: Spark reads the type hints of ``evaluate``.


@dataclass(frozen=True, slots=True)
class Work:
    """Work of workers on a DataFrame."""

    task: RuleTask
    columns: tuple[str, ...]
    """The columns, or SQL expressions, that they are handed."""
    rules: "Sequence[RuleSource]"
    """The rules by their places."""
    may_raise: "Mapping[str, Sequence[str]]" = field(default_factory=dict)
    """Expressions that may raise, with the columns whose NULL keeps them from being true.

    Spark must evaluate them from left to right."""


def add_matches(df: "DataFrame", work: Work, column: str, observation: Any) -> "DataFrame":
    """Add a struct of the rules that are true for each row, as the task tells them, and a report.

    The struct has the fields ``matches`` and ``report``; the reports are also the metric ``rules``
    of the observation.
    """
    task = work.task

    def evaluate(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        begin_task()
        # Where there is one column, Spark hands over the array itself.
        return task.run(batch if isinstance(batch, tuple) else (batch,) for batch in batches)

    result = StructType([_matches_of(task, "matches"), StructField("report", BinaryType())])
    # Not deterministic, as the reports hold times; so Spark evaluates it once and where it stands.
    udf = arrow_udf(evaluate, result).asNondeterministic()
    return df.withColumn(column, udf(*_handed(df, work))).observe(
        observation, F.collect_list(F.col(f"{column}.report")).alias("rules")
    )


def _matches_of(task: RuleTask, name: str) -> StructField:
    """Return the field of the matches of a row."""
    places_or_names = IntegerType() if task.about is None else StringType()
    element = ABOUT_RULE if isinstance(task.about, pa.StructArray) else places_or_names
    return StructField(name, ArrayType(element, containsNull=False))


def read_matches(
    scan: "ListedScan", work: Work, keep: Keep, observation: Any, *, column: str | None = None
) -> KeptOfFiles:
    """Return rows of files by the rules that are true for them; tasks read the files.

    Args:
        scan: the files.
        work: what workers do.
        keep: the rows of the result.
        observation: as of ``add_matches``.
        column: is added, with the rules of each row; None: there is no such column.
    """
    described = work.task.about
    kind = (
        pa.int32()
        if described is None
        else pa.string()
        if isinstance(described, str)
        else described.type
    )
    files = FileRules(
        **scan.reading(tuple(map(column_of_text(scan).__getitem__, work.columns))),
        added=() if column is None else (pa.field(column, pa.list_(kind)),),
        rules=work.task,
        keep=keep,
    )
    added = [] if column is None else [_matches_of(work.task, column)]
    return KeptOfFiles(scan, files, added, "rules", observation)


def column_of_text(scan: "PlainScan") -> dict[str, str]:
    """Map the text of each column, plain or in backticks, to its name; see ``operand``."""
    names = [column.name for column in scan.columns]
    return {quoted(name): name for name in names} | {name: name for name in names}


def read_counts(scan: "ListedScan", work: Work, observation: Any) -> "DataFrame":
    """Return ``rule`` and ``count`` of files, which tasks read; see ``with_counts``."""
    task = work.task
    columns = tuple(map(column_of_text(scan).__getitem__, work.columns))
    files = FileTask(**scan.reading(columns), added=())

    def count(number: int) -> Iterator[pa.RecordBatch]:
        return task.count(files.blocks(number))

    return _summed(read_by_tasks(scan.spark, len(scan.tasks), count, COUNTS), observation)


def with_counts(df: "DataFrame", work: Work, observation: Any) -> "DataFrame":
    """Return ``rule`` and ``count``: for how many rows each is true; see ``add_matches``."""

    def evaluate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        return task.count(tuple(batch.columns) for batch in batches)

    task = work.task
    handed = [column.alias(f"c{number}") for number, column in enumerate(_handed(df, work))]
    return _summed(df.select(*handed).mapInArrow(evaluate, COUNTS), observation)


def _summed(counts: "DataFrame", observation: Any) -> "DataFrame":
    counts = counts.observe(observation, F.collect_list("report").alias("rules"))
    counts = counts.where("rule IS NOT NULL")
    return counts.groupBy("rule").agg(F.sum("count").alias("count"))


def _handed(df: "DataFrame", work: Work) -> "list[Column]":
    handed = [
        _as_filter(text, work.may_raise[text]) if text in work.may_raise else operand(df, text)
        for text in work.columns
    ]
    # Rules that look at no column still want to know how many rows there are.
    return handed or [F.lit(True)]


def _as_filter(condition: str, needs: "Sequence[str]") -> "Column":
    """Return whether a condition holds, evaluated as in WHERE: from left to right, NULL is false.

    WHERE drops rows with NULL in the columns that the condition needs, before it evaluates it.

    A projection computes common subexpressions beforehand, even behind AND and OR. An operand that
    raises would then raise for all rules. Spark does not do so inside a later branch of CASE. The
    first branch is never taken, which Spark does not know.
    """
    never = "WHEN spark_partition_id() < 0 THEN FALSE"
    are_there = "".join(f"{quoted(name)} IS NOT NULL AND " for name in needs)
    return F.expr(f"CASE {never} WHEN {are_there}({condition}\n) THEN TRUE END")


def loader(spark: "SparkSession", program: "Program") -> Callable[[], "Program"]:
    """Return a loader of the compiled rules for workers: a broadcast, or the rules themselves."""
    with collector_paused():
        packed = cloudpickle.dumps(program)  # type: ignore[no-untyped-call]
    try:
        broadcast = spark.sparkContext.broadcast(packed)
    except Exception:  # noqa: BLE001 - Spark Connect has no context, and says so in its own ways
        return lambda: _unpacked(packed)
    return lambda: _unpacked(broadcast.value)


@collector_paused()
def _unpacked(packed: bytes) -> "Program":
    program: Program = cloudpickle.loads(packed)
    return program
