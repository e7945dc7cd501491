"""The paper's running example, whose table of predicates is lost: this one fits all it says."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from eddyline.rules.compile.bitmap_block import BitmapBlock
from eddyline.rules.compile.formula import All, Literal
from eddyline.rules.compile.regions import HIGHEST, LOWEST, KeySet
from eddyline.rules.match.matcher import Selection
from eddyline.rules.plan import Arrow, SelectionSequence
from eddyline.rules.planning.sequence_learning import (
    RegionSample,
    greedy_macro,
    has_changed,
    hybrid,
    selectivity,
)
from tests.oracles.sharing import PaperConstruct, visit

TESTS = (
    ((0, "<", 50), (2, ">=", 40)),
    ((1, "<=", 20), (3, "<=", 50)),
    ((0, "<=", 70), (2, "<", 80)),
    ((1, ">", 60), (3, ">", 10)),
)
"""Of each rule: attribute, operator and constant."""

CONSTANTS = ((50, 70), (20, 60), (40, 80), (10, 50))

TUPLES = {
    "t1": (60, 40, 90, 60),
    "t2": (80, 70, 90, 60),  # the paper's 70 is not in the region that it says
    "t3": (60, 40, 90, 60),
    "t4": (80, 40, 90, 60),
    "t5": (80, 70, 90, 5),
    "t6": (80, 70, 90, 5),
    "t7": (80, 20, 90, 60),
}

FINAL = {name: "0001" if name == "t2" else "0000" for name in TUPLES}

MICRO = {(0, 5): 1, (1, 5): 3, (3, 5): 2}


def interval(op: str, c: int) -> tuple[int, int]:
    return {"<": (LOWEST, c - 1), "<=": (LOWEST, c), ">": (c + 1, HIGHEST), ">=": (c, HIGHEST)}[op]


def block_of(cuts: tuple[tuple[int, ...], ...]) -> BitmapBlock:
    """Return the block, cut also at both sides of some values of each attribute."""
    literals = [(a, (interval(op, c),)) for rule in TESTS for a, op, c in rule]
    rules = []
    for j, rule in enumerate(TESTS):
        always = [Literal(2 * len(TESTS) + a) for a, *_ in rule]  # holds in all parts
        rules.append(All((Literal(2 * j), Literal(2 * j + 1), *always)))
    for a, values in enumerate(cuts):
        starts = [LOWEST, *(cut for c in values for cut in (c, c + 1))]
        ends = [*(start - 1 for start in starts[1:]), HIGHEST]
        literals.append((a, tuple(zip(starts, ends, strict=True))))
    n_tests = len(literals) - len(cuts)
    return BitmapBlock.build(
        rules, lambda i: literals[i][0], lambda i: KeySet(literals[i][1], holds_null=i >= n_tests)
    )


@pytest.fixture(scope="module")
def block() -> BitmapBlock:
    return block_of(CONSTANTS)


@pytest.fixture(scope="module")
def constructs() -> list[PaperConstruct]:
    return [
        PaperConstruct.of([(j, op, c) for j, r in enumerate(TESTS) for b, op, c in r if a == b], 4)
        for a in range(4)
    ]


def bits(word: int) -> str:
    return f"{int(word):04b}"[::-1]  # q1 is on the left


def keys(*names: str) -> np.ndarray:
    return np.array([TUPLES[name] for name in names], dtype=np.int64).T.copy()


def sample(block: BitmapBlock, *names: str) -> RegionSample:
    values = keys(*names)
    nulls = np.zeros(values.shape, dtype=np.bool_)
    return RegionSample.from_regions(block, block.regions(values, nulls, np.arange(len(names))))


def mask(text: str) -> np.ndarray:
    return np.array([int(text[::-1], 2)], dtype=np.uint64)


def table(block: BitmapBlock, construct: int) -> list[str]:
    return [bits(w) for w in block.bitmaps[block.region_at[construct] + 1 :, 0][:5]]


QRB = [
    "1111 0111 0111 0111 0101",
    "1110 1110 1010 1010 1011",
    "0111 1111 1111 1101 1101",
    "1110 1110 1111 1111 1011",
]
QUB = ["1010", "0101", "1010", "0101"]
CAB = [
    "0111 0111 0111 0111 0101",
    "1011 1011 1010 1010 1011",
    "1101 1101 1101 1101 1101",
    "1110 1110 1110 1110 1110",
]


def dropped(rows: RegionSample, constructs: tuple[int, ...]) -> float:
    """Return the share of rows that some constructs drop, in whatever order."""
    left = rows.at_first()
    for construct in constructs:
        left &= rows.bitmaps[:, construct]
    return float((~left.any(axis=1)).mean())


@pytest.mark.parametrize("a", range(4))
def test_tables(block: BitmapBlock, constructs: list[PaperConstruct], a: int) -> None:
    assert table(block, a) == QRB[a].split()
    assert [bits(w) for w in constructs[a].bitmaps[1:]] == QRB[a].split()
    assert bits(block.usage[a, 0]) == bits(constructs[a].usage) == QUB[a]
    assert bits(block.bitmaps[block.region_at[a], 0]) == bits(~constructs[a].usage & 15)
    usages = [each.usage for each in constructs]
    arrows = ["".join("01"[j in constructs[a].candidates(r, usages, a)] for j in range(4))
              for r in range(1, 6)]  # fmt: skip
    assert arrows == CAB[a].split()


def test_fewer_cuts_say_the_same() -> None:
    coarse = block_of(((),) * 4)
    assert coarse.n_regions(0) == 4  # NULL, below 50, to 70, above
    values = keys(*TUPLES)
    found = Selection(coarse).select(values, np.zeros(values.shape, dtype=np.bool_))
    assert (found.rows.tolist(), found.rules.tolist()) == ([1], [3])


def test_e1_regions_of_a2(block: BitmapBlock, constructs: list[PaperConstruct]) -> None:
    assert constructs[1].region(20) == 2
    assert table(block, 1)[1] == "1110"
    usages = [each.usage for each in constructs]
    assert constructs[1].candidates(3, usages, 1) == [0, 2]  # E1b: A4 decides nothing there


@pytest.mark.parametrize("name", TUPLES)
def test_regions_are_the_papers(
    block: BitmapBlock, constructs: list[PaperConstruct], name: str
) -> None:
    expected = [asc.region(x) for asc, x in zip(constructs, TUPLES[name], strict=True)]
    assert sample(block, name).regions[0].tolist() == expected


def test_e2_macro_evaluation(block: BitmapBlock, constructs: list[PaperConstruct]) -> None:
    seen = {name: visit(constructs, TUPLES[name], (0, 1, 2, 3)) for name in TUPLES}
    told = {name: [bits(left) for left in each.left] for name, each in seen.items()}
    assert told["t1"] == told["t3"] == ["0111", "0010", "0000"]
    assert told["t2"] == ["0101", "0001", "0001", "0001"]
    assert told["t4"] == ["0101", "0000"]
    assert told["t5"] == told["t6"] == ["0101", "0001", "0001", "0000"]
    assert told["t7"] == ["0101", "0100", "0100", "0000"]
    values = keys("t1", "t2", "t3")
    found = Selection(block).select(values, np.zeros(values.shape, dtype=np.bool_))
    assert found.counts.evaluated.tolist() == [3, 3, 3, 1]
    assert found.counts.n_evaluated == 10
    assert found.counts.dropped.tolist() == [0, 0, 2, 0]
    assert (found.rows.tolist(), found.rules.tolist()) == ([1], [3])


def test_e3_cover_sets(block: BitmapBlock) -> None:
    usage = block.usage[:, 0]
    pairs = {(a, b) for a, b in permutations(range(4), 2) if usage[a] | usage[b] == 15 and a < b}
    assert {(0, 1), (2, 3)} <= pairs
    assert pairs == {(0, 1), (0, 3), (1, 2), (2, 3)}


def test_e4_drop_ratio(block: BitmapBlock) -> None:
    assert dropped(sample(block, "t1", "t2", "t3"), (0, 1, 2)) == pytest.approx(2 / 3)


def test_e5_one_tuple_per_period(block: BitmapBlock) -> None:
    first = sample(block, "t1").bitmaps
    assert selectivity(first, block.initial).tolist() == [3 / 4, 1 / 2, 3 / 4, 3 / 4]
    second = sample(block, "t2").bitmaps
    after = second[:, 1][:, None] & second[:, [0, 2, 3]]
    assert selectivity(after, mask("1010")).tolist() == [0.0, 1 / 2, 1.0]
    third = sample(block, "t3")
    assert dropped(third, (1, 0, 2)) == 1.0
    assert dropped(third, (1, 0, 3)) == 0.0


def test_e5_from_one_sample(block: BitmapBlock) -> None:
    assert greedy_macro(sample(block, "t1", "t2", "t3")).macro == (1, 0, 2, 3)


def test_e6_arrows_of_regions(block: BitmapBlock, constructs: list[PaperConstruct]) -> None:
    t4 = sample(block, "t4").bitmaps
    after = t4[:, 0][:, None] & t4[:, [1, 3]]
    # The paper divides by all four rules; only two are left, which ranks alike.
    assert np.bitwise_count(after)[0, :, 0].tolist() == [0, 1]
    usages = [each.usage for each in constructs]
    assert 2 not in constructs[0].candidates(5, usages, 0)
    t5 = sample(block, "t5")
    assert (dropped(t5, (0, 1, 2)), dropped(t5, (0, 1, 3))) == (0.0, 1.0)


def test_e6_learned(block: BitmapBlock) -> None:
    learned = hybrid(sample(block, *["t4"] * 30), SelectionSequence((0, 3, 1, 2)))
    assert learned == SelectionSequence((0, 3, 1, 2), (1,), (Arrow(0, 5, 4),))
    # A4 and then A2 drops t5 as soon as the paper's A2 and then A4.
    along = hybrid(sample(block, *["t5"] * 30), SelectionSequence((0, 1, 2, 3)))
    assert along == SelectionSequence((0, 1, 2, 3), (3,), (Arrow(0, 5, 4),))
    values = keys("t5")
    found = Selection(block, along).select(values, np.zeros(values.shape, dtype=np.bool_))
    assert found.counts.evaluated.tolist() == [1, 1, 0, 1]
    too_few = hybrid(sample(block, *["t5"] * 29), SelectionSequence((0, 1, 2, 3)))
    assert too_few == SelectionSequence((0, 1, 2, 3))


def test_e7_hybrid_evaluation(block: BitmapBlock, constructs: list[PaperConstruct]) -> None:
    assert visit(constructs, TUPLES["t6"], (0, 1, 2, 3), MICRO).constructs == (0, 1, 3)
    assert visit(constructs, TUPLES["t7"], (0, 1, 2, 3), MICRO).constructs == (0, 1, 2, 3)
    arrows = tuple(Arrow(a, region, to) for (a, region), to in MICRO.items())
    plan = Selection(block, SelectionSequence((0, 1, 2, 3), arrows=arrows))
    for name, evaluated in (("t6", [1, 1, 0, 1]), ("t7", [1, 1, 1, 1])):
        values = keys(name)
        found = plan.select(values, np.zeros(values.shape, dtype=np.bool_))
        assert found.counts.evaluated.tolist() == evaluated
        assert found.counts.dropped.tolist() == [0, 0, 0, 1]
        assert len(found.rows) == 0
    assert found.counts.n_followed == 1  # A4 of t7 is the last: nothing is followed from there


def test_equation_5() -> None:
    assert not has_changed(0.5, 0.41, 0.2)
    assert has_changed(0.5, 0.41, 0.1)
    assert has_changed(0.5, 0.5, 0.0)
    assert not has_changed(0.0, 0.0, 0.1)
    assert has_changed(0.0, 0.01, 0.1)


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_every_order_gives_the_same(
    block: BitmapBlock, constructs: list[PaperConstruct], order: tuple[int, ...]
) -> None:
    values = keys(*TUPLES)
    plan = Selection(block, SelectionSequence(order))
    found = plan.select(values, np.zeros(values.shape, dtype=np.bool_))
    assert (found.rows.tolist(), found.rules.tolist()) == ([1], [3])
    for name, values_ in TUPLES.items():
        assert bits(visit(constructs, values_, order).matches) == FINAL[name]


def test_regions_of_constants() -> None:
    asc = PaperConstruct.of([(0, "<=", 50), (0, "<", 70)], 1)
    assert [asc.region(x) for x in (49.9, 50, 60, 70, 71)] == [1, 2, 3, 4, 5]
    assert PaperConstruct.of([], 3) == PaperConstruct((), (7, 7), 0)
