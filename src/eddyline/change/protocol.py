"""Protocol of change detectors.

A detector is a small state machine over the items of one stream of numbers.

    tune ─► initialize ─► item, no feedback yet ─► collect, then use feedback ─┐
                 ▲        item, has feedback ────► check ── no change ─────────┤
                 │                                   └─ change ─► change point │
                 └──── amnesic ────┴──── non-amnesic: adjust feedback ◄────────┘

[Tsamoura16 3.2, Fig 3]. *Feedback* are the items that a detector learns from before it can check.
An *amnesic* detector forgets everything after a change, a non-amnesic one only what is stale.

Detectors come in banks: n detectors of one kind, updated by one call (``DetectorBank``). A single
``Detector`` is a bank of one that can be driven in two ways. Like river's: ``update(x)``, then
``drift_detected``. Or state by state as in the figure: ``use_feedback`` until ``has_feedback``,
then ``check``; after a change ``get_change_point`` and ``initialize``, or ``adjust_feedback`` if it
is not amnesic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from eddyline.change.machine import MachineBank, update_rows
from eddyline.errors import PluginError, QueryError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eddyline.data.arrays import Floats, Ints, Mask


class DetectorBank(Protocol):
    """n detectors of one kind, each over its own stream of items."""

    n: int
    """Number of detectors (≥ 0)."""
    is_amnesic: bool
    """Whether a detector forgets everything after a change."""
    n_feedback: int
    """Items that a detector learns from before it checks (0: it needs none)."""
    n_seen: Ints
    """Items that each detector has taken in since the bank was made ((n,))."""
    change_points: Ints
    """Beginning of the change that a detector found last: the index of the first item after it
    among the detector's items, from 0; ``n_seen`` at that time if that is the next one, -1 if it
    never found one ((n,))."""

    @property
    def has_feedback(self) -> Mask:
        """Mask of the detectors that are ready to check the next item ((n,))."""

    def update(self, values: Floats) -> Mask:
        """Take in one item for each detector.

        Args:
            values: the items; nan where a detector gets none this time ((n,)).

        Returns:
            Which detectors found a change with this item ((n,)).

        Raises:
            QueryError: another number of values than detectors.
        """

    def reset(self, which: Mask) -> None:
        """Initialise some detectors, as if they had never seen an item ((n,)).

        ``n_seen`` and ``change_points`` stay: they count the items of the stream.
        """

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain values (JSON); small where few detectors have seen items."""

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: the state is of another kind or number of detectors, or damaged.
        """


def advance(bank: DetectorBank, items: Floats) -> tuple[int, Mask]:
    """Take in rows of items, oldest first, up to the first row that shows a change.

    What the caller does after a change (a new order, a reset) comes before the rows that are left.
    A bank that has a method ``advance`` takes all rows in one call; others update row by row.

    Args:
        bank: the detectors.
        items: one row for each ``update`` ((T, n)).

    Returns:
        How many rows were taken in, and which detectors found a change with the last of them
        ((n,)).

    Raises:
        QueryError: as ``update``; rows before the wrong one were taken in.

    >>> from eddyline.change.beta_cusum import BetaCusumOptions
    >>> items = np.repeat([[0.3], [0.8]], [60, 60], axis=0)
    >>> advance(BetaCusumOptions().build(1), items)
    (65, array([ True]))
    """
    rows = np.asarray(items, dtype=np.float64)
    method = getattr(bank, "advance", None)
    if method is None or rows.ndim != 2 or rows.shape[1] != bank.n:
        return update_rows(bank, rows)
    taken: tuple[int, Mask] = method(rows)
    return taken


class DetectorOptions(Protocol):
    """The constants of a detector: a frozen dataclass that validates itself and builds banks."""

    def build(self, n: int) -> DetectorBank:
        """Return n fresh detectors."""


_ONLY = np.zeros(1, dtype=np.int64)


class Detector:
    """Watches one stream of numbers for changes.

    Args:
        options: the options of a detector; ``el.detector`` builds them from a name.

    >>> from eddyline.change.adwin import AdwinOptions
    >>> detector = Detector(AdwinOptions())
    >>> for x in [0.2] * 100 + [0.8] * 14:
    ...     detector.update(x)
    >>> detector.drift_detected, detector.change_point
    (True, 16)
    """

    warning_detected = False
    """For river's wrappers: these detectors never warn."""

    def __init__(self, options: DetectorOptions) -> None:
        self.options = options
        self._bank = options.build(1)
        self._has_changed = False

    def __repr__(self) -> str:
        return f"Detector({self.options!r})"

    # -- river's convention -------------------------------------------------------------------

    def update(self, x: float) -> None:
        """Take in an item; nan is none.

        Raises:
            QueryError: the detector does not take such a number.
        """
        self._has_changed = bool(self._bank.update(np.array([x], dtype=np.float64))[0])

    @property
    def drift_detected(self) -> bool:
        """Whether the last update found a change."""
        return self._has_changed

    @property
    def n_seen(self) -> int:
        """Items that it has taken in."""
        return int(self._bank.n_seen[0])

    @property
    def change_point(self) -> int:
        """Index of the first item after the change that it found last; -1 before the first."""
        return int(self._bank.change_points[0])

    def clone(self) -> Detector:
        """Return a fresh detector with the same options."""
        return Detector(self.options)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain values (JSON)."""
        return self._bank.snapshot()

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: the state is of another kind, or damaged.
        """
        self._bank.restore(state)
        self._has_changed = False

    # -- the paper's state machine ------------------------------------------------------------

    @property
    def is_amnesic(self) -> bool:
        """Whether it forgets everything after a change."""
        return self._bank.is_amnesic

    @property
    def is_sequential(self) -> bool:
        """Whether ``use_feedback`` takes items one by one, instead of all at once."""
        return self._machine.is_sequential

    @property
    def n_feedback(self) -> int:
        """Items that it learns from before it checks (theta; 0: it needs none)."""
        return self._bank.n_feedback

    @property
    def has_feedback(self) -> bool:
        """Whether it is ready to check."""
        return bool(self._bank.has_feedback[0])

    def initialize(self) -> None:
        """Forget every item, as if none had ever been seen; ``n_seen`` counts on."""
        self._bank.reset(np.ones(1, dtype=np.bool_))
        self._has_changed = False

    def use_feedback(self, items: Sequence[float]) -> None:
        """Learn from items.

        Args:
            items: oldest first: ``n_feedback`` of them, or any number if it is sequential.

        Raises:
            QueryError: another number of items, or one that the detector does not take.
        """
        bank, block = self._machine, np.asarray(items, dtype=np.float64)
        if block.ndim != 1 or not (bank.is_sequential or len(block) == bank.n_feedback):
            msg = f"{bank.kind} learns from {bank.n_feedback} items at once, got {items!r:.60}"
            raise QueryError(msg, n_feedback=bank.n_feedback)
        bank.learn(_ONLY, block[None, :])

    def check(self, item: float) -> bool:
        """Take in an item and return whether it shows a change; what follows is the caller's.

        Raises:
            QueryError: it has no feedback yet, or does not take such a number.
        """
        if not self.has_feedback:
            msg = f"this detector cannot check yet: it learns from {self.n_feedback} items first; "
            msg += "call use_feedback, or update, which makes all transitions"
            raise QueryError(msg, n_feedback=self.n_feedback)
        self._has_changed = bool(self._machine.check(_ONLY, np.array([item], dtype=float))[0])
        return self._has_changed

    def get_change_point(self) -> int:
        """Return the beginning of the change that ``check`` has just found: an index of an item."""
        self._machine.locate(_ONLY)
        return self.change_point

    def adjust_feedback(self) -> None:
        """Drop what is stale after a change; an amnesic detector has nothing to adjust."""
        self._machine.adjust(_ONLY)

    @property
    def _machine(self) -> MachineBank:
        """The bank, if it can be driven state by state."""
        if not isinstance(self._bank, MachineBank):
            msg = f"{type(self._bank).__name__} cannot be driven state by state: call update, or "
            msg += "derive the bank from eddyline.change.machine.MachineBank"
            raise PluginError(msg)
        return self._bank
