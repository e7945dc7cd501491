from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eddyline.errors import PlanError
from eddyline.rules.compile.bitmap_block import BitmapBlock
from eddyline.rules.compile.formula import All, Always, Literal, Some
from eddyline.rules.compile.regions import HIGHEST, LOWEST, MAX_SPAN, KeySet, float_keys
from eddyline.rules.match.matcher import Selection
from eddyline.rules.plan import Arrow, SelectionSequence
from tests.oracles.rule_data import RangeRules, uniform_rows

if TYPE_CHECKING:
    from eddyline.rules.compile.formula import Formula

N_ATTRIBUTES = 4
EDGES = (LOWEST, LOWEST + 1, -1, 0, 1, 2, 3, 5, 8, HIGHEST - 1, HIGHEST)


@st.composite
def key_sets(draw: st.DrawFn) -> KeySet:
    ends = sorted(set(draw(st.lists(st.sampled_from(EDGES), max_size=6))))
    pairs = zip(ends[::2], ends[1::2], strict=False)
    return KeySet(tuple(pairs), draw(st.booleans()))


@st.composite
def rule_sets(
    draw: st.DrawFn,
) -> tuple[list[Formula], list[tuple[int, KeySet]]]:
    """Draw formulas over literals, each with its attribute (-1: none) and its keys."""
    literals = draw(
        st.lists(st.tuples(st.integers(-1, N_ATTRIBUTES - 1), key_sets()), min_size=1, max_size=8)
    )
    leaf = st.one_of(
        st.builds(Literal, st.integers(0, len(literals) - 1)), st.builds(Always, st.booleans())
    )
    formulas = st.recursive(
        leaf,
        lambda part: st.one_of(
            st.builds(All, st.lists(part, min_size=1, max_size=3).map(tuple)),
            st.builds(Some, st.lists(part, min_size=1, max_size=3).map(tuple)),
        ),
        max_leaves=6,
    )
    return draw(st.lists(formulas, min_size=1, max_size=6)), literals


@st.composite
def sequences(draw: st.DrawFn, block: BitmapBlock) -> SelectionSequence:
    n = block.n_constructs
    macro = tuple(draw(st.permutations(range(n))))
    if n == 0:
        return SelectionSequence(())
    further = tuple(draw(st.lists(st.integers(0, n - 1), max_size=4)))
    plain = SelectionSequence(macro, further)
    arrows = {}
    for _ in range(draw(st.integers(0, 8))):
        node = draw(st.integers(0, plain.n_nodes - 1))
        region = draw(st.integers(0, block.n_regions(plain.construct_of(node)) - 1))
        arrows[node, region] = draw(st.integers(0, plain.n_nodes - 1))
    made = tuple(Arrow(*start, target) for start, target in sorted(arrows.items()))
    return SelectionSequence(macro, further, made)


def holds(formula: Formula, row: list[int | None], literals: list[tuple[int, KeySet]]) -> bool:
    """Whether a formula can hold: literals without attribute do."""
    if isinstance(formula, Always):
        return formula.value
    if isinstance(formula, Literal):
        attribute, keys = literals[formula.id]
        if attribute < 0:
            return True
        key = row[attribute]
        if key is None:
            return keys.holds_null
        return any(low <= key <= high for low, high in keys.intervals)
    join = all if isinstance(formula, All) else any
    return join(holds(part, row, literals) for part in formula.parts)


def built(rules: list[Formula], literals: list[tuple[int, KeySet]]) -> BitmapBlock:
    return BitmapBlock.build(rules, lambda i: literals[i][0], lambda i: literals[i][1])


@given(st.data(), rule_sets())
@settings(deadline=None)
def test_any_rules_any_sequence(
    data: st.DataObject, drawn: tuple[list[Formula], list[tuple[int, KeySet]]]
) -> None:
    rules, literals = drawn
    block = built(rules, literals)
    sequence = data.draw(sequences(block))
    cell = st.one_of(st.none(), st.sampled_from(EDGES))
    rows = data.draw(
        st.lists(st.lists(cell, min_size=N_ATTRIBUTES, max_size=N_ATTRIBUTES), max_size=8)
    )
    keys = np.array([[x or 0 for x in row] for row in rows], np.int64).reshape(-1, N_ATTRIBUTES).T
    nulls = np.array([[x is None for x in r] for r in rows], bool).reshape(-1, N_ATTRIBUTES).T
    found = Selection(block, sequence).select(keys, nulls)
    survived = set(zip(found.rows.tolist(), found.rules.tolist(), strict=True))
    assert len(survived) == len(found.rows)
    for r, row in enumerate(rows):
        for j, rule in enumerate(rules):
            if holds(rule, row, literals):
                assert (r, j) in survived
            elif not block.needs_check[j]:
                assert (r, j) not in survived
    order = sorted(survived)
    assert order == list(zip(found.rows.tolist(), found.rules.tolist(), strict=True))


@given(rule_sets())
@settings(deadline=None)
def test_a_bit_is_1_iff_the_rule_can_be_true_there(
    drawn: tuple[list[Formula], list[tuple[int, KeySet]]],
) -> None:
    rules, literals = drawn
    block = built(rules, literals)
    for c, attribute in enumerate(block.attributes):
        alone = [(a if a == attribute else -1, keys) for a, keys in literals]
        for region in range(block.n_regions(c)):
            ends = block.region_keys(c, region)
            for end in ends or (None,):
                row: list[int | None] = [end] * N_ATTRIBUTES
                bitmap = int(block.bitmaps[block.region_at[c] + region, 0])
                for j, rule in enumerate(rules):
                    if holds(rule, row, [(-1, keys) for _, keys in literals]):
                        assert bool(bitmap >> j & 1) == holds(rule, row, alone)


def test_what_is_decided_by_bits_alone() -> None:
    literals = [
        (0, KeySet(((0, 4),), False)),
        (1, KeySet(((2, 9),), False)),
        (-1, KeySet((), True)),
    ]
    a, b, text = Literal(0), Literal(1), Literal(2)
    rules: list[Formula] = [
        All((a, b)),
        Some((a, b)),
        All((a, text)),
        All((Some((a, a)), b)),
        text,
        Always(True),
        Always(False),
    ]
    block = built(rules, literals)
    assert block.needs_check.tolist() == [False, True, True, False, True, False, False]
    decided = [bool(int(block.initial[0]) >> j & 1) for j in range(7)]
    assert decided == [True, False, True, True, False, False, False]
    everywhere = [bool(int(block.everywhere[0]) >> j & 1) for j in range(7)]
    assert everywhere == [False, True, False, False, True, True, False]


@pytest.mark.parametrize("k", [1, 63, 64, 65, 128, 129, 512])
@pytest.mark.parametrize("arrows", [(), (Arrow(0, 1, 3), Arrow(2, 3, 5))])
def test_words(k: int, arrows: tuple[Arrow, ...]) -> None:
    rules = RangeRules.hot_spots(k, 3 * k, 6, seed=k, width=25)
    block = rules.block()
    keys = uniform_rows(3000, 6, seed=1)
    nulls = np.random.default_rng(5).random(keys.shape) < 0.01
    n = block.n_constructs
    macro = tuple(c for c in (4, 2, 0, 1, 3, 5) if c < n)
    sequence = SelectionSequence(macro, arrows=arrows if n == 6 else ())
    found = Selection(block, sequence).select(keys, nulls)
    expected = rules.holds(np.where(nulls, -1, keys))
    rows, held = np.nonzero(expected)
    assert len(rows) > 0
    assert found.rows.tolist() == rows.tolist()
    assert found.rules.tolist() == held.tolist()
    assert not block.needs_check.any()
    used = block.usage.view(np.uint8)
    assert np.unpackbits(used, axis=1, bitorder="little")[:, k:].sum() == 0
    assert int(np.bitwise_count(block.initial).sum()) == k
    assert found.counts.dropped.sum() == np.count_nonzero(~expected.any(axis=1))
    assert found.counts.n_pairs == len(rows)


def test_more_pairs_than_there_is_room_for_at_first() -> None:
    k, n_rows = 512, 5000
    literals = [(0, KeySet(((0, j),), False)) for j in range(k)]
    block = built([Literal(j) for j in range(k)], literals)
    keys = np.zeros((1, n_rows), np.int64)
    found = Selection(block).select(keys, np.zeros((1, n_rows), bool))
    assert len(found.rows) == k * n_rows
    assert (found.rules.reshape(n_rows, k) == np.arange(k)).all()
    assert found.counts.evaluated.tolist() == [n_rows]


def test_no_row_is_dropped_before_a_cover() -> None:
    rules = RangeRules.hot_spots(30, 90, 6, seed=3)
    block = rules.block()
    keys = uniform_rows(5000, 6, seed=2)
    order = (5, 3, 1, 0, 2, 4)
    counts = (
        Selection(block, SelectionSequence(order)).select(keys, np.zeros_like(keys, bool)).counts
    )
    covered = np.zeros(1, np.uint64)
    for construct in order:
        covered |= block.usage[construct]
        if (covered == block.initial).all():
            break
        assert counts.dropped[construct] == 0
    else:
        pytest.fail("nothing covers")
    assert counts.dropped.sum() > 0


@pytest.mark.parametrize("span", [1, 10**6, 2**40, 2**56])
def test_tables_and_searches_agree(span: int) -> None:
    rng = np.random.default_rng(span)
    ends = np.sort(rng.integers(-50, 50, (40, 2)), axis=1) * span
    literals = [(0, KeySet(((int(low), int(high)),), False)) for low, high in ends]
    block = built([Literal(j) for j in range(40)], literals)
    assert (block.tables.table_at[0] >= 0) == (100 * span < MAX_SPAN)
    keys = np.concatenate([rng.integers(-60, 60, 500) * span, ends.ravel(), ends.ravel() + 1])
    keys = np.concatenate([keys, [LOWEST, HIGHEST]])[None, :]
    rows, held = np.nonzero((keys[0][:, None] >= ends[:, 0]) & (keys[0][:, None] <= ends[:, 1]))
    found = Selection(block).select(keys, np.zeros(keys.shape, bool))
    assert (found.rows == rows).all()
    assert (found.rules == held).all()


def test_floats_are_cut_like_the_papers_constants() -> None:
    low, high = float_keys(np.array([50.0, 70.0])).tolist()
    block = BitmapBlock.build(
        [All((Literal(0), Literal(1)))],
        lambda _: 0,
        # Intervals that touch are cuts, too.
        lambda i: KeySet(
            ((low, low), (low + 1, HIGHEST)) if i else ((LOWEST, high - 1), (high + 1, HIGHEST)),
            False,
        ),
    )
    keys = float_keys(np.array([49.9, 50.0, 60.0, 70.0, 71.0]))[None, :]
    found = block.regions(keys, np.zeros(keys.shape, bool), np.arange(5))
    assert found[:, 0].tolist() == [1, 2, 3, 4, 5]


def test_a_rule_on_known_constants_only_touches_bits() -> None:
    literals = [(0, KeySet(((0, 4),), False)), (0, KeySet(((5, 9),), False)),
                (0, KeySet(((0, 9),), False)), (0, KeySet(((7, 7),), False))]  # fmt: skip
    old = built([Literal(0), Literal(1)], literals)
    same = built([Literal(0), Literal(1), Literal(2)], literals)
    assert same.cuts_of(0).tolist() == old.cuts_of(0).tolist() == [0, 5, 10]
    assert (same.bitmaps & np.uint64(3) == old.bitmaps).all()
    more = built([Literal(0), Literal(1), Literal(3)], literals)
    assert more.cuts_of(0).tolist() == [0, 5, 7, 8, 10]
    copied = more.bitmaps[:, 0] & np.uint64(3)
    assert copied.tolist() == old.bitmaps[[0, 1, 2, 3, 3, 3, 4], 0].tolist()


def test_inputs_may_be_read_only_and_stay_as_they_are() -> None:
    block = RangeRules.hot_spots(5, 10, 3, seed=1).block()
    keys = uniform_rows(100, 3, seed=0)
    nulls = np.zeros_like(keys, bool)
    found = Selection(block).select(keys, nulls)
    keys.flags.writeable = nulls.flags.writeable = False
    again = Selection(pickle.loads(pickle.dumps(block))).select(keys, nulls)
    assert (again.rows == found.rows).all()
    part = Selection(block).select(keys[:, 50:], nulls[:, 50:])
    assert (part.rows + 50 == found.rows[found.rows >= 50]).all()


def test_errors_say_what_does_not_fit() -> None:
    with pytest.raises(PlanError, match="at most 512 rules, got 513"):
        BitmapBlock.build([Always(True)] * 513, lambda _: 0, lambda _: KeySet((), False))
    block = RangeRules.hot_spots(5, 10, 3, seed=1).block()
    with pytest.raises(PlanError, match="2 constructs does not fit a block of 3"):
        Selection(block, SelectionSequence((0, 1)))
    with pytest.raises(PlanError, match="region 99"):
        Selection(block, SelectionSequence((0, 1, 2), arrows=(Arrow(0, 99, 1),)))
