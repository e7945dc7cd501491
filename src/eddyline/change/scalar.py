"""Detectors written for one stream, and a bank of them.

A new detector in its simplest form is one class and its options:

    class Threshold(ScalarDetector):
        def check(self, item: float) -> bool:
            return item > 0.9

    @dataclass(frozen=True, slots=True)
    class ThresholdOptions(ScalarOptions):
        def build_one(self) -> ScalarDetector:
            return Threshold()

Detectors of river are such detectors, too (``RiverOptions``): the bank has n clones and updates
them one by one. Their learning phase cannot be told from checking, and they forget by themselves at
the next update. So from outside they need no feedback and are not amnesic. river need not be
installed: any object with ``update(x)``, ``drift_detected`` and ``clone()`` works.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.change.machine import MachineBank
from eddyline.data.arrays import pack, unpack
from eddyline.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eddyline.data.arrays import Floats, Ints, Mask


class ScalarDetector(ABC):
    """One detector in the states of [Tsamoura16 3.2]; the bank makes the transitions.

    Its state are its attributes: plain values, arrays and queues are saved by the default
    ``snapshot``, dataclasses are taken for its options; a detector that keeps anything else
    overrides ``snapshot`` and ``restore``.
    """

    is_amnesic: bool = True
    """Whether it is initialised after a change; otherwise ``adjust_feedback`` is called."""
    is_sequential: bool = False
    """Whether ``use_feedback`` is called with each item, instead of once with all."""
    n_feedback: int = 0
    """Items that it learns from before it checks (theta; 0: it needs none)."""
    has_feedback: bool = True
    """Whether it is ready to check; ``use_feedback`` sets it."""
    n_seen: int = 0
    """Items that it has been given, the one at hand included. The bank counts."""

    def initialize(self) -> None:  # noqa: B027 a detector without memory has nothing to do
        """Forget every item. Called before the first one and after a change if amnesic."""

    def use_feedback(self, items: Sequence[float]) -> None:  # noqa: ARG002 feedback-less default
        """Learn from items and set ``has_feedback`` when ready to check."""
        self.has_feedback = True

    @abstractmethod
    def check(self, item: float) -> bool:
        """Take in an item and return whether it shows a change. Only called with feedback."""

    def adjust_feedback(self) -> None:  # noqa: B027 only non-amnesic detectors need it
        """Drop what is stale after a change; may unset ``has_feedback``."""

    def get_change_point(self) -> int:
        """Return the index of the first item after the change; the default: the next item."""
        return self.n_seen

    def snapshot(self) -> dict[str, Any]:
        """Return the attributes as plain values.

        Raises:
            StateError: an attribute cannot be saved this way.
        """
        return {name: _plain(name, vars(self)[name]) for name in self._remembered()}

    def restore(self, state: dict[str, Any]) -> None:
        """Set the attributes that ``snapshot`` returned, and drop all others."""
        for name in self._remembered():
            delattr(self, name)
        for name, value in state.items():
            setattr(self, name, _revived(value))

    def _remembered(self) -> list[str]:
        return [name for name, value in vars(self).items() if not is_dataclass(value)]


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"array": pack(value)}
    if isinstance(value, np.generic):
        return {"number": pack(np.asarray(value))}
    if isinstance(value, deque):
        return {"queue": [_plain(name, part) for part in value], "maxlen": value.maxlen}
    if isinstance(value, list | tuple):
        held = [_plain(name, part) for part in value]
        return held if isinstance(value, list) else {"tuple": held}
    if isinstance(value, float):
        return {"float": value.hex()}
    if value is None or isinstance(value, bool | int | str):
        return value
    msg = f"attribute {name!r} of a detector is a {type(value).__name__}, which a snapshot "
    msg += "cannot hold: override snapshot() and restore()"
    raise StateError(msg, attribute=name)


def _revived(value: Any) -> Any:
    if not isinstance(value, dict):
        return [_revived(part) for part in value] if isinstance(value, list) else value
    revive = _REVIVE.get(next(iter(value), ""))
    if revive is None:
        msg = f"damaged state of a detector: {value!r:.60}"
        raise StateError(msg)
    return revive(value)


_REVIVE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "array": lambda saved: unpack(saved["array"]),
    "number": lambda saved: unpack(saved["number"])[()],
    "float": lambda saved: float.fromhex(saved["float"]),
    "tuple": lambda saved: tuple(_revived(saved["tuple"])),
    "queue": lambda saved: deque(_revived(saved["queue"]), saved["maxlen"]),
}
"""Readers of values that JSON has no word for, by their names in it."""


class ScalarOptions(ABC):
    """Options of a scalar detector: derive a frozen dataclass and say how one is built."""

    __slots__ = ()

    @abstractmethod
    def build_one(self) -> ScalarDetector:
        """Return one fresh detector; it is initialised by the bank."""

    def build(self, n: int) -> LoopBank:
        """Return n fresh detectors."""
        return LoopBank(self, n)


class LoopBank(MachineBank):
    """A bank that asks its detectors one by one."""

    _parts: list[ScalarDetector]

    def __init__(self, options: ScalarOptions, n: int) -> None:
        self.kind = type(options).__name__
        one = options.build_one()
        self.is_amnesic, self.is_sequential = one.is_amnesic, one.is_sequential
        super().__init__(n, one.n_feedback)
        self._parts = [options.build_one() for _ in range(self.n)]
        self._initialize(np.arange(self.n))

    def _initialize(self, which: Ints) -> None:
        for i in which:
            self._parts[i].has_feedback = self.n_feedback == 0
            self._parts[i].initialize()

    def _use_feedback(self, which: Ints, items: Floats) -> None:
        for i, block in zip(which, items.tolist(), strict=True):
            self._numbered(i).use_feedback(block)
            self._ready[i] = self._parts[i].has_feedback

    def _check(self, which: Ints, items: Floats) -> Mask:
        pairs = zip(which, items.tolist(), strict=True)
        return np.array([self._numbered(i).check(item) for i, item in pairs], dtype=np.bool_)

    def _change_point(self, which: Ints) -> Ints:
        points = [self._parts[i].get_change_point() for i in which]
        return np.array(points, dtype=np.int64)

    def _adjust(self, which: Ints) -> None:
        for i in which:
            self._parts[i].adjust_feedback()
            self._ready[i] = self._parts[i].has_feedback

    def _numbered(self, i: int) -> ScalarDetector:
        part = self._parts[i]
        part.n_seen = int(self.n_seen[i])
        return part

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the detectors that have seen items, as plain values."""
        touched = np.flatnonzero(self.n_seen)
        return {**super().snapshot(), "parts": [self._parts[i].snapshot() for i in touched]}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``snapshot`` returned."""
        touched, _ = self._unpacked(state)
        parts = state.get("parts")
        if not isinstance(parts, list) or len(parts) != len(touched):
            msg = f"damaged state of {self.kind}: not one part for each detector it names"
            raise StateError(msg)
        super().restore(state)
        for i, part in zip(touched, parts, strict=True):
            self._parts[i].restore(part)


KEPT_ITEMS = 2_048
"""Newest items that a snapshot holds: a detector restored from it has seen no earlier ones."""


def is_river_like(candidate: Any) -> bool:
    """Return whether an object is a detector in river's convention."""
    methods = all(callable(getattr(candidate, name, None)) for name in ("update", "clone"))
    return methods and not isinstance(candidate, type) and hasattr(candidate, "drift_detected")


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
        kind = state.get("of") if isinstance(state, dict) else state
        if kind != wanted or not isinstance(state, dict):
            msg = (
                f"the state is of {kind!r}, not of a {wanted}: restore the detector that was saved"
            )
            raise StateError(msg)
        items = unpack(state.get("items", ""))
        if items.ndim != 1 or items.dtype != np.float64 or len(items) > KEPT_ITEMS:
            msg = f"damaged state of a {wanted}: {items.dtype} items of shape {items.shape}"
            raise StateError(msg)
        self.initialize()
        for item in items.tolist():
            self.check(item)
