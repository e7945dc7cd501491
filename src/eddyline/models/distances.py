"""The average distance of two entities over windows, at ticks, in closed form.

Of two that move in straight lines the distance is the square root of a quadratic, no polynomial;
but its integral is known, and at ticks nothing else is needed (Pulse 2.7.2, 3.10).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.errors import NotSupportedError
from eddyline.models import polynomials
from eddyline.models.conditions import near
from eddyline.models.sampling import Samples
from eddyline.models.segments import in_seconds
from eddyline.models.solving import where
from eddyline.models.windows import Seen, has_values, windows_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eddyline.data.arrays import Floats, Indices, Ints
    from eddyline.models.segments import Segments
    from eddyline.models.windows import Part

_FAR = 4.0
"""How many lengths of a range away from its turning point a distance is smooth on the range."""
_MEETS = 1e-150
"""Seconds: two that pass each other at a distance of less meet; its square would be no number."""
_SMALL, _LARGE = 2.0**-400, 2.0**400
"""Squares of coordinates between these neither overflow nor vanish."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
"""At a distance of ``_FAR`` ranges these 12 points give an integral to the last digit."""


def average_distances(
    pairs: Segments,
    axes: Mapping[str, str],
    width_us: int,
    every_us: int,
    *,
    covered: bool = False,
    below: float | None = None,
) -> Samples:
    """Return the average distance of pairs over the windows that close at ticks, as ``distance``.

    Args:
        pairs: segments of pairs, with the positions of both (``joins.Joined.segments``); linear.
        axes: for each attribute of one side that of the other: ``{"left.x": "right.x", …}``.
        width_us: how long windows are, in microseconds.
        every_us: the distance of ticks, in microseconds.
        covered: whether windows count that segments cover in part, divided by the covered time.
        below: what averages have to be less than. Windows in which a pair is never so near are not
            looked at. None: all are asked for.

    Raises:
        NotSupportedError: an attribute is of a degree above 1.
    """
    for name in [*axes, *axes.values()]:
        pairs = pairs.take(has_values(pairs.coefs[name]))  # without a position there is a gap
        if pairs.coefs[name][:, 2:].any():
            msg = (
                f"the average distance takes linear models, {name!r} has a degree of "
                f"{pairs.coefs[name].shape[1] - 1}; fit it by degree 1, or compare the average "
                "square of the distance, which is a polynomial"
            )
            raise NotSupportedError(msg, attribute=name)
    seen = None
    if below is not None:
        found = where(pairs.take(pairs.solid), near(dict(axes), "<", below)).ordered
        seen = Seen(found.keys, found.lo, found.ends)
    windows = windows_at(pairs, width_us, every_us, covered=covered, seen=seen)
    values = windows.integrals(_distance_part(windows.track.segments, axes)) / windows.covered_s
    if below is not None:
        is_less = values < below
        windows, values = windows.take(is_less), values[is_less]
    errors = _errors(windows.track.segments, axes)
    error = windows.polynomial_integrals(errors) / windows.covered_s
    keys = windows.track.keys[windows.head]
    return Samples(keys, windows.at, {"distance": values}, {"distance": error})


def _errors(pairs: Segments, axes: Mapping[str, str]) -> Floats:
    """Return how far each distance may be off, as constants: not more than both positions are."""
    apart = [pairs.errors[one] + pairs.errors[other] for one, other in axes.items()]
    found: Floats = np.sqrt(sum(each**2 for each in apart))[:, None]
    return found


def _distance_part(pairs: Segments, axes: Mapping[str, str]) -> Part:
    apart = [
        polynomials.padded(polynomials.total(pairs.coefs[one], -pairs.coefs[other]), 2)[:, :2]
        for one, other in axes.items()
    ]
    first = np.stack([each[:, 0] for each in apart], axis=1)
    change = np.stack([each[:, 1] for each in apart], axis=1)

    def part(places: Indices, start: Ints, stop: Ints) -> Floats:
        since = in_seconds(start - pairs.origin[places])
        velocity = change[places]
        return distance_integral(
            first[places] + velocity * since[:, None], velocity, in_seconds(stop - start)
        )

    return part


def distance_integral(position: Floats, velocity: Floats, length: Floats) -> Floats:
    """Return the integral of ``|position + velocity t|`` for t from 0 to ``length``.

    Args:
        position: where one is, seen from the other, ``[n, axes]``.
        velocity: its change per second, ``[n, axes]``.
        length: seconds, ``[n]``.
    """
    largest = np.maximum(np.abs(position).max(axis=1), np.abs(velocity).max(axis=1))
    is_extreme = (largest > _LARGE) | ((largest < _SMALL) & (largest > 0))
    if is_extreme.any():  # squares would overflow, or vanish
        up = np.frexp(np.where(is_extreme, largest, 0.5))[1]
        position, velocity = np.ldexp(position, -up[:, None]), np.ldexp(velocity, -up[:, None])
        with np.errstate(over="ignore"):
            found: Floats = np.ldexp(_distance_integral(position, velocity, length), up)
        return found
    return _distance_integral(position, velocity, length)


def _distance_integral(position: Floats, velocity: Floats, length: Floats) -> Floats:
    speed = _norm(velocity)
    moving = speed > 0
    safe = np.where(moving, speed, 1.0)
    # Seconds from the nearest approach, and how near that is, in seconds of travel.
    along = _dot(position, velocity) / safe**2
    aside = position - along[:, None] * velocity
    miss = _norm(aside) / safe
    near = moving & (np.maximum(np.abs(along), miss) <= _FAR * length)
    found = _norm(position) * length  # of those that do not move
    far, near = np.flatnonzero(moving & ~near), np.flatnonzero(near)
    found[far] = _smooth(position[far], velocity[far], length[far])
    along, miss = along[near], miss[near]
    closed = _primitive(along + length[near], miss) - _primitive(along, miss)
    found[near] = speed[near] * closed
    return found


def _primitive(at: Floats, miss: Floats) -> Floats:
    """Return the antiderivative of ``sqrt(t * t + miss * miss)``, that of ``|t|`` if they meet."""
    meets = miss < _MEETS
    ratio = at / np.where(meets, 1.0, miss)
    curved = np.where(meets, 0.0, miss**2 * np.arcsinh(np.where(meets, 0.0, ratio)))
    found: Floats = (at * np.hypot(at, miss) + curved) / 2
    return found


def _smooth(position: Floats, velocity: Floats, length: Floats) -> Floats:
    """Return the integral by the values at a few instants: exact far from the nearest approach.

    There the closed form subtracts numbers that are nearly equal, and the square of the distance,
    as a quadratic, does not.
    """
    start, change = _dot(position, position), 2 * _dot(position, velocity)
    bend = _dot(velocity, velocity)
    found = np.zeros(len(length))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        at = length * ((node + 1) / 2)
        found += weight * np.sqrt((bend * at + change) * at + start)
    return found * length / 2


def _norm(vectors: Floats) -> Floats:
    return np.sqrt(_dot(vectors, vectors))


def _dot(one: Floats, other: Floats) -> Floats:
    """Return the products of vectors, ``[n, axes]``: axis by axis, rows are too short for NumPy."""
    found = np.zeros(len(one))
    for mine, others in zip(one.T, other.T, strict=True):
        found += mine * others
    return found
