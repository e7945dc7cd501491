"""Sums and averages of the values that entities have at an instant.

Between two instants at which a segment of a group begins or ends the same segments are there, so
the sum of their polynomials is one (Pulse 3.7). It is added up anew for each such range, by the
order of entities, and never from the sum of the range before: so neither what came first nor how
long a stream runs changes a digit. Points have no length and are left out; so are tombstones, and
segments without values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.models import timeline
from eddyline.models.polynomials import in_range
from eddyline.models.segments import Segments
from eddyline.models.totals_kernels import add_up
from eddyline.models.windows import has_values

if TYPE_CHECKING:
    from eddyline.data.arrays import Floats, Indices, Ints, Mask

_ROUNDED = 2.0**-53
"""What rounding takes of a result at most, in parts of it.

Of what is added up it takes less than ``8 (degree + 1) + 2 n`` such parts of the sizes of the n
polynomials' terms: ``2 degree`` as their origins are moved, as much as instants are rounded to
seconds, as each of them is evaluated and as their sum is; and 2 n as both sides are added up.
"""


def are_counted(segments: Segments) -> Mask:
    """Return which segments have a length and a value of any attribute."""
    found = np.zeros(len(segments), np.bool_)
    for each in segments.coefs.values():
        found |= has_values(each)
    return found & segments.solid


def totals(segments: Segments, groups: Ints, *, is_average: bool) -> Segments:
    """Return the sum, or the average, of each attribute over entities at each instant.

    An attribute has no value where no entity has one.

    Args:
        segments: those of one entity do not overlap; entities are added up by their ids.
        groups: for each segment a dense id of the group of its entity.
        is_average: whether sums are divided by the number of entities that are there.

    Returns:
        Segments of groups, each with its origin where it begins. Errors are the sums, or averages,
        of errors, and what rounding takes.
    """
    places = np.flatnonzero(are_counted(segments))
    places = places[np.lexsort((segments.lo[places], segments.keys[places]))]
    solid, of = segments.take(places), groups[places]
    starts, ends = timeline.codes((of, solid.lo), (of, solid.hi))
    bounds, place = np.unique(np.concatenate([starts, ends]), return_index=True)
    times, owners = np.concatenate([solid.lo, solid.hi])[place], np.append(of, of)[place]
    # A range for each two bounds: between the last of a group and the first of the next is nothing.
    lo, hi, owners = times[:-1], times[1:], owners[:-1]
    first, last = np.searchsorted(bounds, starts), np.searchsorted(bounds, ends)
    coefs, errors = {}, {}
    is_there = np.zeros(len(lo), np.bool_)
    for name in solid.coefs:
        coefs[name], errors[name] = _of_attribute(
            solid, name, first, last, (lo, hi), is_average=is_average
        )
        is_there |= has_values(coefs[name])
    none = np.zeros(len(lo), np.bool_)
    return Segments(owners, lo, lo, hi, none, none.copy(), coefs, errors).take(is_there)


def _of_attribute(
    solid: Segments,
    name: str,
    first: Indices,
    last: Indices,
    ranges: tuple[Ints, Ints],
    *,
    is_average: bool,
) -> tuple[Floats, Floats]:
    """Return the polynomials of ranges, and their errors: NaN and 0 where there is no value."""
    n, size = len(ranges[0]), solid.coefs[name].shape[1]
    valued = np.flatnonzero(has_values(solid.coefs[name]))
    given = solid.origin[valued], solid.errors[name][valued], first[valued], last[valued]

    def added(coefs: Floats) -> tuple[Floats, Floats, Floats, Ints]:
        found, far, reach = np.zeros((n, size)), np.zeros(n), np.zeros(n)
        count = np.zeros(n, np.int64)
        add_up(coefs, *given, *ranges, found, far, reach, count)
        if is_average:
            found /= np.maximum(count, 1)[:, None]
        return found, far, reach, count

    coefs = solid.coefs[name][valued]
    found, far, reach, count = added(coefs)
    if not np.isfinite(found).all():
        found = in_range(lambda some: added(some)[0], coefs)
    with np.errstate(over="ignore", invalid="ignore"):
        far += (8 * size + 2 * count) * _ROUNDED * (reach + far)
    if is_average:
        far /= np.maximum(count, 1)
    found[count == 0] = np.nan
    return found, far
