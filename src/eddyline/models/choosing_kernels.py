"""Compiled: runs of all entities to segments, each entity by the fitter that stores least for it.

A fitter is chosen by the segments that it makes of an entity's first instants. Where these are all
that there are, the segments of the best trial are the result, and nothing is fitted again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled
from eddyline.models.fitting_kernels import LINE, fit_run

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints
    from eddyline.models.fitting_kernels import Data, Out, Scratch

LEAST_PAYING = 4
"""Instants of a segment of lines: with fewer, a higher degree has nothing to save."""


@compiled
def fit_runs(
    candidates: Ints,
    prefix: int,
    codes: Ints,
    spacings: Ints,
    runs: Ints,
    entities: Ints,
    is_open: bool,
    anchors: Floats,
    data: Data,
    scratch: Scratch,
    out: Out,
    ranges: Ints,
) -> tuple[int, int]:
    """Fit all runs of all entities.

    Args:
        candidates: fitters by ascending degree.
        prefix: instants of an entity by which its fitter is chosen, at most.
        codes: the fitter of each entity, -1: to be chosen; set here.
        spacings: how long the last instant of a run of each entity stands for (µs).
        runs: the first instant of each run, and the number of instants.
        entities: the first instant of each entity, and the number of instants.
        is_open: whether more instants of the last run may follow.
        anchors: as for ``fit_run``, for the first run.
        data: see ``Data``.
        scratch: see ``Scratch``.
        out: see ``Out``, with room for as many segments as instants and a prefix, and one.
        ranges: where the entity, the begin and the end of each segment go, (3, instants).

    Returns:
        How many segments there are, and the first instant that is left out.
    """
    n_out, left, run = 0, 0, 0
    for entity in range(entities.size - 1):
        start, stop = entities[entity], entities[entity + 1]
        first_run = run
        while run < runs.size - 1 and runs[run] < stop:
            run += 1
        is_kept, n_kept = False, n_out
        if codes[entity] < 0:
            judged = min(stop, start + prefix)
            codes[entity], n_kept = choose(
                candidates, first_run, judged, runs, anchors, data, scratch, out, n_out
            )
            is_kept = judged == stop and not (is_open and run == runs.size - 1)
        for each in range(first_run, run):
            before, end = n_out, runs[each + 1]
            may_follow = is_open and each == runs.size - 2
            if is_kept:
                while n_out < n_kept and out[0][n_out] < end:
                    n_out += 1
                left = end
            else:
                n_out, left = fit_run(
                    codes[entity], runs[each], end, may_follow, anchors, data, scratch, out, n_out
                )
            if not may_follow:
                anchors[:] = np.nan
            set_ranges(entity, before, n_out, left, end, spacings[entity], data[0], out, ranges)
    return n_out, left


@compiled
def set_ranges(
    entity: int,
    before: int,
    n_out: int,
    left: int,
    stop: int,
    spacing: int,
    times: Ints,
    out: Out,
    ranges: Ints,
) -> None:
    """Set entity, begin and end of the segments of a run, each of which ends where the next begins.

    Args:
        entity: whose they are.
        before: the first segment of the run.
        n_out: the end of its segments.
        left: the first instant that is left out.
        stop: the end of the run.
        spacing: how long its last instant stands for (µs).
        times: of instants (µs).
        out: see ``Out``.
        ranges: as for ``fit_runs``.
    """
    for each in range(before, n_out):
        ranges[0, each] = entity
        ranges[1, each] = times[out[0][each]]
        if each > before:
            ranges[2, each - 1] = ranges[1, each]
    if n_out > before:
        last = times[stop - 1] + spacing
        ranges[2, n_out - 1] = last if left == stop else times[left]


@compiled
def choose(
    candidates: Ints,
    first_run: int,
    stop: int,
    runs: Ints,
    anchors: Floats,
    data: Data,
    scratch: Scratch,
    out: Out,
    n_out: int,
) -> tuple[int, int]:
    """Return the fitter that stores the fewest numbers for the instants of an entity.

    A segment is its origin, its range, and for each attribute its coefficients and its error.

    Args:
        candidates: fitters by ascending degree.
        first_run: the first run of the entity.
        stop: where to stop measuring.
        runs: the first instant of each run, and the number of instants.
        anchors: room for the values that segments begin with; none is given, none is left.
        data: see ``Data``.
        scratch: see ``Scratch``.
        out: see ``Out``; the segments of the fitter come behind those that are there.
        n_out: how many are there.

    Returns:
        The fitter, and how many segments there are now.
    """
    n_attributes = data[3].shape[0]
    start, n_least = runs[first_run], 0
    while runs[first_run + n_least] < stop:
        n_least += 1
    best, cheapest, kept, n_fewest = int(candidates[0]), np.inf, n_out, 0
    for code in candidates:
        degree = code - 2 if code > LINE else min(code, 1)
        per_segment = 3 + n_attributes * (degree + 2)
        is_short = code > LINE and stop - start < LEAST_PAYING * n_fewest
        if is_short or n_least * per_segment >= cheapest:
            break
        n_found = kept
        for run in range(first_run, first_run + n_least):
            anchors[:] = np.nan
            end = min(runs[run + 1], stop)
            n_found, _ = fit_run(code, runs[run], end, False, anchors, data, scratch, out, n_found)
        n_fewest = n_found - kept
        if n_fewest * per_segment < cheapest:
            best, cheapest = int(code), np.float64(n_fewest * per_segment)
            for each in range(n_fewest if kept > n_out else 0):
                move(out, kept + each, n_out + each)
            kept = n_out + n_fewest
    return best, kept


@compiled
def move(out: Out, source: int, target: int) -> None:
    """Put a segment in the place of another."""
    first, ends, coefs, errors = out
    first[target], ends[target] = first[source], ends[source]
    coefs[target], errors[target] = coefs[source], errors[source]
