"""Split of a result's error over its parts (Pulse 2.6.2).

A split gives each part a share. The shares are above 0, and add up to 1 at most, so that parts
within their shares make a result within its bound. ``EQUAL`` and ``GRADIENT`` are the two of the
thesis. Another one is a function from parts to shares: ``within(…, split=function)``, a line of
``SPLITS``, or an entry point of the group ``eddyline.splits``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from eddyline.errors import OptionError
from eddyline.registry import look_up

if TYPE_CHECKING:
    from collections.abc import Mapping

K = TypeVar("K")
GROUP = "eddyline.splits"
"""Entry-point group of splits from other packages."""
LEAST_SHARE = 1 / 64
"""The least share that slopes leave to an input, in parts of an equal one."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a result is computed of."""

    name: str
    """The attribute."""
    gain: float
    """By how much an error of it may be greater in the result; 1 if that is no factor."""
    pace: float
    """The mean of its absolute change per second; NaN if that is not known."""


SplitFunction = Callable[[Sequence[Part]], Sequence[float]]


@dataclass(frozen=True)
class Split:
    """A way to share an error."""

    name: str
    shares: SplitFunction
    """Returns the share of each part."""
    needs_pace: bool = False
    """Whether it has to be known how fast parts change."""

    def of(self, parts: Mapping[K, Part]) -> dict[K, float]:
        """Return the shares of parts.

        Raises:
            OptionError: they are not a number above 0 for each, or add up to more than 1.
        """
        shares = [*self.shares([*parts.values()])]
        is_whole = len(shares) == len(parts) and all(
            isinstance(share, int | float) and 0 < share <= 1 for share in shares
        )
        if not is_whole or sum(shares) > 1 + 1e-9:
            names = ", ".join(part.name for part in parts.values())
            msg = (
                f"split {self.name!r} gives each part a share above 0, together 1 at most; for "
                f"{names} it gave {shares!r:.80}"
            )
            raise OptionError(msg, split=self.name)
        return dict(zip(parts, map(float, shares), strict=True))

    def __str__(self) -> str:
        return self.name


def equal(parts: Sequence[Part]) -> list[float]:
    """Return the same share for each part."""
    return [1 / len(parts)] * len(parts)


def by_gradient(parts: Sequence[Part]) -> list[float]:
    """Return shares in proportion to how fast parts move: what moves most soon needs most.

    Where nothing moves, or one is not known, shares are equal; none is below ``LEAST_SHARE`` of an
    equal one.
    """
    moves = [part.gain * part.pace for part in parts]
    total, same = sum(moves), 1 / len(parts)
    is_known = 0 < total < math.inf
    shares = [max(move / total if is_known else same, LEAST_SHARE * same) for move in moves]
    whole = sum(shares)
    return [share / whole for share in shares]


EQUAL = Split("equal", equal)
GRADIENT = Split("gradient", by_gradient, needs_pace=True)
SPLITS: dict[str, Split] = {"equal": EQUAL, "gradient": GRADIENT}
"""Splits by name."""


def read_split(split: Any) -> Split:
    """Return a split of its name, of a function, or as it is.

    Raises:
        OptionError: it is none of these.
        PluginError: an installed package offers the name but failed to load.
    """
    if isinstance(split, Split):
        return split
    if callable(split):
        return Split(getattr(split, "__name__", type(split).__name__), split)
    return read_split(look_up("split", SPLITS, split, group=GROUP))
