"""Condition over Arrow columns, evaluated by the kernels of rules.

An example is a WHERE.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from eddyline.options import SharingOptions
from eddyline.rules.choice import RuleChoice
from eddyline.rules.match.matcher import Matcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from eddyline.data.arrays import Mask
    from eddyline.rules.compile.program import Program

MOST_KEPT = 512
"""Conditions whose tables a process keeps. A task may have several for each query that shares a
stream and evaluates them in turns. With fewer tables than conditions it would make each of them
anew for each block."""

_kept: dict[str, Matcher] = {}
"""By condition, the oldest first. Threads share it: each looks an entry up once."""


@dataclass(frozen=True)
class RowTest:
    """A condition, compiled as the only rule of a set."""

    program: Program
    columns: tuple[str, ...]
    """The columns of the rows that it reads, as ``program.columns`` has them."""
    settings: tuple[str, ...]
    """The settings of Spark by which it was read."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Key of the condition among the tables that a process keeps."""

    def keeps(self, columns: Sequence[pa.Array], n_rows: int) -> Mask:
        """Return the rows for which the condition is true ((N,)).

        Args:
            columns: ``columns`` of the rows.
            n_rows: how many there are.
        """
        matcher = _kept.get(self.id)
        if matcher is None:
            options = SharingOptions(adaptive=False).resolved()
            matcher = Matcher(self.program, RuleChoice(self.program, options).sharing)
            _kept[self.id] = matcher
            for oldest in list(_kept)[:-MOST_KEPT]:
                _kept.pop(oldest, None)
        matches, _ = matcher.match(columns, n_rows=n_rows)
        keep = np.zeros(n_rows, np.bool_)
        keep[matches.rows] = True
        return keep
