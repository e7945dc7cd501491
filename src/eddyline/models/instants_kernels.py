"""Compiled: rows of entities to intervals of values at instants.

Rows of one entity at one instant are one interval: the values that are within the bound of all of
them. If there are none, the greatest value wins, whatever the order of the rows, and the others
count as conflicts: no function of time is near all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask

PAD = 8 * 2.0**-52
"""Share of a value that its interval is smaller than the bound: room for rounding."""

FEW = 24
"""Values up to which they are sorted by insertion."""


@compiled
def is_sorted(keys: Ints, times: Ints) -> bool:
    """Return whether rows come by entity, and then by time."""
    for row in range(1, keys.size):
        if keys[row] < keys[row - 1]:
            return False
        if keys[row] == keys[row - 1] and times[row] < times[row - 1]:
            return False
    return True


@compiled
def starts_of_instants(keys: Ints, times: Ints, found: Ints) -> int:
    """Put the first row of each instant of an entity, and the number of rows, into an array.

    Results as long as rows are arrays of the caller: NumPy asks for large pages, kernels do not,
    and the first touch of small ones takes longer than all the rest.

    Args:
        keys: the entity of each row.
        times: of each row (µs).
        found: room for a number more than there are rows.

    Returns:
        How many instants there are.
    """
    n = 0
    for row in range(keys.size):
        found[n] = row  # of a row that is not the first the next one takes the place
        n += row == 0 or keys[row] != keys[row - 1] or times[row] != times[row - 1]
    found[n] = keys.size
    return n


@compiled
def allowed_of(value: float, bound: float, is_relative: bool) -> float:
    """Return how far from a row's value a model may be."""
    return bound * abs(value) if is_relative else bound


@compiled
def intervals_of(
    first: Ints, values: Floats, bounds: Floats, is_relative: Mask, mid: Floats, reach: Floats
) -> int:
    """Set the middles of intervals and half their lengths; return how many values are in conflict.

    Args:
        first: the first row of each instant, and the number of rows, (instants + 1,).
        values: by attribute, (attributes, rows); NaN where a row has none. Values that lose a
            conflict become NaN.
        bounds: of each attribute.
        is_relative: whether they are shares of values.
        mid: where middles go, (attributes, instants).
        reach: where half the lengths go, (attributes, instants).
    """
    n_conflicts = 0
    for at in range(values.shape[0]):
        bound, relative = bounds[at], is_relative[at]
        start = first[0]
        for instant in range(first.size - 1):
            value, stop = values[at, start], first[instant + 1]
            is_one = True
            for row in range(start + 1, stop):
                is_one &= values[at, row] == value
            if is_one:
                mid[at, instant] = value
                reach[at, instant] = 0.0 if np.isnan(value) else reach_of(value, bound, relative)
            else:
                values_at = values[at, start:stop]
                n_conflicts += merge(values_at, bound, relative)
                mid[at, instant], reach[at, instant] = interval_of(values_at, bound, relative)
            start = stop
    return n_conflicts


@compiled
def reach_of(value: float, bound: float, is_relative: bool) -> float:
    """Return how far from a row's value a fit goes: not quite to the bound."""
    allowed = allowed_of(value, bound, is_relative)
    return max(0.0, allowed - PAD * (abs(value) + allowed))


@compiled
def interval_of(values: Floats, bound: float, is_relative: bool) -> tuple[float, float]:
    """Return the middle of what is near all values of an instant, and how far from it that is."""
    least, most, n = np.inf, -np.inf, 0
    for value in values:
        if not np.isnan(value):
            far = reach_of(value, bound, is_relative)
            least, most = min(least, value + far), max(most, value - far)
            n += 1
    if n == 0:
        return np.nan, 0.0
    middle = middle_of(values)
    if most <= least and not most <= middle <= least:  # relative bounds: the lesser value's is less
        middle = 0.5 * most + 0.5 * least
    return middle, max(0.0, min(least - middle, middle - most))


@compiled
def middle_of(values: Floats) -> float:
    """Return the middle between the least and the greatest value; the one where there is one."""
    least, most = np.inf, -np.inf
    for value in values:
        if not np.isnan(value):
            least, most = min(least, value), max(most, value)
    return least if least == most else 0.5 * least + 0.5 * most


@compiled
def merge(values: Floats, bound: float, is_relative: bool) -> int:
    """Make all values of an instant but the greatest NaN if no value is near all of them.

    Returns:
        How many there were.
    """
    middle, _ = interval_of(values, bound, is_relative)
    most, is_near = -np.inf, True
    for value in values:
        if not np.isnan(value):
            most = max(most, value)
            if not abs(value - middle) <= allowed_of(value, bound, is_relative):
                is_near = False
    if is_near:
        return 0
    n_lost = 0
    for row in range(values.size):
        if values[row] < most:
            values[row] = np.nan
            n_lost += 1
    return n_lost


@compiled
def runs_of(keys: Ints, times: Ints, first: Ints, max_gap: int) -> Ints:
    """Return the first instant of each run of an entity without a gap, and the number of instants.

    Args:
        keys: the entity of each row.
        times: of each row (µs).
        first: the first row of each instant, and the number of rows.
        max_gap: a longer time between two instants is a gap (µs).
    """
    n = first.size - 1
    runs = np.empty(n + 1, np.int64)
    n_runs = 0
    for instant in range(n):
        row = first[instant]
        is_new = instant == 0 or keys[row] != keys[first[instant - 1]]
        apart = times[row] - times[first[instant - 1]] if instant > 0 else 0
        if is_new or apart > max_gap or apart < 0:  # below 0: more than an integer holds
            runs[n_runs] = instant
            n_runs += 1
    runs[n_runs] = n
    return runs[: n_runs + 1]


@compiled
def spacings_of(times: Ints, runs: Ints, most: int) -> Ints:
    """Return the median time between the instants of each run (µs); 0 if it has one instant.

    Args:
        times: of instants (µs).
        runs: the first instant of each run, and the number of instants.
        most: how many instants of a run are looked at, at most.
    """
    found = np.zeros(runs.size - 1, np.int64)
    spacings = np.empty(most, np.int64)
    for run in range(found.size):
        stop, n = min(runs[run + 1], runs[run] + most), 0
        for place in range(runs[run] + 1, stop):
            spacings[n] = times[place] - times[place - 1]
            n += 1
        if n > FEW:
            spacings[:n].sort()
        else:
            sort_few(spacings, n)
        if n > 0:
            found[run] = spacings[(n - 1) // 2]
    return found


@compiled
def sort_few(values: Ints, n: int) -> None:
    """Sort the first few values by insertion: a general sort takes as long to begin."""
    for place in range(1, n):
        value, free = values[place], place
        while free > 0 and values[free - 1] > value:
            values[free] = values[free - 1]
            free -= 1
        values[free] = value


@compiled
def has_value(values: Floats) -> Mask:
    """Return whether a row has a value of an attribute; what is not finite becomes NaN."""
    found = np.zeros(values.shape[1], np.bool_)
    for at in range(values.shape[0]):
        for row in range(values.shape[1]):
            if np.isfinite(values[at, row]):
                found[row] = True
            else:
                values[at, row] = np.nan
    return found
