"""Runs as they are followed, and what is said of their health."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eddyline.joins.view import JoinRecord
from eddyline.report.clock import ClockRecord
from eddyline.report.sections import RunView
from eddyline.rules.view import RuleRecord
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import (
    Backlog,
    BatchRecord,
    History,
    OrderRecord,
    Progress,
    coarser,
    event_times,
    numbers_of,
    read_progress,
)
from eddyline.serve.following import (
    ASK_EVERY_S,
    BACKLOG_EVERY_S,
    RECENT,
    Followed,
    Following,
    work_of,
)
from eddyline.serve.measures import Effects, cells, health, in_short
from eddyline.serve.runs import Failure
from tests.serve.fakes import FakeRun, FakeRuns

NOW = 1_790_000_100.0


def batches(n, *, seconds=0.5, start=0, n_rows=1000, **changes):
    return tuple(
        BatchRecord(at, n_rows, 10, seconds, NOW - n + at + 1.0, **changes)
        for at in range(start, start + n)
    )


def followed(run, now=NOW):
    found = Followed(run, lambda: now)
    found.refresh()
    return found


def run_of(of_batches, journal=()):
    return FakeRun(view=RunView("q", "", history=History(tuple(of_batches), tuple(journal))))


def test_totals_are_those_of_all_batches_and_the_newest_are_kept():
    run = run_of(batches(RECENT + 50))
    found = followed(run)
    assert (found.n_batches, found.n_rows, found.n_kept) == (170, 170_000, 1_700)
    assert len(found.recent) == RECENT
    run.add_batch(n_rows=5)
    found.refresh()
    found.refresh()
    assert (found.n_batches, found.n_rows) == (171, 170_005)


def test_batches_that_were_merged_meanwhile_count_once():
    run = run_of(batches(10))
    found = followed(run)
    merged = coarser(batches(40), 3, 5)
    assert any(each.n_batches > 1 and each.batch_id > 9 for each in merged)
    run.view = replace(run.view, history=History(tuple(merged)))
    found.refresh()
    assert (found.n_batches, found.n_rows) == (40, 40_000)


def test_changes_of_plans_are_counted_as_the_journal_has_them():
    changed = [JournalEntry(at, "arrow", "order", ["a"], ["b"]) for at in (2, 5)]
    others = [
        JournalEntry(6, "arrow", "stale"),
        JournalEntry(7, "arrow", "order", ["a"], ["b"], {"partition": 1}),
        JournalEntry(7, "run", "restore", None, {"arrow": ["a"]}),
    ]
    run = run_of(batches(10), [*changed, *others])
    found = followed(run)
    assert (found.n_changes, found.changed_after) == (2, 5)
    entries = (*run.view.history.journal, JournalEntry(10, "arrow", "order", ["b"], ["a"]))
    run.view = replace(run.view, history=replace(run.view.history, journal=entries))
    run.add_batch()
    found.refresh()
    assert (found.n_changes, found.changed_after) == (3, 10)


def test_the_end_of_a_run_is_seen_with_its_last_batches():
    run = run_of(batches(3))
    now = [NOW]
    found = Followed(run, lambda: now[0])
    found.refresh()
    assert found.state == "running"
    run.add_batch()
    run.end(Failure("SourceError", "no disk"))
    found.refresh()
    now[0] += ASK_EVERY_S
    found.refresh()
    assert (found.state, found.n_batches) == ("failed", 4)
    run.add_batch()  # it was started again
    found.refresh()
    assert found.state == "running"


def test_a_run_that_has_ended_before_anybody_looked_is_known_to_have():
    run = run_of(batches(3))
    run.end()
    assert followed(run).state == "ended"


def test_another_run_of_the_name_takes_its_place():
    first, second = run_of(batches(3)), run_of(batches(1))
    source = FakeRuns(first)
    now = [NOW]
    following = Following(source, lambda: now[0])
    (before,) = following.look().values()
    source.known = [second]
    now[0] += 1.0
    (after,) = following.look().values()
    assert (before.key, before.n_batches) == (after.key, 3)
    assert after.n_batches == 1


def test_runs_that_nobody_looks_at_are_asked_nothing():
    run = run_of(batches(3))
    run.records_after = run.is_running = run.decisions = None
    Following(FakeRuns(run)).note()


def test_work_is_summed_over_operators():
    orders = (
        OrderRecord("native", ("a",), (0,), (0.5,), 100.0, 200.0, n_rows=10),
        OrderRecord("arrow", ("b",), (0,), (0.5,), 10.0, 50.0, n_rows=30),
    )
    work = work_of(BatchRecord(0, 10, 1, 1.0, operators=orders))
    assert work["n_priced"] == 40
    assert work["cost_ns"] == pytest.approx(10 * 100 + 30 * 10)
    assert work["saved_s"] == pytest.approx((10 * 100 + 30 * 40) / 1e9)
    assert work["as_written_ns"] == pytest.approx(10 * 200 + 30 * 50)


def said(run, now=NOW):
    return health(followed(run, now), now, values=False)


def test_a_run_is_well_until_something_stands_out():
    assert said(run_of(batches(30))).level == "good"


def test_rows_that_are_late_stand_out():
    late = JoinRecord(("s",), (5,), (100,), 7, 0)
    found = said(run_of([*batches(20), *batches(2, start=20, operators=(late,))]))
    assert found.level == "look"
    assert found.said == ("14 rows of the newest 10 batches came too late.",)


def test_rows_that_take_longer_than_usual_stand_out():
    found = said(run_of([*batches(30), *batches(10, start=30, seconds=1.5)]))
    assert found.said == ("A row takes 3 × as long in the newest 10 batches as in those before.",)


def test_a_run_that_says_nothing_for_long_stands_out():
    found = said(run_of(batches(30)), now=NOW + 600.0)
    assert found.said == ("No batch has ended for 10 min; usually one ends every 1 s.",)
    assert said(run_of(batches(30)), now=NOW + 50.0).level == "good"


def test_a_plan_that_costs_more_than_as_written_stands_out():
    dear = OrderRecord("arrow", ("a",), (0,), (0.5,), 300.0, 200.0)
    found = said(run_of(batches(30, operators=(dear,))))
    assert found.said == ("The plans in force cost 1.5 × what those as written would.",)


def test_rules_that_are_skipped_are_told_and_no_alarm():
    found = said(run_of(batches(3, operators=(RuleRecord(6, "all", 30, 7, n_skipped=2),))))
    assert found.level == "good"
    assert found.said == ("3,000 rows in 3 batches, 30 out.", "2 rules are skipped.")


def test_an_end_is_past_and_a_failure_is_bad():
    run = run_of(batches(3))
    run.end()
    assert said(run).level == "past"
    run.end(Failure("SourceError", "no disk"))
    assert (said(run).level, said(run).said) == ("bad", ("no disk",))


def test_only_batches_between_two_decisions_are_compared():
    entries = [JournalEntry(at, "arrow", "order", ["a"], ["b"]) for at in (9, 14, 40)]
    took = [*batches(10, seconds=4.0), *batches(5, start=10, seconds=2.0)]
    took += batches(26, start=15, seconds=1.0)
    effects = Effects(took, entries)
    assert effects.of(entries[1]) == (
        "A row took 2 ms before (5 batches of 2 s) and 1 ms after (10 of 1 s): 2 × less."
    )
    assert effects.of(JournalEntry(14, "arrow", "stale")) == ""
    assert effects.of(entries[2]) == "No batch to compare with has run yet."


def test_the_first_batch_is_not_compared_with():
    first = JournalEntry(0, "arrow", "order", ["a"], ["b"])
    assert Effects(batches(5), [first]).of(first).startswith("Only the first batch with rows ran")
    assert in_short(Effects(batches(5), [first]).of(first)) == ""


def test_the_first_batch_with_rows_warms_up():
    took = [*batches(2, n_rows=0), *batches(4, start=2)]
    entry = JournalEntry(2, "arrow", "order", ["a"], ["b"])
    assert Effects(took, [entry]).of(entry).startswith("Only the first batch with rows ran")


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ({"n": 3}, {"n": 9}, "(9 of 500 ms), too few batches to judge."),  # the first warms up
        ({"n": 6}, {"n": 2}, "(2 of 500 ms), too few batches to judge."),
        (
            {"n": 6, "n_rows": 30_000},
            {"n": 6},
            "(6 of 500 ms), which is not judged: batches had 30,000 and 1,000 rows.",
        ),
    ],
)
def test_what_cannot_be_judged_is_no_effect(before, after, why):
    took = [*batches(**before), *batches(**after, start=before["n"])]
    entry = JournalEntry(before["n"] - 1, "arrow", "order", ["a"], ["b"])
    found = Effects(took, [entry]).of(entry)
    assert found.startswith("A row took ")
    assert found.endswith(why)
    assert in_short(found) == ""


def test_a_decision_in_few_words():
    entry = JournalEntry(4, "arrow", "order", ["a"], ["b"])
    took = [*batches(5, seconds=3.0), *batches(5, start=5, seconds=1.0)]
    assert in_short(Effects(took, [entry]).of(entry)) == "a row took 3 × less time"


def test_what_plans_saved_is_summed_over_the_run():
    order = OrderRecord("arrow", ("a",), (0,), (0.5,), 1e5, 3e5, n_rows=1000)
    found = followed(run_of(batches(10, operators=(order,))))
    assert found.work["saved_s"] == pytest.approx(2.0)
    assert cells(found)["saved"] == "2 s"
    assert cells(found)["saved-of"] == "of work; batches took 5 s"
    assert cells(followed(run_of(batches(3))))["saved"] == "-"
    uncounted = replace(order, n_rows=0)
    assert cells(followed(run_of(batches(3, operators=(uncounted,)))))["saved"] == "-"


def test_runs_stay_where_their_source_cannot_tell_for_a_while():
    class Source(FakeRuns):
        is_broken = False

        def runs(self):
            if self.is_broken:
                raise PermissionError
            return super().runs()

    source = Source(FakeRun("caf\udce9"), FakeRun("other"))
    following = Following(source, lambda: NOW)
    assert len(following.look()) == 2
    source.is_broken = True
    following.note()
    later = Following(source, lambda: NOW)
    assert later.look() == {}
    assert [each.name for each in following.known()] == ["caf\udce9", "other"]


def test_a_run_whose_name_is_known_later_is_one_run():
    run = FakeRun("folder", place="/data/folder")
    following = Following(FakeRuns(run, FakeRun("folder")), lambda: NOW)
    following.note()
    run.name = "attacks"
    following.note()
    assert sorted(each.name for each in following.known()) == ["attacks", "folder"]


def test_the_backlog_is_asked_for_seldom_and_only_of_a_query_that_runs():
    run, now = run_of(batches(3)), [NOW]
    run.n_asked = 0

    def backlog():
        run.n_asked += 1
        return Backlog(run.n_asked)

    run.backlog = backlog
    found = Followed(run, lambda: now[0])
    found.refresh()
    assert run.n_asked == 0, "nobody has looked"
    assert [found.backlog() for _ in range(3)] == [Backlog(1)] * 3
    now[0] += 1000 * BACKLOG_EVERY_S
    assert found.backlog() == Backlog(2)
    run.end()
    now[0] += 1000 * BACKLOG_EVERY_S
    found.refresh()
    assert found.backlog().n_rows is None
    assert run.n_asked == 2


def test_event_times_outlive_the_process_and_older_records_have_none(tmp_path):
    newest, low = 1_700_000_000_000_001, 1_699_999_990_000_000
    clock = ClockRecord(0, reached=(newest, low))
    join = JoinRecord((), (), (), 0, 0, reached=(newest + 1, None))
    cases = (((clock,), (newest, low)), ((clock, join), (newest + 1, None)), ((), (None, None)))
    path = tmp_path / "progress.jsonl"
    progress = Progress(path)
    for number, (operators, _) in enumerate(cases):
        progress.add(BatchRecord(number, 1, 1, 0.5, 0.0, operators))
    for records in (progress.records, read_progress(path)):
        numbers = (numbers_of(each.operators, each.n_rows).values() for each in records)
        assert list(map(event_times, numbers)) == [reached for _, reached in cases]
