"""Streams of correlated filters whose pass fractions change at known rows, at once or by a ramp.

The rows are those of ``CorrelatedStream``, except that the fraction a filter passes depends on the
row: every ``period_rows`` rows some filters get new ones, chosen by the seed, and hold them until
they are affected again [Tsamoura16 7.2]. The paper does not say how new fractions are chosen; here
they are uniform over a range, at least a step away from what was before.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from eddyline.errors import OptionError
from eddyline.options import in_range
from eddyline.testing.generators import CorrelatedStream

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eddyline.data.arrays import Floats, Ints
    from eddyline.data.outcomes import Bits


_CHUNK_ROWS = 4096
"""Rows that are generated together, so that a row does not depend on how the stream is cut."""

_LEVELS, _ROWS = 0, 1
"""Sub-streams of the seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftingStream:
    """Rows for F filters whose pass fractions change every ``period_rows`` rows.

    The same object always generates the same rows, however they are cut into batches.

    >>> stream = DriftingStream(n_filters=4, period_rows=1000, n_changes=2, seed=7)
    >>> stream.n_rows, stream.change_points
    (3000, (1000, 2000))
    >>> stream.passes(900, 1100).shape
    (200, 4)
    >>> stream.pass_fracs([0])
    array([[0.5, 0.5, 0.5, 0.5]])

    Raises:
        OptionError: a value is out of its range.
    """

    n_filters: int
    """F, the number of filters (≥ 1)."""
    period_rows: int
    """Rows from one change to the next (≥ 1)."""
    n_changes: int = 10
    """How many changes there are (≥ 0); the paper has at most ten."""
    ramp_rows: int = 0
    """Rows that a change takes, linearly (≥ 0, at most ``period_rows``; 0: it is abrupt)."""
    n_affected: int = 1
    """Filters that get a new pass fraction at each change (≥ 1, at most F)."""
    start_frac: float = 0.5
    """Pass fraction of every filter before the first change ([0, 1])."""
    low_frac: float = 0.1
    """Lowest new pass fraction ([0, 1])."""
    high_frac: float = 0.9
    """Highest new pass fraction ([0, 1])."""
    min_step: float = 0.2
    """Least difference between a new fraction and the one before (at most half of the range)."""
    group_size: int = 2
    """Filters per group (≥ 1; see ``CorrelatedStream``)."""
    agreement: float = 0.8
    """Share of rows on which two filters of a group with equal pass fraction agree ([0, 1])."""
    seed: int = 0
    """Chooses the changes and the rows (≥ 0)."""

    def __post_init__(self) -> None:
        in_range(self, "n_filters", 1, 2**31)
        in_range(self, "period_rows", 1, 2**62)
        in_range(self, "n_changes", 0, 2**31)
        in_range(self, "ramp_rows", 0, self.period_rows)
        in_range(self, "n_affected", 1, self.n_filters)
        for name in ("start_frac", "low_frac", "high_frac", "min_step", "agreement"):
            in_range(self, name, 0.0, 1.0)
        in_range(self, "group_size", 1, 2**31)
        in_range(self, "seed", 0, 2**63)
        middle = (self.low_frac + self.high_frac) / 2.0
        if self.low_frac > self.high_frac or middle - self.min_step < self.low_frac:
            msg = (
                f"low_frac {self.low_frac}, high_frac {self.high_frac} and min_step"
                f" {self.min_step} leave no new pass fraction; the range must be twice the step"
            )
            raise OptionError(msg, name="min_step", value=self.min_step)

    @property
    def n_rows(self) -> int:
        """Rows of the whole stream: a period before the first change and one after each."""
        return self.period_rows * (self.n_changes + 1)

    @property
    def change_points(self) -> tuple[int, ...]:
        """The first row of each change."""
        return tuple(self.period_rows * number for number in range(1, self.n_changes + 1))

    def levels(self) -> Floats:
        """Return the pass fractions before the first change and after each ((C + 1, F))."""
        rng = np.random.default_rng([self.seed, _LEVELS])
        levels = np.full((self.n_changes + 1, self.n_filters), float(self.start_frac))
        for number in range(1, self.n_changes + 1):
            levels[number] = levels[number - 1]
            affected = rng.choice(self.n_filters, size=self.n_affected, replace=False)
            levels[number, affected] = self._new_fracs(levels[number, affected], rng)
        return levels

    def affected(self, number: int) -> tuple[int, ...]:
        """Return the filters whose pass fraction a change alters (by index; changes from 0)."""
        before, after = self.levels()[number : number + 2]
        return tuple(np.flatnonzero(before != after).tolist())

    def pass_fracs(self, rows: Iterable[int] | Ints) -> Floats:
        """Return the true pass fraction of each filter at some rows ([0, 1]; (R, F))."""
        at = np.asarray(rows, dtype=np.int64)
        levels = self.levels()
        number = np.minimum(at // self.period_rows, self.n_changes)
        since = at - number * self.period_rows
        done = np.minimum(since / self.ramp_rows, 1.0) if self.ramp_rows else np.ones(len(at))
        left = 1.0 - done[:, None]
        before = levels[np.maximum(number - 1, 0)]
        fracs: Floats = left * before + done[:, None] * levels[number]
        return fracs

    def at(self, row: int) -> CorrelatedStream:
        """Return the stream that goes on for ever as this one is at a row."""
        return CorrelatedStream(
            pass_fracs=tuple(self.pass_fracs([row])[0].tolist()),
            group_size=self.group_size,
            agreement=self.agreement,
            seed=self.seed,
        )

    def all_pass_frac(self, row: int, filters: Iterable[int]) -> float:
        """Return the true fraction of rows that all of some filters pass ([0, 1]; 1 if none).

        Args:
            row: the row whose pass fractions hold.
            filters: the filters, by index.
        """
        fracs = self.pass_fracs([row])[0]
        rho = copy_probs(fracs, self.agreement)
        chosen = np.unique(np.fromiter(filters, dtype=np.int64))
        result = 1.0
        for group in np.unique(chosen // self.group_size):
            members = chosen[chosen // self.group_size == group]
            edges = np.unique(np.concatenate([[0.0, 1.0], fracs[members]]))
            passing = 0.0
            for low, high in pairwise(edges):
                shared = rho[members] * (low < fracs[members])
                own = (1.0 - rho[members]) * fracs[members]
                passing += (high - low) * float((shared + own).prod())
            result *= passing
        return result

    def passes(self, start: int = 0, stop: int | None = None) -> Bits:
        """Return which filter passes which of the rows [start, stop) ((R, F)).

        Args:
            start: the first row.
            stop: the row after the last; the end of the stream if omitted.
        """
        stop = self.n_rows if stop is None else min(stop, self.n_rows)
        result = np.empty((max(stop - start, 0), self.n_filters), dtype=np.bool_)
        for first in range(start // _CHUNK_ROWS * _CHUNK_ROWS, stop, _CHUNK_ROWS):
            low, high = max(first, start), min(first + _CHUNK_ROWS, stop)
            result[low - start : high - start] = self._chunk(first)[low - first : high - first]
        return result

    def batches(self, batch_rows: int) -> Iterator[Bits]:
        """Yield which filter passes which row, batch by batch ((R, F) each)."""
        for start in range(0, self.n_rows, batch_rows):
            yield self.passes(start, start + batch_rows)

    def _chunk(self, first: int) -> Bits:
        """Return one chunk of rows, whole."""
        rng = np.random.default_rng([self.seed, _ROWS, first // _CHUNK_ROWS])
        shape = (_CHUNK_ROWS, self.n_filters)
        group = np.arange(self.n_filters) // self.group_size
        shared = rng.random((_CHUNK_ROWS, int(group[-1]) + 1))[:, group]
        own, chance = rng.random(shape), rng.random(shape)
        numbers = np.arange(first, first + _CHUNK_ROWS) // self.period_rows
        is_steady = not self.ramp_rows and numbers[0] == numbers[-1]
        rows = np.arange(first, first + (1 if is_steady else _CHUNK_ROWS))
        fracs = self.pass_fracs(rows)
        passes: Bits = np.where(chance < copy_probs(fracs, self.agreement), shared, own) < fracs
        return passes

    def _new_fracs(self, before: Floats, rng: np.random.Generator) -> Floats:
        """Draw fractions, uniformly over what is in the range and far enough from those before."""
        below = np.maximum(before - self.min_step - self.low_frac, 0.0)
        above = np.maximum(self.high_frac - before - self.min_step, 0.0)
        place = rng.random(len(before)) * (below + above)
        new: Floats = np.where(
            place < below, self.low_frac + place, self.high_frac - (below + above - place)
        )
        return new


def copy_probs(pass_fracs: Floats, agreement: float) -> Floats:
    """Return how likely a filter reads the latent value of its group, as in ``CorrelatedStream``.

    Args:
        pass_fracs: pass fraction of each filter ([0, 1]; any shape).
        agreement: share of rows on which two filters of a group agree ([0, 1]).
    """
    by_chance = pass_fracs**2 + (1.0 - pass_fracs) ** 2
    lacking = np.maximum(agreement - by_chance, 0.0)
    possible = 1.0 - by_chance
    squared = np.divide(lacking, possible, out=np.zeros_like(possible), where=possible > 0.0)
    rho: Floats = np.sqrt(squared)
    return rho
