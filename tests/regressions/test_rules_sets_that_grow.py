"""Sets of many rules cost time and memory by their size, not by its square.

Compiling made a list of the costs of all literals for each rule: 100,000 equality rules took five
minutes. What rules ask Python was a matrix of rules and tests: 20,000 rules with an expression each
took 400 MB to ship, and a batch took a matrix of pairs and tests (37 GB for 2,000 rules).
"""

from __future__ import annotations

import pickle
import time

import numpy as np
import pyarrow as pa
import pytest

from eddyline.query.conditions import Compare, Operand, Rule, ValueTest
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.planning.access_predicates import plan_of
from eddyline.sql.types import INT, STRING

N = Operand("`n`", INT, ("n",))
S = Operand("`s`", STRING, ("s",))


def equalities(count):
    return [Rule(f"r{at}", Compare(N, "=", at)) for at in range(count)]


def regexes(count):
    return [Rule(f"r{at}", ValueTest(S, "regex", f"^t{at}$")) for at in range(count)]


def spent(rules):
    started = time.process_time()
    compile_rules(rules)
    return time.process_time() - started


@pytest.mark.large
def test_compiling_eight_times_the_rules_takes_about_eight_times_as_long():
    compile_rules(equalities(10))  # what is loaded once is not counted
    few = min(spent(equalities(4_000)) for _ in range(2))
    assert spent(equalities(32_000)) < 24 * few  # 64 times and more if it were the square


@pytest.mark.large
@pytest.mark.parametrize("make", [equalities, regexes])
def test_a_program_grows_with_its_rules(make):
    few, many = (len(pickle.dumps(compile_rules(make(count)))) for count in (1_000, 8_000))
    assert many < 10 * few


def test_each_rule_asks_its_own_tests_only():
    program = compile_rules([*regexes(3), Rule("none", Compare(N, "=", 1))])
    pairs, tests = program.externals_of(np.array([2, 3, 0, 2], np.int32))
    assert (pairs.tolist(), tests.tolist()) == ([0, 2, 3], [2, 0, 2])
    assert program.rules_that_ask([0, 2]).tolist() == [0, 2]
    assert program.rules_that_ask([]).tolist() == []


def test_many_rules_with_an_expression_each_over_every_row():
    program = compile_rules(regexes(600))
    texts = pa.array([f"t{row}" for row in range(1_000)] + [None])
    matches, profile = Matcher(program, plan_of(program)).match([texts], n_rows=1_001)
    assert matches.rows.tolist() == matches.rules.tolist() == list(range(600))
    assert profile.asked.tolist() == [1_000] * 600  # a NULL is unknown without being asked
