"""Cache that drops the value unused for longest.

Each value is made once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

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
