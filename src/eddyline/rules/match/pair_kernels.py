"""Compiled candidates of access predicates, and their decision.

A candidate is a rule whose access predicate a row meets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eddyline.data.jit import compiled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from eddyline.data.arrays import Int32s, Ints, Mask
    from eddyline.rules.compile.formula import Code
    from eddyline.rules.compile.program import Literals

DROPPED, TRUE_NOW, OPEN = 0, 1, 2
"""States of a pair of row and rule: not true, true, or it hangs on a call of Python."""

NOT_MET, IS_TRUE, IS_FALSE, IS_UNKNOWN, ASKED_IN_VAIN = 0, 1, 2, 4, 8
"""Answers of an external test for a row; the first: not asked yet."""


class Postings(NamedTuple):
    """The rules whose access predicate has a pattern or a region."""

    pattern_at: Ints
    """Start of the rules of each pattern; one more than there are patterns."""
    pattern_rules: Int32s
    constructs: Int32s
    """The region constructs with access predicates."""
    leaf_at: Ints
    """Number of the node of each one's region 0, in the tree of its regions."""
    node_at: Ints
    """Number of the first node of each one's tree among all nodes."""
    levels: Ints
    """Levels of each one's tree that have rules, a bit each, that of the leaves first."""
    is_met: Mask
    """Whether a node, or one above it, has rules."""
    rules_at: Ints
    """Start of the rules of each node; one more than there are nodes."""
    region_rules: Int32s
    everywhere: Int32s
    """Rules without an access predicate: candidates of every row."""


@compiled
def candidates(  # noqa: C901, PLR0912 - calls inside the loop cost more than what they do
    first_row: int,
    n_rows: int,
    units: Ints,
    hit_starts: Ints,
    hit_ends: Ints,
    patterns: Int32s,
    regions: Int32s,
    postings: Postings,
    stamps: Ints,
    tick: int,
    pair_rules: Int32s,
    n_pairs: int,
    pair_at: Ints,
) -> tuple[int, int]:
    """Find, row by row, the rules whose access predicate the row meets.

    The hits of each walk and row stand in ``patterns`` from ``hit_starts`` to ``hit_ends`` ((walks,
    rows)); of walks, ``units`` may be in access predicates. Regions are those of each construct and
    row ((constructs, rows)). The tick is larger than any before, and row r uses ``tick + r``;
    stamps, one for each rule, change. Filled are the rules of pairs, row by row, and where those of
    each row start; of starts there is one more.

    Returns:
        The row to go on with, as there is no room (all rows if there is), and the pairs.
    """
    pattern_at, pattern_rules, constructs, leaf_at, node_at, levels, is_met = postings[:7]
    rules_at, region_rules, everywhere = postings[7:]
    for row in range(first_row, n_rows):
        if n_pairs + len(stamps) > len(pair_rules):
            return row, n_pairs
        pair_at[row] = n_pairs
        mark = tick + row
        for unit in units:
            for hit in range(hit_starts[unit, row], hit_ends[unit, row]):
                pattern = patterns[hit]
                for place in range(pattern_at[pattern], pattern_at[pattern + 1]):
                    rule = pattern_rules[place]
                    if stamps[rule] != mark:
                        stamps[rule] = mark
                        pair_rules[n_pairs] = rule
                        n_pairs += 1
        for index in range(len(constructs)):
            node = leaf_at[index] + regions[constructs[index], row]
            bits = levels[index] if is_met[node_at[index] + node] else 0
            while bits:
                if bits & 1:
                    number = node_at[index] + node
                    for place in range(rules_at[number], rules_at[number + 1]):
                        rule = region_rules[place]
                        if stamps[rule] != mark:
                            stamps[rule] = mark
                            pair_rules[n_pairs] = rule
                            n_pairs += 1
                bits >>= 1
                node >>= 1
        for rule in everywhere:
            if stamps[rule] != mark:
                stamps[rule] = mark
                pair_rules[n_pairs] = rule
                n_pairs += 1
        pair_at[row + 1] = n_pairs
    return n_rows, n_pairs


@compiled
def decide(  # noqa: C901, PLR0912, PLR0915 - as above
    rows: Ints,
    pair_at: Ints,
    pair_rules: Int32s,
    code: Code,
    literals: Literals,
    hit_starts: Ints,
    hit_ends: Ints,
    patterns: Int32s,
    met: Ints,
    tick: int,
    regions: Int32s,
    nulls: Mask,
    answers: NDArray[np.int8],
    needs_at: Ints,
    needs: Int32s,
    status: NDArray[np.int8],
    asks: Int32s,
) -> None:
    """Decide pairs of row and rule.

    Rows with pairs, where those of each start (one more) and their rules are given; hits, regions
    and the tick are as for ``candidates``, and ``met``, the last tick of each pattern, changes. Of
    NULLs there is a mask ((columns, rows of the batch)), of external tests what is known ((tests,
    rows of the batch)) and where the patterns that each needs start. Filled are the status of each
    pair (``DROPPED``, ``TRUE_NOW`` or ``OPEN``) and, where it is open, the external test on which
    it hangs first; where all such tests were asked, ``-1 - t`` of one that was asked in vain.
    """
    starts, code_literals, code_yes, code_no = code
    kinds, places, outcomes, columns, region_at, low, high = literals
    for index in range(len(rows)):
        row = rows[index]
        mark = tick + row
        for unit in range(hit_starts.shape[0]):
            for hit in range(hit_starts[unit, row], hit_ends[unit, row]):
                met[patterns[hit]] = mark
        for pair in range(pair_at[index], pair_at[index + 1]):
            start = starts[pair_rules[pair]]
            status[pair] = DROPPED
            next_test = vain_test = -1
            # First as if every open test held; then, if one was met, as if none did.
            for hopes in (True, False):
                is_open = False
                position = 0
                while position >= 0:
                    literal = code_literals[start + position]
                    place = places[literal]
                    kind = kinds[literal]
                    holds = False
                    if kind == 0:
                        region = regions[place, row]
                        first, last = region_at[literal], region_at[literal + 1]
                        while last - first > 1:
                            middle = (first + last) >> 1
                            if low[middle] <= region:
                                first = middle
                            else:
                                last = middle
                        holds = first < last and low[first] <= region <= high[first]
                    else:
                        truth = IS_FALSE
                        if columns[literal] >= 0 and nulls[columns[literal], row]:
                            truth = IS_UNKNOWN
                        elif kind == 1:
                            if met[place] == mark:
                                truth = IS_TRUE
                        else:
                            truth = answers[place, row]
                            if truth == NOT_MET and needs_at[place] < needs_at[place + 1]:
                                truth = IS_FALSE
                                for need in range(needs_at[place], needs_at[place + 1]):
                                    if met[needs[need]] == mark:
                                        truth = NOT_MET
                        if truth in (NOT_MET, ASKED_IN_VAIN):
                            is_open = True
                            holds = hopes
                            if truth == NOT_MET and next_test < 0:
                                next_test = place
                            elif truth == ASKED_IN_VAIN and vain_test < 0:
                                vain_test = place
                        else:
                            holds = (outcomes[literal] & truth) != 0
                    position = code_yes[start + position] if holds else code_no[start + position]
                if position == -2:
                    if not hopes:
                        status[pair] = OPEN
                        asks[pair] = next_test if next_test >= 0 else -1 - vain_test
                    break
                if not is_open or not hopes:
                    status[pair] = TRUE_NOW
                    break
