"""Medians and spreads, in one place so that all scenarios say them alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np


def median(values: Iterable[float]) -> float:
    """Return the median."""
    return float(np.median(list(values)))


def spread(values: Iterable[float]) -> str:
    """Return smallest and largest value as text."""
    seen = list(values)
    return f"{min(seen):.3g}…{max(seen):.3g}"


def ratios(took: Mapping[str, Sequence[Sequence[float]]]) -> list[float]:
    """Return the values of the first of two ways over those of the second, round by round."""
    return [
        above / below
        for rounds in zip(*took.values(), strict=True)
        for above, below in zip(*rounds, strict=True)
    ]
