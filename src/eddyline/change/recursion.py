"""The recursion of Page's CUSUM, shared by all detectors that sum evidence [Page54]."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats


def cusum_step(sums: Floats, evidence: Floats) -> Floats:
    """Return S = max(0, S + evidence).

    Args:
        sums: the sums so far (≥ 0; any shape).
        evidence: log ratio of the likelihoods after and before a change, or what stands for it.
    """
    return np.maximum(0.0, sums + evidence)
