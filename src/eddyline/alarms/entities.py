"""Conditions on keys: rules over entities, a row each, as over any rows."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.options import SharingOptions
from eddyline.rules.compile.bitmap_block import BitmapBlocks
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.planning.planner import make_plan

if TYPE_CHECKING:
    import pyarrow as pa

    from eddyline.data.arrays import Mask
    from eddyline.rules.compile.program import Program

MAX_KEPT = 4
"""Compiled conditions that a process keeps; the one unused for longest goes first."""

_kept: OrderedDict[str, Matcher] = OrderedDict()


@dataclass(frozen=True, eq=False)
class EntityRules:
    """Conditions on keys, compiled together."""

    program: Program
    columns: tuple[str, ...]
    """The key that each column of the program is."""
    digest: str
    """Tells them from others."""

    @property
    def n(self) -> int:
        """How many conditions there are."""
        return self.program.n_rules

    def of(self, entities: pa.Table) -> Mask:
        """Return which conditions are true of which entities, ``[conditions, entities]``."""
        n = entities.num_rows
        columns = [entities.column(each).combine_chunks() for each in self.columns]
        found, _ = self._matcher().match(columns, n_rows=n)
        allowed = np.zeros((self.n, n), np.bool_)
        allowed[found.rules, found.rows] = True
        return allowed

    def _matcher(self) -> Matcher:
        if self.digest not in _kept:
            plan = make_plan(BitmapBlocks(self.program), SharingOptions())
            _kept[self.digest] = Matcher(self.program, plan)
            while len(_kept) > MAX_KEPT:
                _kept.popitem(last=False)
        _kept.move_to_end(self.digest)
        return _kept[self.digest]
