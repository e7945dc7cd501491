"""Automata that find many patterns in one walk over a text.

Three kinds with one table: *inside* (Aho-Corasick: patterns anywhere), *start* and *end* (tries,
walked from either end until nothing fits any more). States are numbered by depth, so that the
shallow ones, where texts spend their time, have full rows and share cache lines; deep ones keep
only their own edges, so that memory grows with the patterns and not with their number times the
alphabet.

Our own and not a library's: it reads Arrow buffers without making a Python object per text or hit,
which is most of the time otherwise (docs/decisions/0008).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.arrays import Int32s
from eddyline.rules.compile.pattern_tables import END, INSIDE, Automaton
from eddyline.rules.match.automaton_kernels import grow_trie, link_failures, number_by_depth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from eddyline.data.arrays import Int32s, Ints

MAX_DENSE_BYTES = 1 << 24
"""Memory of the full rows that an automaton may have (bytes)."""


def n_bytes(automaton: Automaton) -> int:
    """Return the memory of an automaton's tables (bytes)."""
    return sum(table.nbytes for table in automaton if isinstance(table, np.ndarray))


def build(
    patterns: Sequence[bytes], ids: Sequence[int] | Int32s, kind: int, *, folded: bool
) -> Automaton:
    """Return the automaton of some patterns.

    Patterns are not empty, and in lower case if folded: then upper-case ASCII letters of a text
    count as lower-case ones. Equal patterns may have several ids.
    """
    walked = [each[::-1] for each in patterns] if kind == END else list(patterns)
    classes, n_classes = _classes(b"".join(walked), folded=folded)
    # Sorted as classes, not as bytes: children of a state are searched by their class.
    named = [each.translate(classes.astype(np.uint8).tobytes()) for each in walked]
    order = sorted(range(len(named)), key=named.__getitem__)
    symbols = np.frombuffer(b"".join(named[each] for each in order), np.uint8).astype(np.int16)
    sizes = np.array([len(named[each]) for each in order], np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    parent, label, depth, ends = grow_trie(symbols, starts)
    rank, n_states = number_by_depth(depth), len(depth)
    labels = np.empty(n_states, np.int16)
    labels[rank] = label
    parents = np.empty(n_states, np.int32)
    parents[rank] = rank[parent]
    parents[0] = -1
    counts = np.bincount(parents[1:], minlength=n_states)
    first_child = (1 + np.concatenate([[0], np.cumsum(counts)])).astype(np.int32)
    # Numbers of states that fit two bytes leave room for twice as many full rows.
    is_small = n_states <= np.iinfo(np.uint16).max
    cells = MAX_DENSE_BYTES // (2 if is_small else 4)
    n_dense = min(n_states, max(1, cells // n_classes))
    failure, delta = link_failures(parents, first_child, labels, n_dense, n_classes, kind == INSIDE)
    out_start, out = _outputs(rank[ends], np.asarray(ids)[order], n_states)
    link = _links(failure, out_start) if kind == INSIDE else np.zeros(n_states, np.int32)
    return Automaton(
        kind=kind,
        classes=classes,
        delta=delta.astype(np.uint16) if is_small else delta,
        n_dense=n_dense,
        n_classes=n_classes,
        first_child=first_child,
        labels=labels,
        failure=failure,
        out_start=out_start,
        out=out,
        out_link=link,
        first_out=np.where(np.diff(out_start) > 0, np.arange(n_states), link).astype(np.int32),
    )


def _classes(data: bytes, *, folded: bool) -> tuple[NDArray[np.int16], int]:
    """Return the class of each byte, and how many there are.

    The most frequent bytes come first, so that the cells that are read lie side by side, and a
    full row is a number of whole cache lines.
    """
    counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
    used = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    classes = np.zeros(256, np.int16)
    classes[used] = np.arange(1, len(used) + 1)
    if folded:
        classes[ord("A") : ord("Z") + 1] = classes[ord("a") : ord("z") + 1]
    cells_per_line = 16
    return classes, -(-(len(used) + 1) // cells_per_line) * cells_per_line


def _outputs(states: Int32s, ids: Ints, n_states: int) -> tuple[Int32s, Int32s]:
    """Return the patterns of each state, one state after the other."""
    by_state = np.argsort(states, kind="stable")
    counts = np.bincount(states, minlength=n_states)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return start, ids[by_state].astype(np.int32)


def _links(failure: Int32s, out_start: Int32s) -> Int32s:
    """Return, for each state, the nearest on its way of failures that has patterns."""
    has_patterns = out_start[1:] > out_start[:-1]
    is_end = has_patterns.copy()
    is_end[0] = True  # the root: there is none on the way
    at = failure
    while not is_end[at].all():  # each time the steps are twice as long
        at = np.where(is_end[at], at, at[at])
    link = np.where(has_patterns[at], at, 0).astype(np.int32)
    link[0] = 0
    return link
