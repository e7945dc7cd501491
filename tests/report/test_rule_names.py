"""Rules where people read of them: titles with names, reasons, folded lists."""

from __future__ import annotations

from dataclasses import replace

from eddyline.query.conditions import SkippedRule
from eddyline.report.html import write_report
from eddyline.report.rules import headline, named
from eddyline.rules.view import RuleCount
from eddyline.runtime.journal import JournalEntry
from eddyline.sigma.rule import SkippedSigmaRule
from tests.report.fakes import run_of, told
from tests.report.test_rules import a_rule_view

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
