"""Compiled: runs of instants to segments, one pass over all entities.

A segment ends where the first of its attributes breaks, so attributes share break points. What is
stored is verified against the rows as a reader evaluates it: ``(time - origin) * 1e-6`` and Horner
from the highest coefficient. A segment that fails is fitted again with half of its instants; one
instant always holds, as its value is stored as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled
from eddyline.models.instants_kernels import allowed_of
from eddyline.models.least_squares_kernels import polynomial_of
from eddyline.models.lines_kernels import (
    add_to_cone,
    add_to_line,
    cone_of,
    constant_of,
    line_of,
    narrow,
)

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask

    Data = tuple[Ints, Ints, Ints, Floats, Floats, Floats, Floats, Mask, float]
    """Times of instants, first rows of instants, times of rows, middles and reaches of intervals,
    values of rows, bounds, whether these are relative, and what share of the room to them rounding
    may take."""
    Scratch = tuple[Floats, Floats, Ints, Floats, Floats]
    """State of each attribute, hulls and their ends, sums of least squares, trial coefficients."""
    Out = tuple[Ints, Ints, Floats, Floats]
    """First instants, their ends, coefficients and errors of segments."""

CONSTANT, SWING, CONNECTED, LINE = 0, 1, 2, 3
"""Codes of fitters; higher ones are polynomials of degree code - 2."""

EVALUATED = 64 * 2.0**-53
"""What evaluating a segment twice may err, and distances from it, in parts of their sizes.

Horner's rule errs by less than 2 d parts in 2**53 for degree d, at most 4.
"""

ONE_BY_ONE, BLOCK = 8, 256
"""Instants that constants go through one by one, and most that they go through at once."""

MAX_INSTANTS = 1 << 16
"""Most instants of a segment: what a fit that goes on in the next batch has to keep."""


@compiled
def grow(
    code: int,
    start: int,
    limit: int,
    anchors: Floats,
    data: Data,
    scratch: Scratch,
    coefs: Floats,
    into: int,
) -> int:
    """Fit the instants from a start on, as far as a function of the kind passes their intervals.

    Args:
        code: the fitter.
        start: the first instant.
        limit: where to stop at the latest.
        anchors: of each attribute the value at the start that is given; NaN: none is.
        data: see ``Data``.
        scratch: see ``Scratch``.
        coefs: coefficients of segments, (segments, attributes, degree + 1).
        into: the segment.

    Returns:
        The first instant that is not passed.
    """
    times, mid, reach = data[0], data[3], data[4]
    state, hulls, ends = scratch[0], scratch[1], scratch[2]
    state[:, 0] = 0.0
    if code == LINE:
        end = grow_lines(start, limit, times, mid, reach, state, hulls, ends)
    elif code == CONSTANT:
        end = grow_ranges(start, limit, mid, reach, state)
    else:
        for at in range(anchors.size):
            if code == CONNECTED and not np.isnan(anchors[at]):
                state[at, 0], state[at, 1], state[at, 2] = 1.0, -np.inf, np.inf
                state[at, 3], state[at, 4] = 0.0, anchors[at]
        end = grow_cones(start, limit, times, mid, reach, state)
    for at in range(anchors.size):
        if code == LINE:
            line_of(at, state, coefs, into)
        elif code == CONSTANT:
            constant_of(at, state, coefs, into)
        else:
            cone_of(at, state, code == CONNECTED, coefs, into)
    return end


# A loop for each kind: a call that takes all arrays for each instant takes three times as long.


@compiled
def grow_lines(
    start: int,
    limit: int,
    times: Ints,
    mid: Floats,
    reach: Floats,
    state: Floats,
    hulls: Floats,
    ends: Ints,
) -> int:
    """Return the first instant whose intervals no lines pass with those before."""
    for end in range(start, limit):
        x = np.float64(times[end] - times[start])
        for at in range(mid.shape[0]):
            value, far = mid[at, end], reach[at, end]
            if np.isnan(value):
                continue
            if not add_to_line(at, x, value - far, value + far, state, hulls, ends):
                return end
    return limit


@compiled
def grow_ranges(start: int, limit: int, mid: Floats, reach: Floats, state: Floats) -> int:
    """Return the first instant whose intervals no constants pass with those before.

    The first instants go one by one, as the attribute that breaks first ends the segment and what
    the others read behind it is lost. Blocks behind them go attribute by attribute, so that the
    constants are in registers.
    """
    first = min(start + ONE_BY_ONE, limit)
    while start < first:
        for at in range(mid.shape[0]):
            if narrow(at, start, start + 1, mid, reach, state) == start:
                return start
        start += 1
    size = ONE_BY_ONE
    while start < limit:
        stop = min(start + size, limit)
        state[:, 3:6] = state[:, :3]
        end = stop
        for at in range(mid.shape[0]):
            end = narrow(at, start, end, mid, reach, state)
        if end < stop:  # one breaks: the others go no farther
            state[:, :3] = state[:, 3:6]
            for at in range(mid.shape[0]):
                narrow(at, start, end, mid, reach, state)
            return end
        start, size = stop, min(2 * size, BLOCK)
    return limit


@compiled
def grow_cones(
    start: int, limit: int, times: Ints, mid: Floats, reach: Floats, state: Floats
) -> int:
    """Return the first instant whose intervals no lines from the anchors pass with those before."""
    for end in range(start, limit):
        x = np.float64(times[end] - times[start])
        for at in range(mid.shape[0]):
            value, far = mid[at, end], reach[at, end]
            if np.isnan(value):
                continue
            if not add_to_cone(at, x, value - far, value + far, state):
                return end
    return limit


@compiled
def search(
    degree: int, start: int, limit: int, data: Data, scratch: Scratch, coefs: Floats, into: int
) -> tuple[int, int]:
    """Fit a polynomial to as many instants as doubling and then halving finds.

    Returns:
        The first instant that is not passed, and the farthest end that was tried.
    """
    best, size, fails = 1, 2 * (degree + 1), limit - start + 1
    tried = 1
    alone(start, data, coefs, into)
    while best < limit - start:
        probe = min(size, limit - start)
        tried = max(tried, probe)
        if probe < size:
            tried = limit - start
        if not passes(degree, start, start + probe, data, scratch):
            fails = probe
            break
        best = probe
        coefs[into] = scratch[4][0]
        size = 2 * probe
    while fails - best > 1 + best // 64 and fails <= limit - start:
        probe = (best + fails) // 2
        if passes(degree, start, start + probe, data, scratch):
            best = probe
            coefs[into] = scratch[4][0]
        else:
            fails = probe
    return start + best, start + tried


@compiled
def passes(degree: int, start: int, end: int, data: Data, scratch: Scratch) -> bool:
    """Return whether polynomials pass all intervals of a range; they are left in the scratch."""
    times, mid, reach = data[0][start:end], data[3], data[4]
    work, trial = scratch[3], scratch[4][0]
    for at in range(mid.shape[0]):
        middles, reaches = mid[at, start:end], reach[at, start:end]
        if not polynomial_of(degree, times, middles, reaches, work, trial[at]):
            return False
    return True


@compiled
def alone(instant: int, data: Data, coefs: Floats, into: int) -> None:
    """Set the coefficients of a segment of one instant."""
    for at in range(coefs.shape[1]):
        coefs[into, at, :] = 0.0
        coefs[into, at, 0] = data[3][at, instant]


@compiled
def value_at(coefs: Floats, segment: int, at: int, tau: float) -> float:
    """Return the value of a polynomial as every reader finds it."""
    top = coefs.shape[2] - 1
    found: float = coefs[segment, at, top]
    for k in range(top - 1, -1, -1):
        found = found * tau + coefs[segment, at, k]
    return found


@compiled
def is_verified(
    start: int, end: int, data: Data, scratch: Scratch, coefs: Floats, errors: Floats, segment: int
) -> bool:
    """Return whether all rows of instants are within their bounds; set the largest distances.

    The room that is left to the bounds is left in the scratch.
    """
    first, rows, values = data[1], data[2], data[5]
    bounds, is_relative = data[6], data[7]
    begin, stop = first[start], first[end]
    origin = rows[begin]
    for at in range(values.shape[0]):
        top = coefs.shape[2] - 1
        while top > 0 and coefs[segment, at, top] == 0.0:
            top -= 1
        worst, room, is_near = 0.0, np.inf, True
        constant, slope = coefs[segment, at, 0], coefs[segment, at, min(top, 1)]
        bound, relative = bounds[at], is_relative[at]
        for row in range(begin, stop):
            value = values[at, row]
            if np.isnan(value):
                continue
            found = constant
            if top == 1:  # what Horner's rule finds, without a loop
                found = slope * (np.float64(rows[row] - origin) * 1e-6) + constant
            elif top > 1:
                found = value_at(coefs, segment, at, np.float64(rows[row] - origin) * 1e-6)
            far, allowed = abs(value - found), allowed_of(value, bound, relative)
            is_near &= far <= allowed
            worst, room = max(worst, far), min(room, allowed - far)
        if not is_near:
            return False
        errors[segment, at], scratch[0][at, 0] = worst, room
    return True


@compiled
def round_off(
    start: int, end: int, data: Data, scratch: Scratch, coefs: Floats, errors: Floats, segment: int
) -> None:
    """Give the coefficients of a verified segment fewer digits, as far as the bounds leave room.

    Half the digits of a fit say nothing: without them segments take some times less on disk, where
    equal values and zero bits take next to nothing. Each coefficient becomes the multiple of a
    power of two next to it, with an equal part of the room at the last instant. By how much values
    change is known; only where rounding could hide more than the room, rows are read again, and
    what does not pass stays as it was. The place behind the segment is used to try it.
    """
    tried, last = segment + 1, data[0][end - 1]
    power_of = np.float64(last - data[0][start]) * 1e-6
    changes, is_sure = False, True
    for at in range(coefs.shape[1]):
        n = 0
        for k in range(coefs.shape[2]):
            coefs[tried, at, k] = coefs[segment, at, k]
            n += coefs[segment, at, k] != 0.0
        errors[tried, at] = errors[segment, at]
        room, power = data[8] * scratch[0][at, 0], 1.0
        if not 0.0 < room < np.inf or n == 0:
            continue
        moved, size, is_same = 0.0, 0.0, True
        for k in range(coefs.shape[2]):
            value = coefs[segment, at, k]
            part = room / (n * power)
            if value != 0.0 and part < np.inf:
                found = rounded(value, part)
                is_same &= found == value
                moved += abs(found - value) * power
                coefs[tried, at, k] = found
            size += abs(value) * power
            power *= power_of
        if is_same:
            continue  # and so is its error
        changes = True
        moved += EVALUATED * (size + errors[segment, at] + scratch[0][at, 0])
        is_sure &= moved <= scratch[0][at, 0]
        errors[tried, at] += moved
    if not changes or not (is_sure or is_verified(start, end, data, scratch, coefs, errors, tried)):
        tried = segment
    for at in range(coefs.shape[1]):
        most = np.inf if data[7][at] else data[6][at]
        errors[segment, at] = min(most, rounded_up(errors[tried, at]))
        for k in range(coefs.shape[2]):
            coefs[segment, at, k] = coefs[tried, at, k]


@compiled
def rounded(value: float, most: float) -> float:
    """Return the multiple of the largest power of two that is within some distance of any value."""
    step = 2.0 * first_digit(most)
    found = np.rint(value / step) * step
    return found if abs(found - value) <= most else value


@compiled
def rounded_up(value: float) -> float:
    """Return the least number of three binary digits that is not less than an error."""
    step = first_digit(value) / 4.0
    found = np.ceil(value / step) * step
    return found if value <= found < np.inf else value


@compiled
def first_digit(value: float) -> float:
    """Return the power of two that a positive number begins with, 0 or NaN at the ends of doubles.

    By arithmetic, as calls of a library take as long as a segment (Rump, Ogita and Oishi, Accurate
    floating-point summation, 2008).
    """
    scaled = value * 4503599627370497.0  # 2**52 + 1
    return abs(scaled - (1.0 - 2.0**-53) * scaled)


@compiled
def fit_run(
    code: int,
    start: int,
    stop: int,
    is_open: bool,
    anchors: Floats,
    data: Data,
    scratch: Scratch,
    out: Out,
    n_out: int,
) -> tuple[int, int]:
    """Fit a run of instants without a gap.

    Args:
        code: the fitter.
        start: the first instant.
        stop: the end of the run.
        is_open: whether more instants may follow: a segment that these could change is left out.
        anchors: of each attribute the value at the start that a connected segment begins with, NaN
            for none; at the end those of the segment that is left out.
        data: see ``Data``.
        scratch: see ``Scratch``.
        out: see ``Out``.
        n_out: how many segments there are.

    Returns:
        How many segments there are now, and the first instant that is left out.
    """
    first, ends, coefs, errors = out
    while start < stop:
        limit = min(stop, start + MAX_INSTANTS)
        while True:
            if code <= LINE:
                end = grow(code, start, limit, anchors, data, scratch, coefs, n_out)
                tried = end
            else:
                end, tried = search(code - 2, start, limit, data, scratch, coefs, n_out)
            if is_open and tried == stop:
                return n_out, start
            if end - start == 1:
                alone(start, data, coefs, n_out)
            if is_verified(start, end, data, scratch, coefs, errors, n_out):
                break
            limit = start + (end - start + 1) // 2
        if data[8] > 0 and code != CONNECTED:
            round_off(start, end, data, scratch, coefs, errors, n_out)
        first[n_out], ends[n_out] = start, end
        start = end
        if code == CONNECTED:
            is_joined = joins(first[n_out], end, stop, anchors, data, scratch, coefs, n_out)
            start = ends[n_out] = end - 1 if is_joined else end
        n_out += 1
    return n_out, stop


@compiled
def joins(
    start: int,
    end: int,
    stop: int,
    anchors: Floats,
    data: Data,
    scratch: Scratch,
    coefs: Floats,
    segment: int,
) -> bool:
    """Set the values in which a segment ends, if the next one can begin there.

    Args:
        start: the first instant of the segment.
        end: the first instant that it does not pass; the next one would begin before it.
        stop: the end of the run.
        anchors: where the values go; NaN if the next one cannot.
        data: see ``Data``.
        scratch: see ``Scratch``.
        coefs: coefficients of segments.
        segment: the segment.
    """
    holds, before = False, end - 1
    if end < stop and before > start:
        tau = np.float64(data[0][before] - data[0][start]) * 1e-6
        for at in range(anchors.size):
            anchors[at] = value_at(coefs, segment, at, tau)
        trial, errors = scratch[4], np.empty((1, anchors.size))
        reached = grow(CONNECTED, before, end + 1, anchors, data, scratch, trial, 0)
        holds = reached > end and is_verified(before, end + 1, data, scratch, trial, errors, 0)
    if not holds:
        anchors[:] = np.nan
    return holds
