"""Selection of a block of rules, row by row, in one compiled loop.

Region r of construct c has number ``region_at[c] + r`` among all regions; its bitmap says which
rules can still be true, a rule per bit, 64 to a word. A *node* is a place in a sequence: the first
n are the constructs themselves, as macro-arrows reach them, further ones are reached by
micro-arrows only and know what was visited before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from eddyline.data.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bits = NDArray[np.bool_]
    Ints = NDArray[np.int64]
    Places = NDArray[np.int32]
    Words = NDArray[np.uint64]

_ONE = np.uint64(1)


@compiled
def region_of(
    key: int,
    cuts: Ints,
    cuts_from: int,
    cuts_to: int,
    table: NDArray[np.uint16],
    table_at: int,
) -> int:
    """Return the region of a key that is not NULL: one more than there are cuts up to it.

    Args:
        key: the key.
        cuts: first keys of regions, ascending for each construct.
        cuts_from: where those of the construct start.
        cuts_to: where they end.
        table: regions of keys from the first cut on, for constructs with a table.
        table_at: where the one of the construct starts; -1 if it has none.
    """
    if cuts_from == cuts_to or key < cuts[cuts_from]:
        return 1
    if key >= cuts[cuts_to - 1]:
        return cuts_to - cuts_from + 1
    if table_at >= 0:
        return int(table[table_at + key - cuts[cuts_from]])
    low, n = cuts_from, cuts_to - cuts_from
    while n > 1:  # invariant: cuts[low] <= key, and the last such is among the n from low on
        half = n >> 1
        low = low + half if cuts[low + half] <= key else low
        n -= half
    return low - cuts_from + 2


@compiled
def select(  # noqa: C901, PLR0912, PLR0915 - a call inside the loop costs more than its steps
    keys: Ints,
    nulls: Bits,
    columns: Ints,
    cuts: Ints,
    cuts_at: Ints,
    table: NDArray[np.uint16],
    table_at: Ints,
    region_at: Ints,
    bitmaps: Words,
    usage: Words,
    initial: Words,
    everywhere: Words,
    macro: Ints,
    construct_of: Ints,
    arrows_at: Ints,
    arrows: Places,
    skips: bool,
    n_rules: int,
    first_row: int,
    n_pairs: int,
    pair_rows: Ints,
    pair_rules: Places,
    evaluated: Ints,
    dropped: Ints,
    followed: Ints,
) -> tuple[int, int]:
    """Select rows from one on, until all are done or the room for pairs may not do.

    Args:
        keys: keys of the attributes ((columns, R)).
        nulls: which of them are NULL ((columns, R)).
        columns: row of ``keys`` of each construct ((n,)).
        cuts: first keys of regions, of all constructs.
        cuts_at: where those of each construct start ((n + 1,)).
        table: direct look-up tables, one after the other.
        table_at: where that of each construct starts; -1: it has none ((n,)).
        region_at: number of each construct's region 0, which is NULL ((n + 1,)).
        bitmaps: which rules can be true in each region ((regions, W)).
        usage: which rules each construct can decide ((n, W)).
        initial: the rules that constructs decide ((W,)).
        everywhere: rules that no construct decides: they survive for every row ((W,)).
        macro: constructs in the order of the macro-sequence ((n,)).
        construct_of: construct of each node ((nodes,)).
        arrows_at: where the arrows of each node start, one per region; -1: it has none ((nodes,)).
        arrows: node that a region's micro-arrow leads to; -1: there is no arrow.
        skips: whether constructs that cannot decide a rule that is left are passed over.
        n_rules: k.
        first_row: where to start.
        n_pairs: pairs that are there already.
        pair_rows: row of each surviving pair; room for as many as fit.
        pair_rules: its rule.
        evaluated: rows that each construct looked at; added to ((n,)).
        dropped: rows dropped by the so many-th evaluation; added to ((n,)).
        followed: micro-arrows followed; added to ((1,)).

    Returns:
        The row to go on with, and how many pairs there are now.
    """
    n_constructs = len(macro)
    n_words = len(initial)
    left = np.empty(n_words, dtype=np.uint64)
    visited = np.full(n_constructs, -1, dtype=np.int64)
    no_rule = np.uint64(0)
    emits_always = no_rule
    for word in range(n_words):
        emits_always |= everywhere[word]
    for row in range(first_row, keys.shape[1]):
        if n_pairs + n_rules > len(pair_rows):
            return row, n_pairs
        any_left = no_rule
        for word in range(n_words):
            left[word] = initial[word]
            any_left |= left[word]
        node = -1
        cursor = 0
        n_done = 0
        while any_left != no_rule:
            if node < 0:
                while cursor < n_constructs and visited[macro[cursor]] == row:
                    cursor += 1
                if cursor == n_constructs:
                    break
                node = macro[cursor]
            construct = construct_of[node]
            visited[construct] = row
            if skips:
                is_useful = no_rule
                for word in range(n_words):
                    is_useful |= left[word] & usage[construct, word]
                if is_useful == no_rule:
                    node = -1
                    continue
            region = 0
            column = columns[construct]
            if not nulls[column, row]:
                region = region_of(
                    keys[column, row],
                    cuts,
                    cuts_at[construct],
                    cuts_at[construct + 1],
                    table,
                    table_at[construct],
                )
            number = region_at[construct] + region
            any_left = no_rule
            for word in range(n_words):
                left[word] &= bitmaps[number, word]
                any_left |= left[word]
            evaluated[construct] += 1
            n_done += 1
            if any_left == no_rule:
                dropped[n_done - 1] += 1
                break
            target = -1
            if arrows_at[node] >= 0:
                target = arrows[arrows_at[node] + region]
                if target >= 0 and visited[construct_of[target]] == row:
                    target = -1
            if target >= 0:
                followed[0] += 1
            node = target
        if any_left | emits_always == no_rule:
            continue
        for word in range(n_words):
            rest = left[word] | everywhere[word]
            while rest != no_rule:
                lowest = rest & (~rest + _ONE)
                pair_rows[n_pairs] = row
                pair_rules[n_pairs] = 64 * word + _place_of(lowest)
                n_pairs += 1
                rest ^= lowest
    return keys.shape[1], n_pairs


@compiled
def regions(
    keys: Ints,
    nulls: Bits,
    rows: Ints,
    columns: Ints,
    cuts: Ints,
    cuts_at: Ints,
    table: NDArray[np.uint16],
    table_at: Ints,
    found: Places,
) -> None:
    """Write the regions of some rows in all constructs.

    Args:
        keys: as for ``select``.
        nulls: as for ``select``.
        rows: the rows ((T,)).
        columns: as for ``select``.
        cuts: as for ``select``.
        cuts_at: as for ``select``.
        table: as for ``select``.
        table_at: as for ``select``.
        found: set to the regions ((T, n)).
    """
    for place in range(len(rows)):
        row = rows[place]
        for construct in range(len(columns)):
            column = columns[construct]
            if nulls[column, row]:
                found[place, construct] = 0
                continue
            found[place, construct] = region_of(
                keys[column, row],
                cuts,
                cuts_at[construct],
                cuts_at[construct + 1],
                table,
                table_at[construct],
            )


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
