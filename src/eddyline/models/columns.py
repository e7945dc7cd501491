"""Tables of arrays of one length: what ranges and pieces have in common."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Indices, Mask


@dataclass(frozen=True)
class Columns:
    """Arrays of one length; derive dataclasses whose fields are all such."""

    def take(self, rows: Indices | Mask) -> Self:
        """Return the rows at places or under a mask, in that order."""
        return type(self)(*(getattr(self, each.name)[rows] for each in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of several behind each other."""
        names = [each.name for each in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
