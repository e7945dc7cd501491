"""Runs the Arrow batches of one task: executor and loop in turn.

While the loop warms up, a batch is run in pieces: the first is just long enough to learn an order
from, so that a bad written order costs a thousand rows and not a whole batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eddyline.data.sampling import sampled_rows, seed_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from eddyline.runtime.executor import ArrowExecutor, BatchOutcome
    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.loop import FilterLoop


def run_batch(
    executor: ArrowExecutor,
    loop: FilterLoop,
    columns: Sequence[pa.Array],
    *,
    seed: int,
    first_row: int,
    batch_id: int = -1,
    may_switch: bool = True,
) -> Iterator[tuple[BatchOutcome, list[JournalEntry]]]:
    """Yield the outcome of each piece of a batch, and what the loop decided after it.

    Args:
        executor: moves the rows.
        loop: decides.
        columns: the columns of the batch ((R,) each, R ≥ 1).
        seed: of this query, batch and partition; chooses the profiled rows.
        first_row: number of the batch's first row within the partition.
        batch_id: the micro-batch, for the journal.
        may_switch: whether the order may change.
    """
    n_rows, start = len(columns[0]), 0
    while start < n_rows:
        n_piece = loop.piece_rows(n_rows - start)
        piece = [column.slice(start, n_piece) for column in columns]
        row = first_row + start
        chance = (seed_of(seed, row) & 0xFFFFFFFF) / 2.0**32
        prob = loop.batch_prob(n_piece, chance)
        sample = loop.sample(sampled_rows(seed, row, n_piece, prob), prob)
        outcome = executor.run(piece, loop.order, sample)
        yield outcome, loop.step(outcome.profile, batch_id, may_switch=may_switch)
        start += n_piece
