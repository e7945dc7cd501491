"""Sets of rules in words and figures: from values, without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from io import StringIO

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from eddyline.errors import StateError
from eddyline.options import SharingOptions
from eddyline.query.conditions import Operand, SkippedRule
from eddyline.query.predicates import predicate
from eddyline.query.rules.sources import rule_source
from eddyline.report import rules
from eddyline.report.html import write_report
from eddyline.report.rules import headline, named
from eddyline.report.terminal import ProgressLine, batch_line
from eddyline.rules.choice import RuleChoice
from eddyline.rules.compile.program import compile_rules
from eddyline.rules.compile.regions import HIGHEST, LOWEST, Ranks, RegionConstruct, interval
from eddyline.rules.description import rule_view
from eddyline.rules.match.matcher import Matcher
from eddyline.rules.planning.planner import plan_from
from eddyline.rules.view import RuleCount, RuleRecord, region_text
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import BatchRecord
from eddyline.sigma.rule import SkippedSigmaRule
from eddyline.sql.types import BOOLEAN, DATE, DOUBLE, INT, STRING, SqlType, decimal
from tests.report.fakes import run_of, told

COLUMNS = {"a": "int", "b": "double", "s": "string"}
EVIL = "<script>alert('x')</script>"
N = 1_000


def a_loop(n_rows=N, *, texts=None, **options):
    """Return a loop that has seen some rows."""
    odd = predicate(lambda a: a, reads=["a"], name="odd")  # never asked
    given = texts or {
        "low": "a < 5",
        "range": "a BETWEEN 100 AND 103 AND b > 0.5",
        "text": "s LIKE '%needle%'",
        "regex": "s RLIKE 'nee+dle[0-9]'",
        "never": "a = -1",
        EVIL: "s = 'whole' AND a = 7",
    }
    rules = [
        rule_source(name, text, {"odd": odd}).bind(COLUMNS, ansi=True)
        for name, text in given.items()
    ]
    program = compile_rules(rules)
    loop = RuleChoice(program, SharingOptions.of(**options).resolved())
    rng = np.random.default_rng(3)
    columns = {
        "`a`": pa.array(rng.integers(0, 1_000, n_rows), pa.int32()),
        "`b`": pa.array(rng.random(n_rows)),
        "`s`": pa.array([f"x{i} needle{i % 10}" if i % 50 == 0 else "y" for i in range(n_rows)]),
    }
    matcher = Matcher(program, loop.sharing)
    handed = [columns[each if each.startswith("`") else f"`{each}`"] for each in program.columns]
    _, seen = matcher.match(handed, n_rows=n_rows, sample=np.arange(n_rows))
    loop.step(seen)
    return loop


MOVED = JournalEntry(
    4,
    "rules",
    "sharing",
    "6 by an access predicate",
    "4 by an access predicate, 2 in 1 bitmap block",
    {"why": "a look"},
)
"""A plan that changed."""


def a_rule_view(**changes):
    skipped = (SkippedRule("odd one", f"rule 'odd one': unknown column {EVIL}", "q"),)
    view = rule_view("a set", a_loop(), skipped=skipped, notes=("a note",))
    return replace(view, **changes)


def test_one_row_is_one_row_in_words():
    text = told(rule_view("a set", a_loop(1, method="blocks")), width=110)
    assert "1 row evaluated" in text
    assert "Of 1 row, " in text
    assert "attributes looked at per row: " in text


def test_everything_is_told():
    text = told(a_rule_view(), MOVED, width=110)
    assert text.startswith("a set\n6 rules: ")
    assert "1,000 rows evaluated" in text
    assert "odd one" in text
    assert "`s`" in text
    assert "patterns" in text
    assert "regions" in text
    assert "Python" in text
    assert "`s` RLIKE 'nee+dle[0-9]'" in text
    assert "`s` LIKE '%needle%'" in text
    assert "never" in text
    assert "last change: rules sharing, after batch 4" in text
    assert "• a note" in text
    assert max(map(len, text.splitlines())) <= 110


def test_what_is_left_to_spark_is_told_and_why(tmp_path):
    texts = {f"sum {k}": f"a + 1 > {k}" for k in range(3)}
    texts |= {f"chance {k}": f"rand() > 0.{k} AND a = 1" for k in range(7)}
    rules = [rule_source(*each).bind(COLUMNS, ansi=True) for each in texts.items()]
    view = rule_view("some", RuleChoice(compile_rules(rules), SharingOptions().resolved()))
    assert [each.kind for each in view.constructs].count("errors") == 1
    assert view.tests == ()
    text = told(view, width=120)
    assert "try_add(`a`, 1)" in text
    assert "errors of a + 1" in text
    assert "7 tests are left to Spark, one column each" in text
    said = " ".join(text.split())
    assert "rand() > 0.0 AND a = 1 rand() is not deterministic chance 0 1" in said
    assert "… 2 more" in told(view, width=120, max_rows=5)
    one = rule_view("one", RuleChoice(compile_rules(rules[:4]), SharingOptions().resolved()))
    assert "1 test is left to Spark, a column of its own" in told(one)
    assert "left to Spark" not in told(a_rule_view())
    page = write_report(run_of(view), tmp_path / "report.html")
    assert "rand() is not deterministic" in page.read_text("utf-8")


def test_titles_stand_for_names():
    text = told(a_rule_view(titles={"never": "A rule that never fires"}), width=140)
    assert "A rule that never fires" in text


def test_nothing_known_and_no_rules():
    program = compile_rules([])
    loop = RuleChoice(program, SharingOptions().resolved())
    assert "No rule runs." in told(rule_view("none", loop))
    rule = rule_source("one", "a = 1").bind(COLUMNS, ansi=True)
    fresh = RuleChoice(compile_rules([rule]), SharingOptions().resolved())
    text = told(rule_view("fresh", fresh))
    assert "guessed: no rows were measured" in text
    assert "No row was evaluated." in text
    fixed = RuleChoice(compile_rules([rule]), SharingOptions(adaptive=False).resolved())
    assert "adaptation is switched off" in told(rule_view("fixed", fixed))


def test_counts_are_those_of_the_rows():
    view = rule_view("a set", a_loop())
    counts = {each.name: each for each in view.rules}
    assert counts["text"].n_matches == counts["regex"].n_matches == N // 50
    assert counts["never"].n_matches == 0
    assert all(each.n_met >= each.n_matches and each.n_rows == N for each in view.rules)
    asked = next(each for each in view.tests if "RLIKE" in each.text)
    assert asked.n_rows == N // 50  # only where what it needs was met
    assert asked.users == ("regex",)
    met = next(each for each in view.patterns if "needle" in each.text)
    assert met.share == pytest.approx(0.02)


def test_blocks_name_their_regions():
    texts = {f"r{i}": f"a > {5 * i} AND a <= {5 * i + 400} AND b < {0.1 * i}" for i in range(8)}
    loop = a_loop(texts=texts, method="blocks", sequence="hybrid")
    view = rule_view("blocks", loop)
    (block,) = view.blocks
    assert block.is_learned
    assert set(block.sequence[0].split(", ")) == {"`a`", "`b`"}
    text = told(view)
    assert "bitmap block of 8 rules" in text
    assert "learned order" in text


def construct(kind, constants=None):
    return RegionConstruct(Operand("v", kind), False, constants, np.zeros(0, np.int64))


@pytest.mark.parametrize(
    ("kind", "bounds", "want"),
    [
        (INT, (6, 10), "v in [6, 10]"),
        (INT, (6, 6), "v = 6"),
        (INT, (LOWEST, 5), "v <= 5"),
        (INT, (6, HIGHEST), "v >= 6"),
        (INT, (LOWEST, HIGHEST), "v is not NULL"),
        (INT, None, "v is NULL"),
        (BOOLEAN, (1, 1), "v = True"),
        (DATE, (0, 1), f"v in [{date(1970, 1, 1)}, {date(1970, 1, 2)}]"),
        (SqlType("decimal", "decimal(9,2)", precision=9, scale=2), (150, 275), "v in [1.50, 2.75]"),
    ],
)
def test_regions_in_words(kind, bounds, want):
    assert region_text(construct(kind), bounds) == want


def test_regions_of_floats_are_written_by_the_shorter_bound():
    ((low, _),) = interval(DOUBLE, ">", 5.0)
    ((_, high),) = interval(DOUBLE, "<=", 10.0)
    assert region_text(construct(DOUBLE), (low, high)) == "v in (5.0, 10.0]"
    ((_, below),) = interval(DOUBLE, "<", 0.1)
    assert region_text(construct(DOUBLE), (LOWEST, below)) == "v < 0.1"


def test_regions_of_texts_are_named():
    texts = construct(SqlType("string", "string"), ("x", "y", "z", "u", "w"))
    assert region_text(texts, (1, 1)) == "v = 'y'"
    assert region_text(texts, (LOWEST, -1)) == "v is any other text"
    assert region_text(texts, (0, 4)) == "v in ('x', 'y', 'z', 'u', … 1 more)"


@pytest.mark.parametrize(
    ("bounds", "want"),
    [
        (None, "is NULL"),
        ((LOWEST, 0), "< {}"),
        ((LOWEST, 1), "<= {}"),
        ((1, 1), "= {}"),
        ((1, 2), "in [{}, {})"),
        ((2, 2), "in ({}, {})"),
        ((2, 3), "in ({}, {}]"),
        ((1, 3), "in [{}, {}]"),
        ((3, HIGHEST), ">= {1}"),
        ((4, HIGHEST), "> {1}"),
        ((LOWEST, HIGHEST), "is not NULL"),
    ],
)
def test_regions_of_ranks(bounds, want):
    for kind, constants, shown in (
        (STRING, ("b", "ba"), ("'b'", "'ba'")),
        (decimal(38, 2), (-5, 10**37 + 1), ("-0.05", f"1{'0' * 35}.01")),
    ):
        ranked = RegionConstruct(
            Operand("v", kind), False, constants, np.arange(4), Ranks.from_constants(constants)
        )
        assert region_text(ranked, bounds) == f"v {want.format(*shown)}"


def test_the_report_escapes_what_users_wrote(tmp_path):
    view = a_rule_view(rules=(RuleCount(EVIL, 10, 5, 3), RuleCount("dead" + EVIL, 10, 5, 0)))
    record = RuleRecord(6, "4 by an access predicate", 30, 7)
    batches = tuple(BatchRecord(i, 1_000, 7, 0.5, 1.79e9 + i, (record,)) for i in range(3))
    run = run_of(view, batches, query="q " + EVIL, text="text " + EVIL)
    page = write_report(run, tmp_path / "report.html").read_text("utf-8")
    assert EVIL not in page
    assert "Rules by matches" in page
    assert "false candidates" not in page, "few rules are in one table"
    assert "Tests that Python decides" in page
    assert "1 rule is skipped" in page
    assert "Pairs of a row" not in page
    assert "Candidates per row" in page


def test_progress_says_how_rules_go():
    record = RuleRecord(1_183, "1,183 by an access predicate", 30, 7)
    batch = BatchRecord(0, 1_000, 5, 0.5, operators=(record,), lines=rules.lines(record))
    assert "7 matches" in batch_line(batch)
    assert "rules (1,183): 1,183 by an access predicate" in batch_line(batch)
    console = Console(force_terminal=False, width=200, record=True, file=StringIO())
    with ProgressLine("q", console=console) as line:
        line.update(batch)
        line.update(replace(batch, batch_id=1, operators=(replace(record, plan="another"),)))
        assert (
            "changed: batch 1, rules before: 1,183 by an access predicate" in console.export_text()
        )


# -- what was learned, as plain values ----------------------------------------------------------


def plain(plan):
    return json.loads(msgspec.json.encode(plan))


def test_a_plan_comes_back():
    for method in ("auto", "witnesses", "blocks", "every_row"):
        loop = a_loop(method=method, sequence="hybrid")
        assert plan_from(plain(loop.sharing), loop.blocks) == loop.sharing


def damaged():
    loop = a_loop(method="witnesses")
    state = plain(loop.plan)
    rule = next(at for at, each in enumerate(state["access_predicates"]) if each)
    other = next(
        at
        for at in range(len(loop.program.literals.kinds))
        if at not in state["access_predicates"][rule]
    )
    with_other = list(state["access_predicates"])
    with_other[rule] = [other]
    return loop, state, rule, with_other


def test_a_plan_that_could_change_an_answer_is_refused():
    loop, state, rule, wrong = damaged()
    block = {"rules": [rule], "sequence": None}
    without = [None if at == rule else each for at, each in enumerate(state["access_predicates"])]
    assert plan_from({**state, "access_predicates": without, "blocks": [block]}, loop.blocks)
    for bad in (
        {**state, "access_predicates": wrong},
        {**state, "access_predicates": state["access_predicates"][1:]},
        {**state, "blocks": [block]},  # the rule has an access predicate, too
        {**state, "access_predicates": without, "blocks": [block, block]},
        {**state, "access_predicates": without, "blocks": [{"rules": [99], "sequence": None}]},
        {**state, "access_predicates": [[10_000]] * len(wrong)},
        {"access_predicates": []},
        {},
    ):
        with pytest.raises(StateError, match="does not fit the rules"):
            plan_from(bad, loop.blocks)


TITLE = "A title that four rules have, and that is longer than a table is wide"
IDS = [f"{i}aaaaaaa-0000-4000-8000-000000000000" for i in range(40)]


def a_view_of(ids, **changes):
    counts = tuple(RuleCount(each, 10, 5, 0) for each in ids)
    return a_rule_view(rules=counts, titles=dict.fromkeys(ids, TITLE), **changes)


def test_rules_of_one_title_are_told_apart_by_what_is_short_and_unique():
    view = a_view_of(IDS[:2])
    said = [named(view, each, 50) for each in IDS[:2]]
    assert [each[-11:] for each in said] == [" (0aaaaaaa)"[-11:], " (1aaaaaaa)"[-11:]]
    assert all(len(each) <= 50 and each.startswith("A title") for each in said)
    alike = [IDS[0], IDS[0][:-1] + "1"]
    assert [named(a_view_of(alike), each, 60).split("(")[1] for each in alike] == [
        f"{each})" for each in alike
    ]
    assert named(view, IDS[0], 200, whole=True) == f"{TITLE} ({IDS[0]})"
    assert named(a_rule_view(), "never", 60) == "never"
    text = told(view, width=100)
    assert text.count("(0aaaaaaa)") == text.count("(1aaaaaaa)") == 1
    text = told(a_view_of(IDS), width=100, max_rows=5)
    assert text.count("(0aaaaaaa)") == 1, "false candidates"
    assert all(f"({each})" in text for each in IDS[:2]), "dead"


def test_carets_are_left_out_of_reasons():
    reason = "rule 'a': an operand is missing (line 1, column 3)\n  n > \n    ^"
    assert headline(reason) == "rule 'a': an operand is missing (line 1, column 3)"
    assert headline("two\nlines") == "two lines"
    skipped = (SkippedRule("a", reason), SkippedSigmaRule("b", "x.yml:3: no", "", "Bee"))
    text = told(a_rule_view(skipped=skipped), width=160)
    assert "a: rule 'a': an operand is missing (line 1, column 3)\n" in text
    assert "Bee (b): x.yml:3: no" in text
    assert "2 rules are skipped" in text


def test_patterns_that_show_no_rule_are_left_out():
    view = a_rule_view()
    assert view.patterns
    assert all(each.users and each.n_users for each in view.patterns)


PLAN = "3 by an access predicate"


def test_plans_that_read_alike_are_not_shown_as_a_change():
    entry = JournalEntry(4, "rules", "sharing", PLAN, PLAN, {})
    text = told(a_rule_view(), entry, width=120)
    assert "3 by an access predicate (the parts are others, or in another order)" in text
    assert "before" not in text


def test_the_report_folds_up_all_rules_without_a_match(tmp_path):
    view = replace(a_view_of(IDS), n_rules=len(IDS))
    entry = JournalEntry(4, "rules", "sharing", PLAN, PLAN, {})
    run = run_of(view, (), (entry,), text="\n".join(IDS))
    page = write_report(run, tmp_path / "report.html").read_text("utf-8")
    listed = page.partition("rules matched no row</h2>")[2].partition("</details>")[0]
    assert all(f"({each})" in listed for each in IDS)
    assert "<summary>40 lines</summary><pre>" in page
    assert "<dt>Access predicate</dt>" in page
    assert "the parts are others, or in another order:" in page
