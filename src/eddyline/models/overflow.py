"""Errors of results that a double cannot hold, with the entity and the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from eddyline.data.arrays import Floats, Ints
    from eddyline.models.rows import Keyed
    from eddyline.models.sampling import Samples


def segments_in_range(made: Keyed, step: object) -> Keyed:
    """Return the results of a step, unless one is infinite.

    Raises:
        ModelError: a value is larger than a double can hold.
    """
    segments = made.segments
    _check(step, segments.coefs, made.entities, segments.keys, (segments.lo, segments.ends))
    return made


def samples_in_range(made: Samples, entities: pa.Table, step: object) -> Samples:
    """Do the same for results that are rows."""
    _check(step, made.values, entities, made.keys, (made.times, made.times))
    return made


def _check(
    step: object,
    values: Mapping[str, Floats],
    entities: pa.Table,
    keys: Ints,
    times: tuple[Ints, Ints],
) -> None:
    for name, numbers in values.items():
        is_infinite = np.isinf(numbers)
        if not is_infinite.any():
            continue
        row = int(np.flatnonzero(is_infinite.reshape(len(keys), -1).any(axis=1))[0])
        named = entities.slice(int(keys[row]), 1).to_pylist() if entities.num_columns else []
        entity = ", ".join(f"{key}={value!r}" for each in named for key, value in each.items())
        since, until = (str(np.datetime64(int(each[row]), "us")) for each in times)
        when = f"at {since}" if since == until else f"from {since} to {until}"
        msg = (
            f"{step}: {name!r}{entity and f' of {entity}'} {when} (UTC) is larger than a double "
            "can hold (1.8e308); divide the column before it is modelled, or leave these rows out"
        )
        raise ModelError(
            msg, step=str(step), attribute=name, entity=entity, since=since, until=until
        )
