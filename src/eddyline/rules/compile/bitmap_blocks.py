"""The bitmap blocks of a program, built once and kept for as long as plans use them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from eddyline.rules.compile.bitmap_block import BitmapBlock
from eddyline.rules.compile.keys import LOWEST
from eddyline.rules.compile.program import REGION
from eddyline.rules.compile.regions import KeySet

if TYPE_CHECKING:
    from eddyline.data.arrays import Int32s, Ints
    from eddyline.rules.compile.program import Program

MAX_KEPT = 1024
"""Blocks that are kept; the one unused for longest goes first."""


class BitmapBlocks:
    """Bitmap blocks by their rules."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._built: OrderedDict[tuple[int, ...], BitmapBlock] = OrderedDict()
        self._representatives: list[Ints] | None = None

    def of(self, rules: tuple[int, ...]) -> BitmapBlock:
        """Return the block of some rules."""
        if rules not in self._built:
            self._built[rules] = self._build(rules)
            while len(self._built) > MAX_KEPT:
                self._built.popitem(last=False)
        self._built.move_to_end(rules)
        return self._built[rules]

    def _build(self, rules: tuple[int, ...]) -> BitmapBlock:
        literals, key_sets = self.program.literals, self.program.key_sets

        def attribute_of(literal: int) -> int:
            is_region = literals.kinds[literal] == REGION
            return int(literals.places[literal]) if is_region else -1

        def keys_of(literal: int) -> KeySet:
            return key_sets[literal] or KeySet((), holds_null=False)

        formulas = [self.program.formulas[rule] for rule in rules]
        return BitmapBlock.build(formulas, attribute_of, keys_of)

    def regions(self, rules: tuple[int, ...], sampled: Int32s) -> Int32s:
        """Return regions of the program's constructs as regions of a block's.

        A block cuts where its own rules do, a program where any rule does; so a region of the
        program lies in one region of the block.

        Args:
            rules: the block's.
            sampled: regions of rows in the program's constructs ((T, constructs)).

        Returns:
            Regions in the block's constructs ((T, n)).
        """
        if self._representatives is None:
            self._representatives = [
                np.concatenate([[0, each.cuts[0] - 1 if len(each.cuts) else LOWEST], each.cuts])
                for each in self.program.regions
            ]
        keys = np.empty((max(1, sampled.shape[1]), len(sampled)), np.int64)
        for construct, keys_of_regions in enumerate(self._representatives):
            keys[construct] = keys_of_regions[sampled[:, construct]]
        nulls = np.zeros(keys.shape, np.bool_)
        nulls[: sampled.shape[1]] = sampled.T == 0
        return self.of(rules).regions(keys, nulls, np.arange(len(sampled)))
