"""Constraints of a join in words and figures: from values, without Spark."""

from __future__ import annotations

from dataclasses import replace

from eddyline.joins.arrival_order import ClusterView
from eddyline.joins.discards import DiscardView
from eddyline.joins.done import DoneView
from eddyline.joins.tables import DropView
from eddyline.joins.tiers import TierView
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import BatchRecord
from eddyline.watch.sections import sections_json
from tests.watch.fakes import (
    a_join_record,
    a_join_run,
    a_join_view,
    an_input,
    run_of,
    sections_of,
    told,
)
from tests.watch.pages import figures_of, page_of

TIERS = (
    TierView("o", 12_000_000, 11_000_000, 40_000, 7),
    TierView("p", None, 0, 0, 0),
)
DONE = (
    DoneView("o", "matched", True, 0.85, 3_000, 5e9, 2e9),
    DoneView("p", "passed", False, 0.1, 0, 0.0, 0.0),
)
CLUSTERS = (
    ClusterView("o", 0, 3_000_000, 5_000, 2, is_used=True),
    ClusterView("p", 0, 0, 0, 0, is_used=False),
)
COLD, WITHIN, FOUND = "Rows in the cold tiers", "Partners within", "Pairs found cold so far"
CLOSES = "Rows of a key within"


def a_view(**changes):
    inputs = (an_input("o", n_cold=3_600, cold_bytes=7_000_000), an_input("p"))
    return a_join_view(inputs=inputs, tiers=TIERS, done=DONE, clusters=CLUSTERS, **changes)


def a_run(n_batches=4):
    """Return a run in whose first batch nothing is known, and in the others more each."""
    batches = []
    for at in range(n_batches):
        known = {"cold_rows": (900 * at, 0), "within_us": (1_000_000 * at, None)}
        known["closes_us"] = (None, 2_000_000 * at)
        record = replace(a_join_record(at, ("o", "p")), n_cold=900 * at, cold_bytes=10, **known)
        record = replace(record, n_found_cold=2 * at)
        batches.append(BatchRecord(at, 1_000, 490, 0.5, 1_790_000_000.0 + at, (record,), ()))
    return run_of(a_view(), tuple(batches), (), text="SELECT …", settings={})


def test_what_is_cold_and_what_it_brings_is_told():
    text = " ".join(told(a_view(), width=200).split())
    assert "3,600 rows of the windows are cold, 81.8 % of them: 7 MB that are read for keys" in text
    assert "7 of 40,000 pairs were found there, and none is missed." in text
    assert "Rows that leave once they are done spare 5 s of merges of late, and take 2 s." in text


def test_tiers_have_rows_and_bytes_hot_and_cold_with_their_evidence():
    (section,) = [each for each in sections_json(sections_of(a_view())) if "cold size" in str(each)]
    table = next(each for each in section["parts"] if "cold size" in str(each))
    hot = (400, 12_345_678)
    first, second = table["rows"]
    assert tuple(first[1:]) == ("12 s", "11 s", 40_000, *hot, 3_600, 7_000_000, 7, 7 / 40_000)
    assert tuple(second[1:4]) == ("all rows", "-", 0)
    assert tuple(second[4:9]) == (*hot, 0, 0, 0)


def test_clusters_have_their_k_and_what_it_was_learned_of():
    sections = sections_json(sections_of(a_view()))
    tables = [part for each in sections for part in each["parts"] if "rows within" in str(part)]
    (table,) = tables
    first, second = table["rows"]
    assert tuple(first[2:]) == ("3 s", "yes", 5_000, 2)
    assert tuple(second[2:]) == ("-", "no", 0, 0)


def test_what_tables_drop_is_told_where_rows_are_shuffled():
    drops = (DropView("o", ("geo",), is_dropping=True, share=0.25, n_dropped=3_000),)
    text = " ".join(told(a_join_view(drops=drops), width=200).split())
    assert "o whose key geo has not are dropped before the shuffle: 3,000 so far" in text
    assert "shuffle" not in told(a_join_view(drops=drops, way="broadcast"))


def test_the_last_change_is_one_of_a_plan_and_says_which():
    changes = {
        "constraints": ("kept", "closed"),
        "tables": ("way",),
        "table filter": ("filtered",),
    }
    missed = JournalEntry(9, "constraints", "missed", "o at most 0 missed", "o at most 5 missed")
    for component, events in changes.items():
        for event in events:
            entry = JournalEntry(3, component, event, "one", "another")
            text = told(a_join_view(), entry, missed)
            assert f"last change: {component} {event}, after batch 3" in text


def test_no_row_cold_is_said_and_no_constraints_are_not():
    inputs = (an_input("o"), an_input("p"))
    assert "No row of the windows is cold so far." in told(a_join_view(inputs=inputs, tiers=TIERS))
    assert "cold" not in told(a_join_view())


def test_bounds_cold_rows_and_violations_are_drawn_over_the_batches(tmp_path):
    drawn = figures_of(page_of(a_run(), tmp_path))
    values = {
        title: {line["name"]: line["y"] for line in drawn[title]["data"]}
        for title in (COLD, WITHIN, CLOSES, FOUND)
    }
    assert values[COLD] == {"o": [0, 900, 1_800, 2_700], "p": [0, 0, 0, 0]}
    assert values[FOUND] == {"pairs": [0, 2, 4, 6]}
    assert values[WITHIN] == {"o": [0, 1, 2, 3], "p": [None] * 4}
    assert values[CLOSES] == {"o": [None] * 4, "p": [0, 2, 4, 6]}


def test_nothing_cold_and_records_from_before_draw_nothing(tmp_path):
    drawn = figures_of(page_of(a_run(1), tmp_path))
    assert not drawn.keys() & {COLD, WITHIN, FOUND}
    older = a_join_run(view=a_join_view(tiers=TIERS[:1]))
    assert not figures_of(page_of(older, tmp_path)).keys() & {COLD, WITHIN, FOUND}


def a_discarding_view(**counts):
    said = {"n_dropped": 5_000, "n_most": 130, "n_about": 41.4, "n_seen": 38} | counts
    discards = (
        DiscardView("o", 12_000_000, 11_000_000, 40_000, **said),
        DiscardView("p", None, 0, 0, 0, 0, 0.0, 0),
    )
    inputs = (an_input("o", dropped_bytes=7_000_000), an_input("p"))
    return a_join_view(inputs=inputs, discards=discards)


def test_what_was_dropped_and_what_is_missing_at_most_is_told():
    text = " ".join(told(a_discarding_view(), width=200).split())
    assert "Dropped as hardly asked for: 5,000 rows; 7 MB are kept of their keys." in text
    assert "Results missing for that: at most 130, about 41; found:" in text
    assert "Partners known to be missed: 38." in text
    nothing = told(a_discarding_view(n_most=0, n_about=0.0, n_seen=0), width=200)
    assert "No result is missing for that." in nothing
    assert "No row was dropped so far" in told(a_discarding_view(n_dropped=0))
    every = sections_json(sections_of(a_discarding_view()))
    (section,) = (each for each in every if "Results missing for" in str(each))
    table = next(each for each in section["parts"] if "missing at most" in str(each))
    first, second = table["rows"]
    assert tuple(first) == ("o", "12 s", "11 s", 5_000, 130, 41.4, 38)
    assert tuple(second[1:3]) == ("its window", "-")


def test_what_is_missing_is_drawn_and_counts_of_batches_add_up(tmp_path):
    each = replace(a_join_record(1, ("o", "p")), n_dropped=9, n_missing_at_most=4)
    each = replace(each, n_missing_about=1.5)
    batches = [BatchRecord(at, 1_000, 490, 0.5, 1_790_000_000.0 + at, (each,)) for at in range(3)]
    run = run_of(a_discarding_view(), tuple(batches), (), text="SELECT …", settings={})
    drawn = figures_of(page_of(run, tmp_path))["Results missing"]["data"]
    values = {line["name"]: line["y"] for line in drawn}
    assert values["at most"] == [4, 4, 4]
    assert values["about"] == [1.5, 1.5, 1.5]
    both = each.with_earlier(each, 0.5)
    assert (both.n_dropped, both.n_missing_at_most, both.n_missing_about) == (18, 8, 3.0)
    assert both.numbers(10).sums["n_missing_at_most"] == 8
    assert "n_missing_at_most" not in a_join_record(1, ("o", "p")).numbers(10).sums
