"""Output columns of a query, the last operator of its chain.

A column is SQL, or the answers of a Python function (``called_column``). Where the driver holds the
rows as an Arrow table, or tasks write their results, columns are picked and computed without Spark
(``picked_columns``), as far as Arrow has Spark's answers (``lane.expressions``).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa  # noqa: TC002 - Spark reads the hints of ``evaluate``
from pyspark.errors import AnalysisException, PySparkTypeError
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined] # not in the stubs
from pyspark.sql.types import BooleanType, StructType

from eddyline.errors import QueryError
from eddyline.lane.expressions import ARROW_TYPES, ColumnValues, column_values
from eddyline.lane.results import Picked
from eddyline.query.predicate_results import truths
from eddyline.query.result_times import ResultTimes
from eddyline.query.select.groups import WINDOW_CALLS
from eddyline.query.select.statement import identifier
from eddyline.query.steps import name_of
from eddyline.spark.analysis import operand, refused, table_schema, unlogged
from eddyline.spark.arrow_tasks import begin_task
from eddyline.spark.event_time import ResultClock
from eddyline.spark.operator import Laid, Operator
from eddyline.spark.session import is_ansi
from eddyline.spark.task_results import ArrowStep
from eddyline.sql.functions import GENERATORS, HIDDEN, NON_DETERMINISTIC, names_among
from eddyline.sql.parsing import plain_path, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from eddyline.lane.expressions import Values
    from eddyline.query.predicates import FunctionPredicate
    from eddyline.query.steps import ProjectStep
    from eddyline.spark.operator import Batch, Clock, Site


class ProjectOperator(Operator):
    """Computes the output columns of a step of a query, whose name errors say."""

    def __init__(self, query: str, step: ProjectStep, source: DataFrame) -> None:
        self.query = query
        self._source = source
        """A DataFrame with the columns of its input, for analysis only."""
        self._ansi = is_ansi(source.sparkSession)
        """Whether ANSI mode is on. Spark fixes that for a stream when it starts, too."""
        self.name = f"project {step.output}"
        self._step = step

    @classmethod
    def from_step(cls, step: ProjectStep, site: Site) -> Self:
        """Return the operator of a step."""
        return cls(site.query, step, site.df)

    @property
    def is_plain(self) -> bool:
        """Whether Spark computes the columns, of a row alone, which makes one result.

        A row is in several windows, or in none if its time is NULL. Columns that only the source
        knows, such as ``_metadata``, are there where Spark reads the stream.
        """
        others = NON_DETERMINISTIC | GENERATORS | {*WINDOW_CALLS}
        return not self._step.calls and not names_among(others, self._step.projections)

    def event_time(self, site: Site, columns: Sequence[str]) -> tuple[str | None, Clock | None]:
        """Return the column that was said to be the event time, with a clock that knows its lag.

        Raises:
            QueryError: it is none.
        """
        time = self._step.time
        if time is None or time == site.time:
            return super().event_time(site, columns)
        text = next(
            (projection for projection in self._step.projections if name_of(projection) == time), ""
        )
        if site.time is not None and text == f"{identifier(site.time)} AS {identifier(time)}":
            return time, site.clock
        lag = None if site.times is None else site.times.lag_of(text)
        if lag is None or site.clock is None:
            raise self._refused(time, site)
        return time, ResultClock(site.clock, lag)

    def _refused(self, time: str, site: Site) -> QueryError:
        """Return the error that a column is no event time."""
        times = [] if site.time is None else [site.time]
        if site.times is not None:
            # Those of stages have names that nobody wrote.
            times = [
                column for column in site.times.bounded if "⋈" not in column and "__" not in column
            ]
            times.append("greatest(…) of those of all its streams")
        hint = f"output columns that are: {', and '.join(times)}"
        if not times:
            hint = "results of DSTREAM and RSTREAM have none"
        msg = f"query {self.query!r}: {time!r} is no event time of its results; {hint}"
        return QueryError(msg, query=self.query, time=time)

    def times(self, site: Site, time: str | None) -> ResultTimes | None:
        """Return the event times among its columns, of which one is that of its rows."""
        if time is None:
            return None
        before = site.times
        if before is None and site.time is not None:
            before = ResultTimes.of_stream(site.time)
        return None if before is None else before.projected(self._step.projections, time)

    def check_batch_has(self, df: DataFrame) -> None:
        """Check columns that are computed of a batch, which has those of the schema alone.

        Raises:
            QueryError: one of them reads a column that only the source knows.
        """
        if not names_among(HIDDEN, self._step.projections):
            return
        try:
            self.shape(df.sparkSession.createDataFrame([], df.schema))
        except QueryError as error:
            msg = (
                f"query {self.query!r}: _metadata is known where Spark reads a stream, not behind "
                "a condition, a join or an aggregate; make it a column of the stream: "
                "engine.stream('s', df.select('*', '_metadata.file_name'), …)"
            )
            raise QueryError(msg, query=self.query) from error

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002 - the same for every batch
        """Compute the columns."""
        return Laid(self.shape(df))

    @cached_property
    def arrow_step(self) -> ArrowStep | None:
        """Step that makes the columns without Spark; None if Spark has to compute one."""
        if self._step.calls:
            return None
        texts, source = self._step.projections, self._source
        like = self.shape(source)
        picked = picked_columns(texts, source.schema, like, ansi=self._ansi)
        return None if picked is None else ArrowStep(like, picked)

    def shape(self, df: DataFrame) -> DataFrame:
        """Return the columns.

        Raises:
            QueryError: one of them cannot be computed.
        """
        calls, texts = self._step.calls, list(self._step.projections)
        if calls:
            every = list(map(quoted, df.columns))
            texts = [output for text in texts for output in (every if text == "*" else [text])]
        try:
            called = {name: called_column(df, predicate) for name, predicate in calls.items()}
            with unlogged():
                return (df.withColumns(called) if called else df).selectExpr(*texts)
        except AnalysisException as error:
            raise refused(f"query {self.query!r}", error, query=self.query) from error


def called_column(df: DataFrame, predicate: FunctionPredicate) -> Column:
    """Return the answers of a function over a DataFrame; NULL where it gives none."""

    def evaluate(*columns: pa.Array) -> pa.Array:
        begin_task()
        return truths(predicate, columns)

    udf: Any = arrow_udf(evaluate, BooleanType())
    if not predicate.deterministic:
        udf = udf.asNondeterministic()
    answers: Column = udf(*(operand(df, text) for text in predicate.reads))
    return answers


def picked_columns(
    texts: Sequence[str], source: StructType, like: DataFrame, *, ansi: bool
) -> Picked | None:
    """Return how output columns are made of a table; None if Spark has to compute one.

    Args:
        texts: the output columns, as SQL.
        source: the columns of the input.
        like: a DataFrame with the output columns.
        ansi: whether Spark raises an error where ANSI SQL does.
    """
    every = [quoted(name) for name in source.names]
    texts = [output for text in texts for output in (every if text == "*" else [text])]
    columns: list[Values] = []
    for text, field in zip(texts, like.schema, strict=True):
        path = _found(plain_path(text), source)
        values = None
        if path is None:
            values = computed_values(text, source, field.dataType, ansi=ansi)
        if path is not None and path[1] == field.dataType:
            values = ColumnValues(path[0])
        if values is None:
            return None
        columns.append(values)
    try:
        return Picked(tuple(columns), table_schema(like.sparkSession, like.schema))
    except PySparkTypeError:  # Arrow lacks a type
        return None


def computed_values(
    text: str, source: StructType, wanted: DataType, *, ansi: bool
) -> Values | None:
    """Return what computes SQL of a type over a table; None if Spark has to.

    Args:
        text: the SQL, perhaps with an alias.
        source: the columns of the table.
        wanted: the type that Spark gives it.
        ansi: whether Spark raises an error where ANSI SQL does.
    """
    types = {field.name: field.dataType.simpleString() for field in source}
    if len({name.lower() for name in types}) < len(source):
        return None

    def path_of(names: tuple[str, ...]) -> tuple[str | int, ...] | None:
        path = _found(names, source)
        # Text with a collation is compared otherwise, and has another name of its type.
        return path[0] if path and path[1].simpleString() in ARROW_TYPES else None

    computed = column_values(text, types, path_of, ansi=ansi)
    if computed is None or computed[1].text != wanted.simpleString():
        return None
    return computed[0]


def _found(
    path: tuple[str, ...] | None, source: StructType
) -> tuple[tuple[str | int, ...], Any] | None:
    """Return a path as ``Picked`` has it, and the type of what it leads to; None if not found.

    Names are compared without regard to case, as Spark does unless it is told otherwise.
    """
    places: list[str | int] = []
    kind: Any = source
    for name in path or ():
        if not isinstance(kind, StructType):
            return None
        same = [field for field in kind if field.name.lower() == name.lower()]
        if len(same) != 1:
            return None
        (only,) = same
        places.append(kind.fields.index(only) if places else only.name)
        kind = only.dataType
    return (tuple(places), kind) if places else None
