"""Preprocessing of items before detection [Tsamoura16 4, line 11].

It removes outliers, or smooths noise. A preprocessor turns each item of a series into another item,
at once and from past items alone. So detectors count the same items, and change points keep their
meaning. It comes in banks as detectors do: one kernel call takes all series of a batch.
``PREPROCESSORS`` registers them by name; an entry is a frozen dataclass of options that builds
banks. Other packages use the entry-point group ``eddyline.preprocessing``.

``Preprocessed`` is a detector with preprocessors in front, so every place that takes a detector
takes it: ``el.detector("adwin", preprocess="hampel")``.

Smoothed items depend on each other and vary less. A detector learns their law from smoothed items,
but its thresholds were chosen for independent ones: expect other delays and false alarms.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from eddyline import registry
from eddyline.change.machine import MOST, plain
from eddyline.change.protocol import advance
from eddyline.data.arrays import pack, unpack
from eddyline.data.jit import compiled
from eddyline.errors import OptionError, QueryError, StateError
from eddyline.options import in_range

if TYPE_CHECKING:
    from eddyline.change.protocol import DetectorBank, DetectorOptions
    from eddyline.data.arrays import Floats, Ints, Mask

GROUP = "eddyline.preprocessing"
"""Entry-point group of preprocessors from other packages."""

_SPREAD_OF_MAD = 1.4826
"""Standard deviation of a normal law over its median absolute deviation."""


class PreprocessorOptions(Protocol):
    """The constants of a preprocessor: a frozen dataclass that validates itself."""

    def build(self, n: int) -> Preprocessor:
        """Return fresh preprocessors of n series."""


class Preprocessor(ABC):
    """Preprocessors of n series, with ``width`` numbers remembered of each: 0 at first."""

    def __init__(self, n: int, width: int) -> None:
        self.memory = np.zeros((n, width))
        """What is remembered of each series ((n, width)). All of the state is here."""

    @abstractmethod
    def apply(self, items: Floats) -> None:
        """Replace rows of items in place, oldest first; nan is no item and stays ((T, n))."""

    def reset(self, which: Mask | Ints) -> None:
        """Forget the items of some series."""
        self.memory[which] = 0.0

    def snapshot(self) -> dict[str, Any]:
        """Return what is remembered of the series that have items, as plain values (JSON)."""
        touched = np.flatnonzero(self.memory.any(axis=1))
        return {"touched": pack(touched), "memory": pack(self.memory[touched])}

    def restore(self, state: Any) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: the state is damaged, or of other options.
        """
        if not isinstance(state, dict) or state.keys() != {"touched", "memory"}:
            msg = f"damaged state of a preprocessor: {state!r:.60}; start from an empty checkpoint"
            raise StateError(msg)
        touched, memory = unpack(state["touched"]), unpack(state["memory"])
        n, width = self.memory.shape
        fits = touched.dtype == np.int64 and memory.dtype == np.float64 and touched.ndim == 1
        if not fits or memory.shape != (len(touched), width) or (touched >= n).any():
            msg = f"state of a preprocessor has {memory.shape[1:]} numbers for each of "
            msg += f"{touched.shape} series, this one has {width} for each of {n}: restore with "
            msg += "the options that it was saved with"
            raise StateError(msg)
        self.memory[:] = 0.0
        self.memory[touched] = memory


# -- the preprocessors ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HampelOptions:
    """Options of the Hampel filter, which puts the median in place of outliers.

    Raises:
        OptionError: a value is out of its range.
    """

    window: int = 7
    """Newest items, the one at hand included, of which the median is taken (≥ 3). A shift passes
    once it fills more than half of the window."""
    z_score: float = 3.0
    """Robust standard deviations from the median at which an item is an outlier (≥ 0); 0: the
    median replaces every item, which is the median filter."""

    def __post_init__(self) -> None:
        in_range(self, "window", 3, 2**16)
        in_range(self, "z_score", 0.0, 1e9)

    def build(self, n: int) -> Hampel:
        """Return the filters of n series."""
        return Hampel(self, n)


class Hampel(Preprocessor):
    """Hampel filters of n series."""

    def __init__(self, options: HampelOptions, n: int) -> None:
        super().__init__(n, options.window + 1)
        self._z_score = options.z_score

    def apply(self, items: Floats) -> None:
        """Put the median in place of outliers."""
        hampel(items, self.memory, self._z_score)


@compiled
def hampel(items: Floats, memory: Floats, z_score: float) -> None:
    """Replace outliers by the median of a window; memory: items so far, and the newest of them."""
    window = memory.shape[1] - 1
    for i in range(items.shape[1]):
        newest = memory[i, 1:]
        for t in range(len(items)):
            x = items[t, i]
            if math.isnan(x):
                continue
            newest[int(memory[i, 0]) % window] = x
            memory[i, 0] += 1.0
            held = newest[: min(int(memory[i, 0]), window)]
            median = np.median(held)
            spread = _SPREAD_OF_MAD * np.median(np.abs(held - median))
            if abs(x - median) > z_score * spread:
                items[t, i] = median


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialOptions:
    """Options of exponential smoothing.

    Raises:
        OptionError: a value is out of its range.
    """

    weight: float = 0.3
    """Share of the newest item in the smoothed one ((0, 1]; 1: nothing is smoothed)."""

    def __post_init__(self) -> None:
        in_range(self, "weight", 1e-9, 1.0)

    def build(self, n: int) -> Exponential:
        """Return the filters of n series."""
        return Exponential(self, n)


class Exponential(Preprocessor):
    """Exponential smoothing of n series."""

    def __init__(self, options: ExponentialOptions, n: int) -> None:
        super().__init__(n, 2)
        self._weight = options.weight

    def apply(self, items: Floats) -> None:
        """Smooth the items."""
        exponential(items, self.memory, self._weight)


@compiled
def exponential(items: Floats, memory: Floats, weight: float) -> None:
    """Smooth items; memory: whether there was an item, and the newest smoothed one."""
    for i in range(items.shape[1]):
        for t in range(len(items)):
            x = items[t, i]
            if math.isnan(x):
                continue
            if memory[i, 0] == 1.0:
                x = memory[i, 1] + weight * (x - memory[i, 1])
            items[t, i] = x
            memory[i, 0], memory[i, 1] = 1.0, x


PREPROCESSORS: dict[str, type[PreprocessorOptions]] = {
    "hampel": HampelOptions,
    "exponential": ExponentialOptions,
}
"""Preprocessors by name."""


def preprocessors_of(spec: Any) -> tuple[PreprocessorOptions, ...]:
    """Return the options of preprocessors, in the order in which items pass them.

    Args:
        spec: a name of ``PREPROCESSORS`` or of an installed package, an options object, a sequence
            of these, or None.

    Raises:
        OptionError: a name is unknown, or an object is none of the above.

    >>> preprocessors_of(["hampel", ExponentialOptions(weight=0.5)])
    (HampelOptions(window=7, z_score=3.0), ExponentialOptions(weight=0.5))
    """
    if spec is None:
        return ()
    if isinstance(spec, list | tuple):
        return tuple(options for part in spec for options in preprocessors_of(part))
    if isinstance(spec, str):
        return (registry.look_up("preprocessor", PREPROCESSORS, spec, group=GROUP)(),)
    if isinstance(spec, type) or not callable(getattr(spec, "build", None)):
        msg = "a preprocessor is a name, an options object such as HampelOptions(), or a sequence "
        msg += f"of these, got {spec!r:.60}"
        raise OptionError(msg, preprocess=repr(spec))
    return (cast("PreprocessorOptions", spec),)


# -- in front of a detector -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Preprocessed:
    """Options of a detector with preprocessors in front; ``change.options_of`` makes them."""

    detector: DetectorOptions
    preprocess: tuple[PreprocessorOptions, ...]

    def build(self, n: int) -> DetectorBank:
        """Return n fresh detectors."""
        steps = [options.build(n) for options in self.preprocess]
        return cast("DetectorBank", PreprocessedBank(self.detector.build(n), steps))


class PreprocessedBank:
    """A bank of detectors that see preprocessed items.

    After a change, the preprocessors of an amnesic detector forget, too: what came before would
    distort the first items of the new law.
    """

    def __init__(self, bank: DetectorBank, preprocessors: list[Preprocessor]) -> None:
        self._bank, self._preprocessors = bank, preprocessors
        self.n, self.is_amnesic, self.n_feedback = bank.n, bank.is_amnesic, bank.n_feedback

    @property
    def n_seen(self) -> Ints:
        """Items that each detector has taken in ((n,))."""
        return self._bank.n_seen

    @property
    def change_points(self) -> Ints:
        """Beginning of the change that each detector found last ((n,))."""
        return self._bank.change_points

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest item that the detectors take."""
        return getattr(self._bank, "bounds", (-MOST, MOST))

    @property
    def has_feedback(self) -> Mask:
        """Mask of the detectors that are ready to check the next item ((n,))."""
        return self._bank.has_feedback

    def update(self, values: Floats) -> Mask:
        """Take in one item for each detector; see ``DetectorBank.update``."""
        row = np.asarray(values, dtype=np.float64)
        if row.shape != (self.n,):
            return self._bank.update(row)  # which says what is wrong
        return self.advance(row[None])[1]

    def advance(self, items: Floats) -> tuple[int, Mask]:
        """Take in rows of items up to the first change; see ``protocol.advance``."""
        before, n_rows = (
            [preprocessor.memory.copy() for preprocessor in self._preprocessors],
            len(items),
        )
        try:
            n_taken, changed = advance(self._bank, self._applied(items))
        except QueryError:
            self._return_to(before)
            raise
        if n_taken < n_rows:  # rows behind the change come again
            self._return_to(before)
            self._applied(items[:n_taken])
        if self.is_amnesic and changed.any():
            self._forget(changed)
        return n_taken, changed

    def reset(self, which: Mask) -> None:
        """Initialise some detectors and their preprocessors; see ``DetectorBank.reset``."""
        self._bank.reset(which)
        self._forget(which)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain values (JSON)."""
        states = [preprocessor.snapshot() for preprocessor in self._preprocessors]
        return {"kind": "preprocessed", "n": self.n, "bank": self._bank.snapshot(), "by": states}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what ``snapshot`` returned.

        Raises:
            StateError: the state is of another bank, or damaged.
        """
        keys = {"kind", "n", "bank", "by"}
        is_dict = isinstance(state, dict) and state.keys() == keys
        parts = state["by"] if is_dict else None
        fits = isinstance(parts, list) and len(parts) == len(self._preprocessors)
        if not fits or (state["kind"], state["n"]) != ("preprocessed", self.n):
            msg = f"this state is not of {self.n} detectors behind {len(self._preprocessors)} "
            msg += f"preprocessors: {state!r:.60}; restore with the options that it was saved with"
            raise StateError(msg)
        for preprocessor, saved in zip(self._preprocessors, parts or (), strict=True):
            preprocessor.restore(saved)
        self._bank.restore(state["bank"])

    def _applied(self, items: Floats) -> Floats:
        """Return preprocessed rows; infinities pass, because detectors refuse them."""
        rows = plain(np.array(items, dtype=np.float64))
        refused = np.isinf(rows)
        infinite = rows[refused]
        rows[refused] = np.nan
        for preprocessor in self._preprocessors:
            preprocessor.apply(rows)
        rows[refused] = infinite
        return rows

    def _return_to(self, memories: list[Floats]) -> None:
        for preprocessor, memory in zip(self._preprocessors, memories, strict=True):
            preprocessor.memory = memory

    def _forget(self, which: Mask) -> None:
        for preprocessor in self._preprocessors:
            preprocessor.reset(which)
