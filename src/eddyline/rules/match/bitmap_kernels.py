"""Compiled regions of values, and selection by a bitmap block.

They take a chunk of rows at a time. A value is looked up among regions by its key, or among
constants byte by byte.

Region r of construct c has number ``region_at[c] + r`` among all regions; its bitmap says which
rules can still be true, a rule per bit, 64 to a word. A chunk visits one construct after the other
and keeps a list of the rows that have rules left: that a row is dropped costs no branch. Row by
row, with a branch per drop, the same takes several times as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from eddyline.data.arrays import Bytes, Int32s, Ints, Mask, Words


class CutTables(NamedTuple):
    """The cuts of some constructs and their tables, as kernels read them."""

    cuts: Ints
    """First keys of the regions of all constructs. Region 0 of a construct is NULL, region 1 is
    below its first cut, and each cut starts another."""
    cuts_at: Ints
    """Start of those of each construct ((n + 1,))."""
    table: NDArray[np.uint16]
    """Regions of the first keys of slots, one table after the other."""
    table_at: Ints
    """Start of that of each construct; -1: its cuts are searched ((n,))."""
    first: Ints
    """First key of the first slot of each table; keys below are of the same region ((n,))."""
    last: Ints
    """Last cut of each table; keys above are of the same region ((n,))."""
    shift: Ints
    """The width of the slots of each table, as a power of two ((n,))."""


@compiled
def regions_of(
    keys: Ints,
    nulls: Mask,
    first_row: int,
    rows: Ints,
    n_rows: int,
    tables: CutTables,
    construct: int,
    output: Int32s,
) -> None:
    """Write the regions of some rows in a construct.

    Of the keys and NULLs of all rows ((R,)), those count whose numbers are the first ``n_rows`` of
    ``rows`` plus ``first_row``; their regions are filled in.
    """
    cuts, table = tables.cuts, tables.table
    start, end = tables.cuts_at[construct], tables.cuts_at[construct + 1]
    table_start, shift = tables.table_at[construct], tables.shift[construct]
    first, last = tables.first[construct], tables.last[construct]
    if table_start < 0:
        for index in range(n_rows):
            row = first_row + rows[index]
            # No branch on what is found, so none goes wrong.
            low, length = start, end - start
            while length > 1:
                half = length >> 1
                low = low + half if cuts[low + half] <= keys[row] else low
                length -= half
            region = low - start + 1 + (cuts[low] <= keys[row])
            output[index] = 0 if nulls[row] else region
    elif shift == 0:
        for index in range(n_rows):
            row = first_row + rows[index]
            region = table[table_start + min(max(keys[row], first), last) - first]
            output[index] = 0 if nulls[row] else region
    else:
        for index in range(n_rows):
            row = first_row + rows[index]
            low = (
                start
                - 1
                + table[table_start + ((min(max(keys[row], first), last) - first) >> shift)]
            )
            while low < end and cuts[low] <= keys[row]:
                low += 1
            output[index] = 0 if nulls[row] else low - start + 1


@compiled
def _compared(data: Bytes, start: int, end: int, constants: Bytes, low: int, high: int) -> int:
    """Return -1, 0 or 1: how the bytes of a value compare with those of a constant."""
    shorter = min(end - start, high - low)
    for place in range(shorter):
        left, right = data[start + place], constants[low + place]
        if left != right:
            return -1 if left < right else 1
    if end - start == high - low:
        return 0
    return -1 if end - start < high - low else 1


@compiled
def rank(
    data: Bytes,
    offsets: Ints,
    nulls: Mask,
    constants: Bytes,
    constants_at: Ints,
    output: Ints,
) -> None:
    """Find the rank of each value that is there.

    Values and constants are bytes one after the other, and where each starts; of starts there is
    one more. Constants are sorted and distinct; ``output`` is filled.
    """
    for row in range(len(output)):
        if nulls[row]:
            continue
        start, end = offsets[row], offsets[row + 1]
        low, high = 0, len(constants_at) - 1
        key = 2 * high
        while low < high:
            middle = (low + high) // 2
            sign = _compared(
                data, start, end, constants, constants_at[middle], constants_at[middle + 1]
            )
            if sign == 0:
                low = high = middle
                key = 2 * middle + 1
            elif sign < 0:
                high = middle
                key = 2 * middle
            else:
                low = middle + 1
        output[row] = key


CHUNK = 512
"""Rows that visit a construct one after the other; what is kept of them fits the first cache."""

_ONE = np.uint64(1)
_NO_RULE = np.uint64(0)


class BlockArrays(NamedTuple):
    """A ``BitmapBlock``, as kernels read it."""

    columns: Ints
    """Row of ``keys`` of each construct ((n,))."""
    tables: CutTables
    region_at: Ints
    bitmaps: Words
    initial: Words
    everywhere: Words


class SequenceArrays(NamedTuple):
    """A sequence, as kernels read it."""

    macro: Ints
    """Constructs in the order of the macro-sequence ((n,))."""
    position: Ints
    """Place of each construct in it ((n,))."""
    construct_of: Ints
    """Construct of each node; the first n are the constructs themselves ((nodes,))."""
    arrows_at: Ints
    """Start of the arrows of each node, one per region; -1: it has none ((nodes,))."""
    arrows: Int32s
    """Node that a region's micro-arrow leads to; -1: there is no arrow."""


class Tally(NamedTuple):
    """Counts, to which kernels add."""

    evaluated: Ints
    """Rows that each construct looked at ((n,))."""
    dropped: Ints
    """Rows whose last rule went with each construct ((n,))."""
    followed: Ints
    """Micro-arrows followed ((1,))."""


@compiled
def _narrow(bitmaps: Words, number: int, rules_left: Words, place: int) -> bool:
    """Keep the rules that a region leaves possible, and return whether any are left."""
    union = _NO_RULE
    for word in range(bitmaps.shape[1]):
        kept = rules_left[place, word] & bitmaps[number, word]
        rules_left[place, word] = kept
        union |= kept
    return bool(union != _NO_RULE)


@compiled
def select_macro(
    keys: Ints,
    nulls: Mask,
    block: BlockArrays,
    sequence: SequenceArrays,
    tally: Tally,
    first_row: int,
    n_pairs: int,
    pair_rows: Ints,
    pair_rules: Int32s,
) -> tuple[int, int]:
    """Select rows along the macro-sequence alone, until all are done or the room may not do.

    Keys are those of the attributes, and which of them are NULL ((attributes, R)). Pairs go on from
    the first row and ``n_pairs``, as many as fit; the tally adds up what it takes.

    Returns:
        The row to go on with, and how many pairs there are now.
    """
    # Fields of the tuples are read here, outside the loops: numba does not move them.
    tables, bitmaps, n_words = block.tables, block.bitmaps, len(block.initial)
    rules_left = np.empty((CHUNK, n_words), dtype=np.uint64)
    active = np.empty(CHUNK, dtype=np.int64)
    chunk_regions = np.empty(CHUNK, dtype=np.int32)
    for start in range(first_row, keys.shape[1], CHUNK):
        if n_pairs + 64 * n_words * CHUNK > len(pair_rows):
            return start, n_pairs
        n_chunk = min(CHUNK, keys.shape[1] - start)
        for place in range(n_chunk):
            for word in range(n_words):
                rules_left[place, word] = block.initial[word]
            active[place] = place
        n_active = n_chunk
        for construct in sequence.macro:
            n_left = 0
            column, region_at = block.columns[construct], block.region_at[construct]
            regions_of(
                keys[column],
                nulls[column],
                start,
                active,
                n_active,
                tables,
                construct,
                chunk_regions,
            )
            for index in range(n_active):
                place = active[index]
                active[n_left] = place
                n_left += _narrow(bitmaps, region_at + chunk_regions[index], rules_left, place)
            tally.evaluated[construct] += n_active
            tally.dropped[construct] += n_active - n_left
            n_active = n_left
        n_pairs = _emit(
            rules_left, n_chunk, start, block.everywhere, n_pairs, pair_rows, pair_rules
        )
    return keys.shape[1], n_pairs


@compiled
def select_hybrid(  # noqa: C901, PLR0912, PLR0915 - a call inside the loop costs more than its steps
    keys: Ints,
    nulls: Mask,
    block: BlockArrays,
    sequence: SequenceArrays,
    tally: Tally,
    first_row: int,
    n_pairs: int,
    pair_rows: Ints,
    pair_rules: Int32s,
) -> tuple[int, int]:
    """Select rows along micro-arrows too; arguments and result are those of ``select_macro``.

    All rows that have a construct next visit it together. At most 64 constructs.
    """
    tables, bitmaps = block.tables, block.bitmaps
    macro, position, construct_of = sequence.macro, sequence.position, sequence.construct_of
    arrows_at, arrows = sequence.arrows_at, sequence.arrows
    n_words, n = len(block.initial), len(macro)
    rules_left = np.empty((CHUNK, n_words), dtype=np.uint64)
    nodes = np.empty(CHUNK, dtype=np.int64)
    visited = np.empty(CHUNK, dtype=np.uint64)  # by position in the macro-sequence
    active = np.empty(CHUNK, dtype=np.int64)
    chunk_regions = np.empty(CHUNK, dtype=np.int32)
    grouped = np.empty(CHUNK, dtype=np.int64)
    ends = np.empty(n + 1, dtype=np.int64)
    for start in range(first_row, keys.shape[1], CHUNK):
        if n_pairs + 64 * n_words * CHUNK > len(pair_rows):
            return start, n_pairs
        n_chunk = min(CHUNK, keys.shape[1] - start)
        for place in range(n_chunk):
            for word in range(n_words):
                rules_left[place, word] = block.initial[word]
            nodes[place] = macro[0]
            visited[place] = _NO_RULE
            active[place] = place
        n_active = n_chunk
        while n_active > 0:
            _group(active, n_active, nodes, construct_of, ends, grouped)
            n_left = index = 0
            for construct in range(n):
                if ends[construct] == index:
                    continue
                n_followed, n_group, n_before = 0, ends[construct] - index, n_left
                column, region_at = block.columns[construct], block.region_at[construct]
                regions_of(
                    *(keys[column], nulls[column], start, grouped[index:], n_group),
                    *(tables, construct, chunk_regions),
                )
                here = _ONE << np.uint64(position[construct])
                n_done, first = 0, index
                while index < ends[construct]:
                    place = grouped[index]
                    region = chunk_regions[index - first]
                    index += 1
                    if not _narrow(bitmaps, region_at + region, rules_left, place):
                        continue
                    seen = visited[place] | here
                    visited[place] = seen
                    node = nodes[place]
                    target = np.int64(-1)
                    if arrows_at[node] >= 0:
                        target = np.int64(arrows[arrows_at[node] + region])
                    if target >= 0:
                        goal = construct_of[target]
                        if (seen >> np.uint64(position[goal])) & _ONE != _NO_RULE:
                            target = np.int64(-1)
                    if target >= 0:
                        n_followed += 1
                    else:
                        target = np.int64(_next_in_macro(macro, seen))
                    if target < 0:
                        n_done += 1
                        continue
                    nodes[place] = target
                    active[n_left] = place
                    n_left += 1
                tally.evaluated[construct] += n_group
                tally.dropped[construct] += n_group - n_done - (n_left - n_before)
                tally.followed[0] += n_followed
            n_active = n_left
        n_pairs = _emit(
            rules_left, n_chunk, start, block.everywhere, n_pairs, pair_rows, pair_rules
        )
    return keys.shape[1], n_pairs


@compiled
def _group(
    active: Ints, n_active: int, nodes: Ints, construct_of: Ints, ends: Ints, grouped: Ints
) -> None:
    """Group rows by the construct that they visit next; ``ends`` says where each group ends."""
    ends[:] = 0
    for index in range(n_active):
        ends[construct_of[nodes[active[index]]] + 1] += 1
    for construct in range(1, len(ends)):
        ends[construct] += ends[construct - 1]
    for index in range(n_active):
        construct = construct_of[nodes[active[index]]]
        grouped[ends[construct]] = active[index]
        ends[construct] += 1


@compiled
def _next_in_macro(macro: Ints, seen: int) -> int:
    """Return the next construct along the macro-sequence, or -1 at its end."""
    for position in range(len(macro)):
        if (seen >> np.uint64(position)) & _ONE == _NO_RULE:
            return int(macro[position])
    return -1


@compiled
def _emit(
    rules_left: Words,
    n_chunk: int,
    start: int,
    everywhere: Words,
    n_pairs: int,
    pair_rows: Ints,
    pair_rules: Int32s,
) -> int:
    """Write what is left of a chunk, by row and rule, and return how many pairs there are."""
    for place in range(n_chunk):
        for word in range(len(everywhere)):
            rest = rules_left[place, word] | everywhere[word]
            while rest != _NO_RULE:
                lowest = rest & (~rest + _ONE)
                pair_rows[n_pairs] = start + place
                pair_rules[n_pairs] = 64 * word + _place_of(lowest)
                n_pairs += 1
                rest ^= lowest
    return n_pairs


@compiled
def _place_of(bit: int) -> int:
    """Return the place of the only bit that is set: the number of those below it."""
    below = bit - _ONE
    below = below - ((below >> _ONE) & np.uint64(0x5555555555555555))
    below = (below & np.uint64(0x3333333333333333)) + (
        (below >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    below = (below + (below >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((below * np.uint64(0x0101010101010101)) >> np.uint64(56))


@compiled
def regions(keys: Ints, nulls: Mask, rows: Ints, block: BlockArrays, output: Int32s) -> None:
    """Write the regions of some rows ((T,)) in all constructs ((n, T)); see ``select_macro``."""
    for construct in range(len(block.columns)):
        column = block.columns[construct]
        regions_of(
            *(keys[column], nulls[column], 0, rows, len(rows)),
            *(block.tables, construct, output[construct]),
        )
