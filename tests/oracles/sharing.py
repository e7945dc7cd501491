"""Slow oracles of selection constructs: the paper's tables, rows one by one, and all orders.

Bitmaps are Python integers, bit j for rule j, or rows of bits in arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eddyline.data.arrays import Ints, Mask, Words

    Bits = Mask

OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "=": lambda x, c: x == c,
    "!=": lambda x, c: x != c,
    "<": lambda x, c: x < c,
    "<=": lambda x, c: x <= c,
    ">": lambda x, c: x > c,
    ">=": lambda x, c: x >= c,
}


@dataclass(frozen=True, slots=True)
class PaperConstruct:
    """One attribute as the paper has it: regions 1 to 2 m + 1, even ones a constant [ASC Def 1].

    >>> asc = PaperConstruct.of([(0, "<=", 20.0), (1, ">", 60.0)], 3)
    >>> [asc.region(x) for x in (19.0, 20.0, 60.0, 60.5)]
    [1, 2, 4, 5]
    >>> [f"{asc.bitmaps[r]:03b}" for r in range(1, 6)]
    ['101', '101', '100', '100', '110']
    """

    constants: tuple[float, ...]
    """Ascending (m)."""
    bitmaps: tuple[int, ...]
    """Rules that can be true in each region; region 0 is NULL (ours)."""
    usage: int
    """The rules with a test on the attribute."""

    @classmethod
    def of(cls, tests: Sequence[tuple[int, str, float]], n_rules: int) -> PaperConstruct:
        """Return the construct of tests, each a rule, an operator and a constant [ASC 3.1]."""
        constants = sorted({constant for _, _, constant in tests})
        usage = 0
        for rule, _, _ in tests:
            usage |= 1 << rule
        everything = (1 << n_rules) - 1
        bitmaps = [everything & ~usage]
        for point in _points(constants):
            bitmap = everything
            for rule, op, constant in tests:
                if not OPERATORS[op](point, constant):
                    bitmap &= ~(1 << rule)
            bitmaps.append(bitmap)
        return cls(tuple(constants), tuple(bitmaps), usage)

    def region(self, value: float | None) -> int:
        """Return the region of a value."""
        if value is None:
            return 0
        return 1 + sum(c < value for c in self.constants) + sum(c <= value for c in self.constants)

    def candidates(self, region: int, usages: Sequence[int], own: int) -> list[int]:
        """Return the constructs that an arrow from a region may lead to [ASC 4.1].

        Args:
            region: the region.
            usages: rules that each construct has a test of.
            own: number of this construct.
        """
        live = self.bitmaps[region]
        return [j for j, usage in enumerate(usages) if j != own and live & usage]


def _points(constants: Sequence[float]) -> list[float]:
    """Return a value of each region."""
    if not constants:
        return [0.0]
    points = [constants[0] - 1.0]
    for low, high in zip(constants, [*constants[1:], constants[-1] + 2.0], strict=True):
        points += [low, (low + high) / 2.0]
    return points


@dataclass(frozen=True, slots=True)
class Visit:
    """How one row went."""

    constructs: tuple[int, ...]
    """What it visited, in that order."""
    left: tuple[int, ...]
    """The rules that were left after each."""

    @property
    def matches(self) -> int:
        """The rules that survive."""
        return self.left[-1]


def visit(
    constructs: Sequence[PaperConstruct],
    values: Sequence[float | None],
    macro: Sequence[int],
    arrows: Mapping[tuple[int, int], int] | None = None,
    n_rules: int | None = None,
) -> Visit:
    """Lead a row along a sequence, by the paper's rules [ASC 3.2, 5.1].

    Args:
        constructs: the constructs.
        values: the row's value of each attribute; None for NULL.
        macro: the macro-sequence.
        arrows: where a construct's region leads to; none: the macro-sequence alone.
        n_rules: k; as many as any construct knows if omitted.
    """
    k = n_rules or max(max(each.bitmaps) for each in constructs).bit_length()
    left, visited, history = (1 << k) - 1, [], []
    at: int | None = macro[0]
    while at is not None:
        region = constructs[at].region(values[at])
        left &= constructs[at].bitmaps[region]
        visited.append(at)
        history.append(left)
        if left == 0:
            break
        target = (arrows or {}).get((at, region))
        if target is None or target in visited:
            target = next((v for v in macro if v not in visited), None)
        at = target
    return Visit(tuple(visited), tuple(history))


def visits_after_sets(bitmaps: Words, initial: Words) -> Ints:
    """Return how many rows have rules left after each set of constructs ((2**n,)) [ASC 2.10].

    Args:
        bitmaps: bitmap of each row in each construct ((T, n, W)).
        initial: the rules that are left before any ((W,)).
    """
    n = bitmaps.shape[1]
    by_construct = np.ascontiguousarray(bitmaps.swapaxes(0, 1))
    alive = np.zeros(1 << n, dtype=np.int64)

    def descend(members: int, first: int, left: Words) -> None:
        alive[members] = np.count_nonzero(np.bitwise_or.reduce(left, axis=1))
        for construct in range(first, n):
            descend(members | 1 << construct, construct + 1, left & by_construct[construct])

    descend(0, 0, np.repeat(initial[None, :], len(bitmaps), axis=0))
    return alive


def best_and_worst(alive: Ints) -> tuple[tuple[int, tuple[int, ...]], tuple[int, tuple[int, ...]]]:
    """Return evaluations and order of the cheapest and of the dearest fixed order [ASC 3.6].

    Exact: which rows are left depends on the set of constructs that were visited, not on its order.

    Args:
        alive: rows with rules left after each set ((2**n,)).
    """
    return _path(alive, min), _path(alive, max)


def _path(alive: Ints, choose: Callable[..., tuple[int, int]]) -> tuple[int, tuple[int, ...]]:
    n_sets = len(alive)
    n = n_sets.bit_length() - 1
    counts = alive.tolist()
    best: list[tuple[int, int]] = [(0, -1)] * n_sets
    for members in range(1, n_sets):
        options = []
        for construct in range(n):
            before = members & ~(1 << construct)
            if before != members:
                options.append((best[before][0] + counts[before], construct))
        best[members] = choose(options)
    order: list[int] = []
    members = n_sets - 1
    while members:
        order.append(best[members][1])
        members &= ~(1 << order[-1])
    return best[-1][0], tuple(reversed(order))


def ticket_routing(bitmaps: Words, initial: Words, rng: np.random.Generator) -> int:
    """Return the evaluations of eddies' lottery [Avnur00; as ASC 6 compares with it].

    A construct gains a ticket per row that it receives and loses one per row that it returns; the
    next one is drawn among those not visited, in proportion to tickets. Each starts with one.

    Args:
        bitmaps: bitmap of each row in each construct ((T, n, W)).
        initial: the rules that are left before any ((W,)).
        rng: draws the tickets.
    """
    n = bitmaps.shape[1]
    tickets = [1] * n
    total = 0
    start = int.from_bytes(initial.tobytes(), "little")
    draws = rng.random((len(bitmaps), n)).tolist()
    for row, numbers in zip(bitmaps, draws, strict=True):
        left, rest = start, list(range(n))
        for number in numbers:
            ahead = number * sum(tickets[v] for v in rest)
            chosen = rest[-1]
            for v in rest:
                ahead -= tickets[v]
                if ahead < 0.0:
                    chosen = v
                    break
            rest.remove(chosen)
            total += 1
            left &= int.from_bytes(row[chosen].tobytes(), "little")
            if left == 0:
                tickets[chosen] += 1
                break
    return total
