"""Makes the whole plan of a program from what was observed: witnesses, blocks, sequences."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eddyline.sharing.learning import RegionSample
from eddyline.sharing.rearrangement import LEARNERS
from eddyline.sharing.witnesses import plan_of

if TYPE_CHECKING:
    from eddyline.options import SharingOptions
    from eddyline.sharing.blocks import Blocks
    from eddyline.sharing.plan import BlockPlan, SharingPlan
    from eddyline.sharing.profile import SharingProfile


def make_plan(
    blocks: Blocks, options: SharingOptions, profile: SharingProfile | None = None
) -> SharingPlan:
    """Return the cheapest plan that the options allow.

    Args:
        blocks: of the program.
        options: method and sequence.
        profile: what was observed; guesses without it.
    """
    found = plan_of(blocks.program, profile, method=options.method)
    if profile is None or not len(profile.sampled_regions) or options.sequence == "fixed":
        return found
    return replace(
        found, blocks=tuple(_arranged(blocks, each, options, profile) for each in found.blocks)
    )


def _arranged(
    blocks: Blocks, plan: BlockPlan, options: SharingOptions, profile: SharingProfile
) -> BlockPlan:
    """Return a block with the sequence that its sample asks for."""
    regions = blocks.regions(plan.rules, profile.sampled_regions)
    sample = RegionSample.of(blocks.of(plan.rules), regions)
    return replace(plan, sequence=LEARNERS[options.sequence](sample))
