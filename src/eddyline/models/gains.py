"""By how much outputs move if inputs do, of what is linear.

Such an output is a weighted integral of the past of its inputs, and it moves by at most the
integral of the weights' absolute values (Pulse 3.12): MACD, a difference of two averages, by 5/3.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    Path = tuple[tuple[int, ...], int, str]
    """The sides of pairs that an input came through, its place, and the name of its attribute."""
    Chain = tuple[tuple[int, bool], ...]
    """The windows that an input is averaged over: widths (µs), and whether a part counts."""
    Kernel = dict[Path, dict[Chain, float]]
    """How much of each input's averages is in an output."""


def combined(weights: Mapping[str, float], below: Mapping[str, Kernel]) -> Kernel:
    """Return the kernel of a weighted sum."""
    found: Kernel = {}
    for name, weight in weights.items():
        for path, chains in below[name].items():
            into = found.setdefault(path, {})
            for chain, part in chains.items():
                into[chain] = into.get(chain, 0.0) + weight * part
    return found


def averaged(kernel: Kernel, width_us: int, factor: float, *, is_covered: bool) -> Kernel:
    """Return the kernel of averages over a window, times a factor."""
    window = (width_us, is_covered)
    return {
        path: {tuple(sorted((*chain, window))): factor * part for chain, part in chains.items()}
        for path, chains in kernel.items()
    }


def of_side(kernel: Kernel, side: int) -> Kernel:
    """Return the kernel of one side of pairs: its input is not that of the other."""
    return {((side, *path), at, name): each for (path, at, name), each in kernel.items()}


def gains(kernel: Kernel) -> dict[tuple[int, str], float]:
    """Return by how much an output moves at most, if an attribute of an input does by 1."""
    found: dict[tuple[int, str], float] = {}
    for (_, at, name), chains in kernel.items():
        found[at, name] = found.get((at, name), 0.0) + _norm(chains)
    return found


def _norm(chains: Mapping[Chain, float]) -> float:
    """Return the integral of the absolute value of a sum of averages' weights.

    Single windows are steps that add up where they overlap. Windows of windows, and those that
    count in part, are taken each alone, which is never less.
    """
    boxes, total = [], 0.0
    for chain, part in chains.items():
        if len(chain) == 1 and not chain[0][1]:
            boxes.append((chain[0][0], part))
        else:
            total += abs(part)
    edges = sorted({0, *(width for width, _ in boxes)})
    for start, stop in itertools.pairwise(edges):
        height = sum(part / width for width, part in boxes if width >= stop)
        total += abs(height) * (stop - start)
    return total
