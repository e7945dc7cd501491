"""Lengths of time as people write them."""

from __future__ import annotations

from math import inf
from numbers import Real
from typing import Any

from eddyline.errors import OptionError
from eddyline.query.cql import micros_in
from eddyline.query.query import MAX_SPAN, check_span


def read_length(name: str, given: Any) -> int:
    """Return a length of time (µs) that is given as an interval, a timedelta, or seconds.

    Args:
        name: of the argument, for the error.
        given: such as ``"10 minutes"``, ``timedelta(minutes=10)`` or ``600``.

    Raises:
        OptionError: it is something else, less than a microsecond, or longer than ``MAX_SPAN``.
    """
    if isinstance(given, str):
        micros = micros_in(given)
    else:
        seconds = given.total_seconds() if hasattr(given, "total_seconds") else given
        is_number = isinstance(seconds, Real) and not isinstance(seconds, bool)
        is_length = is_number and 0 < seconds < inf
        micros = round(min(seconds, MAX_SPAN) * 1_000_000) if is_length else None
    check_span(f"{name} {given!r:.60}", micros, got=repr(given))
    if micros is None or micros < 1:
        msg = f"{name} is an interval such as '10 minutes', or seconds above 0; got {given!r:.60}"
        raise OptionError(msg, got=repr(given))
    return micros
