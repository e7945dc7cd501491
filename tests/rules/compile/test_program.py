"""Compiled sets: what decides each literal, and what each rule reads."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given

from eddyline.query.conditions import (
    FALSE,
    TRUE,
    And,
    Compare,
    Constant,
    FunctionTest,
    IsNull,
    NativeTest,
    Not,
    Operand,
    Or,
    Rule,
    TextTest,
    ValueTest,
)
from eddyline.query.predicates import FunctionPredicate
from eddyline.rules.compile.formula import EXTERNAL, REGION, TEXT, literals_of
from eddyline.rules.compile.program import compile_rules
from eddyline.sql.regexes import ANY, Wild
from eddyline.sql.types import parse_type
from tests.oracles import rule_strategies

N, S, T = (
    Operand(f"`{name}`", parse_type(kind), (name,))
    for name, kind in (("n", "int"), ("s", "string"), ("t", "string"))
)
W = Wild(ANY)
FN = FunctionTest(FunctionPredicate(lambda n, s: n, ("`n`", "`s`"), "fn"))


def program_of(*trees):
    return compile_rules([Rule(f"r{at}", tree) for at, tree in enumerate(trees)])


def test_nothing():
    program = program_of()
    assert (program.n_rules, program.n_patterns, program.columns) == (0, 0, ())
    assert program.code.starts.tolist() == [0]
    assert program.first_units == (0,)


def test_rules_that_no_row_changes():
    program = program_of(Constant(True), Constant(None), Compare(N, "=", 1))
    assert program.constant.tolist() == [1, 0, -1]
    assert np.diff(program.code.starts).tolist() == [0, 0, 1]


def test_what_decides_each_literal():
    program = program_of(
        And((Compare(N, "=", 1), TextTest(S, ("a", W)))),
        Not(NativeTest("`n` + 1 > 2", ("n",))),
        And((ValueTest(T, "regex", "x"), FN)),
    )
    assert program.literals.kinds.tolist() == [REGION, TEXT, REGION, EXTERNAL, EXTERNAL]
    assert program.literals.outcomes.tolist() == [TRUE, TRUE, FALSE, TRUE, TRUE]
    named = [program.columns[at] if at >= 0 else None for at in program.literals.columns.tolist()]
    # NULLs make a text test unknown; regions know them, and functions say so themselves.
    assert named == [None, "`s`", None, "`t`", None]
    assert set(program.columns) == {"`n`", "`s`", "`t`", "`n` + 1 > 2"}
    assert program.reads_regions.tolist() == [[True, False], [False, True], [False, False]]
    assert program.reads_texts.tolist() == [[True], [False], [False]]
    assert program.externals_of(np.arange(3))[0].tolist() == [2, 2]
    fn = next(each for each in program.externals if each.test == FN)
    assert [program.columns[at] for at in fn.columns] == ["`n`", "`s`"]
    assert fn.needs == ()


def test_equal_trees_share_everything():
    tree = Or((Compare(N, "<", 5), TextTest(S, (W, "a", W)), ValueTest(S, "regex", "b")))
    one, many = program_of(tree), program_of(*[tree] * 50)
    assert len(many.literals.kinds) == len(one.literals.kinds) == 3
    assert many.n_patterns == 1
    assert len(many.externals) == 1


def test_whole_texts_are_walked_where_there_is_a_walk_anyway():
    whole = TextTest(S, ("ab",), folded=True)
    assert program_of(whole).literals.kinds.tolist() == [REGION]
    program = program_of(whole, TextTest(S, (W, "b"), folded=True))
    assert program.literals.kinds.tolist() == [TEXT, TEXT]
    # Not for an equality, nor for another way to compare.
    assert program_of(Compare(S, "=", "ab"), TextTest(S, (W, "b"))).literals.kinds[0] == REGION
    assert program_of(whole, TextTest(S, (W, "b"))).literals.kinds[0] == REGION


def test_needs_become_patterns():
    needs = (TextTest(S, (W, "Ab", W)), TextTest(S, (W, "é", W)))
    program = program_of(ValueTest(S, "regex", "Ab|é", 0, needs))
    (external,) = program.externals
    assert len(external.needs) == program.n_patterns == 2
    assert [(each.folded, each.n_patterns) for each in program.texts] == [(True, 1), (False, 1)]
    assert program.reads_texts.tolist() == [[True, True]]
    # Of a set that is not known whole, nothing is known.
    part = (needs[0], TextTest(S, ("é",)))
    assert program_of(ValueTest(S, "regex", "Ab|^é$", 0, part)).externals[0].needs == ()


def test_what_no_construct_decides_is_our_mistake():
    span = Operand("`w`", parse_type("interval day to second"), ("w",))
    with pytest.raises(TypeError, match="no construct decides"):
        program_of(Compare(span, "=", 1))
    assert program_of(IsNull(span)).literals.kinds.tolist() == [REGION]


@given(rule_strategies.rules())
def test_programs_hang_together(rules):
    program = compile_rules(rules)
    assert program.names == tuple(rule.name for rule in rules)
    sizes = {
        REGION: len(program.regions),
        TEXT: program.n_patterns,
        EXTERNAL: len(program.externals),
    }
    kinds, places = program.literals.kinds.tolist(), program.literals.places.tolist()
    assert all(0 <= place < sizes[kind] for kind, place in zip(kinds, places, strict=True))
    for literal, kind in enumerate(kinds):
        first, last = program.literals.starts[literal : literal + 2]
        low, high = program.literals.low[first:last], program.literals.high[first:last]
        assert kind == REGION or first == last
        assert (low <= high).all()
        assert (high[:-1] < low[1:]).all()
    for rule, formula in enumerate(program.formulas):
        read = {places[each] for each in literals_of(formula) if kinds[each] == REGION}
        assert set(np.flatnonzero(program.reads_regions[rule]).tolist()) == read
    first = 0
    for each in program.texts:
        assert each.first == first
        first += each.n_patterns
    assert first == program.n_patterns
    again = compile_rules(rules)
    assert again.columns == program.columns
    assert np.array_equal(again.code.literals, program.code.literals)


def test_programs_travel():
    program = program_of(And((Compare(N, "=", 1), TextTest(S, (W, "a", W)))))
    assert program.first_units == (0, 1)
    there = pickle.loads(pickle.dumps(program))
    assert there.formulas == program.formulas
    assert there.first_units == program.first_units
