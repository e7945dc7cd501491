"""The inputs of the benchmarks of aggregates: seeded, and versioned by name (see ``workloads``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.joins.data import T0_US, times_of
from eddyline.data.arrays import Ints

N_COLUMNS = 20
"""Of wide rows."""

WORDS = tuple(f"{first}{second}" for first in ("north", "south", "east") for second in "abcdefgh")


@dataclass(frozen=True)
class Shape:
    """How many rows a stream has, of how many groups, and how far they are apart."""

    n_batches: int
    n_rows: int
    """Of a batch."""
    span_us: int
    """How long a batch is (µs of event time)."""
    n_groups: int = 1_000
    hot: float = 0.0
    """The share of rows that are of one group, -1; the others are uniform."""
    seed: int = 0

    def keys(self, rng: np.random.Generator) -> Ints:
        """Return the groups of the rows of a batch."""
        keys = rng.integers(0, self.n_groups, self.n_rows)
        return np.where(rng.random(self.n_rows) < self.hot, -1, keys) if self.hot else keys


def narrow_batches_v1(shape: Shape) -> list[dict[str, pa.Table]]:
    """Return batches of the stream ``s`` in the order of time: ``id``, ``ts``, ``k`` and ``v``.

    Instants are uniform in the span of a batch, values whole numbers below 10,000.
    """
    rng = np.random.default_rng([shape.seed, 71])
    return [{"s": _narrow(rng, shape, number)} for number in range(shape.n_batches)]


def _narrow(rng: np.random.Generator, shape: Shape, number: int) -> pa.Table:
    n = shape.n_rows
    instants = np.sort(rng.integers(0, shape.span_us, n)) + T0_US + number * shape.span_us
    return pa.table(
        {
            "id": np.arange(n, dtype=np.int64) + number * n,
            "ts": times_of(instants),
            "k": shape.keys(rng),
            "v": rng.integers(0, 10_000, n),
        }
    )


def wide_batches_v1(shape: Shape) -> list[dict[str, pa.Table]]:
    """Return batches as of ``narrow_batches_v1``, with columns that no query reads.

    These are numbers, words and random texts, ``N_COLUMNS`` columns in all.
    """
    rng = np.random.default_rng([shape.seed, 72])
    return [
        {"s": _with_others(rng, _narrow(rng, shape, number))} for number in range(shape.n_batches)
    ]


def _with_others(rng: np.random.Generator, rows: pa.Table) -> pa.Table:
    n, words = rows.num_rows, pa.array(WORDS)
    for number in range(N_COLUMNS - rows.num_columns):
        kind = number % 4
        column = (
            pa.array(rng.integers(0, 1_000_000, n))
            if kind == 0
            else pa.array(rng.random(n))
            if kind == 1
            else words.take(pa.array(rng.integers(0, len(WORDS), n)))
            if kind == 2
            else pa.array(rng.integers(0, 1 << 40, n)).cast(pa.string())
        )
        rows = rows.append_column(f"c{number}", column)
    return rows
