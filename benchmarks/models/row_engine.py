"""The queries of the benchmarks on rows: the fastest code for arrays that was found for each.

None of it loops over rows in Python. Where a kernel of the project is the fastest, rows use it too:
what is compared is how much there is to do, not who has the better compiler.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.models.data import Rows
from benchmarks.models.row_kernels import above_on_average
from eddyline.data.arrays import Floats, Indices, Ints, Mask
from eddyline.models import timeline
from eddyline.models.solving.joins import near_pairs


def filtered_arrow(table: pa.Table, name: str, below: float) -> pa.Table:
    """Return the rows of which a value is below a number."""
    return table.filter(pc.less(table[name], below))


def filtered_numpy(rows: Rows, name: str, below: float) -> Rows:
    """Return the same by places."""
    return rows.take(np.flatnonzero(rows.values[name] < below))


@dataclass(frozen=True)
class Panes:
    """Panes ``(tick - slide, tick]`` that have rows, by entity and time.

    Attributes:
        first: the first row of each.
        keys: its entity.
        numbers: its number since the first pane of all.
        n: how many panes there are from the first to the last.
        begin: the number of the first since 1970.
    """

    first: Indices
    keys: Ints
    numbers: Ints
    n: int
    begin: int

    def dense(self, values: Floats, missing: float) -> Floats:
        """Return values as a matrix, entities by panes."""
        found = np.full((int(self.keys.max()) + 1, self.n), missing)
        found[self.keys, self.numbers] = values
        return found


def panes_of(rows: Rows, slide_us: int) -> Panes:
    """Return the panes of rows by entity and time."""
    panes = -(-rows.times // slide_us)
    new = np.empty(len(rows), np.bool_)
    new[:1] = True
    np.not_equal(panes[1:], panes[:-1], out=new[1:])
    new[1:] |= rows.keys[1:] != rows.keys[:-1]
    first = np.flatnonzero(new)
    numbers = panes[first]
    begin = int(numbers.min())
    numbers -= begin
    return Panes(first, rows.keys[first], numbers, int(numbers.max()) + 1, begin)


def sliding_minimum(values: Floats, n: int) -> Floats:
    """Return the least of each value and the ``n - 1`` before it in its row, by doubling."""
    found, width = values.copy(), 1
    while width < n:
        step = min(width, n - width)
        np.minimum(found[:, step:], found[:, :-step].copy(), out=found[:, step:])
        width += step
    return found


def windowed_minimum(rows: Rows, name: str, width_us: int, slide_us: int) -> Floats:
    """Return the least value of each window that closes at a tick, entities by ticks."""
    panes = panes_of(rows, slide_us)
    least = np.minimum.reduceat(rows.values[name], panes.first)
    return sliding_minimum(panes.dense(least, np.inf), width_us // slide_us)


def windowed_average(rows: Rows, name: str, widths_us: tuple[int, ...], slide_us: int) -> Averages:
    """Return the averages of windows of several widths, entities by ticks."""
    panes = panes_of(rows, slide_us)
    total = panes.dense(np.add.reduceat(rows.values[name], panes.first), 0.0)
    count = panes.dense(np.diff(np.append(panes.first, len(rows))).astype(np.float64), 0.0)
    np.cumsum(total, axis=1, out=total)
    np.cumsum(count, axis=1, out=count)
    found = []
    for width in widths_us:
        n = width // slide_us
        sums, rows_in = total.copy(), count.copy()
        sums[:, n:] -= total[:, :-n]
        rows_in[:, n:] -= count[:, :-n]
        with np.errstate(invalid="ignore"):
            found.append(np.where(rows_in > 0.5, sums / rows_in, np.nan))
    return Averages(panes.begin, slide_us, found)


@dataclass(frozen=True)
class Averages:
    """Averages of windows of several widths, entities by ticks; NaN: no row is in it."""

    begin: int
    slide_us: int
    values: list[Floats]


def macd(rows: Rows, short_us: int, long_us: int, slide_us: int) -> tuple[Ints, Ints, Floats]:
    """Return where the short average of prices is above the long one, and by how much."""
    found = windowed_average(rows, "price", (short_us, long_us), slide_us)
    apart = found.values[0] - found.values[1]
    with np.errstate(invalid="ignore"):
        keys, ticks = np.nonzero(apart > 0)
    return keys, (ticks + found.begin) * slide_us, apart[keys, ticks]


def macd_in_a_loop(
    rows: Rows, short_us: int, long_us: int, slide_us: int
) -> tuple[Ints, Ints, Floats]:
    """Return the same by one compiled pass, but for averages that rounding alone tells apart."""
    last, n_long = int(rows.times.max()), long_us // slide_us
    n = (last - int(rows.times.min())) // slide_us + 2
    sums, counts = np.zeros((2, n + n_long))
    room = n * (int(rows.keys.max()) + 1)  # only what is written takes memory
    out = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    found = above_on_average(
        rows.keys, rows.times, rows.values["price"], short_us // slide_us, n_long, slide_us,
        -(-last // slide_us), sums, counts, out,
    )  # fmt: skip
    return out[0][:found], out[1][:found], out[2][:found]


@dataclass(frozen=True)
class RowPairs:
    """Pairs of rows of two sides by their places."""

    left: Indices
    right: Indices


def near(left: Rows, right: Rows, apart_us: int, distance: float) -> RowPairs:
    """Return pairs of rows of different entities less than a time and a distance apart.

    A band join: both sides are in the order of time, and the rows that are near in time are
    compared by a compiled loop.
    """
    first = np.searchsorted(right.times, left.times - apart_us, "right")
    last = np.searchsorted(right.times, left.times + apart_us, "left")
    position, other = positions(left), positions(right)
    one, two = near_pairs(
        first, last, left.keys, right.keys, position, position, other - distance, other + distance
    )
    kept = is_near(position[one], other[two], distance)
    return RowPairs(one[kept], two[kept])


def positions(rows: Rows) -> Floats:
    """Return positions, rows by axes."""
    return np.stack([rows.values["x"], rows.values["y"]], axis=1)


def is_near(one: Floats, other: Floats, distance: float) -> Mask:
    """Return which pairs of positions are less than a distance apart."""
    found: Mask = ((one - other) ** 2).sum(axis=1) < distance**2
    return found


@dataclass(frozen=True)
class Following:
    """Windows in which two entities are near each other on average, ``[n]`` each."""

    left: Ints
    right: Ints
    ticks: Ints
    distance: Floats


def following(
    rows: Rows, apart_us: int, width_us: int, slide_us: int, distance: float
) -> Following:
    """Return pairs of entities whose rows are near on average, in windows that close at ticks.

    A pair that is never near in a row is not near on average. Which are is found by a compiled loop
    over rows that are near in time; only their rows are joined pair by pair and averaged.

    Args:
        rows: positions ``x`` and ``y`` in the order of time.
        apart_us: how far rows that are compared are apart in time, at most.
        width_us: how long windows are.
        slide_us: the distance of ticks.
        distance: how near a pair is on average.
    """
    wanted, n = _ever_near(rows, apart_us, distance)
    own = rows.take(np.argsort(rows.keys, kind="stable"))
    starts = np.searchsorted(own.keys, np.arange(n + 1))
    left, right = wanted // n, wanted % n
    place, one = timeline.runs(starts[left], starts[left + 1] - starts[left])
    codes, low, high = timeline.codes(
        (own.keys, own.times),
        (right[place], own.times[one] - apart_us),
        (right[place], own.times[one] + apart_us),
    )
    first, last = np.searchsorted(codes, low, "right"), np.searchsorted(codes, high, "left")
    at, other = timeline.runs(first, np.maximum(last - first, 0))
    one, place = one[at], place[at]
    same = own.keys[other] == right[place]  # a time before an entity's rows is another's
    one, other, place = one[same], other[same], place[same]
    where = positions(own)
    apart = np.sqrt(((where[one] - where[other]) ** 2).sum(axis=1))
    times = np.maximum(own.times[one], own.times[other])
    return _near_on_average(wanted, n, place, times, apart, width_us, slide_us, distance)


def _ever_near(rows: Rows, apart_us: int, distance: float) -> tuple[Ints, int]:
    """Return the pairs of entities that are near in a row, as numbers, and that of entities."""
    first = np.arange(len(rows)) + 1
    last = np.searchsorted(rows.times, rows.times + apart_us, "left")
    at = positions(rows)
    one, other = near_pairs(first, last, rows.keys, rows.keys, at, at, at - distance, at + distance)
    kept = is_near(at[one], at[other], distance)
    left, right = rows.keys[one[kept]], rows.keys[other[kept]]
    n = int(rows.keys.max()) + 1
    return np.unique(np.minimum(left, right) * n + np.maximum(left, right)), n


def _near_on_average(
    pairs: Ints,
    n_entities: int,
    place: Indices,
    times: Ints,
    apart: Floats,
    width_us: int,
    slide_us: int,
    distance: float,
) -> Following:
    """Return the windows in which the average distance of a pair is small."""
    panes = -(-times // slide_us)
    if not len(panes):
        none = np.empty(0, np.int64)
        return Following(none, none, none, np.empty(0))
    begin = int(panes.min())
    n_panes = int(panes.max()) - begin + width_us // slide_us
    cell, n = place * n_panes + (panes - begin), width_us // slide_us
    windows = _by_window if len(pairs) * n_panes > n * len(cell) else _by_pane
    at, mean = windows(cell, apart, len(pairs), n_panes, n)
    kept = np.flatnonzero(mean < distance)
    code, ticks = pairs[at[kept] // n_panes], at[kept] % n_panes
    return Following(code // n_entities, code % n_entities, (ticks + begin) * slide_us, mean[kept])


def _by_window(
    cell: Indices, values: Floats, n_rows: int, n_panes: int, n: int
) -> tuple[Indices, Floats]:
    """Return windows and their means, each value told to all of its windows: where few are."""
    del n_rows, n_panes
    every = (cell[:, None] + np.arange(n)).ravel()
    at, place = np.unique(every, return_inverse=True)
    return at, np.bincount(place, np.repeat(values, n)) / np.bincount(place)


def _by_pane(
    cell: Indices, values: Floats, n_rows: int, n_panes: int, n: int
) -> tuple[Indices, Floats]:
    """Return the same by sums over panes, each a cell of a matrix: where most have values."""
    shape, size = (n_rows, n_panes), n_rows * n_panes
    total = np.bincount(cell, values, size).reshape(shape).cumsum(axis=1)
    count = np.bincount(cell, minlength=size).reshape(shape).cumsum(axis=1)
    total[:, n:] -= total[:, :-n].copy()
    count[:, n:] -= count[:, :-n].copy()
    at = np.flatnonzero(count)
    return at, total.ravel()[at] / count.ravel()[at]
