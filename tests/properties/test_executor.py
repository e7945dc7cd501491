"""Any order, any cut into batches, any sample: the Arrow block keeps what the oracle keeps."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.data.outcomes import sampled_rows, unpack
from eddyline.errors import PredicateError
from eddyline.filters.executor import ArrowExecutor, Groups, Sample
from eddyline.filters.loop import FilterLoop
from eddyline.options import FilterOptions
from eddyline.query.predicates import predicate
from eddyline.stats.costs import CostSums
from tests.oracles import conjunctions
from tests.oracles.profile_strategies import tables


def by_row(function):
    """Lift a function of one row's value to whole columns, raising as it raises."""

    def over_columns(array):
        return [function(value) for value in array.to_pylist()]

    return over_columns


def fussy(text):
    """A predicate that raises on some values: short texts, and NULL."""
    return text[0] == "a"


ROW_PREDICATES = [
    ("i", lambda i: None if i is None else i > 0),
    ("x", lambda x: None if x is None else x < 1.0),
    ("s", fussy),
    ("i", lambda i: 6 // i > 1),
    ("s", lambda s: None if s is None else "b" in s),
]


def executor(names, **options):
    predicates = [
        predicate(by_row(ROW_PREDICATES[f][1]), reads=[ROW_PREDICATES[f][0]], name=f"f{f}")
        for f in names
    ]
    return ArrowExecutor(predicates, [(k,) for k in range(len(predicates))], **options)


def columns_of(table, names):
    return [table[ROW_PREDICATES[f][0]].combine_chunks() for f in names]


def oracle(table, names):
    rows = table.to_pylist()
    checks = [
        lambda row, column=ROW_PREDICATES[f][0], test=ROW_PREDICATES[f][1]: test(row[column])
        for f in names
    ]
    return [row["id"] for row in conjunctions.conjunction(rows, checks)]


def run(table, names, batch_rows, prob, *, order=None, extra=None, **options):
    """Return the ids that the Arrow block keeps, batch by batch, or the error it raises."""
    block = executor(names, **options)
    order = order or tuple(range(len(names)))
    full = np.triu(np.ones((len(names), len(names)), dtype=bool), 1)
    kept = []
    for start in range(0, table.num_rows, batch_rows):
        part = table.slice(start, batch_rows)
        rows = sampled_rows(7, start, part.num_rows, prob)
        sample = Sample(rows, prob or 1.0, full if extra is None else extra, extra is None)
        outcome = block.run(columns_of(part, names), order, sample)
        if outcome.errors:
            raise next(iter(outcome.errors.values()))
        kept += part["id"].filter(pa.array(outcome.keep)).to_pylist()
    return kept


def outcome_of(function):
    """Return what a function returned, or that it raised."""
    try:
        return function()
    except (PredicateError, ArithmeticError, IndexError, TypeError):
        return "raised"


@given(
    table=tables(max_rows=25),
    names=st.permutations(range(5)).flatmap(lambda p: st.integers(1, 5).map(lambda n: p[:n])),
    batch_rows=st.sampled_from([1, 2, 7, 100]),
    prob=st.sampled_from([0.0, 0.3, 1.0]),
    data=st.data(),
)
def test_keeps_what_the_oracle_keeps(table, names, batch_rows, prob, data):
    order = tuple(data.draw(st.permutations(range(len(names)))))
    partial = data.draw(st.sampled_from([None, np.eye(len(names), k=1, dtype=bool)]))
    expected = outcome_of(lambda: oracle(table, names))
    got = outcome_of(lambda: run(table, names, batch_rows, prob, order=order, extra=partial))
    assert got == expected


@given(
    table=tables(max_rows=25),
    names=st.permutations(range(5)).flatmap(lambda p: st.integers(1, 5).map(lambda n: p[:n])),
    prob=st.sampled_from([0.0, 0.4, 1.0]),
    data=st.data(),
)
def test_classes_of_rows_with_orders_of_their_own_keep_the_same_rows(table, names, prob, data):
    n = len(names)
    orders = tuple(
        tuple(order) for order in data.draw(st.lists(st.permutations(range(n)), min_size=1))
    )
    rows = st.integers(0, len(orders) - 1)
    of_row = data.draw(st.lists(rows, min_size=table.num_rows, max_size=table.num_rows))
    groups = Groups(np.array(of_row, dtype=np.uint8), orders)
    sampled = sampled_rows(7, 0, table.num_rows, prob)
    full = np.triu(np.ones((n, n), dtype=bool), 1)
    block = executor(names, isolate_all=True)
    outcome = block.run(
        columns_of(table, names), orders[0], Sample(sampled, prob or 1.0, full, True), groups
    )
    for row, values in enumerate(table.to_pylist()):
        expected = outcome_of(lambda v=values: bool(oracle(pa.Table.from_pylist([v]), names)))
        got = "raised" if row in outcome.errors else bool(outcome.keep[row])
        assert got == expected
    assert outcome.profile.n_rows == table.num_rows
    assert outcome.profile.n_kept == int(outcome.keep.sum()) - len(outcome.errors)
    assert sorted(outcome.sampled.tolist()) == sampled.tolist()
    plain = block.run(columns_of(table, names), orders[0], Sample(sampled, prob or 1.0, full, True))
    by_row = dict(zip(outcome.sampled.tolist(), outcome.drops.tolist(), strict=True))
    if not {2, 3} & set(names):  # of what raised, no bit is known
        assert [by_row[row] for row in plain.sampled.tolist()] == plain.drops.tolist()


@given(table=tables(max_rows=40), block_rows=st.integers(1, 50), order=st.permutations(range(3)))
def test_blocks_count_what_their_rows_did(table, block_rows, order):
    names = [0, 1, 4]
    full = np.triu(np.ones((3, 3), dtype=bool), 1)
    sample = Sample(sampled_rows(7, 0, table.num_rows, 0.3), 0.3, full, True, block_rows)
    if table.num_rows == 0:
        return
    blocks = executor(names).run(columns_of(table, names), tuple(order), sample).profile.blocks
    edges = np.linspace(0, table.num_rows, len(blocks) + 1).astype(int)
    for number, (start, stop) in enumerate(pairwise(edges)):
        part = table.slice(start, stop - start)
        alive = part.to_pylist()
        for f in order:
            column, test = ROW_PREDICATES[names[f]]
            assert blocks[number, 0, f] == len(alive)
            alive = [row for row in alive if test(row[column]) is True]
            assert blocks[number, 1, f] == len(alive)


@given(table=tables(max_rows=25), prob=st.sampled_from([0.0, 0.5, 1.0]), data=st.data())
def test_every_row_with_an_error_is_found_when_errors_are_carried(table, prob, data):
    names = data.draw(st.permutations(range(5)))
    block = executor(names, isolate_all=True)
    full = np.triu(np.ones((5, 5), dtype=bool), 1)
    sample = Sample(sampled_rows(1, 0, table.num_rows, prob), prob or 1.0, full, True)
    outcome = block.run(columns_of(table, names), (0, 1, 2, 3, 4), sample)
    for row, values in enumerate(table.to_pylist()):
        expected = outcome_of(lambda v=values: bool(oracle(pa.Table.from_pylist([v]), names)))
        got = "raised" if row in outcome.errors else bool(outcome.keep[row])
        assert got == expected


@given(table=tables(max_rows=40), prob=st.sampled_from([0.2, 1.0]))
def test_sampled_bits_are_those_of_each_filter_alone(table, prob):
    names = [0, 1, 4]
    block = executor(names)
    full = np.triu(np.ones((3, 3), dtype=bool), 1)
    rows = sampled_rows(3, 0, table.num_rows, prob)
    outcome = block.run(columns_of(table, names), (2, 0, 1), Sample(rows, prob, full, True))
    drops = [
        [
            ROW_PREDICATES[f][1](table[ROW_PREDICATES[f][0]][int(row)].as_py()) is not True
            for f in names
        ]
        for row in rows
    ]
    expected = [bits for bits in drops if any(bits)]
    assert unpack(outcome.profile.codes, 3).tolist() == expected
    assert outcome.profile.passed == pytest.approx((len(drops) - len(expected)) / prob)


@pytest.mark.parametrize("policy", ["a_greedy", "independent", "sweep", "local_swaps", "fixed"])
def test_adapting_never_changes_the_rows(policy):
    rng = np.random.default_rng(5)
    table = pa.table({"id": range(5000), "u": rng.random(5000), "v": rng.random(5000)})
    predicates = [
        predicate(lambda u: np.asarray(u) < 0.9, reads=["u"], name="often"),
        predicate(lambda v: np.asarray(v) < 0.1, reads=["v"], name="seldom"),
    ]
    clock = count().__next__  # a nanosecond for each reading, however busy the cores are
    block = ArrowExecutor(predicates, [(0,), (1,)], clock=clock)
    options = FilterOptions(policy=policy, sample_prob=0.2)
    loop = FilterLoop("arrow", block.filter_ids, options, clock=clock)
    kept = []
    for start in range(0, 5000, 50):
        part = [table[name].combine_chunks().slice(start, 50) for name in ("u", "v")]
        prob = loop.batch_prob(50, 0.0)
        sample = loop.sample(sampled_rows(1, start, 50, prob), prob)
        outcome = block.run(part, loop.order, sample)
        loop.step(replace(outcome.profile, costs=CostSums.of_rows(50, np.array([100.0, 100.0]))))
        kept += (start + np.flatnonzero(outcome.keep)).tolist()
    expected = np.flatnonzero(
        (table["u"].to_numpy() < 0.9) & (table["v"].to_numpy() < 0.1)
    ).tolist()
    assert kept == expected
    if policy != "fixed":
        assert loop.order == (1, 0)
