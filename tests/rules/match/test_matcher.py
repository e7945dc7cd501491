"""The matcher over many batches, plans, sizes of sets and layouts; any rules: ``tests/properties``.

Texts as views or dictionaries were refused by some of Arrow's functions, and constants at the end
of the whole numbers overflowed in the table of a block's regions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from eddyline.options import SharingOptions
from eddyline.query.conditions import (
    And,
    Compare,
    Constant,
    FunctionTest,
    IsNull,
    Not,
    OneOf,
    Operand,
    Or,
    Rule,
    TextTest,
    ValueTest,
)
from eddyline.query.predicates import FunctionPredicate
from eddyline.rules.compile.bitmap_block import BitmapBlocks
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.plan import BitmapBlockPlan, SharingPlan
from eddyline.rules.planning.access_predicates import plan_of
from eddyline.rules.planning.planner import make_plan
from eddyline.sql.regexes import ANY, Wild
from eddyline.sql.types import parse_type
from tests.oracles import rules as reference_rules

N, M, S = (
    Operand(f"`{n}`", parse_type(k), (n,)) for n, k in (("n", "int"), ("m", "int"), ("s", "string"))
)
W = Wild(ANY)
METHODS = ("auto", "witnesses", "blocks", "every_row")


def compiled(*trees):
    return compile_rules([Rule(f"r{at}", tree) for at, tree in enumerate(trees)])


def lists(found):
    names = [[] for _ in range(found.n_rows)]
    for row, rule in zip(found.rows.tolist(), found.rules.tolist(), strict=True):
        names[row].append(rule)
    return names


def random_trees(rng, count):
    """Rules over numbers and texts, as many as it takes to fill words and blocks."""

    def leaf():
        kind = rng.integers(6)
        n = int(rng.integers(20))
        return [
            Compare(N, "<", n),
            Compare(M, "=", n),
            OneOf(N, (n, n + 3)),
            TextTest(S, (W, str(n), W), folded=bool(n % 2)),
            TextTest(S, (f"t{n}",)),
            IsNull(M),
        ][kind]

    def tree(depth):
        if depth == 0:
            return leaf() if rng.random() < 0.7 else Not(leaf())
        kind = And if rng.random() < 0.6 else Or
        return kind(tuple(tree(depth - 1) for _ in range(rng.integers(1, 4))))

    return [tree(int(rng.integers(3))) for _ in range(count)]


def random_rows(rng, count):
    def column(values):
        return [None if rng.random() < 0.1 else value for value in values]

    return pa.table(
        {
            "`n`": pa.array(column(rng.integers(-1, 21, count).tolist()), pa.int32()),
            "`m`": pa.array(column(rng.integers(0, 21, count).tolist()), pa.int32()),
            "`s`": pa.array(column([f"{'tT'[v % 2]}{v}" for v in rng.integers(0, 40, count)])),
        }
    )


MANY = [pytest.param(n, marks=pytest.mark.large) for n in (511, 512, 513, 1_100)]


@pytest.mark.parametrize("n_rules", [1, 2, 63, 64, 65, *MANY])
def test_sets_of_any_size(n_rules):
    rng = np.random.default_rng(n_rules)
    rules = [Rule(f"r{at}", tree) for at, tree in enumerate(random_trees(rng, n_rules))]
    table = random_rows(rng, 60)
    wanted = [[int(name[1:]) for name in row] for row in reference_rules.matches(rules, table)]
    program = compile_rules(rules)
    columns = [table[each].combine_chunks() for each in program.columns]
    blocks, profile = BitmapBlocks(program), None
    for method in METHODS:
        for sequence in ("macro", "hybrid", "fixed"):
            options = SharingOptions(method=method, sequence=sequence)
            plan = make_plan(blocks, options, profile)
            found, seen = Matcher(program, plan).match(columns, n_rows=60, sample=np.arange(60))
            assert lists(found) == wanted
            assert seen.matches.tolist() == np.bincount(found.rules, minlength=n_rules).tolist()
            assert (
                seen.candidates[program.constant < 0] >= seen.matches[program.constant < 0]
            ).all()
            profile = seen.merge(seen, seen, seen)  # enough rows to be believed


def test_a_thousand_equal_rules():
    tree = And((Compare(N, "<", 3), TextTest(S, (W, "a", W))))
    program = compiled(*[tree] * 1_000)
    columns = {"`n`": pa.array([1, 5, 2], pa.int32()), "`s`": pa.array(["a", "a", "b"])}
    for method in METHODS:
        found, _ = Matcher(program, plan_of(program, method=method)).match(
            [columns[each] for each in program.columns], n_rows=3
        )
        assert lists(found) == [list(range(1_000)), [], []]


def test_many_batches_under_changing_plans():
    rng = np.random.default_rng(5)
    rules = [Rule(f"r{at}", tree) for at, tree in enumerate(random_trees(rng, 40))]
    program = compile_rules(rules)
    plans = [plan_of(program, method=method) for method in METHODS]
    plans += [replace(each, by_value=frozenset(range(len(program.texts)))) for each in plans]
    matcher = Matcher(program, plans[0])
    for at in range(120):
        table = random_rows(rng, int(rng.integers(0, 12)))
        if at % 3 == 0:
            matcher.follow(plans[int(rng.integers(len(plans)))])
        columns = [
            pa.concat_arrays(table[each].chunks)
            if table.num_rows
            else pa.array([], table.schema.field(each).type)
            for each in program.columns
        ]
        sample = None if at % 2 else np.arange(0, table.num_rows, 2)
        found, _ = matcher.match(columns, n_rows=table.num_rows, sample=sample)
        wanted = reference_rules.matches(rules, table)
        assert lists(found) == [[int(name[1:]) for name in row] for row in wanted]


def test_marks_of_earlier_batches_are_not_taken_for_new_ones():
    program = compiled(TextTest(S, (W, "a", W)), Not(TextTest(S, (W, "b", W))))
    matcher = Matcher(program, plan_of(program))
    for _ in range(300):
        found, _ = matcher.match([pa.array(["a", "b", "ab", None, ""])], n_rows=5)
        assert lists(found) == [[0, 1], [], [0], [], [1]]
        found, _ = matcher.match([pa.array(["b"])], n_rows=1)
        assert lists(found) == [[]]


def test_more_pairs_and_hits_than_there_was_room_for():
    n_rules = 3_000
    program = compiled(*[TextTest(S, (W, f"k{at}k", W)) for at in range(n_rules)])
    everything = "".join(f"k{at}k" for at in range(n_rules))
    texts = pa.array([everything, "", *[everything] * 40, None])
    for method in METHODS:
        plan = replace(plan_of(program, method=method), by_value=frozenset({0}))
        for each in (plan, replace(plan, by_value=frozenset())):
            found, _ = Matcher(program, each).match([texts], n_rows=43)
            assert np.bincount(found.rows, minlength=43).tolist() == [
                n_rules,
                0,
                *[n_rules] * 40,
                0,
            ]


def test_constructs_are_looked_at_only_where_a_rule_needs_them():
    program = compiled(And((Compare(N, "=", 1), TextTest(S, (W, "a", W)), Compare(M, ">", 3))))
    columns = {
        "`n`": pa.array([1] + [0] * 99, pa.int32()),
        "`m`": pa.array([5] * 100, pa.int32()),
        "`s`": pa.array(["a"] * 100),
    }
    (equal,) = [
        literal
        for literal, test in enumerate(program.test_of.tolist())
        if program.tests[test] == Compare(N, "=", 1)
    ]
    matcher = Matcher(program, SharingPlan(((equal,),)))
    arrays = [columns[each] for each in program.columns]
    found, seen = matcher.match(arrays, n_rows=100)
    assert lists(found)[0] == [0]
    assert sorted(seen.construct_rows.tolist()) == [1, 1, 100]
    assert seen.dropped == 99
    _, seen = matcher.match(arrays, n_rows=100, sample=np.array([7, 50]))
    assert sorted(seen.construct_rows.tolist()) == [3, 3, 100]
    assert seen.n_sampled == len(seen.sampled_regions) == 2
    assert seen.pattern_counts.tolist() == [2]


def test_always_and_never():
    program = compiled(Constant(True), Constant(False), Compare(N, "=", 1), Constant(True))
    found, seen = Matcher(program, plan_of(program)).match(
        [pa.array([1, None], pa.int32())], n_rows=2
    )
    assert lists(found) == [[0, 2, 3], [0, 3]]
    assert seen.matches.tolist() == [2, 0, 1, 2]
    assert seen.dropped == 0


@pytest.mark.parametrize("n_rows", [0, 1, 7])
def test_no_rules_and_no_rows(n_rows):
    program = compiled()
    found, seen = Matcher(program, plan_of(program)).match([], n_rows=n_rows)
    assert (found.n_rows, len(found.rows), seen.n_rows) == (n_rows, 0, n_rows)
    assert seen.dropped == n_rows


def test_columns_of_nulls():
    program = compiled(
        *(IsNull(N), Compare(N, "<", 5), TextTest(S, (W,)), Not(TextTest(S, ("a",)))),
        *(IsNull(S), ValueTest(S, "regex", ""), Or((IsNull(M), Compare(M, "=", 1)))),
    )
    kinds = {"`n`": pa.int32(), "`m`": pa.int32(), "`s`": pa.string()}
    columns = [pa.nulls(3, kinds[each]) for each in program.columns]
    for method in METHODS:
        plan = plan_of(program, method=method)
        for by_value in (frozenset(), frozenset(range(len(program.texts)))):
            matcher = Matcher(program, replace(plan, by_value=by_value))
            found, _ = matcher.match(columns, n_rows=3, sample=np.arange(3))
            assert lists(found) == [[0, 4, 6]] * 3


def test_blocks_of_one_rule_and_of_rules_in_any_order():
    trees = [Compare(N, "=", at % 5) for at in range(70)]
    program = compiled(*trees)
    order = np.random.default_rng(1).permutation(70).tolist()
    for size in (1, 63, 64, 65):
        blocks = tuple(
            BitmapBlockPlan(tuple(order[at : at + size])) for at in range(0, len(order), size)
        )
        found, seen = Matcher(program, SharingPlan((None,) * 70, blocks)).match(
            [pa.array([3, None, 9], pa.int32())], n_rows=3
        )
        assert lists(found) == [list(range(3, 70, 5)), [], []]
        assert seen.dropped == 2


def test_inputs_are_not_changed():
    program = compiled(TextTest(S, (W, "é", W), folded=True), Compare(N, "<", 3))
    columns = {"`n`": pa.array([None, 1], pa.int32()), "`s`": pa.array(["É", "x"])}
    before = {name: values.to_pylist() for name, values in columns.items()}
    for method in METHODS:
        Matcher(program, plan_of(program, method=method)).match(
            [columns[each] for each in program.columns], n_rows=2, sample=np.arange(2)
        )
    assert {name: values.to_pylist() for name, values in columns.items()} == before


# -- layouts of Arrow ------------------------------------------------------------------------------

LONG = Operand("`n`", parse_type("bigint"), ("n",))
LONGER = FunctionTest(FunctionPredicate(lambda s: [len(t) > 3 for t in s.to_pylist()], ("`s`",)))
OF_TEXTS = (
    Rule("equal", Compare(S, "=", "Ab")),
    Rule("folded", TextTest(S, ("ÄB",), folded=False)),
    Rule("contains", TextTest(S, (Wild(ANY), "äb", Wild(ANY)), folded=True)),
    Rule("regex", And((Not(IsNull(S)), ValueTest(S, "regex", "b$")))),
    Rule("python", And((Not(IsNull(S)), LONGER))),
    Rule("null", IsNull(S)),
)
TEXTS = ("Ab", None, "xÄB", "", "ÄB", "zzzz", "Ab")
FOUND = [
    ["equal", "regex"],
    ["null"],
    ["contains"],
    [],
    ["folded", "contains"],
    ["python"],
    ["equal", "regex"],
]
LAYOUTS = {
    "string": lambda a: a,
    "sliced": lambda a: pa.concat_arrays([pa.array(["é", None]), a, a]).slice(2, len(a)),
    "large": lambda a: a.cast(pa.large_string()),
    "view": lambda a: a.cast(pa.string_view()),
    "dictionary": lambda a: a.dictionary_encode(),
    "dictionary of views": lambda a: pa.DictionaryArray.from_arrays(
        a.dictionary_encode().indices, a.dictionary_encode().dictionary.cast(pa.string_view())
    ),
}


def matched(rules, plan, columns, n_rows, sample=None):
    program = compile_rules(rules)
    found, _ = Matcher(program, plan(program)).match(columns, n_rows=n_rows, sample=sample)
    return [[program.names[rule] for rule in row] for row in lists(found)]


def blocks_by_value(program):
    rules = tuple(np.flatnonzero(program.constant < 0).tolist())
    by_value = frozenset(range(len(program.texts)))
    return SharingPlan((None,) * program.n_rules, (BitmapBlockPlan(rules),), by_value)


@pytest.mark.parametrize("plan", [plan_of, blocks_by_value])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, plan):
    texts = LAYOUTS[layout](pa.array(TEXTS))
    assert matched(OF_TEXTS, plan, [texts], len(TEXTS), np.arange(len(TEXTS))) == FOUND
    assert matched(OF_TEXTS, plan, [texts[:0]], 0) == []


@pytest.mark.parametrize("plan", [plan_of, blocks_by_value])
@pytest.mark.filterwarnings("error")
def test_ends_of_the_whole_numbers(plan):
    low, high = -(2**63), 2**63 - 1
    rules = [
        Rule("highest", Compare(LONG, "=", high)),
        Rule("above", Compare(LONG, ">", high)),
        Rule("not lowest", Compare(LONG, ">", low)),
        Rule("lowest", Compare(LONG, "<=", low)),
        Rule("ends", OneOf(LONG, (low, high))),
        Rule("far", Compare(LONG, "<", 10**30)),
    ]
    values = pa.array([low, 0, high, None], pa.int64())
    assert matched(rules, plan, [values], 4) == [
        ["lowest", "ends", "far"],
        ["not lowest", "far"],
        ["highest", "not lowest", "ends", "far"],
        [],
    ]
    only = rules[:1]
    assert matched(only, plan, [values], 4) == [[], [], ["highest"], []]
