"""Streams with filters of known correlation, and exact answers.

The filters come in groups; within a group two filters agree on a given share of the rows, across
groups they are independent [Babu05 4.7]. The thesis gives no mechanism; this one copies a latent
value: per row and group draw U; filter f reads ``u_f = U`` with probability rho, else a fresh
uniform value, and passes iff ``u_f < pass_frac``. The latent values are columns, so any engine can
evaluate the same predicates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eddyline.errors import OptionError
from eddyline.options import in_range
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats
    from eddyline.data.outcomes import Bits


@dataclass(frozen=True, slots=True)
class Below:
    """A predicate on Arrow arrays: value < bound; null where the value is null."""

    column: str
    """The column that it reads."""
    bound: float
    """Values below pass."""

    def __call__(self, values: pa.Array) -> Any:
        """Return a mask of the values that pass."""
        return pc.less(values, self.bound)

    def sql(self) -> str:
        """Return the same predicate as SQL text."""
        return f"{self.column} < {self.bound!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelatedStream:
    """Rows for F filters, of which those in a group are correlated.

    The same object always generates the same rows.

    >>> stream = CorrelatedStream.even(4, group_size=2, seed=7)
    >>> stream.passes(1000).shape
    (1000, 4)
    >>> stream.predicates[0].sql()
    'u0 < 0.5'

    Raises:
        OptionError: a value is out of its range.
    """

    pass_fracs: tuple[float, ...]
    """Unconditional pass fraction of each filter ([0, 1]; (F,))."""
    group_size: int = 2
    """Filters per group, the thesis' correlation factor (≥ 1; 1: all are independent)."""
    agreement: float = 0.8
    """Share of rows on which two filters of a group with equal pass fraction agree ((0, 1));
    filters that agree more often by chance are left independent."""
    seed: int = 0
    """Chooses the rows (≥ 0)."""

    def __post_init__(self) -> None:
        in_range(self, "group_size", 1, 2**31)
        in_range(self, "agreement", 0.0, 1.0)
        in_range(self, "seed", 0, 2**63)
        if not self.pass_fracs or not all(0.0 <= s <= 1.0 for s in self.pass_fracs):
            msg = f"pass_fracs must be one or more numbers in [0, 1], got {self.pass_fracs!r}"
            raise OptionError(msg, pass_fracs=self.pass_fracs)

    @classmethod
    def even(cls, n_filters: int, pass_frac: float = 0.5, **others: Any) -> Self:
        """Return a stream whose filters all have one pass fraction."""
        return cls(pass_fracs=(pass_frac,) * n_filters, **others)

    @property
    def n_filters(self) -> int:
        """F, the number of filters."""
        return len(self.pass_fracs)

    @property
    def filter_ids(self) -> tuple[str, ...]:
        """Names of the filters."""
        return tuple(f"f{f}" for f in range(self.n_filters))

    @property
    def predicates(self) -> tuple[Below, ...]:
        """The filters as predicates on the columns of ``table``."""
        return tuple(Below(f"u{f}", s) for f, s in enumerate(self.pass_fracs))

    def latents(self, n_rows: int) -> Floats:
        """Return the latent values that the filters compare ([0, 1); (R, F))."""
        rng = np.random.default_rng(self.seed)
        group = np.arange(self.n_filters) // self.group_size
        shared = rng.random((n_rows, group[-1] + 1))[:, group]
        own_values = rng.random((n_rows, self.n_filters))
        copies = rng.random((n_rows, self.n_filters)) < self._copy_probs()
        return np.where(copies, shared, own_values)

    def passes(self, n_rows: int) -> Bits:
        """Return a mask of the filters that each row passes ((R, F))."""
        return self.latents(n_rows) < np.array(self.pass_fracs)

    def table(self, n_rows: int) -> pa.Table:
        """Return the rows as an Arrow table: ``id`` and the latent values ``u0``, ``u1`` …."""
        columns = {f"u{f}": values for f, values in enumerate(self.latents(n_rows).T)}
        return pa.table({"id": np.arange(n_rows), **columns})

    def exact(self, costs_ns: Floats | None = None) -> FilterProfile:
        """Return the profile of every outcome with its exact probability as weight.

        Args:
            costs_ns: cost of one evaluation of each filter (ns; > 0; (F,)); 1 if omitted.
        """
        bits, probs = np.zeros((1, 0), dtype=np.bool_), np.ones(1)
        for start in range(0, self.n_filters, self.group_size):
            more, more_probs = self._joint_of_group(slice(start, start + self.group_size))
            bits = np.hstack([np.repeat(bits, len(more), axis=0), np.tile(more, (len(bits), 1))])
            probs = np.outer(probs, more_probs).ravel()
        dropped = bits.any(axis=1)
        costs = np.ones(self.n_filters) if costs_ns is None else costs_ns
        profile = FilterProfile.of_sample(
            self.filter_ids, bits[dropped], costs=CostSums.of_rows(1, costs)
        )
        return replace(profile, weights=probs[dropped], passed=float(probs[~dropped].sum()))

    def _copy_probs(self) -> Floats:
        """Return rho of each filter ([0, 1]; (F,)); 0 where chance alone agrees enough."""
        s = np.array(self.pass_fracs)
        by_chance = s**2 + (1.0 - s) ** 2
        lacking = np.maximum(self.agreement - by_chance, 0.0)
        possible = 1.0 - by_chance
        squared = np.divide(lacking, possible, out=np.zeros_like(s), where=possible > 0.0)
        rho: Floats = np.sqrt(squared)
        return rho

    def _joint_of_group(self, group: slice) -> tuple[Bits, Floats]:
        """Return all outcome bits of one group and their probabilities.

        Given U the filters are independent, and U matters only by which bounds it lies below.
        """
        bounds, rho = np.array(self.pass_fracs[group]), self._copy_probs()[group]
        edges = np.unique(np.concatenate([[0.0, 1.0], bounds]))
        n = len(bounds)
        drops = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 == 1
        probs = np.zeros(2**n)
        for low, high in pairwise(edges):
            pass_prob = rho * (low < bounds) + (1.0 - rho) * bounds
            probs += (high - low) * np.where(drops, 1.0 - pass_prob, pass_prob).prod(axis=1)
        return drops, probs
