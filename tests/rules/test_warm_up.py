"""What is loaded ahead is what batches call: no kernel is compiled for other arguments later."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eddyline.options import SharingOptions
from eddyline.query.conditions import And, Compare, Operand, Or, Rule, TextTest
from eddyline.rules import warm_up as rule_kernels
from eddyline.rules.choice import RuleChoice
from eddyline.rules.compile import patterns
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.match import bitmap_kernels, pair_kernels
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.planning import sequence_learning
from eddyline.rules.warm_up import load_kernels
from eddyline.sql.regexes import ANY, Wild
from eddyline.sql.types import INT, STRING

A, B, S = Operand("a", INT), Operand("b", INT), Operand("s", STRING)

KERNELS = [
    patterns.grow_trie,
    patterns.link_failures,
    patterns.scan,
    bitmap_kernels.regions,
    bitmap_kernels.select_macro,
    sequence_learning.best_path,
    sequence_learning.subset_visits,
    pair_kernels.candidates,
    pair_kernels.decide,
    bitmap_kernels.regions_of,
]


def has(text):
    return TextTest(S, (Wild(ANY), text, Wild(ANY)), folded=True)


def signatures():
    return [tuple(each.dispatcher.signatures) for each in KERNELS]


@pytest.mark.parametrize("method", ["auto", "witnesses", "blocks"])
def test_batches_find_the_kernels_loaded(method):
    load_kernels()
    before = signatures()
    assert all(before)
    rules = [
        Rule("number", And((Compare(A, ">", 1), Compare(B, "=", 3))), ""),
        Rule("text", And((has("x"), has("yz"))), ""),
        Rule("either", Or((TextTest(S, ("q", Wild(ANY)), folded=True), Compare(A, "<", 0))), ""),
    ]
    columns = {
        "a": pa.array([1, None, 2] * 300, pa.int32()),
        "b": pa.array([3] * 900, pa.int32()),
        "s": pa.array(["xyz", "Q", None] * 300),
    }
    program = compile_rules(rules)
    loop = RuleChoice(program, SharingOptions(method=method).resolved())
    matcher = Matcher(program, loop.sharing)
    batch = [columns[name] for name in program.columns]
    for _ in range(2):
        found, seen = matcher.match(batch, n_rows=900, sample=np.arange(900))
        loop.step(seen)
        matcher.follow(loop.sharing)
        pairs = list(zip(found.rows[:4].tolist(), found.rules[:4].tolist(), strict=True))
        assert pairs == [(0, 1), (1, 2), (2, 0), (3, 1)]
    assert signatures() == before


@pytest.mark.parametrize("first", [0, 1, 7])
def test_whatever_comes_first_all_is_loaded(first, monkeypatch):
    asked = []
    monkeypatch.setattr(rule_kernels, "_run", lambda method, tree: asked.append(method))
    load_kernels(first)
    assert sorted(asked) == ["blocks", "witnesses"]
    assert asked[0] == ["witnesses", "blocks"][first % 2]
