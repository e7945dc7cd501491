"""Rows that static tables have no key for are dropped before the shuffle, by filters of the keys.

The keys are those of the rows that the query keeps of a table, as a table read again may have
changed. A filter is a Bloom filter as those of cold runs are (``state.key_filters``), by hashes
that Spark computes: what it drops is in no result, and the few rows that pass by chance find
nothing in their bucket, as before. It stands in a subquery of one row, so that neither the code
that Spark compiles nor what it says of a plan has the words in it.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import Observation
from pyspark.sql import functions as F

from eddyline.data.arrays import distinct
from eddyline.joins.table_filter import DropChoice
from eddyline.spark.joins.layout import INPUT, KEY, PASSES, START
from eddyline.spark.operator import Pending
from eddyline.spark.run.observed_metrics import PendingMetrics
from eddyline.state.grid import spark_hashes
from eddyline.state.key_filter_kernels import add_hashes
from eddyline.state.key_filters import KEYS_PER_WORD
from eddyline.state.mapped_runs import MAPPED
from eddyline.state.rows import ALWAYS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

    from eddyline.joins.state_part import JoinPart
    from eddyline.runtime.journal import JournalEntry
    from eddyline.spark.joins.bound import BoundJoin
    from eddyline.spark.operator import Observed
    from eddyline.state.place import StatePlace

MOST_KEYS = 1_000_000
"""Most rows of a table of whose keys a filter is made: 2 MB, which go to each task."""

COMPONENT = "dropped"
"""The name of what is observed of rows that are dropped."""

LACKS = "__lacks"
"""The column of whether a row is dropped."""


class TableFilter:
    """Filters the rows of streams by the keys of tables.

    Args:
        bound: the join.
        is_on: whether rows may be dropped at all.
    """

    def __init__(self, bound: BoundJoin, *, is_on: bool) -> None:
        graph, timed = bound.graph, {*bound.timed}
        tables = [name for name in graph.inputs if name not in timed]
        # A second row with a declared key is to be refused, whether or not it has a partner.
        streams = [name for name in bound.timed if is_on and name not in bound.keys]
        self._keys = {
            name: keys
            for name in streams
            if (keys := [(t, key) for t in tables for key in graph.links((name,), t)])
        }
        """By stream, its tables and the key classes that it shares with each."""
        self._classes = graph.classes_of
        self._numbers = {each.name: each.number for each in bound.source.layouts}
        self.loop = DropChoice(
            {name: tuple(dict.fromkeys(t for t, _ in keys)) for name, keys in self._keys.items()}
        )
        self.n_keys: dict[str, int] = {}
        """By stream, the keys of its tables, as soon as they are known and can be used."""
        self._lacks: dict[str, Column] = {}
        self._is_read = not self._keys

    def read(self, df: DataFrame, part: JoinPart, place: StatePlace) -> None:
        """Read the keys of the tables, once they are there.

        Args:
            df: the rows of a batch, whose session is used.
            part: the state after a batch, whose first one brings the tables.
            place: of the state.

        Raises:
            OSError: they cannot be read.
        """
        if self._is_read:
            return
        found: dict[tuple[str, int], tuple[int, Column]] = {}
        for table, key in dict.fromkeys(of for keys in self._keys.values() for of in keys):
            files = part.files(table)
            if sum(file.n_rows for file in files) > MOST_KEYS:
                continue
            of = (MAPPED.run(place.files, place.runs, file, self._classes[table]) for file in files)
            parts = [np.empty(0, np.int64), *(run.rows.codes[key] for run in of)]
            codes = distinct(np.concatenate(parts))
            found[table, key] = codes.size, _lacks(df, f"{KEY}{key}", words_of(codes))
        for name, keys in self._keys.items():
            usable = [found[of] for of in keys if of in found]
            if usable:
                self.n_keys[name] = sum(n_keys for n_keys, _ in usable)
                self._lacks[name] = reduce(or_, (column for _, column in usable))
        self._is_read = True

    def lay(
        self, rows: DataFrame, lows: Mapping[str, int]
    ) -> tuple[DataFrame, tuple[Pending, ...]]:
        """Return the rows that tables have keys for, and late ones; and what observes the others.

        Args:
            rows: of all inputs, with their keys.
            lows: the instant before which new rows of each input are late (µs).
        """
        used = [name for name, is_on in self.loop.plan.items() if is_on and name in self._lacks]
        if not used:
            return rows, ()
        asked = {name: self._asked(name, lows.get(name, ALWAYS)) for name in used}
        drops = reduce(or_, (F.expr(asked[name]) & self._lacks[name] for name in used))
        rows, seen = rows.withColumn(LACKS, F.coalesce(drops, F.lit(False))), Observation()
        counts = []
        for name in used:
            number = self._numbers[name]
            is_mine = f"{INPUT} = {number} AND {LACKS}"
            counts.append(F.expr(f"count_if({asked[name]}) AS asked{number}"))
            counts.append(F.expr(f"count_if({is_mine}) AS lacking{number}"))
        rows = rows.observe(seen, *counts).where(f"NOT {LACKS}").drop(LACKS)
        return rows, (Pending(COMPONENT, PendingMetrics(seen)),)

    def _asked(self, name: str, low: int) -> str:
        """Return SQL of whether a row is one of a stream that can join and is not late."""
        # Spark compiles a statement anew where a number in it is another one, but for those in an
        # array that is asked for a place which only the row knows.
        before = f"get(array({max(low, ALWAYS + 1)}L), IF({START} IS NULL, NULL, 0))"
        return f"{INPUT} = {self._numbers[name]} AND {PASSES} AND {START} >= {before}"

    def step(
        self, observed: Sequence[Observed], n_shuffled: Mapping[str, int], batch_id: int
    ) -> list[JournalEntry]:
        """Take in what a batch dropped, and how many rows it did not, by stream, and decide."""
        metrics = next((each.metrics for each in observed if each.name == COMPONENT), {})
        numbers = {name: self._numbers[name] for name in self._keys}
        found = {
            name: (int(metrics[f"asked{n}"] or 0), int(metrics[f"lacking{n}"] or 0))
            for name, n in numbers.items()
            if f"asked{n}" in metrics
        }
        return self.loop.step(found, n_shuffled, self.n_keys, batch_id)


def words_of(codes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the words of a filter of codes, by Spark's hashes; see ``key_filter_kernels``."""
    words = np.zeros(max(1, codes.size // KEYS_PER_WORD), np.uint64)
    add_hashes(words, spark_hashes(codes))
    return words


def _lacks(df: DataFrame, code: str, words: NDArray[np.uint64]) -> Column:
    """Return whether a filter has not the code in a column.

    Args:
        df: whose session is used.
        code: the column.
        words: of the filter; see ``key_filter_kernels``.
    """
    told = pa.table({"words": pa.array([words.view(np.int64)], pa.list_(pa.int64()))})
    hashed, one = F.xxhash64(F.col(code)), F.lit(1).cast("bigint")
    place = F.shiftrightunsigned(F.shiftrightunsigned(hashed, 32) * F.lit(words.size), 32)
    word = F.get(df.sparkSession.createDataFrame(told).scalar(), place.cast("int"))
    bits = (F.shiftrightunsigned(hashed, 6 * each).bitwiseAND(63).cast("int") for each in range(4))
    # The number of bits of F.shiftleft is the same for all rows.
    masks = (F.call_function("shiftleft", one, each) for each in bits)
    mask = reduce(lambda some, other: some.bitwiseOR(other), masks)
    return mask.bitwiseAND(F.bitwise_not(word)) != 0
