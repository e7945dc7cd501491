"""Fixed: the order as written, for ever. Asks for no extra evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from eddyline.ordering.protocol import WindowPolicy

if TYPE_CHECKING:
    from eddyline.data.arrays import Mask
    from eddyline.ordering.protocol import Proposal
    from eddyline.stats.profile import FilterProfile, Order


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedOptions:
    """Nothing to choose."""

    def build(self, n_filters: int, rng: np.random.Generator) -> Fixed:  # noqa: ARG002 protocol
        """Return the policy."""
        return Fixed()


class Fixed(WindowPolicy):
    """Never proposes."""

    needs_all_bits: ClassVar[bool] = False

    def extra(self, n_filters: int) -> Mask:
        """Ask for nothing."""
        return np.zeros((n_filters, n_filters), dtype=np.bool_)

    def propose(self, order: Order, window: FilterProfile) -> Proposal | None:  # noqa: ARG002 protocol
        """Keep the order."""
        return None
