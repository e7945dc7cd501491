"""Mappings that merge: what both have is put together, the rest stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    K = TypeVar("K", bound=Hashable)
    T = TypeVar("T")


def both(one: Mapping[K, T], other: Mapping[K, T], how: Callable[[T, T], T]) -> dict[K, T]:
    """Return what either has; ``how`` puts together what both have."""
    found = {**one, **other}
    return found | {name: how(one[name], other[name]) for name in one if name in other}
