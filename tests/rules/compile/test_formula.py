"""Rules as monotone formulas over literals, and their jump code."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eddyline.query.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    And,
    Compare,
    Constant,
    Is,
    Not,
    Operand,
    Or,
)
from eddyline.rules.compile.formula import (
    ACCEPT,
    REJECT,
    All,
    Always,
    Literal,
    LiteralTable,
    Some,
    all_of,
    jump_code,
    literals_of,
    packed,
    some_of,
    total_cost,
)
from eddyline.sql.types import INT
from tests.oracles.rule_strategies import trees
from tests.oracles.rules import truth

A, B, C = (Compare(Operand(f"`{name}`", INT, (name,)), "=", 1) for name in "abc")
VALUES = {True: 1, False: 2, None: None}
BIT = {True: TRUE, False: FALSE, None: UNKNOWN}
NAMES = {A: "`a`", B: "`b`", C: "`c`"}


def holds(formula, table, row):
    """Evaluate a formula by its definition."""
    if isinstance(formula, Always):
        return formula.value
    if isinstance(formula, Literal):
        test, outcomes = list(table.literals)[formula.id]
        return bool(BIT[truth(table.tests[test], row)] & outcomes)
    join = all if isinstance(formula, All) else any
    return join(holds(part, table, row) for part in formula.parts)


def runs(code, is_met):
    at = 0
    while at >= 0:
        literal, yes, no = code[at]
        at = yes if is_met(literal) else no
    assert at in (ACCEPT, REJECT)
    return at == ACCEPT


ROWS = [
    dict(zip(("`a`", "`b`", "`c`"), map(VALUES.get, values), strict=True))
    for values in itertools.product((True, False, None), repeat=3)
]


@given(trees(leaves=st.sampled_from([A, B, C, Constant(True), Constant(False), Constant(None)])))
def test_formula_and_code_hold_where_the_tree_is_true(tree):
    table = LiteralTable()
    formula = table.formula(tree)
    code = None if isinstance(formula, Always) else jump_code(formula, str)
    for row in ROWS:
        wanted = truth(tree, row) is True
        assert holds(formula, table, row) == wanted
        if code:
            assert runs(code, lambda each, row=row: holds(Literal(each), table, row)) == wanted
    assert len(set(table.tests)) == len(table.tests)


@given(trees(leaves=st.sampled_from([A, B, C])), st.data())
def test_formulas_are_monotone(tree, data):
    formula = LiteralTable().formula(tree)
    if isinstance(formula, Always):
        return
    code = jump_code(formula, lambda _: 0)
    few = data.draw(st.sets(st.sampled_from(literals_of(formula))))
    more = few | data.draw(st.sets(st.sampled_from(literals_of(formula))))
    assert not runs(code, few.__contains__) or runs(code, more.__contains__)


def test_literals_are_shared_by_all_rules():
    table = LiteralTable()
    first = table.formula(And((A, Not(B))))
    second = table.formula(Or((Not(B), A)))
    assert first == All((Literal(0), Literal(1)))
    assert second == Some((Literal(1), Literal(0)))
    assert list(table.literals) == [(0, TRUE), (1, FALSE)]
    assert table.formula(Is(A, FALSE | UNKNOWN)) == Literal(2)


@pytest.mark.parametrize(
    ("tree", "wanted"),
    [
        (Constant(None), Always(False)),
        (Not(Constant(None)), Always(False)),
        (Is(Constant(None), UNKNOWN), Always(True)),
        (Is(A, 0), Always(False)),
        (Is(A, 7), Always(True)),
        (Not(Is(A, 7)), Always(False)),
        (Is(Is(A, TRUE), UNKNOWN), Always(False)),
        (And((A, Constant(False))), Always(False)),
        (Or((A, Constant(True))), Always(True)),
        (Or((A, Constant(None))), Literal(0)),
        (And((A, Constant(None))), Always(False)),
        (And((A, A)), Literal(0)),
        (And((And((A, B)), C)), All((Literal(0), Literal(1), Literal(2)))),
        (Not(Or((A, Or((B, C))))), All((Literal(0), Literal(1), Literal(2)))),
    ],
)
def test_what_decides_nothing_is_left_out(tree, wanted):
    assert LiteralTable().formula(tree) == wanted


def test_flat_and_neutral():
    one, two = Literal(1), Literal(2)
    assert all_of([]) == Always(True)
    assert some_of([]) == Always(False)
    assert all_of([one, All((two, one))]) == All((one, two))
    assert some_of([Always(False), one]) == one
    assert literals_of(Some((two, All((one, two))))) == (2, 1)
    assert literals_of(Always(True)) == ()


def test_code_asks_the_cheap_first():
    formula = All((Literal(0), Some((Literal(1), Literal(2)))))
    costs = {0: 100.0, 1: 2.0, 2: 1.0}
    code = jump_code(formula, lambda part: total_cost(part, costs.__getitem__))
    assert code == [(2, 2, 1), (1, 2, REJECT), (0, ACCEPT, REJECT)]


def test_packed():
    code = packed([[(7, -1, -2)], [], [(1, 1, -2), (2, -1, -2)]])
    assert code.starts.tolist() == [0, 1, 1, 3]
    assert code.literals.tolist() == [7, 1, 2]
    assert code.yes.tolist() == [-1, 1, -1]
    assert code.no.tolist() == [-2, -2, -2]
    assert packed([]).starts.tolist() == [0]
    assert all(column.flags.c_contiguous for column in code)
