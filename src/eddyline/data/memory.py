"""What stays in memory: values that are kept, and cycles that the collector does not look for.

Python's collector is paused where many objects are made that stay.
It looks through all of them again and again: up to half the time of reading, compiling, packing and
unpacking a thousand rules. A collector that its owner has switched off stays off.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

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


Key = TypeVar("Key")
Value = TypeVar("Value")


class LastUsed(dict[Key, Value], Generic[Key, Value]):
    """Values by their keys, at most so many, in the order of their last use.

    >>> kept = LastUsed(2)
    >>> [kept.get_or_make(key, lambda: key) for key in "aabac"], list(kept)
    (['a', 'a', 'b', 'a', 'c'], ['a', 'c'])
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def get_or_make(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the value of a key, made if there is none."""
        value = self.pop(key) if key in self else make()
        self[key] = value
        while len(self) > self._most:
            del self[next(iter(self))]
        return value
