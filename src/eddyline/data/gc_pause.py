"""Python's collector of cycles, paused where many objects are made that stay.

It looks through all of them again and again: up to half the time of reading, compiling, packing and
unpacking a thousand rules. A collector that its owner has switched off stays off.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")
Made = TypeVar("Made")

PIECE = 500
"""Items after which cycles may be collected: what readers of rules leave behind has some."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Collect no cycles meanwhile; for work that leaves none behind. Also a decorator."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def made_of(make: Callable[[T], Made], items: Iterable[T]) -> list[Made]:
    """Return the result for each item; cycles are collected only after every ``PIECE`` of them.

    >>> made_of(str.upper, "abc")
    ['A', 'B', 'C']
    """
    results: list[Made] = []
    rest = iter(items)
    while piece := list(islice(rest, PIECE)):
        with collector_paused():
            results += map(make, piece)
    return results
