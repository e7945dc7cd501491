"""Information of an attribute about a filter: entropy, information gain, gain ratio.

From counters alone: how many sampled rows fall in each bin of an attribute, and how many of
those pass each filter. All filters are counted on the same rows, so there is no round of profiling
one filter after the other. [Bizarro05 3, 4.1]

Conventions: 0 log 0 = 0; an empty bin adds nothing; an attribute that is constant in the sample
has gain ratio 0, and so has any attribute of a filter that passes all or nothing.

Deviations: the paper accepts an attribute by a fixed threshold of the gain ratio, for which it
gives no value. By chance alone the gain of an attribute with d bins is (d - 1) / (2 R ln 2)
bits, so a gain counts here only if a likelihood-ratio test finds it significant too. The gain
ratios printed in [Bizarro05 Ex 3.2] are off by an operator precedence; these follow its (5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats, Indices, Ints, Mask
    from eddyline.data.outcomes import Bits


MANY_CODES = 256
"""Distinct outcome codes above which it is faster to count each filter's rows by themselves."""


def entropy(pass_frac: Floats) -> Floats:
    """Return the entropy of an outcome that passes with some probability (bits) [Bizarro05 (2)].

    >>> entropy(np.array([0.0, 0.5, 1.0]))
    array([0., 1., 0.])
    """
    return _information(pass_frac) + _information(1.0 - pass_frac)


def _information(frac: Floats) -> Floats:
    """Return -x log2 x; 0 at 0."""
    logs = np.log2(frac, out=np.zeros_like(frac), where=frac > 0.0)
    return 0.0 - frac * logs


@dataclass(frozen=True, slots=True)
class Gains:
    """Information of each of K attributes about each of F filters."""

    info: Floats
    """Information gain (bits; ≥ 0; (F, K)) [Bizarro05 (3)]."""
    split_info: Floats
    """Entropy of the bins themselves (bits; (K,)) [Bizarro05 (4)]."""
    n_filled: Ints
    """Bins that hold a sampled row ((K,))."""
    n_rows: float
    """R, the sampled rows."""

    @property
    def ratio(self) -> Floats:
        """Gain ratio ((F, K)) [Bizarro05 (5)]."""
        safe = np.where(self.split_info > 0.0, self.split_info, 1.0)
        found: Floats = np.where(self.split_info > 0.0, self.info / safe, 0.0)
        return found

    @property
    def g_statistic(self) -> Floats:
        """Likelihood-ratio statistic: chi-square with ``n_filled - 1`` degrees if by chance."""
        found: Floats = 2.0 * np.log(2.0) * self.n_rows * self.info
        return found

    @property
    def beyond_chance(self) -> Floats:
        """Information gain less what chance alone gives on average (bits; ≥ 0; (F, K))."""
        chance = np.maximum(self.n_filled - 1, 0) / (2.0 * np.log(2.0) * max(self.n_rows, 1.0))
        found: Floats = np.maximum(self.info - chance, 0.0)
        return found

    def is_significant(self, level: float) -> Mask:
        """Return a mask of the gains that chance does not explain ((F, K)).

        ``level`` is the chance of one false attribute per filter, shared by all ((0, 1)).
        """
        degrees = np.maximum(self.n_filled - 1, 1)
        from scipy.special import chdtri  # noqa: PLC0415 - loading it takes longer than most tasks

        bound = chdtri(degrees, level / max(len(degrees), 1))
        found: Mask = (self.n_filled > 1) & (self.g_statistic > bound)
        return found


def gains(seen: Sequence[Floats], passed: Sequence[Floats]) -> Gains:
    """Return the gains of counters [Bizarro05 4.1].

    They are the rows in each bin of each attribute (``In``; K times (D_k,)) and, of those, the
    ones that pass each filter (``Out``; K times (F, D_k)).

    >>> found = gains([np.array([50.0, 50.0, 50.0])], [np.array([[5.0, 10.0, 45.0]])])
    >>> float(found.ratio[0, 0].round(6)), float(found.g_statistic[0, 0].round(1))
    (0.263504, 86.8)
    """
    n_rows = float(seen[0].sum()) if seen else 0.0
    info, split = [], []
    for rows, good in zip(seen, passed, strict=True):
        share = rows / max(n_rows, 1.0)
        overall = good.sum(axis=1) / max(n_rows, 1.0)
        within = entropy(good / np.maximum(rows, 1.0)) @ share
        info.append(np.maximum(entropy(overall) - within, 0.0))
        split.append(_information(share).sum())
    filled = [int((rows > 0).sum()) for rows in seen]
    n_filters = len(passed[0]) if passed else 0
    table = np.stack(info, axis=1) if info else np.zeros((n_filters, 0))
    return Gains(table, np.array(split), np.array(filled, dtype=np.int64), n_rows)


def difference(seen: Floats, passed: Floats) -> Floats:
    """Return the difference of each bin from the next: likelihood-ratio statistic ((D - 1,)).

    By chance alone it is chi-square with as many degrees as there are filters. For the counters of
    an attribute see ``gains``.
    """
    both, good = seen[:-1] + seen[1:], passed[:, :-1] + passed[:, 1:]
    apart = seen * entropy(passed / np.maximum(seen, 1.0))
    bits = both * entropy(good / np.maximum(both, 1.0)) - apart[:, :-1] - apart[:, 1:]
    found: Floats = 2.0 * np.log(2.0) * np.maximum(bits, 0.0).sum(axis=0)
    return found


def count(
    bins: Sequence[Indices],
    sizes: Sequence[int],
    code: Indices,
    drops: Bits,
) -> tuple[list[Floats], list[Floats]]:
    """Return the counters of a sample: ``In`` and ``Out`` of all attributes and all filters.

    Args:
        bins: the bin of each row, for each attribute (K times (M,)).
        sizes: how many bins each attribute has (K).
        code: outcome code of each row ((M,)).
        drops: which filter drops a row of each code ((Q, F)).
    """
    passes = (~drops).astype(np.float64)
    n_codes = len(drops)
    seen: list[Floats] = []
    passed: list[Floats] = []
    for found, size in zip(bins, sizes, strict=True):
        if n_codes > MANY_CODES:
            seen.append(np.bincount(found, minlength=size).astype(np.float64))
            by_filter = [np.bincount(found, each, minlength=size) for each in passes[code].T]
            passed.append(np.array(by_filter, dtype=np.float64))
            continue
        # Rows of one code pass the same filters, so it is enough to count those.
        cells = np.bincount(found * n_codes + code, minlength=size * n_codes)
        table = cells.reshape(size, n_codes).astype(np.float64)
        seen.append(table.sum(axis=1))
        passed.append((table @ passes).T)
    return seen, passed
