"""Tables that the kernels of automata read: states, texts, and codes of whole patterns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from eddyline.data.arrays import Bytes, Int32s, Ints, Mask

INSIDE, START, END = 0, 1, 2
"""Places in texts of the patterns of an automaton."""

ANY_CODE, ONE_CODE = 256, 257
"""Wildcards in the code of a pattern: any characters, and one character; below are bytes."""


class Automaton(NamedTuple):
    """Tables of one automaton; state 0 is the root."""

    kind: int
    """``INSIDE``, ``START`` or ``END``."""
    classes: NDArray[np.int16]
    """Class of each byte (256); bytes of class 0 stand in no pattern."""
    delta: Int32s | NDArray[np.uint16]
    """Full rows of the first states: where each class leads; 0, where no edge of a trie leads, is
    nowhere there. Two bytes each unless there are more states."""
    n_dense: int
    """States with full rows."""
    n_classes: int
    """Classes of bytes, 0 included."""
    first_child: Int32s
    """First child of each state; children follow each other. One more than there are states."""
    labels: NDArray[np.int16]
    """Class that leads to each state from its parent."""
    failure: Int32s
    """The state of the longest proper suffix (``INSIDE``)."""
    out_start: Int32s
    """Start of the patterns of each state in ``out``; one more than there are states."""
    out: Int32s
    """Patterns, by state."""
    out_link: Int32s
    """The next state on the way of failures that has patterns; 0 for none."""
    first_out: Int32s
    """The state itself if it has patterns, else what ``out_link`` says."""


class Texts(NamedTuple):
    """The texts of a batch, as Arrow has them."""

    data: Bytes
    """Their bytes; not to be written."""
    offsets: Ints
    """Start of each; one more than there are rows."""
    nulls: Mask
    """A mask of those that are NULL."""


class Codes(NamedTuple):
    """For each pattern, what the whole text must be like where it was met."""

    starts: Ints
    """Start of the code of each; one more than there are patterns. Empty: a hit is enough."""
    code: NDArray[np.int16]
    """Bytes, ``ANY_CODE`` and ``ONE_CODE``."""
    fold: Bytes
    """The symbol of each byte of a text (256)."""
