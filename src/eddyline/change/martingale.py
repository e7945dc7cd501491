"""The martingale test: items that are stranger than those before, too often in a row [Ho10].

An item's strangeness is its median distance to all items since the last change; its p-value is the
share of items that are at least as strange, ties counting for a random share. While items are
exchangeable the p-values are uniform, and the product of ε p^(ε-1) is a martingale from 1 on: that
it ever exceeds h has a probability of at most 1/h. It needs no feedback.

Deviations: all strangeness is recomputed with every item, not frozen; the number of items is
capped; the bound 1/h holds up to the cap. With ``floor`` the product is kept from falling below 1,
which finds changes after long stable runs sooner and gives the bound up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eddyline.change.kernel_bank import KernelBank
from eddyline.errors import OptionError
from eddyline.options import in_range

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask

_FIRST_CAPACITY = 64
_GROWING = ("_recent", "_ordered")


@dataclass(frozen=True, slots=True, kw_only=True)
class MartingaleOptions:
    """When the martingale test reports a change.

    Raises:
        OptionError: a value is out of its range.
    """

    threshold: float = 25.0
    """Value of the martingale that is a change (> 1): reached by chance with a probability of at
    most 1 / threshold. h."""
    exponent: float = 0.9
    """How little a small p-value counts ((0, 1)). ε."""
    max_items: int = 1000
    """Newest items that are compared (≥ 2): time of a check and space grow with them."""
    change_point_back: int = 5
    """How many items before the alarm the change is taken to have begun (≥ 0; the item just
    checked counts as the first; 0: with the next item)."""
    seed: int = 0
    """Of the random shares of ties (≥ 0)."""
    tie_share: float | None = None
    """What a tie counts for ((0, 1]); None: a random share each time, as in the paper."""
    floor: bool = False
    """Whether the martingale is kept at 1 or above."""

    def __post_init__(self) -> None:
        in_range(self, "threshold", 1.0, 1e300)
        in_range(self, "exponent", 1e-6, 1.0 - 1e-9)
        in_range(self, "max_items", 2, 2**20)
        in_range(self, "change_point_back", 0, 2**31)
        in_range(self, "seed", 0, 2**63 - 1)
        if self.tie_share is not None:
            in_range(self, "tie_share", 1e-9, 1.0)
        if not isinstance(self.floor, bool):
            msg = f"option 'floor' must be True or False, got {self.floor!r}"
            raise OptionError(msg, name="floor", value=self.floor)

    def build(self, n: int) -> Martingale:
        """Return n fresh detectors."""
        return Martingale(self, n)


class Martingale(KernelBank):
    """A bank of martingale tests."""

    kind = "martingale"
    _kernel_module = "martingale_kernels"
    _growing = _GROWING
    _state = (*_GROWING, "_n_items", "_log_values")

    def __init__(self, options: MartingaleOptions, n: int) -> None:
        super().__init__(n, 0)
        self._max_length = options.max_items
        self._options = options
        capacity = min(_FIRST_CAPACITY, options.max_items)
        self._recent = np.zeros((self.n, capacity))
        self._ordered = np.zeros((self.n, capacity))
        self._n_items: Ints = np.zeros(self.n, dtype=np.int64)
        self._log_values = np.zeros(self.n)

    def _use_feedback(self, which: Ints, items: Floats) -> None:
        """Never called: the test needs no feedback."""

    def _check(self, which: Ints, items: Floats) -> Mask:
        options, capacity = self._options, self._recent.shape[1]
        if capacity < options.max_items and self._n_items[which].max() >= capacity:
            self._grow(min(2 * capacity, options.max_items))
        hits: Mask = self._kernels.check(
            which,
            items,
            self.n_seen,
            self._recent,
            self._ordered,
            self._n_items,
            self._log_values,
            options.exponent,
            math.log(options.threshold),
            options.seed,
            math.nan if options.tie_share is None else options.tie_share,
            0.0 if options.floor else -math.inf,
        )
        return hits

    def _change_point(self, which: Ints) -> Ints:
        return self._back(which, self._options.change_point_back)
