"""Dual-space histograms: counts of polynomials by cells over their coefficients, kept online.

A polynomial is a point whose coordinates are its coefficients [Pulse 3.2.1], from where its segment
begins and in units of its own length: points of different origins could not be compared, and so
lengths need no cells for what holds along a segment. Cells are dyadic, ``2**level`` wide along each
coefficient, and nest, so histograms of any tasks and batches merge by addition. If there are too
many cells, the lightest get wider: what is frequent stays in fine cells, and outliers share coarse
ones. Each cell knows the smallest box around its points; volumes are taken of the box, not of the
cell. A polynomial that comes again and again (a spike) is a cell of its own, whose place is its
very digits.

``ValueSketch`` has the distributions of the least and of the greatest value of segments. They are
enough for thresholds, whatever the degree: ``x < c`` holds somewhere on a segment whose least value
is below ``c``, and all along where its greatest value is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.errors import StateError

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Indices, Ints, Mask

MAX_CELLS = 600
"""Cells that are kept by default; what estimates are measured with."""

LEAST_WIDER, MOST_WIDER = 0.05, 0.5
"""Shares of the cells that get wider at once where there are too many."""

MOST_APART = 40
"""Powers of two between the spreads of coefficients that proportions of cells follow."""

SPIKE = -5_000
"""The level of a spike."""

SPIKE_ONE_OF, LEAST_SPIKE = 256, 4
"""A polynomial is a spike from one of so many on, and from so many on."""

MOST_SPIKES = 4
"""Spikes take at most one of so many cells."""

FINE = 12
"""Levels between the spread of coefficients and the finest cells."""

SHORTEST, LONGEST = -20, 40
"""Powers of two between which lengths are told apart (s)."""

MOST_PLACE = 52
"""Bits of a place at most: cells of what is far out are wide from the start."""

_NO_MORE = 1_100
"""The level at which all there is lies in one cell for each side of 0."""


@dataclass(frozen=True, eq=False)
class CoefHistogram:
    """Counts of polynomials over coefficients.

    Attributes:
        spans: the length of segments as a power of two (s), ``[cells]``.
        levels: how wide cells are as powers of two, ``[cells, degree + 1]``.
        places: where they are, in cells of that level, ``[cells, degree + 1]``.
        counts: polynomials in each, older ones perhaps counting less, ``[cells]``.
        low: the least coefficients in each, of a time that is 1 where a segment ends,
            ``[cells, degree + 1]``.
        high: the greatest, ``[cells, degree + 1]``.
        seconds: the lengths of all segments in each (s), ``[cells]``.
    """

    spans: Ints
    levels: Ints
    places: Ints
    counts: Floats
    low: Floats
    high: Floats
    seconds: Floats

    @classmethod
    def empty(cls, size: int) -> CoefHistogram:
        """Return the histogram of no polynomial of so many coefficients."""
        none, box = np.zeros(0, np.int64), np.zeros((0, size))
        whole = box.astype(np.int64)
        return cls(none, whole, whole, none.astype(np.float64), box, box, none.astype(np.float64))

    @classmethod
    def of(cls, coefs: Floats, length: Floats, max_cells: int = MAX_CELLS) -> CoefHistogram:
        """Return the histogram of polynomials; those without a value are left out.

        Args:
            coefs: from where segments begin, ascending powers of seconds, ``[n, degree + 1]``.
            length: of the segments (s), ``[n]``.
            max_cells: most cells.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            coefs = coefs * length[:, None] ** np.arange(coefs.shape[1])
        is_finite = np.isfinite(coefs).all(axis=1) & np.isfinite(length)
        coefs, length = coefs[is_finite], length[is_finite]
        if not len(coefs):
            return cls.empty(coefs.shape[1])
        spans = np.frexp(length)[1] - 1
        spans = np.where(length > 0, np.clip(spans, SHORTEST, LONGEST), SHORTEST).astype(np.int64)
        levels = np.tile(_finest(coefs), (len(coefs), 1))
        levels = _reaching(levels, coefs)
        places = np.floor(np.ldexp(coefs, -levels)).astype(np.int64)
        is_spike = _spikes(coefs)
        levels[is_spike] = SPIKE
        places[is_spike] = (coefs[is_spike] + 0.0).view(np.int64)  # there is one 0
        ones = np.ones(len(coefs))
        return cls(spans, levels, places, ones, coefs, coefs, length)._grouped().within(max_cells)

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def size(self) -> int:
        """The number of coefficients."""
        return int(self.places.shape[1])

    @property
    def total(self) -> float:
        """How many polynomials there are, older ones perhaps counting less."""
        return float(self.counts.sum())

    @property
    def length(self) -> Floats:
        """The mean length of the segments in each cell (s), ``[cells]``."""
        return self.seconds / self.counts

    def merged(self, *others: CoefHistogram, max_cells: int = MAX_CELLS) -> CoefHistogram:
        """Return the histogram of what any of several counted.

        Those of lower degree are taken as of the highest, with 0 for the rest.
        """
        size = max(histogram.size for histogram in (self, *others))
        every = [histogram._padded(size) for histogram in (self, *others)]
        return (
            CoefHistogram(
                *(
                    np.concatenate([getattr(histogram, name) for histogram in every])
                    for name in _FIELDS
                )
            )
            ._alike()
            ._grouped()
            .within(max_cells)
        )

    def decayed(self, share: float, least: float = 1e-6) -> CoefHistogram:
        """Return the histogram in which each polynomial counts that share ([0, 1]) of what it did.

        Cells of less than ``least`` are left out.
        """
        return self._take(np.flatnonzero(self.counts * share >= least)).weighted(share)

    def weighted(self, by: float) -> CoefHistogram:
        """Return the histogram in which each polynomial counts as so many, such as of a sample."""
        return _with(self, counts=self.counts * by, seconds=self.seconds * by)

    def within(self, max_cells: int) -> CoefHistogram:
        """Return at most so many cells: the lightest, by count and width, get wider and merge.

        At least there is one cell for each length and each side of 0 of each coefficient.
        """
        histogram = self._with_fewer_spikes(max_cells // MOST_SPIKES)
        while len(histogram) > max_cells and int(histogram.levels.max()) < _NO_MORE:
            # An error of estimates grows with both. Not many at once, so that few are lost.
            loss = np.log2(histogram.counts) + histogram.levels.max(axis=1)
            share = np.clip(1.0 - max_cells / len(histogram), LEAST_WIDER, MOST_WIDER)
            loss[histogram.is_spike] = np.inf
            most = np.quantile(loss, share, method="lower")
            if not np.isfinite(most):
                break
            histogram = histogram._widened(loss <= most)._grouped()
        return histogram

    @property
    def negative(self) -> CoefHistogram:
        """The same of negative polynomials, for estimates: their cells have other places."""
        return _with(self, low=-self.high, high=-self.low)

    @property
    def is_spike(self) -> Mask:
        """Which cells are one polynomial each, ``[cells]``."""
        mask: Mask = self.levels[:, 0] == SPIKE
        return mask

    def _with_fewer_spikes(self, most: int) -> CoefHistogram:
        """Return the histogram in which spikes that are no longer frequent are cells as others."""
        spikes = np.flatnonzero(self.is_spike)
        counts = self.counts[spikes]
        rare = counts < self.total / SPIKE_ONE_OF
        rare[np.argsort(-counts, kind="stable")[most:]] = True
        rows = spikes[rare]
        if not len(rows):
            return self
        others = self.levels[~self.is_spike]
        kind = others.min(axis=0) if len(others) else _finest(self.low)
        levels, places = self.levels.copy(), self.places.copy()
        levels[rows] = _reaching(np.tile(kind, (len(rows), 1)), self.low[rows])
        places[rows] = np.floor(np.ldexp(self.low[rows], -levels[rows])).astype(np.int64)
        return _with(self, levels=levels, places=places)._alike()._grouped()

    def _alike(self) -> CoefHistogram:
        """Return cells of the same proportions, those of most counts: others never merge."""
        others = ~self.is_spike
        shape = self.levels - self.levels[:, :1]
        kinds, which = np.unique(shape[others], axis=0, return_inverse=True)
        if len(kinds) < 2:
            return self
        kind = kinds[np.bincount(which.ravel(), self.counts[others]).argmax()]
        wider = (self.levels - kind).max(axis=1, keepdims=True) + kind - self.levels
        wider[~others] = 0
        return _with(self, levels=self.levels + wider, places=self.places >> np.minimum(wider, 63))

    def _widened(self, which: Mask) -> CoefHistogram:
        places = np.where(which[:, None], self.places >> 1, self.places)
        return _with(self, levels=self.levels + which[:, None], places=places)

    def _padded(self, size: int) -> CoefHistogram:
        missing = size - self.size
        if not missing:
            return self
        more = np.zeros((len(self), missing))
        return _with(
            self,
            levels=np.concatenate([self.levels, np.tile(self.levels[:, -1:], missing)], axis=1),
            places=np.concatenate([self.places, more.astype(np.int64)], axis=1),
            low=np.concatenate([self.low, more], axis=1),
            high=np.concatenate([self.high, more], axis=1),
        )

    def _grouped(self) -> CoefHistogram:
        """Return each cell once."""
        if len(self) < 2:
            return self
        order = np.lexsort((*self.places.T, *self.levels.T, self.spans))
        ordered = self._take(order)
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = np.diff(ordered.spans) != 0
        for column in (*ordered.levels.T, *ordered.places.T):
            is_new[1:] |= np.diff(column) != 0
        first = np.flatnonzero(is_new)
        return CoefHistogram(
            ordered.spans[first],
            ordered.levels[first],
            ordered.places[first],
            np.add.reduceat(ordered.counts, first),
            np.minimum.reduceat(ordered.low, first),
            np.maximum.reduceat(ordered.high, first),
            np.add.reduceat(ordered.seconds, first),
        )

    def _take(self, rows: Indices) -> CoefHistogram:
        return CoefHistogram(*(getattr(self, name)[rows] for name in _FIELDS))

    # -- saving ---------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {name: getattr(self, name).tolist() for name in _FIELDS} | {"size": self.size}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> CoefHistogram:
        """Return what ``to_state`` gave.

        Raises:
            StateError: it is no histogram.
        """
        try:
            size = int(state["size"])
            whole = [np.array(state[name], np.int64) for name in _FIELDS[:3]]
            rest = [np.array(state[name], np.float64) for name in _FIELDS[3:]]
            whole[1], whole[2] = (array.reshape(-1, size) for array in whole[1:])
            rest[1], rest[2] = (array.reshape(-1, size) for array in rest[1:3])
            lengths = {len(array) for array in (*whole, *rest)}
            is_sane = all(np.isfinite(array).all() for array in rest) and (rest[0] > 0).all()
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            msg = f"a saved histogram over coefficients is damaged: {error!r}"
            raise StateError(msg) from error
        if len(lengths) != 1 or not is_sane:
            msg = "a saved histogram over coefficients is damaged: its arrays do not fit together"
            raise StateError(msg)
        spans, levels, places = whole
        return cls(spans, levels, places, *rest)


_FIELDS = ("spans", "levels", "places", "counts", "low", "high", "seconds")


def _with(histogram: CoefHistogram, **changed: Any) -> CoefHistogram:
    return CoefHistogram(*(changed.get(name, getattr(histogram, name)) for name in _FIELDS))


def _reaching(levels: Ints, coefs: Floats) -> Ints:
    """Return levels at which places are numbers of not too many bits: wide ones far out."""
    beyond = (np.frexp(np.abs(coefs))[1] - MOST_PLACE - levels).max(axis=1, initial=0)
    raised: Ints = levels + np.maximum(beyond, 0)[:, None]
    return raised


def _spikes(coefs: Floats) -> Mask:
    """Return which polynomials come so often that they are cells of their own, ``[n]``."""
    order = np.lexsort(coefs.T)
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (coefs[order[1:]] != coefs[order[:-1]]).any(axis=1)
    run = np.cumsum(is_new) - 1
    mask = np.zeros(len(order), np.bool_)
    mask[order] = np.bincount(run)[run] >= max(len(order) / SPIKE_ONE_OF, LEAST_SPIKE)
    return mask


def _finest(coefs: Floats) -> Ints:
    """Return the levels of the finest cells, ``[degree + 1]``.

    A coefficient is cut by what it does to a value, and by its own spread: cells have proportions
    between those that either would give.
    """
    halves = 0.5 * coefs  # the greatest numbers may be farther apart than numbers reach
    low, high = np.quantile(halves, [0.05, 0.95], axis=0)
    spread = high - low
    if spread.max() <= 0.0:
        spread = np.abs(halves).max(axis=0)
    if spread.max() <= 0.0:
        spread = np.full_like(spread, 0.5)
    widest = np.frexp(spread.max())[1] + 1
    # In steps of two levels, so that cells of different batches have the same proportions.
    apart = np.where(spread > 0.0, np.minimum(widest - 1 - np.frexp(spread)[1], MOST_APART), 0)
    return np.asarray(widest - FINE - apart // 3 * 2, np.int64)


MAX_VALUE_CELLS = 200
"""Cells of each of the two distributions."""

UP, DOWN = (">", ">="), ("<", "<=")


@dataclass(frozen=True, eq=False)
class ValueSketch:
    """The least and the greatest value of an expression on segments.

    Attributes:
        least: its least values, as polynomials of degree 0.
        greatest: its greatest.
        n_none: segments on which it has no value, or none that is known to be finite.
    """

    least: CoefHistogram
    greatest: CoefHistogram
    n_none: float = 0.0

    @classmethod
    def of(cls, low: Floats, high: Floats) -> ValueSketch:
        """Return the sketch of segments, ``[n]`` each."""
        is_finite = np.isfinite(low) & np.isfinite(high)
        none, zero = float((~is_finite).sum()), np.zeros(int(is_finite.sum()))
        least, greatest = (
            CoefHistogram.of(values[is_finite, None], zero, MAX_VALUE_CELLS)
            for values in (low, high)
        )
        return cls(least, greatest, none)

    @property
    def total(self) -> float:
        """How many segments there are, older ones perhaps counting less."""
        return self.least.total + self.n_none

    def merged(self, other: ValueSketch) -> ValueSketch:
        """Return the sketch of the segments of both."""
        return ValueSketch(
            self.least.merged(other.least, max_cells=MAX_VALUE_CELLS),
            self.greatest.merged(other.greatest, max_cells=MAX_VALUE_CELLS),
            self.n_none + other.n_none,
        )

    def decayed(self, share: float) -> ValueSketch:
        """Return the sketch in which each segment counts that share of what it did."""
        return ValueSketch(
            self.least.decayed(share), self.greatest.decayed(share), self.n_none * share
        )

    def any(self, op: str, constants: Floats) -> Floats:
        """Return on what share of segments a comparison with each constant holds somewhere."""
        if op in UP:
            counts = self.greatest.total - _below(self.greatest, constants, or_at=op == ">")
        elif op in DOWN:
            counts = _below(self.least, constants, or_at=op == "<=")
        else:
            met = _below(self.least, constants, or_at=True)
            met -= _below(self.greatest, constants, or_at=False)
            counts = met if op == "=" else np.full(len(constants), self.least.total)
        return self._share(counts)

    def whole(self, op: str, constants: Floats) -> Floats:
        """Return on what share of segments a comparison with each constant holds all along."""
        if op in UP:
            counts = self.least.total - _below(self.least, constants, or_at=op == ">")
        elif op in DOWN:
            counts = _below(self.greatest, constants, or_at=op == "<=")
        elif op == "<>":
            counts = self.least.total - _below(self.least, constants, or_at=True)
            counts += _below(self.greatest, constants, or_at=False)
        else:
            counts = np.zeros(len(constants))
        return self._share(counts)

    def _share(self, counts: Floats) -> Floats:
        return np.clip(counts / max(self.total, 1e-300), 0.0, 1.0)

    # -- saving ---------------------------------------------------------------------------------

    def to_state(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "least": self.least.to_state(),
            "greatest": self.greatest.to_state(),
            "n_none": self.n_none,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> ValueSketch:
        """Return what ``to_state`` gave.

        Raises:
            StateError: it is no sketch.
        """
        try:
            least, greatest = (
                CoefHistogram.from_state(state[name]) for name in ("least", "greatest")
            )
            return cls(least, greatest, float(state["n_none"]))
        except (KeyError, TypeError, ValueError) as error:
            msg = f"a saved sketch of values is damaged: {error!r}"
            raise StateError(msg) from error


def _below(values: CoefHistogram, constants: Floats, *, or_at: bool) -> Floats:
    """Return how many values are below each constant."""
    low, width = values.low[:, 0], values.high[:, 0] - values.low[:, 0]
    room = constants[:, None] - low
    is_above = room >= 0.0 if or_at else room > 0.0
    share = np.where(
        width > 0.0, np.clip(room / np.where(width > 0.0, width, 1.0), 0.0, 1.0), is_above
    )
    counts: Floats = share @ values.counts
    return counts
