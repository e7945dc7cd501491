"""Compiled: rows of declared models, each against the model of its entity that goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.data.arrays import Floats, Ints


@compiled
def is_predicted(
    coefs: Floats, leader: int, row: int, since_s: float, far: Floats, shares: Floats
) -> bool:
    """Return whether the model of one row is as near to the values of another as it has to be.

    Args:
        coefs: the model of each row, whose lowest coefficients are the row's values, (attributes,
            rows, degree + 1); a value that is not finite says nothing.
        leader: the row of the model.
        row: the row of the values.
        since_s: seconds from the origin of the model to the row.
        far: how far each attribute may be off, (attributes,).
        shares: what is added to that, as a share of the row's value, (attributes,).
    """
    for at in range(coefs.shape[0]):
        value = coefs[at, row, 0]
        if not np.isfinite(value):
            continue
        model = coefs[at, leader, coefs.shape[2] - 1]
        for power in range(coefs.shape[2] - 2, -1, -1):
            model = model * since_s + coefs[at, leader, power]
        if not abs(value - model) <= far[at] + shares[at] * abs(value):
            return False
    return True


@compiled
def leaders(
    coefs: Floats,
    origins: Ints,
    times: Ints,
    goes_on: NDArray[np.bool_],
    far: Floats,
    shares: Floats,
) -> Ints:
    """Return for each row the one whose model predicts it: itself, if none before does.

    Args:
        coefs: see ``is_predicted``.
        origins: of the model of each row (µs).
        times: of each row (µs).
        goes_on: whether the model of the row before may predict a row.
        far: see ``is_predicted``.
        shares: see ``is_predicted``.
    """
    found = np.empty(times.size, np.int64)
    leader = 0
    for row in range(times.size):
        since_s = np.float64(times[row] - origins[leader]) * 1e-6
        if not goes_on[row] or not is_predicted(coefs, leader, row, since_s, far, shares):
            leader = row
        found[row] = leader
    return found
