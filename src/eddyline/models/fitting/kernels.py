"""Compiled: rows of entities become segments, in one pass over all entities.

1. Rows of one entity at one instant become one interval: the values that are within the bound of
   all of them. If there are none, the greatest value wins, whatever the order of the rows, and the
   others count as conflicts: no function of time is near all of them.
2. ``fit_runs`` takes one run without a gap after the other, and chooses the fitter that stores
   least for it. It compares the segments that fitters make of the first instants of the run. If
   these are all instants, the segments of the best trial are the result.
3. ``fit_run`` grows segments by one fitter. A segment ends where the first of its attributes
   breaks, so attributes share break points. What is stored is verified against the rows as a reader
   evaluates it: ``(time - origin) * 1e-6`` and Horner from the highest coefficient. A segment that
   fails is fitted again with half of its instants. One instant always holds, because its value is
   stored as it is.

Kernels share names of arguments. ``code`` is a fitter. ``start`` is the first instant of a run or a
segment, ``stop`` and ``end`` the one behind its last. ``anchors`` has for each attribute the value
that a connected segment begins with, NaN for none. ``data``, ``scratch`` and ``out`` are below;
``n_out`` segments are in ``out``. ``coefs`` has coefficients of segments, (segments, attributes,
degree + 1), and ``into`` or ``segment`` the place of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled
from eddyline.models.fitting.growing_kernels import (
    add_to_cone,
    add_to_line,
    cone_of,
    constant_of,
    line_of,
    narrow,
    polynomial_of,
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

LEAST_PAYING = 4
"""Instants of a segment of lines: with fewer, a higher degree has nothing to save."""


@compiled
def fit_runs(
    candidates: Ints,
    prefix: int,
    codes: Ints,
    spacings: Ints,
    runs: Ints,
    is_open: Mask,
    waits: Mask,
    anchors: Floats,
    first_left_out: Ints,
    data: Data,
    scratch: Scratch,
    out: Out,
    ranges: Ints,
) -> int:
    """Fit runs of instants; return how many segments there are.

    Args:
        candidates: fitters by ascending degree.
        prefix: instants of a run by which its fitter is chosen, at most.
        codes: the fitter of each run, -1: to be chosen; set here.
        spacings: how long the last instant of each run stands for (µs).
        runs: the first instant of each run, and the number of instants.
        is_open: of each run whether more instants may follow.
        waits: of each run whether all of it is left out.
        anchors: of each run, (runs, attributes).
        first_left_out: of each run the first instant that is left out; set here.
        data: see ``Data``.
        scratch: see ``Scratch``.
        out: see ``Out``, with room for as many segments as instants and a prefix, and one.
        ranges: where the run, the begin and the end of each segment go, (3, instants).
    """
    n_out = 0
    for run in range(codes.size):
        before, start, stop = n_out, runs[run], runs[run + 1]
        is_kept, first_left_out[run] = False, start
        if waits[run]:
            continue
        if codes[run] < 0:
            judged = min(stop, start + prefix)
            codes[run], n_kept = choose(
                candidates, start, judged, anchors[run], data, scratch, out, n_out
            )
            is_kept = judged == stop and not is_open[run]
        if is_kept:
            n_out, first_left_out[run] = n_kept, stop
        else:
            n_out, first_left_out[run] = fit_run(
                codes[run], start, stop, is_open[run], anchors[run], data, scratch, out, n_out
            )
        set_ranges(
            run, before, n_out, first_left_out[run], stop, spacings[run], data[0], out, ranges
        )
    return n_out


@compiled
def set_ranges(
    run: int,
    before: int,
    n_out: int,
    first_left_out: int,
    stop: int,
    spacing: int,
    times: Ints,
    out: Out,
    ranges: Ints,
) -> None:
    """Set run, begin and end of the segments of a run, each of which ends where the next begins.

    The segments are those from ``before`` to ``n_out``. If no instant is left out
    (``first_left_out`` is ``stop``), the last one ends a spacing behind its last instant.
    """
    for segment in range(before, n_out):
        ranges[0, segment] = run
        ranges[1, segment] = times[out[0][segment]]
        if segment > before:
            ranges[2, segment - 1] = ranges[1, segment]
    if n_out > before:
        last = times[stop - 1] + spacing
        ranges[2, n_out - 1] = last if first_left_out == stop else times[first_left_out]


@compiled
def choose(
    candidates: Ints,
    start: int,
    stop: int,
    anchors: Floats,
    data: Data,
    scratch: Scratch,
    out: Out,
    n_out: int,
) -> tuple[int, int]:
    """Return the fitter that stores the fewest numbers for the first instants of a run.

    A segment is its origin, its range, and for each attribute its coefficients and its error. The
    segments of the fitter come behind those that are in ``out``. No anchor is given, and none is
    left.

    Returns:
        The fitter, and how many segments there are now.
    """
    n_attributes = data[3].shape[0]
    best, cheapest, kept, n_fewest = int(candidates[0]), np.inf, n_out, 0
    for code in candidates:
        degree = code - 2 if code > LINE else min(code, 1)
        per_segment = 3 + n_attributes * (degree + 2)
        is_short = code > LINE and stop - start < LEAST_PAYING * n_fewest
        if is_short or per_segment >= cheapest:
            break
        anchors[:] = np.nan
        n_found, _ = fit_run(code, start, stop, False, anchors, data, scratch, out, kept)
        n_fewest = n_found - kept
        if n_fewest * per_segment < cheapest:
            best, cheapest = int(code), np.float64(n_fewest * per_segment)
            for place in range(n_fewest if kept > n_out else 0):
                move(out, kept + place, n_out + place)
            kept = n_out + n_fewest
    anchors[:] = np.nan
    return best, kept


@compiled
def move(out: Out, source: int, target: int) -> None:
    """Put a segment in the place of another."""
    first, ends, coefs, errors = out
    first[target], ends[target] = first[source], ends[source]
    coefs[target], errors[target] = coefs[source], errors[source]


# -- one run, by one fitter -----------------------------------------------------------------------


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

    Returns:
        The first instant that is not passed, ``limit`` at the latest.
    """
    times, mid, reach = data[0], data[3], data[4]
    state, hulls, ends = scratch[0], scratch[1], scratch[2]
    state[:, 0] = 0.0
    if code == LINE:
        end = grow_lines(start, limit, times, mid, reach, state, hulls, ends)
    elif code == CONSTANT:
        end = grow_ranges(start, limit, mid, reach, state)
    else:
        for attribute in range(anchors.size):
            if code == CONNECTED and not np.isnan(anchors[attribute]):
                state[attribute, 0], state[attribute, 1], state[attribute, 2] = 1.0, -np.inf, np.inf
                state[attribute, 3], state[attribute, 4] = 0.0, anchors[attribute]
        end = grow_cones(start, limit, times, mid, reach, state)
    for attribute in range(anchors.size):
        if code == LINE:
            line_of(attribute, state, coefs, into)
        elif code == CONSTANT:
            constant_of(attribute, state, coefs, into)
        else:
            cone_of(attribute, state, code == CONNECTED, coefs, into)
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
        for attribute in range(mid.shape[0]):
            value, far = mid[attribute, end], reach[attribute, end]
            if np.isnan(value):
                continue
            if not add_to_line(attribute, x, value - far, value + far, state, hulls, ends):
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
        for attribute in range(mid.shape[0]):
            if narrow(attribute, start, start + 1, mid, reach, state) == start:
                return start
        start += 1
    size = ONE_BY_ONE
    while start < limit:
        stop = min(start + size, limit)
        state[:, 3:6] = state[:, :3]
        end = stop
        for attribute in range(mid.shape[0]):
            end = narrow(attribute, start, end, mid, reach, state)
        if end < stop:  # one breaks: the others go no farther
            state[:, :3] = state[:, 3:6]
            for attribute in range(mid.shape[0]):
                narrow(attribute, start, end, mid, reach, state)
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
        for attribute in range(mid.shape[0]):
            value, far = mid[attribute, end], reach[attribute, end]
            if np.isnan(value):
                continue
            if not add_to_cone(attribute, x, value - far, value + far, state):
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
    for attribute in range(mid.shape[0]):
        middles, reaches = mid[attribute, start:end], reach[attribute, start:end]
        if not polynomial_of(degree, times, middles, reaches, work, trial[attribute]):
            return False
    return True


@compiled
def alone(instant: int, data: Data, coefs: Floats, into: int) -> None:
    """Set the coefficients of a segment of one instant."""
    for attribute in range(coefs.shape[1]):
        coefs[into, attribute, :] = 0.0
        coefs[into, attribute, 0] = data[3][attribute, instant]


@compiled
def value_at(coefs: Floats, segment: int, attribute: int, tau: float) -> float:
    """Return the value of a polynomial as every reader finds it."""
    top = coefs.shape[2] - 1
    value: float = coefs[segment, attribute, top]
    for k in range(top - 1, -1, -1):
        value = value * tau + coefs[segment, attribute, k]
    return value


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
    for attribute in range(values.shape[0]):
        top = coefs.shape[2] - 1
        while top > 0 and coefs[segment, attribute, top] == 0.0:
            top -= 1
        worst, room, is_near = 0.0, np.inf, True
        constant, slope = coefs[segment, attribute, 0], coefs[segment, attribute, min(top, 1)]
        bound, relative = bounds[attribute], is_relative[attribute]
        for row in range(begin, stop):
            value = values[attribute, row]
            if np.isnan(value):
                continue
            estimate = constant
            if top == 1:  # what Horner's rule finds, without a loop
                estimate = slope * (np.float64(rows[row] - origin) * 1e-6) + constant
            elif top > 1:
                estimate = value_at(
                    coefs, segment, attribute, np.float64(rows[row] - origin) * 1e-6
                )
            far, allowed = abs(value - estimate), allowed_of(value, bound, relative)
            is_near &= far <= allowed
            worst, room = max(worst, far), min(room, allowed - far)
        if not is_near:
            return False
        errors[segment, attribute], scratch[0][attribute, 0] = worst, room
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
    for attribute in range(coefs.shape[1]):
        n = 0
        for k in range(coefs.shape[2]):
            coefs[tried, attribute, k] = coefs[segment, attribute, k]
            n += coefs[segment, attribute, k] != 0.0
        errors[tried, attribute] = errors[segment, attribute]
        room, power = data[8] * scratch[0][attribute, 0], 1.0
        if not 0.0 < room < np.inf or n == 0:
            continue
        moved, size, is_same = 0.0, 0.0, True
        for k in range(coefs.shape[2]):
            value = coefs[segment, attribute, k]
            part = room / (n * power)
            if value != 0.0 and part < np.inf:
                multiple = rounded(value, part)
                is_same &= multiple == value
                moved += abs(multiple - value) * power
                coefs[tried, attribute, k] = multiple
            size += abs(value) * power
            power *= power_of
        if is_same:
            continue  # and so is its error
        changes = True
        moved += EVALUATED * (size + errors[segment, attribute] + scratch[0][attribute, 0])
        is_sure &= moved <= scratch[0][attribute, 0]
        errors[tried, attribute] += moved
    if not changes or not (is_sure or is_verified(start, end, data, scratch, coefs, errors, tried)):
        tried = segment
    for attribute in range(coefs.shape[1]):
        most = np.inf if data[7][attribute] else data[6][attribute]
        errors[segment, attribute] = min(most, rounded_up(errors[tried, attribute]))
        for k in range(coefs.shape[2]):
            coefs[segment, attribute, k] = coefs[tried, attribute, k]


@compiled
def rounded(value: float, most: float) -> float:
    """Return the multiple of the largest power of two that is within some distance of any value."""
    step = 2.0 * first_digit(most)
    multiple = np.rint(value / step) * step
    return multiple if abs(multiple - value) <= most else value


@compiled
def rounded_up(value: float) -> float:
    """Return the least number of three binary digits that is not less than an error."""
    step = first_digit(value) / 4.0
    multiple = np.ceil(value / step) * step
    return multiple if value <= multiple < np.inf else value


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

    If more instants may follow (``is_open``), a segment that these could change is left out, and
    ``anchors`` has those that it begins with.

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
    """Set the values in which a segment ends, if the next one can begin there; NaN if it cannot.

    ``end`` is the first instant that the segment does not pass: the next one would begin before it.
    """
    holds, before = False, end - 1
    if end < stop and before > start:
        tau = np.float64(data[0][before] - data[0][start]) * 1e-6
        for attribute in range(anchors.size):
            anchors[attribute] = value_at(coefs, segment, attribute, tau)
        trial, errors = scratch[4], np.empty((1, anchors.size))
        reached = grow(CONNECTED, before, end + 1, anchors, data, scratch, trial, 0)
        holds = reached > end and is_verified(before, end + 1, data, scratch, trial, errors, 0)
    if not holds:
        anchors[:] = np.nan
    return holds


# -- rows at instants -----------------------------------------------------------------------------


PAD = 8 * 2.0**-52
"""Share of a value that its interval is smaller than the bound: room for rounding."""


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
def starts_of_instants(keys: Ints, times: Ints, starts: Ints) -> int:
    """Put the first row of each instant, and the number of rows, into ``starts``.

    Results as long as rows are arrays of the caller: NumPy asks for large pages, kernels do not,
    and the first touch of small ones takes longer than all the rest.

    Returns:
        How many instants there are.
    """
    n = 0
    for row in range(keys.size):
        starts[n] = row  # of a row that is not the first the next one takes the place
        n += row == 0 or keys[row] != keys[row - 1] or times[row] != times[row - 1]
    starts[n] = keys.size
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
    for attribute in range(values.shape[0]):
        bound, relative = bounds[attribute], is_relative[attribute]
        start = first[0]
        for instant in range(first.size - 1):
            value, stop = values[attribute, start], first[instant + 1]
            is_one = True
            for row in range(start + 1, stop):
                is_one &= values[attribute, row] == value
            if is_one:
                mid[attribute, instant] = value
                reach[attribute, instant] = (
                    0.0 if np.isnan(value) else reach_of(value, bound, relative)
                )
            else:
                values_at = values[attribute, start:stop]
                n_conflicts += merge(values_at, bound, relative)
                mid[attribute, instant], reach[attribute, instant] = interval_of(
                    values_at, bound, relative
                )
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
    """Make all values of an instant but the greatest NaN if none is near all; return how many."""
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

    ``first`` is of ``starts_of_instants``; times in microseconds.
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
    """Return the median time between the first instants of each run (µs); 0 if it has one instant.

    ``times`` are of instants, ``runs`` of ``runs_of``, and ``most`` is how many instants count.
    """
    medians = np.zeros(runs.size - 1, np.int64)
    spacings = np.empty(most, np.int64)
    for run in range(medians.size):
        stop, n = min(runs[run + 1], runs[run] + most), 0
        for place in range(runs[run] + 1, stop):
            spacings[n] = times[place] - times[place - 1]
            n += 1
        sort_few(spacings, n)
        if n > 0:
            medians[run] = spacings[(n - 1) // 2]
    return medians


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
    is_there = np.zeros(values.shape[1], np.bool_)
    for attribute in range(values.shape[0]):
        for row in range(values.shape[1]):
            if np.isfinite(values[attribute, row]):
                is_there[row] = True
            else:
                values[attribute, row] = np.nan
    return is_there
