"""Native block: SQL predicates as one AND chain.

The JVM evaluates it, in a learned order. Catalyst keeps the order of conjuncts and leaves a row at
the first that fails, so another order is another chain. Spark counts nothing per conjunct; what the
policies need rides along in the job:

    Project   a random share of the rows gets a number (the sample)
    Filter    sampled OR chain            -- unsampled rows meet the chain, sampled rows bypass it
    Project   the outcome code of all predicates, on sampled rows only
    observe   collects the codes
    Filter    not sampled OR chain        -- sampled rows meet the chain at last

The codes of a tenth of the sampled rows come with clock readings between the predicates, which give
the cost of each predicate per row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql import functions as F

from eddyline.data import outcomes as outcome
from eddyline.spark.filters.guard import EVERY_ROW, MAX_CONJUNCTS, steps_of
from eddyline.stats.costs import MIN_PER_ROW_NS, CostSums
from eddyline.stats.profile import AttributeSample, FilterProfile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from eddyline.routing.table import Attribute, RouteTable
    from eddyline.spark.filters.guard import Guard
    from eddyline.stats.profile import Order

CLOCK = "CAST(reflect('java.lang.System', 'nanoTime') AS BIGINT)"
"""The JVM's monotonic clock as SQL (ns); not deterministic, so read where it stands."""

TIMED_EVERY = 10
"""One sampled row in so many is timed: reading the clock costs as much as a cheap predicate."""

SPIKE_FACTOR = 20.0
"""A timing of so many times the median is cut to that: a pause of the collector or the machine."""

RESOLUTION_FRAC = 0.25
"""Least cost of a predicate, as a share of what reading the clock costs (some 90 ns): what is
cheaper cannot be told apart, and must not look ten times cheaper by luck."""

ROW_BITS = (1 << 33) - 1
"""The bits of ``monotonically_increasing_id`` that number the rows of a partition."""

MAX_STEPS = 100
"""Most nested conditions; of more predicates, several share a step."""

BITS_PER_WORD = 62
"""Outcome bits in one BIGINT of a code."""


@dataclass(frozen=True, slots=True)
class NativeBlock:
    """The SQL predicates of one block, in the order in which they are written."""

    filter_ids: tuple[str, ...]
    texts: tuple[str, ...]
    """A condition each that never raises."""
    prefix: str = "__eddyline"
    """Start of the names of the temporary columns."""
    attributes: tuple[Attribute, ...] = ()
    """Attributes that may tell classes of rows apart."""
    guard: Guard = EVERY_ROW
    """The rows that are filtered."""

    @property
    def is_long(self) -> bool:
        """Whether it has so many predicates that their outcomes are not observed."""
        return len(self.texts) > MAX_CONJUNCTS

    def condition(self, order: Order, table: RouteTable | None = None) -> str:
        """Return the conjunction as SQL, in one order or in another one for each class of rows.

        An OR of chains would not do: Spark factors common conjuncts out, and the orders are lost.
        Nor would a CASE of AND chains: Spark takes conjunctions of the same conjuncts for equal,
        whatever their order, and a CASE whose branches are all equal for any one of them.
        """
        if table is None:
            return self.chain(order)
        used = next(attribute for attribute in self.attributes if attribute.name == table.attribute)
        whens = [
            f"WHEN {condition} THEN {self._steps(class_order)}"
            for condition, class_order in zip(
                table.conditions(used.sql), table.orders[1:], strict=True
            )
        ]
        return f"CASE {' '.join(whens)} ELSE {self._steps(table.orders[0])} END"

    def _steps(self, order: Order) -> str:
        """Return the conjunction in that order, each condition inside the one before it."""
        size = -(-len(order) // MAX_STEPS)
        *steps, sql = (
            self.chain(order[first : first + size]) for first in range(0, len(order), size)
        )
        for step in reversed(steps):
            sql = f"CASE WHEN {step} THEN {sql} ELSE false END"
        return sql

    def chain(self, order: Order) -> str:
        """Return the conjunction in that order, as SQL."""
        return " AND ".join(steps_of([self._condition(f) for f in order]))

    def _condition(self, f: int) -> str:
        """Return a predicate in parentheses; the line end closes a comment inside it."""
        return f"({self.texts[f]}\n)"

    def apply(self, df: DataFrame, order: Order, table: RouteTable | None = None) -> DataFrame:
        """Filter without observing anything."""
        return self.guard.where(df, self.condition(order, table))

    def apply_profiled(
        self,
        df: DataFrame,
        order: Order,
        table: RouteTable | None = None,
        *,
        prob: float,
        seed: int,
        observation: Any,
        is_learning: bool = False,
    ) -> DataFrame:
        """Filter, and let the observation collect the outcome codes of a sample.

        A share of the rows ((0, 1]) is profiled, chosen by the seed and the partition, with their
        attributes while classes of rows are learned. The metric ``native`` of the observation is
        what ``parse`` reads.
        """
        row, code, seen = (f"{self.prefix}_{name}" for name in ("row", "code", "seen"))
        chain = self.condition(order, table)
        rows = f"{self.guard.condition} AND " if self.guard.condition else ""
        sampled = f"CASE WHEN {rows}rand({seed}) < {prob!r}D THEN monotonically_increasing_id() END"
        codes = (
            f"CASE WHEN {row} IS NULL THEN NULL WHEN pmod({row}, {TIMED_EVERY}) = 0 "
            f"THEN {self.timed_code(row)} ELSE {self.code(row)} END"
        )
        df = df.withColumn(row, F.expr(sampled))
        drops = not self.guard.marks
        if drops:
            df = self.guard.where(df, f"{row} IS NOT NULL OR ({chain})")
        df = (
            df.withColumn(code, F.expr(codes))
            .withColumn(seen, F.expr(self.observed(code, is_learning=is_learning)))
            .observe(observation, F.collect_list(seen).alias("native"))
        )
        # Rows that are only marked meet the chain once, sampled or not.
        df = self.guard.where(df, f"{row} IS NULL OR ({chain})" if drops else chain)
        return df.drop(row, code, seen)

    def observed(self, code: str, *, is_learning: bool) -> str:
        """Return SQL for what is collected of a row: NULL, its code, or code and attributes."""
        if not (is_learning and self.attributes):
            return code
        values = ", ".join(attribute.sql for attribute in self.attributes)
        return f"CASE WHEN {code} IS NOT NULL THEN struct({code} AS c, array({values}) AS a) END"

    def code(self, row: str) -> str:
        """Return SQL for ``[row number, word, word, …]``: a 1-bit for each predicate that drops."""
        drops = [
            f"IF(coalesce({self._condition(f)}, false), 0L, {1 << (f % BITS_PER_WORD)}L)"
            for f in range(len(self.texts))
        ]
        words = [
            " + ".join(drops[start : start + BITS_PER_WORD])
            for start in range(0, len(drops), BITS_PER_WORD)
        ]
        return f"array({row}, {', '.join(words)})"

    def timed_code(self, row: str) -> str:
        """Return SQL for ``[row number, clock, drops, clock, drops, …, clock, clock]``.

        The last two readings have nothing between them: what reading the clock itself costs.
        """
        steps = [
            f"{CLOCK}, IF(coalesce({self._condition(f)}, false), 0L, 1L)"
            for f in range(len(self.texts))
        ]
        # Read once before it counts: the first reading on a row costs several times the others,
        # and would be taken for the cost of the predicate that is written first.
        return f"array({row} + 0L * {CLOCK}, {', '.join(steps)}, {CLOCK}, {CLOCK})"

    def parse(self, collected: Sequence[Sequence[Any]], *, prob: float) -> FilterProfile:
        """Return the profile of what ``observed`` gave, in any order: each sampled row once."""
        n_filters = len(self.texts)
        is_learned = bool(collected) and not isinstance(collected[0][0], int)
        samples = [sample[0] for sample in collected] if is_learned else collected
        place = {int(values[0]): index for index, values in enumerate(samples)}
        # The upper bits of a row's number are its partition: partitions come side by side.
        numbers = sorted(place, key=lambda number: number & ROW_BITS)
        rows = [samples[place[number]] for number in numbers]
        is_timed = np.array([len(values) == 2 * n_filters + 3 for values in rows], dtype=np.bool_)
        timed = [rows[index] for index in np.flatnonzero(is_timed)]
        plain = [rows[index] for index in np.flatnonzero(~is_timed)]
        drops = np.zeros((len(rows), n_filters), dtype=np.bool_)
        if plain:
            words = np.array(plain, dtype=np.int64)[:, 1:]
            places = np.arange(n_filters)
            bits = words[:, places // BITS_PER_WORD] >> (places % BITS_PER_WORD)
            drops[~is_timed] = bits & 1 == 1
        costs = CostSums.empty(n_filters)
        if timed:
            values = np.array(timed, dtype=np.int64)
            drops[is_timed] = values[:, 2:-2:2] == 1
            clocks = np.concatenate([values[:, 1:-1:2], values[:, -1:]], axis=1)
            costs = _costs(np.diff(clocks, axis=1))
        profile = FilterProfile.of_sample(self.filter_ids, drops, prob=prob, costs=costs)
        if not is_learned:
            return profile
        attributes = AttributeSample(
            tuple(attribute.name for attribute in self.attributes),
            # NULL arrives as None, which is nan as a float.
            np.array([collected[place[number]][1] for number in numbers], dtype=np.float64),
            outcome.pack(drops),
            np.full(len(drops), 1.0 / prob),
        )
        return replace(profile, attributes=attributes)


def _costs(time_ns: np.ndarray[Any, np.dtype[np.int64]]) -> CostSums:
    """Return the costs that differences of clock readings show ((T, F + 1), the last: nothing)."""
    median = np.median(time_ns, axis=0)
    mean = np.minimum(time_ns, SPIKE_FACTOR * median).mean(axis=0)
    least = max(RESOLUTION_FRAC * mean[-1], MIN_PER_ROW_NS)
    return CostSums.of_rows(len(time_ns), np.maximum(mean[:-1] - mean[-1], least))
