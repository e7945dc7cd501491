"""One statement of Spark's, or the matcher: what may be stated, what costs less, what is told."""

from __future__ import annotations

from dataclasses import replace

import pyarrow.compute as pc
import pytest

import eddyline as el
from eddyline.errors import StateError
from eddyline.options import SharingOptions
from eddyline.query.predicates import as_predicate
from eddyline.query.rules.sources import PredicateRule, SqlRule
from eddyline.rules.choice import RuleChoice
from eddyline.rules.compile.bitmap_block import BitmapBlocks
from eddyline.rules.compile.program import MAX_STATED, compile_rules
from eddyline.rules.plan import SharingProfile
from eddyline.rules.planning.planner import MIN_MATCHED_ROWS, WayCosts, is_long, plan_from

COLUMNS = {"n": "int", "s": "string", "d": "double"}
ODD = el.predicate(lambda n: pc.equal(pc.bit_wise_and(n, 1), 1), reads=["n"], name="odd")


def program_of(*texts):
    rules = [SqlRule(f"r{k}", text, {"odd": ODD}) for k, text in enumerate(texts)]
    return compile_rules([each.bind(COLUMNS, ansi=True) for each in rules])


def loop_of(program, **options):
    return RuleChoice(program, SharingOptions(**options), may_be_stated=True)


FEW = program_of("n > 5 -- why", "s = 'a' OR NOT n < 3", "d <= n")
REGEXES = program_of(*(f"s RLIKE 'a.*{k}'" for k in range(MAX_STATED)))


@pytest.mark.parametrize(
    "text",
    [
        "odd(n)",
        "n > 5 AND odd(n)",
        "10 / n > 2",
        "CAST(s AS int) = 1 AND n > 5",
        "rand() < 0.5",
        "s = '${x}'",
    ],
)
def test_what_spark_may_not_evaluate_out_of_order_is_not_stated(text):
    assert program_of("n > 5").conditions
    assert program_of("n > 5", text).conditions == ()
    assert not loop_of(program_of(text), method="statement").sharing.is_statement


def test_conditions_are_the_texts_each_on_lines_of_its_own():
    assert FEW.conditions[0] == "(n > 5 -- why\n)"
    parts = tuple(map(as_predicate, ("n > 5 -- why", "s = 'a'")))
    both = PredicateRule("both", parts).bind(COLUMNS, ansi=True)
    free = PredicateRule("free", ()).bind(COLUMNS, ansi=True)
    found = compile_rules([both, free]).conditions
    assert found == ("(n > 5 -- why\n) AND (s = 'a'\n)", "(TRUE\n)")
    function = PredicateRule("f", (as_predicate("n > 5"), ODD)).bind(COLUMNS, ansi=True)
    assert compile_rules([function]).conditions == ()


def test_no_more_rules_are_stated_than_there_are_bits():
    texts = [f"n = {k}" for k in range(MAX_STATED + 1)]
    assert len(program_of(*texts[:-1]).conditions) == MAX_STATED
    assert program_of(*texts).conditions == ()
    assert program_of().conditions == ()
    assert is_long(program_of(*texts[:-1]))
    assert not is_long(FEW)


def test_the_cheaper_way_is_chosen_and_options_ask_for_one():
    assert loop_of(FEW).sharing.is_statement
    assert loop_of(FEW, adaptive=False).sharing.is_statement
    assert not loop_of(REGEXES).sharing.is_statement
    assert loop_of(REGEXES, method="statement").sharing.is_statement
    for method in ("witnesses", "blocks", "every_row"):
        assert not loop_of(FEW, method=method).sharing.is_statement
    task = RuleChoice(FEW, SharingOptions(method="statement"))
    assert not task.sharing.is_statement, "a task matches"
    # The plan of the matcher stands beside it, for what is not stated.
    assert replace(loop_of(FEW).sharing, is_statement=False) == task.sharing


def test_the_choice_is_journaled():
    (entry,) = loop_of(FEW).chosen_way(7)
    assert (entry.batch_id, entry.event) == (7, "sharing")
    assert entry.after == "3 in one statement of Spark's"
    assert entry.evidence["statement_ns"] < entry.evidence["matcher_ns"]
    for loop in (
        loop_of(FEW, method="statement"),
        loop_of(REGEXES),
        RuleChoice(FEW, SharingOptions()),
    ):
        assert loop.chosen_way(7) == []


def matched(program, row_ns, *, n_sampled=1_000):
    """Return what the matcher tells of rows that took so long."""
    seen = SharingProfile.empty(program)
    n_rows = MIN_MATCHED_ROWS
    return replace(seen, n_rows=n_rows, n_sampled=n_sampled, evaluation_ns=row_ns * n_rows)


def test_a_matcher_that_is_dear_gives_way_and_one_that_is_cheap_comes_back():
    loop = loop_of(REGEXES)
    statement_ns = int(WayCosts.from_program(REGEXES).statement_ns)
    (entry,) = loop.step(matched(REGEXES, 2 * statement_ns), 3)
    assert loop.sharing.is_statement
    assert (entry.event, entry.after) == ("sharing", "64 in one statement of Spark's")
    assert entry.evidence["matcher_ns"] > entry.evidence["statement_ns"] >= statement_ns - 1
    # A statement tells nothing of time.
    assert loop.step(SharingProfile.stated(REGEXES, [1] * MAX_STATED, None, 5), 4) == []
    assert loop.sharing.is_statement
    near = loop_of(REGEXES)
    near.step(matched(REGEXES, statement_ns), 3)
    assert not near.sharing.is_statement, "not for a small gain"


def test_what_statements_tell_adds_up():
    counted = SharingProfile.stated(FEW, [1, 0, 4], 100, 5)
    assert (counted.n_rows, counted.dropped, counted.n_uncounted) == (100, 95, 0)
    assert counted.candidates.tolist() == [5, 5, 5]
    every = SharingProfile.stated(FEW, [1, 0, 4], 100, None)
    assert (every.dropped, every.candidates.tolist()) == (0, [100, 100, 100])
    both = counted.merge(every, SharingProfile.stated(FEW, [0, 0, 0], None, 0))
    assert (both.n_rows, both.matches.tolist(), both.n_uncounted) == (200, [2, 0, 8], 1)
    loop = loop_of(FEW)
    for each in (counted, every):
        assert loop.step(each) == []
    assert loop.total.matches.tolist() == [2, 0, 8]
    assert loop.snapshot() is None, "nothing was measured"


def test_a_saved_plan_of_one_statement_is_of_rules_that_can_be_one():
    saved = {"access_predicates": [None] * 3, "is_statement": True}
    assert plan_from(saved, BitmapBlocks(FEW)).is_statement
    raising = program_of("n > 5", "s = 'a'", "10 / n > 2")
    with pytest.raises(StateError, match="cannot be one statement"):
        plan_from(saved, BitmapBlocks(raising))
