"""Detectors of river as detectors of eddyline: n clones, asked one by one.

River's detectors have no feedback that can be told from checking, and forget by themselves when
they are next updated; so from outside they need no feedback and are not amnesic. river need not be
installed: what has ``update(x)``, ``drift_detected`` and ``clone()`` counts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from eddyline.change.scalar import ScalarDetector, ScalarOptions
from eddyline.data.arrays import pack, unpack
from eddyline.errors import StateError

KEPT_ITEMS = 2_048
"""Newest items that a snapshot holds: a detector restored from it has seen no earlier ones."""


def is_river_like(given: Any) -> bool:
    """Return whether an object is a detector in river's convention."""
    methods = all(callable(getattr(given, name, None)) for name in ("update", "clone"))
    return methods and not isinstance(given, type) and hasattr(given, "drift_detected")


@dataclass(frozen=True, slots=True, eq=False)
class RiverOptions(ScalarOptions):
    """The options of a detector of river: a detector to clone."""

    prototype: Any
    """Never updated itself."""

    def build_one(self) -> FromRiver:
        """Return one fresh detector."""
        return FromRiver(self.prototype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RiverOptions) and _params(self) == _params(other)

    def __hash__(self) -> int:
        return hash(type(self.prototype))


def _params(options: RiverOptions) -> tuple[Any, Any]:
    held = options.prototype
    params = getattr(held, "_get_params", None)
    return type(held), params() if callable(params) else id(held)


class FromRiver(ScalarDetector):
    """One detector of river, checked item by item."""

    is_amnesic = False

    def __init__(self, prototype: Any) -> None:
        self._prototype = prototype
        self.initialize()

    def initialize(self) -> None:
        """Start afresh with another clone."""
        self._held = self._prototype.clone()
        self._items = deque[float](maxlen=KEPT_ITEMS)

    def check(self, item: float) -> bool:
        """Update river's detector and return whether it found a drift."""
        self._items.append(item)
        self._held.update(item)
        return bool(self._held.drift_detected)

    def get_change_point(self) -> int:
        """Return the first item of the window of river's detector; the next item if it has none."""
        width = getattr(self._held, "width", None)
        return self.n_seen - int(width) if isinstance(width, int | float) else self.n_seen

    def snapshot(self) -> dict[str, Any]:
        """Return the newest items: river's detectors have no state of plain values."""
        return {"of": type(self._prototype).__name__, "items": pack(np.array(self._items, float))}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with a clone that is given the saved items again.

        Raises:
            StateError: the state is damaged, or of another class.
        """
        wanted = type(self._prototype).__name__
        of = state.get("of") if isinstance(state, dict) else state
        if of != wanted or not isinstance(state, dict):
            msg = f"the state is of {of!r}, not of a {wanted}: restore the detector that was saved"
            raise StateError(msg)
        items = unpack(state.get("items", ""))
        if items.ndim != 1 or items.dtype != np.float64 or len(items) > KEPT_ITEMS:
            msg = f"damaged state of a {wanted}: {items.dtype} items of shape {items.shape}"
            raise StateError(msg)
        self.initialize()
        for item in items.tolist():
            self.check(item)
