"""The best lines against an oracle: exact feasibility of intervals, greedily."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eddyline.models.fitting.bounds import Bound, FitOptions
from eddyline.models.fitting.fit import fit

SECOND = 1_000_000


def has_line(points):
    """Return whether a line passes all intervals, exactly.

    If one does, so does one through two ends of intervals, or there is one interval.
    """
    if len(points) == 1:
        return True
    corners = [(x, y) for x, low, high in points for y in (low, high)]
    for (x0, y0), (x1, y1) in permutations(corners, 2):
        if x0 < x1:
            slope = Fraction(y1 - y0) / (x1 - x0)
            if all(low <= y0 + slope * (x - x0) <= high for x, low, high in points):
                return True
    return False


def fewest(columns):
    """Return where segments begin if each is as long as it can be."""
    starts, start = [0], 0
    for end in range(1, len(columns[0])):
        if not all(has_line(points[start : end + 1]) for points in columns):
            start = end
            starts.append(start)
    return starts


wholes = st.integers(-8, 8)


@given(
    st.lists(st.tuples(st.integers(1, 3), wholes, wholes), min_size=1, max_size=12),
    st.integers(1, 4),
    st.integers(1, 2),
)
def test_segments_of_lines_begin_where_exact_arithmetic_has_them(rows, half, n_attributes):
    # Bounds of halves and whole values: no interval only touches a line by rounding.
    steps, *columns = zip(*rows, strict=True)
    seconds = np.cumsum(steps)
    bound = half / 2 + 0.25 / 7
    exact = Fraction(bound)
    chosen = dict(zip("ab", columns[:n_attributes], strict=False))
    intervals = [
        [(Fraction(int(x)), y - exact, y + exact) for x, y in zip(seconds, column, strict=True)]
        for column in chosen.values()
    ]
    values = {name: np.array(column, float) for name, column in chosen.items()}
    found, _ = fit(
        np.zeros(len(rows), np.int64),
        seconds * SECOND,
        values,
        dict.fromkeys(values, Bound(bound)),
        FitOptions(method="linear"),
    )
    wanted = [int(seconds[each]) * SECOND for each in fewest(intervals)]
    assert found.lo.tolist() == wanted
