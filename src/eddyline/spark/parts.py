"""Chains of operators that make one input of a step.

The step is a join or UNION ALL. A query reads one DataFrame and has one list of operators. Where an
input is made by operators that keep rows or call Python, the rows of all inputs come in one
DataFrame, each in columns of its own. The operators of an input stand between one that takes its
rows out and one that puts its results aside, and the step over all inputs takes the results from
there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from eddyline.spark.event_time import Looking, counted_together
from eddyline.spark.operator import PREFIX, Laid, Operator, Stateful
from eddyline.sql.parsing import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame

    from eddyline.spark.operator import Batch, LaidOut

NUMBER, ROWS, FROM = (f"{PREFIX}_{name}" for name in ("part", "rows", "from"))
"""Temporary columns: the part that a row is of, its columns (numbered by part), and the partition
in which a result was made."""


class Trunk(Operator):
    """The rows of all inputs, from which the operators of each take theirs.

    Args:
        rows: what each input reads.
    """

    name = "parts"

    def __init__(self, rows: Sequence[DataFrame]) -> None:
        kinds = [frame.schema for frame in rows]

        def of(number: int) -> list[Column]:
            struct = F.struct(*[F.col(quoted(name)) for name in kinds[number].names])
            columns = [
                (struct if place == number else F.lit(None).cast(kind)).alias(f"{ROWS}{place}")
                for place, kind in enumerate(kinds)
            ]
            return [F.lit(number).alias(NUMBER), *columns]

        parts = (frame.select(*of(number)) for number, frame in enumerate(rows))
        self.source = reduce(lambda one, other: one.unionByName(other), parts)
        self.n_partitions = int(
            self.source.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1
        )
        """Partitions in which results of operators with state go on."""
        self.made: dict[int, DataFrame] = {}
        """The results of the inputs, by number, in the batch that is being laid."""
        self.looking: dict[int, Looking] = {}
        """By the number of an input: who looks at the event times of its rows, if somebody does."""
        self._unobserved = self.laid = self.source

    def prepare(self, df: DataFrame, batch: Batch) -> None:  # noqa: ARG002 - of the protocol
        """Keep the rows for who looks at some of them before the job; look for several at once."""
        self._unobserved = df
        asked = {number: looking.asks for number, looking in self.looking.items() if looking.looks}
        if len(asked) > 1:
            places = {number: f"{ROWS}{number}" for number in asked}
            for number, counts in counted_together(df, asked, places).items():
                self.looking[number].ready_counts = counts

    def once(self, df: DataFrame) -> DataFrame:
        """Keep all rows of batch DataFrames; nobody looks at these."""
        self._unobserved = self.laid = df
        return df

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002
        """Keep the rows of a batch; the operators of inputs take theirs out of them."""
        self.laid = df
        return self.whole

    @property
    def whole(self) -> Laid:
        """The rows of all inputs."""
        return Laid(self.laid, look_at=self._unobserved)

    @staticmethod
    def rows(number: int, df: DataFrame) -> DataFrame:
        """Return the rows of one input, of those of all."""
        return df.where(F.col(NUMBER) == number).select(f"{ROWS}{number}.*")


@dataclass(frozen=True)
class Part:
    """An input that is made by operators of its own."""

    trunk: Trunk
    number: int
    """Its number among those of the trunk."""
    name: str
    """What it is called."""
    laid_out: LaidOut
    """What makes it."""

    @property
    def results(self) -> DataFrame:
        """Its rows in the batch that is being laid."""
        return self.trunk.made[self.number]

    def operators(self) -> Iterator[Operator]:
        """Yield its operators, between those that take its rows out and put its results aside."""
        operators = self.laid_out.make()
        if isinstance(first := next(iter(operators), None), Looking):
            self.trunk.looking[self.number] = first
        yield _TakeOut(self)
        yield from operators
        yield _PutAside(self, is_cut=any(isinstance(operator, Stateful) for operator in operators))


class _TakeOut(Operator):
    """The first operator of a part: takes its rows out of those of all."""

    def __init__(self, part: Part) -> None:
        self.name = f"rows of {part.name}"
        self._part = part

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002
        """Return the rows of the part."""
        trunk, number = self._part.trunk, self._part.number
        whole = trunk.whole
        look_at = None if whole.look_at is None else trunk.rows(number, whole.look_at)
        return Laid(trunk.rows(number, whole.df), look_at=look_at)

    def shape(self, df: DataFrame) -> DataFrame:  # noqa: ARG002
        """Return a DataFrame with the columns of these."""
        return self._part.laid_out.source


class _PutAside(Operator):
    """The last operator of a part: puts its results aside, and goes on with the rows of all.

    Args:
        part: the part.
        is_cut: whether the work before it is cut into buckets. Each of these has to be a task, and
            its number that of the task, which it is not in a stage that unites several parts.
    """

    def __init__(self, part: Part, *, is_cut: bool) -> None:
        self.name = f"results of {part.name}"
        self._part = part
        self._is_cut = is_cut

    def lay(self, df: DataFrame, batch: Batch) -> Laid:  # noqa: ARG002
        """Put the results of the part aside."""
        trunk, number = self._part.trunk, self._part.number
        if self._is_cut:
            df = df.withColumn(FROM, F.spark_partition_id())
            df = df.repartitionById(trunk.n_partitions, F.col(FROM)).drop(FROM)
        trunk.made[number] = df
        return trunk.whole

    def shape(self, df: DataFrame) -> DataFrame:  # noqa: ARG002
        """Return a DataFrame with the columns of all rows."""
        return self._part.trunk.source
