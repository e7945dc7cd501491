"""State machine of all banks of detectors: collecting, learning and checking.

A bank derives from ``MachineBank`` and fills in the states of [Tsamoura16 Fig 3], each for the
detectors that are in it: ``_use_feedback``, ``_check``, ``_change_point``, ``_adjust``. Only
detectors with an item take part, so the cost of an update grows with the items.

``KernelBank`` is the base of banks whose work is done by compiled kernels, on arrays that grow with
what is remembered.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from eddyline.data.arrays import pack, unpack
from eddyline.data.jit import compiled, load
from eddyline.errors import QueryError, StateError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.data.arrays import Floats, Ints, Mask


MOST = sys.float_info.max
"""Largest finite number."""

_COUNTERS = ("n_seen", "change_points", "_started", "_ready")
_BUFFER = "_buffer"


class MachineBank(ABC):
    """A bank that runs the state machine; what a state does is filled in.

    ``_state`` of a class names its arrays: one row per detector, all zeros in a fresh one. They
    are what a snapshot holds and what ``initialize`` clears.
    """

    kind: str
    """Name in the table of detectors."""
    is_amnesic: bool = True
    is_sequential: bool = False
    """Whether feedback is used item by item, instead of all ``n_feedback`` items at once."""
    _low: ClassVar[float] = -MOST
    """Smallest item."""
    _high: ClassVar[float] = MOST
    """Largest item."""
    _state: ClassVar[tuple[str, ...]] = ()
    _n_back: int = 0
    """Items before the alarm with which a change is taken to have begun; 0: with the next one."""

    def __init__(self, n: int, n_feedback: int) -> None:
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
            msg = f"a bank has a whole number of detectors, at least 0, got {n!r}"
            raise QueryError(msg, n=n)
        self.n = int(n)
        self.n_feedback = n_feedback
        self.n_seen: Ints = np.zeros(self.n, dtype=np.int64)
        self.change_points: Ints = np.full(self.n, -1, dtype=np.int64)
        self._started: Ints = np.zeros(self.n, dtype=np.int64)
        self._ready: Mask = np.full(self.n, n_feedback == 0)
        n_held = 0 if self.is_sequential else n_feedback
        self._buffer: Floats = np.zeros((self.n, n_held))

    def __repr__(self) -> str:
        """Say what is in the bank."""
        return f"{type(self).__name__}({self.n:,} detectors)"

    # -- the states ---------------------------------------------------------------------------

    @abstractmethod
    def _use_feedback(self, which: Ints, items: Floats) -> None:
        """Learn from items: ``n_feedback`` of each detector, or one if it is sequential.

        A sequential bank sets ``_ready`` itself, for a batch one the machine does.

        Args:
            which: the detectors, ascending ((m,)).
            items: oldest first ((m, ``n_feedback``) or (m, 1)).
        """

    @abstractmethod
    def _check(self, which: Ints, items: Floats) -> Mask:
        """Take in an item of detectors that have feedback; return which found a change ((m,))."""

    def _change_point(self, which: Ints) -> Ints:
        """Return the beginning of the change that each of the detectors has just found ((m,))."""
        since = self.n_seen[which] - self._n_back
        return np.maximum(since, self._started[which]) if self._n_back else since

    def _adjust(self, which: Ints) -> None:  # noqa: B027 amnesic banks have nothing to adjust
        """Drop what is stale after a change; only non-amnesic banks are asked to."""

    def _initialize(self, which: Ints) -> None:
        """Forget every item; the default clears the arrays of ``_state``."""
        for name in self._state:
            getattr(self, name)[which] = 0

    # -- the transitions ----------------------------------------------------------------------

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest item that the detectors take."""
        return self._low, self._high

    @property
    def has_feedback(self) -> Mask:
        """Mask of the detectors that are ready to check the next item ((n,))."""
        return self._ready.copy()

    def update(self, values: Floats) -> Mask:
        """Take in one item for each detector and return which found a change ((n,)).

        Raises:
            QueryError: another number of values, or an item out of range; nothing was taken in.
        """
        which, items = self._taken(values)
        changed = np.zeros(self.n, dtype=np.bool_)
        if not which.size:
            return changed
        self.n_seen[which] += 1
        ready = self._ready[which]
        if not ready.all():
            self._collect(which[~ready], items[~ready])
            which, items = which[ready], items[ready]
            if not which.size:
                return changed
        hits = self._check(which, items)
        if hits.any():
            detectors = which[hits]
            changed[detectors] = True
            self._react(detectors)
        return changed

    def reset(self, which: Mask) -> None:
        """Initialise some detectors, as if they had never seen an item ((n,)).

        Raises:
            QueryError: not one boolean per detector.
        """
        mask = np.asarray(which)
        if mask.shape != (self.n,) or mask.dtype != np.bool_:
            msg = f"reset takes one boolean for each of {self.n} detectors, got {which!r:.60}"
            raise QueryError(msg, n=self.n)
        self._restart(np.flatnonzero(mask))

    # -- state by state, for a single detector -------------------------------------------------

    def learn(self, which: Ints, items: Floats) -> None:
        """Use feedback of some detectors, oldest item first ((m, number of items)).

        Raises:
            QueryError: an item out of range; nothing was taken in.
        """
        for column in items.T:
            self._validate(which, column)
        if self.is_sequential:
            for column in items.T:
                self.n_seen[which] += 1
                self._use_feedback(which, column[:, None])
        else:
            self.n_seen[which] += items.shape[1]
            self._ready[which] = True
            self._use_feedback(which, items)

    def check(self, which: Ints, items: Floats) -> Mask:
        """Check an item of each of some detectors and stay in that state ((m,)).

        Raises:
            QueryError: an item out of range; nothing was taken in.
        """
        self._validate(which, items)
        self.n_seen[which] += 1
        return self._check(which, items)

    def locate(self, which: Ints) -> None:
        """Write the change point of detectors that have just found a change."""
        self.change_points[which] = self._change_point(which)

    def adjust(self, which: Ints) -> None:
        """Drop what is stale in detectors that have just found a change."""
        if not self.is_amnesic:
            self._adjust(which)

    # -- the parts ----------------------------------------------------------------------------

    def _taken(self, values: Floats) -> tuple[Ints, Floats]:
        """Return the detectors that get an item, and the items; nothing is changed yet."""
        row = np.asarray(values, dtype=np.float64)
        if row.shape != (self.n,):
            msg = f"{self.kind}: one value for each of {self.n} detectors (nan: no item), "
            msg += f"got an array of shape {row.shape}"
            raise QueryError(msg, n=self.n, shape=row.shape)
        which = np.flatnonzero(row == row)  # noqa: PLR0124 faster than ~isnan
        items = row if which.size == self.n else row[which]
        self._validate(which, items)
        return which, items

    def _validate(self, which: Ints, items: Floats) -> None:
        """Check that items are in range ((m,))."""
        if not which.size or (items.min() >= self._low and items.max() <= self._high):
            return
        bad = int(np.flatnonzero(~((items >= self._low) & (items <= self._high)))[0])
        is_real = self._high == MOST
        wanted = "a finite number" if is_real else f"in [{self._low:g}, {self._high:g}]"
        hint = "" if is_real else "; scale it, or take a detector of any number (page_hinkley)"
        msg = f"{self.kind}: the item of detector {which[bad]} must be {wanted}, "
        msg += f"got {items[bad]}{hint}"
        raise QueryError(msg, detector=int(which[bad]), item=float(items[bad]))

    def _collect(self, which: Ints, items: Floats) -> None:
        """Hand feedback on: at once if sequential, otherwise when the buffer is full."""
        if self.is_sequential:
            self._use_feedback(which, items[:, None])
            return
        place = self.n_seen[which] - self._started[which] - 1
        self._buffer[which, place] = items
        full = which[place == self.n_feedback - 1]
        if full.size:
            self._ready[full] = True
            self._use_feedback(full, self._buffer[full])
            self._buffer[full] = 0.0

    def _react(self, detectors: Ints) -> None:
        self.change_points[detectors] = self._change_point(detectors)
        if self.is_amnesic:
            self._restart(detectors)
        else:
            self._adjust(detectors)

    def _restart(self, which: Ints) -> None:
        self._started[which] = self.n_seen[which]
        self._ready[which] = self.n_feedback == 0
        self._buffer[which] = 0.0
        self._initialize(which)

    # -- snapshots ----------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the detectors that have seen items, as plain values."""
        touched = np.flatnonzero(self.n_seen)
        arrays = {}
        if touched.size:
            arrays = {name: pack(getattr(self, name)[touched]) for name in self._names()}
        return {"kind": self.kind, "n": self.n, "touched": pack(touched), "arrays": arrays}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``snapshot`` returned, bit by bit.

        Raises:
            StateError: the state is of another kind or number of detectors, or damaged; the bank
                is as it was.
        """
        touched, arrays = self._unpacked(state)
        self.n_seen[:] = 0
        self.change_points[:] = -1
        self._restart(np.arange(self.n))
        for name, rows in arrays.items():
            getattr(self, name)[touched] = rows

    def _names(self) -> tuple[str, ...]:
        return (*_COUNTERS, _BUFFER, *self._state)

    def _unpacked(self, state: dict[str, Any]) -> tuple[Ints, dict[str, NDArray[Any]]]:
        head = (state.get("kind"), state.get("n")) if isinstance(state, dict) else None
        if head != (self.kind, self.n):
            msg = f"this state is of (kind, number of detectors) {head}, "
            msg += f"this bank is ({self.kind!r}, {self.n}): build the bank that was saved"
            raise StateError(msg, found=head)
        touched = unpack(state.get("touched", ""))
        is_place = touched.dtype == np.int64 and touched.ndim == 1
        if not is_place or (np.diff(touched, prepend=-1, append=self.n) <= 0).any():
            msg = f"damaged state of {self.kind}: it names detectors that are none of {self.n}"
            raise StateError(msg)
        texts = state.get("arrays")
        if not touched.size:
            return touched, {}
        if not isinstance(texts, dict) or set(texts) != set(self._names()):
            msg = f"damaged state of {self.kind}: its arrays are not {', '.join(self._names())}"
            raise StateError(msg)
        return touched, {
            name: self._fitted(name, unpack(text), len(touched)) for name, text in texts.items()
        }

    def _fitted(self, name: str, rows: NDArray[Any], n_touched: int) -> NDArray[Any]:
        """Return saved rows if they fit this bank."""
        mine = getattr(self, name)
        if rows.shape != (n_touched, *mine.shape[1:]) or rows.dtype != mine.dtype:
            msg = f"state of {self.kind}: {name} is {rows.dtype} of shape {rows.shape}, this bank "
            msg += f"has {mine.dtype} of (…, {', '.join(map(str, mine.shape[1:]))}): restore with "
            msg += "the options that it was saved with"
            raise StateError(msg, array=name)
        return rows


def update_rows(bank: Any, items: Floats) -> tuple[int, Mask]:
    """Take in rows of items by ``update`` up to the first change; see ``protocol.advance``."""
    for n_taken, row in enumerate(items, start=1):
        changed = bank.update(row)
        if changed.any():
            return n_taken, changed
    return len(items), np.zeros(items.shape[1], dtype=np.bool_)


class KernelBank(MachineBank):
    """A bank whose states are kernels.

    Arrays in ``_growing`` have room for more than the detectors hold, along axis 1.
    """

    _growing: ClassVar[tuple[str, ...]] = ()
    _max_length: int = 2**24
    """Most room that an array may have."""

    def __init__(self, n: int, n_feedback: int) -> None:
        super().__init__(n, n_feedback)
        load()

    def _taken(self, values: Floats) -> tuple[Ints, Floats]:
        which, items = super()._taken(values)
        return which, plain(items)

    def _grow(self, length: int) -> None:
        """Make room for more; what is there stays."""
        for name in self._growing:
            old = getattr(self, name)
            setattr(self, name, _lengthened(old, length))

    def _fitted(self, name: str, rows: NDArray[Any], n_touched: int) -> NDArray[Any]:
        if name in self._growing and rows.ndim > 1:
            length = getattr(self, name).shape[1]
            if length < rows.shape[1] <= self._max_length:
                self._grow(rows.shape[1])
            elif rows.shape[1] < length:
                rows = _lengthened(rows, length)
        return super()._fitted(name, rows, n_touched)


def plain(items: Floats) -> Floats:
    """Return items in the one form of array that kernels are compiled for."""
    is_plain = items.flags.c_contiguous and items.flags.writeable
    return items if is_plain else items.copy()


@compiled
def insert(ordered: Floats, n_held: int, x: float) -> int:
    """Put x in the place that keeps the order of ``n_held`` items; return the place."""
    place = int(np.searchsorted(ordered[:n_held], x))
    for r in range(n_held, place, -1):
        ordered[r] = ordered[r - 1]
    ordered[place] = x
    return place


@compiled
def replace(ordered: Floats, gone: float, x: float) -> int:
    """Put x in the place that keeps the order, and close the gap of one that equals ``gone``."""
    r = int(np.searchsorted(ordered, gone))
    while r + 1 < len(ordered) and ordered[r + 1] < x:
        ordered[r] = ordered[r + 1]
        r += 1
    while r > 0 and ordered[r - 1] > x:
        ordered[r] = ordered[r - 1]
        r -= 1
    ordered[r] = x
    return r


def _lengthened(rows: NDArray[Any], length: int) -> NDArray[Any]:
    longer = np.zeros((len(rows), length, *rows.shape[2:]), dtype=rows.dtype)
    longer[:, : rows.shape[1]] = rows
    return longer
