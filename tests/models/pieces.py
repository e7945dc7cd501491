"""Segments for tests: written by hand in seconds, or drawn by Hypothesis."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from eddyline.models.segments import Segments

SECOND = 1_000_000
EPOCH = 1_700_000_000 * SECOND
"""An origin of today: polynomials of absolute time would have lost their digits there."""


def pieces(*rows, start=0, errors=0.0):
    """Return segments of ``(key, lo, hi, {attribute: coefficients})`` or with an origin behind.

    Times are in seconds after ``start``, itself in microseconds. Coefficients count from the
    origin, which is 0 if it is left out. A range that ends where it begins is a point; coefficients
    that are None make a tombstone.
    """
    names = sorted({name for row in rows for name in (row[3] or ())})
    size = max((len(each) for row in rows for each in (row[3] or {}).values()), default=1)

    def column(at, default=0):
        given = [row[at] if len(row) > at else default for row in rows]
        return start + np.rint(np.array(given, dtype=float) * SECOND).astype(np.int64)

    def coefs(name):
        found = np.zeros((len(rows), size))
        for row, line in zip(rows, found, strict=True):
            given = (row[3] or {}).get(name, ())
            line[: len(given)] = given
        return found

    lo, hi = column(1), column(2)
    dead = np.array([row[3] is None for row in rows], dtype=bool)
    return Segments(
        np.array([row[0] for row in rows], dtype=np.int64),
        column(4),
        lo,
        hi,
        (lo == hi) & ~dead,
        dead,
        {name: coefs(name) for name in names},
        {name: np.full(len(rows), errors) for name in names},
    )


def ranges(segments, start=0):
    """Return each segment's range in seconds after ``start``."""
    return [
        ((int(lo) - start) / SECOND, (int(hi) - start) / SECOND)
        for lo, hi in zip(segments.lo, segments.hi, strict=True)
    ]


def value(segments, name, at, start=0, key=None):
    """Return the values of an attribute at an instant in seconds, of each segment that has one."""
    instant = start + round(at * SECOND)
    there = (segments.lo <= instant) & (instant < segments.hi + segments.is_point)
    if key is not None:
        there &= segments.keys == key
    tau = (instant - segments.origin[there]) / SECOND
    rows = segments.coefs[name][there]
    return [float(np.polyval(row[::-1], each)) for row, each in zip(rows, tau, strict=True)]


def values_at(segments, times, name="x"):
    """Return what a reader computes of each segment at each instant, NaN where it is not there.

    Returns:
        ``[times, segments]``; points and tombstones are nowhere.
    """
    tau = (times[:, None] - segments.origin) / SECOND
    found = np.zeros(tau.shape)
    for power in range(segments.coefs[name].shape[1] - 1, -1, -1):
        found = found * tau + segments.coefs[name][:, power]
    there = (segments.lo <= times[:, None]) & (times[:, None] < segments.hi)
    return np.where(there & ~segments.is_tombstone, found, np.nan)


COEFFICIENTS = st.integers(-40, 40).map(lambda n: n / 8)


@st.composite
def drawn(draw, names=("x",), keys=3, most=4, degree=4, start=0, gaps=True):
    """Draw segments of several entities, in the order of entities and time.

    Lengths and gaps are tenths of a second; origins are before, at and behind where they begin.
    """
    rows = []
    size = draw(st.integers(1, degree + 1))
    for key in range(draw(st.integers(1, keys))):
        at = draw(st.integers(0, 30))
        for _ in range(draw(st.integers(1, most))):
            length = draw(st.integers(1, 40))
            origin = at + draw(st.integers(-10, 10))
            coefs = {
                name: draw(st.lists(COEFFICIENTS, min_size=size, max_size=size)) for name in names
            }
            rows.append((key, at / 10, (at + length) / 10, coefs, origin / 10))
            at += length + (draw(st.sampled_from([0, 0, 7])) if gaps else 0)
    return pieces(*rows, start=start)
