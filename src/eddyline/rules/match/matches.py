"""What the evaluation of a batch comes to: which rules are true for which rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Matches:
    """Pairs of a row and a rule that is true for it, by row and then by rule."""

    n_rows: int
    """Rows of the batch."""
    rows: NDArray[np.int64]
    """Row of each pair, from 0."""
    rules: NDArray[np.int32]
    """Rule of each pair: its place in the set."""
