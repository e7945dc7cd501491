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
    from collections.abc import Iterable, Iterator

T = TypeVar("T")

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


def seldom_collected(items: Iterable[T]) -> Iterator[T]:
    """Yield items, and collect cycles only after every ``PIECE`` of them.

    >>> list(seldom_collected("abc"))
    ['a', 'b', 'c']
    """
    rest = iter(items)
    while piece := list(islice(rest, PIECE)):
        with collector_paused():
            yield from piece
