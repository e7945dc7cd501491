from __future__ import annotations

import numpy as np

from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def profile_of(drops, costs=None, prob=1.0) -> FilterProfile:
    """The profile of a sample: a row is a tuple, a column a filter, which costs 1 unless told."""
    bits = np.array(drops, dtype=np.bool_)
    n = bits.shape[1]
    ns = np.ones(n) if costs is None else np.array(costs, dtype=float)
    names = tuple(f"F{f + 1}" for f in range(n))
    return FilterProfile.of_sample(names, bits, prob=prob, costs=CostSums.of_rows(1, ns))
