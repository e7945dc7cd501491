"""A condition over the rows of Arrow columns, such as a WHERE, evaluated by the rules' kernels."""

from __future__ import annotations

import uuid
from collections import OrderedDict
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

MOST_KEPT = 8
"""Conditions whose tables a process keeps."""

_kept: OrderedDict[str, Matcher] = OrderedDict()


@dataclass(frozen=True)
class RowTest:
    """A condition, compiled as the only rule of a set."""

    program: Program
    columns: tuple[str, ...]
    """The columns of the rows that it reads, as ``program.columns`` has them."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Says which condition it is, in every process."""

    def keeps(self, columns: Sequence[pa.Array], n_rows: int) -> Mask:
        """Return the rows for which the condition is true ((N,)).

        Args:
            columns: ``columns`` of the rows.
            n_rows: how many there are.
        """
        if self.id not in _kept:
            options = SharingOptions(adaptive=False).resolved()
            _kept[self.id] = Matcher(self.program, RuleChoice(self.program, options).sharing)
            while len(_kept) > MOST_KEPT:
                _kept.popitem(last=False)
        _kept.move_to_end(self.id)
        matches, _ = _kept[self.id].match(columns, n_rows=n_rows)
        keep = np.zeros(n_rows, np.bool_)
        keep[matches.rows] = True
        return keep
