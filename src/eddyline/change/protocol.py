"""The protocol of change detectors: small state machines over the items of one stream of numbers.

    tune ─► initialize ─► item, no feedback yet ─► collect, then use feedback ─┐
                 ▲        item, has feedback ────► check ── no change ─────────┤
                 │                                   └─ change ─► change point │
                 └──── amnesic ────┴──── non-amnesic: adjust feedback ◄────────┘

[Tsamoura16 3.2, Fig 3]. *Feedback* are the items that a detector learns from before it can check.
An *amnesic* detector forgets everything after a change, a non-amnesic one only what is stale.

Detectors come in banks: n detectors of one kind, updated by one call. A single detector is a bank
of one, with the outward convention of river: ``update(x)``, then ``drift_detected``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
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
        ...

    def update(self, values: Floats) -> Mask:
        """Take in one item for each detector.

        Args:
            values: the items; nan where a detector gets none this time ((n,)).

        Returns:
            Which detectors found a change with this item ((n,)).

        Raises:
            QueryError: another number of values than detectors.
        """
        ...

    def reset(self, which: Mask) -> None:
        """Initialise some detectors, as if they had never seen an item ((n,)).

        ``n_seen`` and ``change_points`` stay: they count the items of the stream.
        """
        ...

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain values (JSON); small where few detectors have seen items."""
        ...

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: the state is of another kind or number of detectors, or damaged.
        """
        ...


class DetectorOptions(Protocol):
    """The constants of a detector: a frozen dataclass that validates itself and builds banks."""

    def build(self, n: int) -> DetectorBank:
        """Return n fresh detectors."""
        ...
