"""Selects rows by a bitmap block along a sequence: moves rows, decides nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.rules.compile.bitmap_block import PLAIN
from eddyline.rules.match.bitmap_kernels import (
    CHUNK,
    SequenceArrays,
    Tally,
    select_hybrid,
    select_macro,
)
from eddyline.rules.planning.sequence import SelectionSequence
from eddyline.rules.profile import SelectionCounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.data.arrays import Int32s, Ints, Mask
    from eddyline.rules.compile.bitmap_block import BitmapBlock


@dataclass(frozen=True, slots=True)
class Selected:
    """The rules that survive for each row of a batch."""

    rows: Ints
    """Row of each pair, ascending."""
    rules: Int32s
    """Rule of each pair: its place in the block; ascending for each row."""
    counts: SelectionCounts
    """The counts of the selection."""


class Selection:
    """A bitmap block with a sequence, ready to select rows.

    Without a sequence, constructs stand in the order of their numbers. With ``skips`` a row passes
    over constructs that cannot decide any rule it has left.
    """

    def __init__(
        self,
        block: BitmapBlock,
        sequence: SelectionSequence | None = None,
        *,
        skips: bool = False,
    ) -> None:
        sequence = sequence or SelectionSequence.as_numbered(block.n_constructs)
        block.check(sequence)
        self.block = block
        self.sequence = sequence
        self._block = block.arrays()
        self._sequence = _sequence_arrays(block, sequence, skips)

    def select(self, keys: Ints, nulls: Mask) -> Selected:
        """Return the rules that survive for each row of a batch, and counts.

        Keys are those of the attributes, rows of the matrix contiguous, and which are NULL
        ((attributes, R)).
        """
        # Others would be compiled for their kind of array: once per process is enough.
        keys, nulls = np.require(keys, np.int64, PLAIN), np.require(nulls, np.bool_, PLAIN)
        n, n_rows = self.block.n_constructs, keys.shape[1]
        kernel = select_hybrid if self.sequence.is_hybrid else select_macro
        tally = Tally(*(np.zeros(size, dtype=np.int64) for size in (n, n, 1)))
        room = 64 * self.block.n_words * CHUNK + n_rows
        rows, rules = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int32)
        row = n_pairs = 0
        while row < n_rows:
            row, n_pairs = kernel(
                keys, nulls, self._block, self._sequence, tally, row, n_pairs, rows, rules
            )
            if row < n_rows:
                rows, rules = _twice(rows), _twice(rules)
        counts = SelectionCounts(
            n_rows, tally.evaluated, tally.dropped, int(tally.followed[0]), n_pairs
        )
        return Selected(rows[:n_pairs], rules[:n_pairs], counts)


def _sequence_arrays(
    block: BitmapBlock, sequence: SelectionSequence, skips: bool
) -> SequenceArrays:
    macro = np.array(sequence.macro, dtype=np.int64)
    nodes = range(sequence.n_nodes)
    starts, arrows = _arrow_table(block, sequence)
    return SequenceArrays(
        macro=macro,
        position=np.argsort(macro),
        construct_of=np.array([sequence.construct_of(v) for v in nodes], dtype=np.int64),
        arrows_at=starts,
        arrows=arrows,
        skips=skips,
    )


def _arrow_table(block: BitmapBlock, sequence: SelectionSequence) -> tuple[Ints, Int32s]:
    """Return the start of each node's arrows, and all arrows: one per region of those nodes."""
    starts = np.full(max(sequence.n_nodes, 1), -1, dtype=np.int64)
    size = 0
    for node in dict.fromkeys(arrow.node for arrow in sequence.arrows):
        starts[node] = size
        size += block.n_regions(sequence.construct_of(node))
    arrows = np.full(size, -1, dtype=np.int32)
    for arrow in sequence.arrows:
        arrows[starts[arrow.node] + arrow.region] = arrow.target
    return starts, arrows


def _twice(old: NDArray[Any]) -> NDArray[Any]:
    new = np.empty(2 * len(old), dtype=old.dtype)
    new[: len(old)] = old
    return new
