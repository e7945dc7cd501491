"""However Arrow lays values out, and however far out they lie, the matches are the same.

Texts as views or dictionaries were refused by some of Arrow's functions, and constants at the end
of the whole numbers overflowed in the table of a block's regions.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eddyline.query.conditions import (
    And,
    Compare,
    FunctionTest,
    IsNull,
    Not,
    OneOf,
    Operand,
    Rule,
    TextTest,
    ValueTest,
)
from eddyline.query.predicates import FunctionPredicate
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.plan import BitmapBlockPlan, SharingPlan
from eddyline.rules.planning.access_predicates import plan_of
from eddyline.sql.regexes import ANY, Wild
from eddyline.sql.types import STRING, parse_type

S = Operand("`s`", STRING, ("s",))
N = Operand("`n`", parse_type("bigint"), ("n",))
LONGER = FunctionTest(FunctionPredicate(lambda s: [len(t) > 3 for t in s.to_pylist()], ("`s`",)))
RULES = (
    Rule("equal", Compare(S, "=", "Ab")),
    Rule("folded", TextTest(S, ("ÄB",), folded=False)),
    Rule("contains", TextTest(S, (Wild(ANY), "äb", Wild(ANY)), folded=True)),
    Rule("regex", And((Not(IsNull(S)), ValueTest(S, "regex", "b$")))),
    Rule("python", And((Not(IsNull(S)), LONGER))),
    Rule("null", IsNull(S)),
)
TEXTS = ("Ab", None, "xÄB", "", "ÄB", "zzzz", "Ab")
WANTED = [
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
    assert len(program.columns) == len(columns)
    found, _ = Matcher(program, plan(program)).match(columns, n_rows=n_rows, sample=sample)
    names = [[] for _ in range(n_rows)]
    for row, rule in zip(found.rows.tolist(), found.rules.tolist(), strict=True):
        names[row].append(program.names[rule])
    return names


def blocks_by_value(program):
    rules = tuple(np.flatnonzero(program.constant < 0).tolist())
    by_value = frozenset(range(len(program.texts)))
    return SharingPlan((None,) * program.n_rules, (BitmapBlockPlan(rules),), by_value)


@pytest.mark.parametrize("plan", [plan_of, blocks_by_value])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, plan):
    texts = LAYOUTS[layout](pa.array(TEXTS))
    assert matched(RULES, plan, [texts], len(TEXTS), np.arange(len(TEXTS))) == WANTED
    assert matched(RULES, plan, [texts[:0]], 0) == []


@pytest.mark.parametrize("plan", [plan_of, blocks_by_value])
@pytest.mark.filterwarnings("error")
def test_ends_of_the_whole_numbers(plan):
    low, high = -(2**63), 2**63 - 1
    rules = [
        Rule("highest", Compare(N, "=", high)),
        Rule("above", Compare(N, ">", high)),
        Rule("not lowest", Compare(N, ">", low)),
        Rule("lowest", Compare(N, "<=", low)),
        Rule("ends", OneOf(N, (low, high))),
        Rule("far", Compare(N, "<", 10**30)),
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
