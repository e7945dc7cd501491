"""The result of a batch: pairs of a row and a rule that is true for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eddyline.data.arrays import Int32s, Ints


@dataclass(frozen=True, slots=True)
class Matches:
    """Pairs of a row and a rule that is true for it, by row and then by rule."""

    n_rows: int
    """Rows of the batch."""
    rows: Ints
    """Row of each pair, from 0."""
    rules: Int32s
    """Rule of each pair: its place in the set."""
