"""Runs the Arrow batches of one task: executor and loop in turn.

While the loop warms up, and at the start of a task, whose rows may be unlike those before, a batch
is run in pieces: the first is just long enough to learn from, so that a bad order costs a thousand
rows and not a whole batch.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.outcomes import pack, sampled_rows, seed_of
from eddyline.filters.executor import Groups
from eddyline.filters.routing_loop import GROUP_CALL_NS
from eddyline.ordering.matrix_view import expected_cost_ns
from eddyline.routing.table import MAX_GROUPS
from eddyline.stats.profile import AttributeSample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from eddyline.filters.executor import ArrowExecutor, BatchOutcome
    from eddyline.filters.loop import FilterLoop
    from eddyline.runtime.journal import JournalEntry

    Values = Sequence[NDArray[np.float64]]


MAX_BATCH_ROWS = 65_536
"""Most rows that are evaluated at once, but for those that come together."""

CALLS_FRAC = 0.02
"""Most that calls may cost beside the rows, as a share of what these cost."""


def batch_rows(loop: FilterLoop) -> int:
    """Return the rows to run at once, where more come: so many that calls cost little beside them.

    Each class of rows with an order of its own takes calls of its own. While nothing is known a
    batch has the rows that come together.
    """
    if not loop.is_adaptive or loop.is_warming:
        return 1
    known = loop.window.profile()
    calls_ns = float((known.costs.fit()[0] + GROUP_CALL_NS).sum())
    if loop.is_learning_routes:
        calls_ns *= MAX_GROUPS
    needed = calls_ns / (CALLS_FRAC * expected_cost_ns(loop.order, known))
    return min(math.ceil(needed), MAX_BATCH_ROWS)


def run_batch(
    executor: ArrowExecutor,
    loop: FilterLoop,
    columns: Sequence[pa.Array],
    *,
    seed: int,
    first_row: int,
    batch_id: int = -1,
    may_switch: bool = True,
    values: Values | None = None,
) -> Iterator[tuple[BatchOutcome, list[JournalEntry]]]:
    """Yield the outcome of each piece of a batch, and what the loop decided after it.

    The seed, of this query, batch and partition, chooses the profiled rows; ``first_row`` is the
    number of the batch's first row within the partition. There is at least one row. The values of
    each of the loop's attributes ((R,) each) are given where they are at hand.
    """
    n_rows, start = len(columns[0]), 0
    if first_row == 0:
        loop.start_task()
    while start < n_rows:
        n_piece = loop.piece_rows(n_rows - start)
        piece = [column.slice(start, n_piece) for column in columns]
        row = first_row + start
        chance = (seed_of(seed, row) & 0xFFFFFFFF) / 2.0**32
        prob = loop.batch_prob(n_piece, chance)
        sample = loop.sample(sampled_rows(seed, row, n_piece, prob), prob)
        here = None if values is None else [each[start : start + n_piece] for each in values]
        groups = None if here is None else _groups(loop, here)
        outcome = executor.run(piece, loop.order, sample, groups)
        fresh = outcome.profile
        if here is not None and loop.routes is not None:
            attributes = _attributes(loop.routes.names, outcome, here, sample.prob)
            fresh = replace(fresh, attributes=attributes)
            outcome = replace(outcome, profile=fresh)
        yield outcome, loop.step(fresh, batch_id, may_switch=may_switch)
        start += n_piece


def _groups(loop: FilterLoop, values: Values) -> Groups | None:
    """Return the order of each row, if classes of rows have orders of their own."""
    if loop.routes is None or loop.table is None:
        return None
    used = [values[loop.routes.names.index(name)] for name in loop.table.attributes]
    return Groups(loop.table.group_of(np.stack(used, axis=1)), loop.table.orders)


def _attributes(
    names: tuple[str, ...], outcome: BatchOutcome, values: Values, prob: float
) -> AttributeSample:
    """Return the sampled rows of a batch with their attributes."""
    rows = outcome.sampled
    return AttributeSample(
        names,
        np.stack([each[rows] for each in values], axis=1),
        pack(outcome.drops),
        np.full(len(rows), 1.0 / prob),
    )
