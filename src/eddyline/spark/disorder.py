"""How far out of order the rows of a batch came, counted by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from eddyline.constraints.bounds import BINS_PER_OCTAVE
from eddyline.constraints.lateness import Disorder
from eddyline.state.rows import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, Row

_NUMBER, _BIN = "number", "bin"


def span_of(micros: Column) -> tuple[Column, ...]:
    """Return aggregates of the event times of rows (µs); see ``only``."""
    return (
        F.count(F.lit(1)).alias("n_rows"),
        F.count(micros).alias("n_timed"),
        F.min(micros).alias("earliest"),
        F.max(micros).alias("latest"),
    )


def only(span: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the counts of a single stream, as ``counted`` would, of what ``span_of`` found."""
    return [{_NUMBER: 0, _BIN: None, "n_late": 0, **span}]


def counted(
    df: DataFrame,
    number: Column | None,
    micros: Column,
    before: tuple[Sequence[int], Sequence[int]] | None = None,
) -> list[Row]:
    """Return counts of the rows of a batch by stream, and by how far out of order they are.

    Args:
        df: the rows.
        number: the stream that a row is of, from 0 on; omitted of one.
        micros: the event time of a row (µs).
        before: if it is asked how far out of order rows are: by stream, the latest event time of
            the batches before (µs; ALWAYS if none was), and the instant before which a row is late
            (µs).
    """
    groups = [] if number is None else [number.alias(_NUMBER)]
    n_late, own = F.lit(0), [F.lit(0).alias(_NUMBER)] if number is None else []
    if before is None:
        own.append(F.lit(None).alias(_BIN))
    else:
        latest, low = (_of_stream(each, number, micros) for each in before)
        span = F.when(micros < latest, latest - micros)
        groups.append(F.floor(F.log2(span) * F.lit(BINS_PER_OCTAVE)).alias(_BIN))
        n_late = F.count(F.when(micros < low, 1))
    return df.groupBy(*groups).agg(*own, n_late.alias("n_late"), *span_of(micros)).collect()


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
