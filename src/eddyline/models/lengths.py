"""Lengths of time as people write them."""

from __future__ import annotations

from numbers import Real
from typing import Any

from eddyline.errors import OptionError
from eddyline.query.select.intervals import micros_in


def read_length(name: str, given: Any) -> int:
    """Return a length of time (µs) that is given as an interval, a timedelta, or seconds.

    Args:
        name: of the argument, for the error.
        given: such as ``"10 minutes"``, ``timedelta(minutes=10)`` or ``600``.

    Raises:
        OptionError: it is something else, or less than a microsecond.
    """
    if isinstance(given, str):
        micros = micros_in(given)
    else:
        seconds = given.total_seconds() if hasattr(given, "total_seconds") else given
        is_number = isinstance(seconds, Real) and not isinstance(seconds, bool)
        micros = round(float(seconds) * 1e6) if is_number and 0 < seconds < 1e12 else None
    if micros is None or micros < 1:
        msg = f"{name} is an interval such as '10 minutes', or seconds above 0; got {given!r:.60}"
        raise OptionError(msg, got=repr(given))
    return micros
