"""How far out of order the rows of a batch came, counted by Spark."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pyspark.sql import functions as F

from eddyline.constraints.bounds import BINS_PER_OCTAVE, Disorder
from eddyline.spark.operator import PREFIX
from eddyline.state.rows import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, Row

    from eddyline.spark.batch_files import BatchFiles

_NUMBER, _MICROS, _BIN = "number", "micros", "bin"
_LOOKED = f"{PREFIX}_looked"
"""Start of the names of temporary columns: no part has one of them."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of the event times of the rows of a batch."""

    micros: Column
    """The event time of a row (µs)."""
    number: Column | None = None
    """The stream that a row is of, from 0 on; None of one."""
    n_streams: int = 1
    before: tuple[Sequence[int], Sequence[int]] | None = None
    """If it is asked how far out of order rows are: by stream, the latest event time of the batches
    before (µs; ALWAYS if none was), and the instant before which a row is late (µs)."""

    @property
    def bounds(self) -> tuple[Sequence[int], Sequence[int]]:
        """What is given as ``before``, or the same of streams of which nothing is known."""
        unknown = [ALWAYS] * self.n_streams
        return self.before or (unknown, unknown)

    def span(self) -> list[Column]:
        """Return aggregates for a job to observe; see ``of_span``."""
        return [
            column.alias(f"{name}{stream}")
            for stream in range(self.n_streams)
            for name, column in self._span(stream).items()
        ]

    def of_span(self, found: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return what ``counted`` returns, of what was observed, if no order is asked for."""
        names = self._span(0)
        return [
            {_NUMBER: stream, _BIN: None, "n_late": 0}
            | {name: found[f"{name}{stream}"] for name in names}
            for stream in range(self.n_streams)
        ]

    def of_files(
        self, files: BatchFiles | None, columns: Sequence[tuple[int, str | None]]
    ) -> list[dict[str, Any]] | None:
        """Return what ``counted`` returns, of what the files of a batch say; None: they do not.

        They do if all of the batch is asked for: of a part nobody knows here which one it is.

        Args:
            files: of the batch.
            columns: of each stream of these, what it is by number, and its event time there.
        """
        if self.before is not None or files is None or len(files.streams) != len(columns):
            return None
        found = []
        for place, (number, column) in enumerate(columns):
            span = None if column is None else files.span(place, column)
            if span is None:
                return None
            found.append({_NUMBER: number, _BIN: None, "n_late": 0, **asdict(span)})
        return found

    def _span(self, stream: int) -> dict[str, Column]:
        if self.number is None:
            return _span(F.lit(1), self.micros)
        is_own = self.number == stream
        return _span(F.when(is_own, 1), F.when(is_own, self.micros))


@runtime_checkable
class Looking(Protocol):
    """An operator that may look at the event times of a batch before the batch is answered."""

    told: Sequence[Any] | None
    """What ``counted`` returns of the batch, if somebody else has looked."""

    @property
    def looks(self) -> bool:
        """Whether it looks at the batch that is being laid, in a job for that alone."""
        ...

    @property
    def asks(self) -> Asked:
        """What it asks of the rows that it is laid over."""
        ...


def counted(df: DataFrame, asked: Asked) -> list[Row]:
    """Return counts of the rows of a batch by stream, and by how far out of order they are."""
    number, micros = asked.number, asked.micros
    groups = [] if number is None else [number.alias(_NUMBER)]
    n_late, own = F.lit(0), [F.lit(0).alias(_NUMBER)] if number is None else []
    if asked.before is None:
        own.append(F.lit(None).alias(_BIN))
    else:
        latest, low = (_of_stream(each, number, micros) for each in asked.before)
        span = F.when(micros < latest, latest - micros)
        groups.append(F.floor(F.log2(span) * F.lit(BINS_PER_OCTAVE)).alias(_BIN))
        n_late = F.count(F.when(micros < low, 1))
    spans = [column.alias(name) for name, column in _span(F.lit(1), micros).items()]
    return df.groupBy(*groups).agg(*own, n_late.alias("n_late"), *spans).collect()


def counted_together(
    df: DataFrame, asked: Mapping[int, Asked], places: Mapping[int, str]
) -> dict[int, list[dict[str, Any]]]:
    """Return what ``counted`` returns of several parts of the rows, in one job.

    Args:
        df: the rows of all parts.
        asked: what is asked of each part, by its number.
        places: the column of each that has its rows, and is NULL in those of others.
    """
    names = [f"{_LOOKED}{part}" for part in asked]
    rows = df.select(*(F.col(places[part]).alias(n) for part, n in zip(asked, names, strict=True)))
    firsts: dict[int, int] = {}
    n_streams = 0
    # One by one, as parts have columns of equal names.
    for name, (part, each) in zip(names, asked.items(), strict=True):
        firsts[part], first = n_streams, F.lit(n_streams)
        n_streams += each.n_streams
        number = first if each.number is None else first + each.number
        looked = F.struct(number.alias(_NUMBER), each.micros.alias(_MICROS))
        own = F.when(F.col(name).isNotNull(), looked).alias(name)
        rows = rows.select("*", f"{name}.*").select(*(n for n in names if n != name), own)
    number, micros = (
        F.coalesce(*(F.col(f"{name}.{field}") for name in names)) for field in (_NUMBER, _MICROS)
    )
    rows = rows.select(number.alias(_NUMBER), micros.alias(_MICROS)).where(f"{_NUMBER} IS NOT NULL")
    before = None
    if any(each.before is not None for each in asked.values()):
        latest, low = zip(*(each.bounds for each in asked.values()), strict=True)
        before = [*chain(*latest)], [*chain(*low)]
    found = counted(rows, Asked(F.col(_MICROS), F.col(_NUMBER), n_streams, before))
    return {
        part: [
            {**row.asDict(), _NUMBER: row[_NUMBER] - first}
            for row in found
            if 0 <= row[_NUMBER] - first < asked[part].n_streams
        ]
        for part, first in firsts.items()
    }


def disorders(counts: Iterable[Any]) -> dict[int, Disorder]:
    """Return the disorder of each stream, by number, of what ``counted`` returned."""
    found: dict[int, Disorder] = {}
    for row in counts:
        if row["latest"] is None:
            continue
        bins = {} if row[_BIN] is None else {int(row[_BIN]): int(row["n_timed"])}
        span = int(row["earliest"]), int(row["latest"])
        part = Disorder(int(row["n_timed"]), int(row["n_late"]), *span, bins)
        found[row[_NUMBER]] = found.get(row[_NUMBER], Disorder()).merge(part)
    return found


def _of_stream(instants: Sequence[int], number: Column | None, micros: Column) -> Column:
    """Return the instant of a row's stream (µs).

    An array that is asked for a place which only the row knows stays an array: Spark would compile
    a number into the statement, and so the statement of each batch anew.
    """
    known = F.array(*[F.lit(max(each, ALWAYS + 1)) for each in instants])
    return F.get(known, F.when(micros.isNotNull(), F.lit(0) if number is None else number))


def _span(row: Column, micros: Column) -> dict[str, Column]:
    """Return aggregates of rows and their event times (µs), both NULL of rows of others."""
    return {
        "n_rows": F.count(row),
        "n_timed": F.count(micros),
        "earliest": F.min(micros),
        "latest": F.max(micros),
    }
