"""Postings: rules that each pattern and region may make true.

They are access predicates, inverted. A literal on regions can hold in many of them; so a
construct's regions are the leaves of a binary tree, and a rule stands at the few nodes that
together cover its regions: memory grows with the rules and not with rules times regions, and a row
looks at one node per level that has rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eddyline.data.arrays import starts_of
from eddyline.rules.compile.formula import REGION, TEXT
from eddyline.rules.match.pair_kernels import Postings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eddyline.data.arrays import Int32s, Ints
    from eddyline.rules.compile.program import Program
    from eddyline.rules.plan import SharingPlan


@dataclass(frozen=True, slots=True)
class AccessIndex:
    """The access predicates of a plan, and the constructs in which they are looked up."""

    tables: Postings
    texts: tuple[int, ...]
    """The text constructs with access predicates."""
    units: Ints
    """Their walks."""


def postings_of(program: Program, plan: SharingPlan) -> AccessIndex:
    """Return the postings of a plan."""
    by_pattern: list[tuple[int, int]] = []
    by_region: dict[int, list[tuple[int, int, int]]] = {}
    literals = program.literals
    kinds, places = literals.kinds.tolist(), literals.places.tolist()
    starts, low, high = (array.tolist() for array in (literals.starts, literals.low, literals.high))
    blocked = {rule for block in plan.blocks for rule in block.rules}
    everywhere = []
    for rule, access in enumerate(plan.access_predicates):
        if access is None and rule not in blocked and program.constant[rule] < 0:
            everywhere.append(rule)
        for literal in access or ():
            place = places[literal]
            if kinds[literal] == REGION:
                intervals = by_region.setdefault(place, [])
                for number in range(starts[literal], starts[literal + 1]):
                    intervals.append((low[number], high[number], rule))
            elif kinds[literal] == TEXT:
                by_pattern.append((place, rule))
            else:
                by_pattern += [(need, rule) for need in program.externals[place].needs]
    pattern_at, pattern_rules = _listed(by_pattern, program.n_patterns)
    text_of = [text for text, construct in enumerate(program.texts) for _ in construct.patterns]
    texts = tuple(sorted({text_of[pattern] for pattern, _ in by_pattern}))
    units = [
        unit
        for text in texts
        for unit in range(program.first_units[text], program.first_units[text + 1])
    ]
    tables = Postings(
        pattern_at=pattern_at,
        pattern_rules=pattern_rules,
        everywhere=np.array(everywhere, np.int32),
        **_trees(program, by_region),
    )
    return AccessIndex(tables, texts, np.array(units, np.int64))


def _trees(program: Program, by_region: dict[int, list[tuple[int, int, int]]]) -> dict[str, Any]:
    """Return the fields of ``Postings`` about regions."""
    constructs = sorted(by_region)
    leaves, firsts, levels, met = [], [], [], [np.zeros(0, np.bool_)]
    at_nodes: list[tuple[int, int]] = []
    first = 0
    for construct in constructs:
        n_leaves = 1 << max(0, program.regions[construct].n_regions - 1).bit_length()
        has_rules = 0
        is_met = np.zeros(2 * n_leaves, np.bool_)
        for low, high, rule in by_region[construct]:
            for node in _cover(low, high, n_leaves):
                at_nodes.append((first + node, rule))
                is_met[node] = True
                has_rules |= 1 << (n_leaves.bit_length() - node.bit_length())
        for level in range(1, n_leaves.bit_length()):
            is_met[1 << level : 2 << level] |= np.repeat(is_met[1 << level - 1 : 1 << level], 2)
        met.append(is_met)
        leaves.append(n_leaves)
        firsts.append(first)
        levels.append(has_rules)
        first += 2 * n_leaves
    rules_at, rules = _listed(at_nodes, first)
    return {
        "constructs": np.array(constructs, np.int32),
        "leaf_at": np.array(leaves, np.int64),
        "node_at": np.array(firsts, np.int64),
        "levels": np.array(levels, np.int64),
        "is_met": np.concatenate(met),
        "rules_at": rules_at,
        "region_rules": rules,
    }


def _cover(low: int, high: int, n_leaves: int) -> Iterator[int]:
    """Yield the fewest nodes that together are the leaves from low to high.

    >>> list(_cover(1, 3, 4))
    [5, 3]
    """
    left, right = low + n_leaves, high + n_leaves + 1
    while left < right:
        if left & 1:
            yield left
            left += 1
        if right & 1:
            right -= 1
            yield right
        left >>= 1
        right >>= 1


def _listed(pairs: list[tuple[int, int]], n_keys: int) -> tuple[Ints, Int32s]:
    """Return the rules of each key, one key after the other, and where each key's start."""
    table = np.array(sorted(set(pairs)), np.int64).reshape(-1, 2)
    starts = starts_of(np.bincount(table[:, 0], minlength=n_keys))
    return starts, np.ascontiguousarray(table[:, 1]).astype(np.int32)
