"""Compiled: runs without a gap become segments, each run by the fitter that stores least for it.

A fitter is chosen by the segments that it makes of a run's first instants. Where these are all that
there are, the segments of the best trial are the result, and nothing is fitted again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled
from eddyline.models.fitting_kernels import LINE, fit_run

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Ints, Mask
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
    is_open: Mask,
    waits: Mask,
    anchors: Floats,
    left: Ints,
    data: Data,
    scratch: Scratch,
    out: Out,
    ranges: Ints,
) -> int:
    """Fit runs of instants.

    Args:
        candidates: fitters by ascending degree.
        prefix: instants of a run by which its fitter is chosen, at most.
        codes: the fitter of each run, -1: to be chosen; set here.
        spacings: how long the last instant of each run stands for (µs).
        runs: the first instant of each run, and the number of instants.
        is_open: of each run whether more instants may follow.
        waits: of each run whether all of it is left out.
        anchors: of each run as for ``fit_run``, (runs, attributes).
        left: of each run the first instant that is left out; set here.
        data: see ``Data``.
        scratch: see ``Scratch``.
        out: see ``Out``, with room for as many segments as instants and a prefix, and one.
        ranges: where the run, the begin and the end of each segment go, (3, instants).

    Returns:
        How many segments there are.
    """
    n_out = 0
    for run in range(codes.size):
        before, start, stop = n_out, runs[run], runs[run + 1]
        is_kept, left[run] = False, start
        if waits[run]:
            continue
        if codes[run] < 0:
            judged = min(stop, start + prefix)
            codes[run], n_kept = choose(
                candidates, start, judged, anchors[run], data, scratch, out, n_out
            )
            is_kept = judged == stop and not is_open[run]
        if is_kept:
            n_out, left[run] = n_kept, stop
        else:
            n_out, left[run] = fit_run(
                codes[run], start, stop, is_open[run], anchors[run], data, scratch, out, n_out
            )
        set_ranges(run, before, n_out, left[run], stop, spacings[run], data[0], out, ranges)
    return n_out


@compiled
def set_ranges(
    run: int,
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
        run: whose they are.
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
        ranges[0, each] = run
        ranges[1, each] = times[out[0][each]]
        if each > before:
            ranges[2, each - 1] = ranges[1, each]
    if n_out > before:
        last = times[stop - 1] + spacing
        ranges[2, n_out - 1] = last if left == stop else times[left]


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

    A segment is its origin, its range, and for each attribute its coefficients and its error.

    Args:
        candidates: fitters by ascending degree.
        start: the first instant.
        stop: where to stop measuring.
        anchors: room for the values that segments begin with; none is given, none is left.
        data: see ``Data``.
        scratch: see ``Scratch``.
        out: see ``Out``; the segments of the fitter come behind those that are there.
        n_out: how many are there.

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
            for each in range(n_fewest if kept > n_out else 0):
                move(out, kept + each, n_out + each)
            kept = n_out + n_fewest
    anchors[:] = np.nan
    return best, kept


@compiled
def move(out: Out, source: int, target: int) -> None:
    """Put a segment in the place of another."""
    first, ends, coefs, errors = out
    first[target], ends[target] = first[source], ends[source]
    coefs[target], errors[target] = coefs[source], errors[source]
