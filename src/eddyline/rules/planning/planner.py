"""Makes the plan of a program from a profile: access predicates, bitmap blocks, sequences."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.rules.planning.access_predicates import plan_of
from eddyline.rules.planning.hybrid_sequence import hybrid
from eddyline.rules.planning.sequence_learning import RegionSample, greedy_macro, macro

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats
    from eddyline.options import SharingOptions
    from eddyline.rules.compile.bitmap_block import BitmapBlock
    from eddyline.rules.compile.bitmap_blocks import BitmapBlocks
    from eddyline.rules.plan import BitmapBlockPlan, SharingPlan
    from eddyline.rules.profile import SharingProfile

MAX_DISTINCT = 0.5
"""Share of distinct values from which on each row is looked at by itself."""

STEP_COST = 0.2
"""Cost of a step of a binary search, in table look-ups."""

LEARNERS: dict[str, Any] = {"macro": macro, "greedy": greedy_macro, "hybrid": hybrid}
"""Ways to learn a sequence: the cheapest order found, the paper's greedy one, with micro-arrows."""


def make_plan(
    blocks: BitmapBlocks, options: SharingOptions, profile: SharingProfile | None = None
) -> SharingPlan:
    """Return the cheapest plan that the options allow.

    Without a profile it is guessed.
    """
    found = plan_of(blocks.program, profile, method=options.method)
    if profile is not None:
        found = replace(found, by_value=_repeating(profile))
    if profile is None or not len(profile.sampled_regions) or options.sequence == "fixed":
        return found
    return replace(
        found, blocks=tuple(_arranged(blocks, each, options, profile) for each in found.blocks)
    )


def _repeating(profile: SharingProfile) -> frozenset[int]:
    """Return the text constructs whose values repeat so often that finding repeats pays."""
    counted = profile.value_rows > 0
    share = profile.distinct_values / np.maximum(profile.value_rows, 1)
    return frozenset(np.flatnonzero(counted & (share < MAX_DISTINCT)).tolist())


def _costs(block: BitmapBlock) -> Floats:
    """Return the cost of looking a row up in each construct, in table look-ups."""
    n_regions = [block.n_regions(construct) for construct in range(block.n_constructs)]
    searched = 1.0 + STEP_COST * np.log2(np.array(n_regions, np.float64))
    return np.where(block.tables.table_at < 0, searched, 1.0)


def _arranged(
    blocks: BitmapBlocks, plan: BitmapBlockPlan, options: SharingOptions, profile: SharingProfile
) -> BitmapBlockPlan:
    """Return a bitmap block with the sequence that is learned from its sample."""
    regions = blocks.regions(plan.rules, profile.sampled_regions)
    block = blocks.of(plan.rules)
    sample = RegionSample.thinned(block, regions, _costs(block))
    return replace(plan, sequence=LEARNERS[options.sequence](sample))
