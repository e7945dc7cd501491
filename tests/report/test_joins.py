"""Joins in words and figures, with what constraints keep cold: from values, without Spark."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from eddyline.constraints.bounds import LearnedBound
from eddyline.joins.arrival_order import ClusterView
from eddyline.joins.leaving import InputDiscards, Period
from eddyline.joins.tables import DropView
from eddyline.joins.tiers import DoneRows, TierView
from eddyline.joins.view import CacheView, PipelineView, ProbeView
from eddyline.report.joins import holding_back
from eddyline.report.sections import sections_json
from eddyline.report.terminal import ProgressLine, batch_line
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import BatchRecord
from tests.report.fakes import (
    CUT,
    MINUTE,
    T0,
    a_fresh_join,
    a_join_record,
    a_join_run,
    a_join_view,
    a_table,
    an_input,
    run_of,
    sections_of,
    told,
)
from tests.report.pages import figures_of, own_part, page_of

NAN = float("nan")
KEPT, RESULTS, LATE = (
    "Rows in the windows",
    "Combinations found per batch",
    "Late rows per batch",
)


def line_of(text, start):
    """Return the only line that starts so, its words set apart by one space."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    (line,) = [line for line in lines if line.startswith(start)]
    return line


def test_everything_is_told():
    text = told(a_join_view(), CUT, width=140)
    assert text.startswith("paid orders\nJoin of 3 inputs, ISTREAM: each result is emitted once")
    assert "Keys: o.id = p.order_id; o.country = geo.code." in text
    assert "4 × 2 = 8 buckets; in the newest batch the fullest had 1.31 × the mean" in text
    assert "12,345 combinations of rows found" in text
    assert line_of(text, "o (all o)") == "o (all o) RANGE 10 MINUTES 1,200 1,100 37 5"
    assert line_of(text, "o 400") == "o 400 12.3 MB 24 2023-11-14 22:13:20"
    assert "pipelines: orders are learned" in text
    assert line_of(text, "o geo 1") == "o geo 1 2 1,000 800 20.0 % 3 µs"
    assert line_of(text, "o p 2") == "o p 2 1 800 77 - 10 ns"
    cached = "o p ⋈ geo 1,000 90.0 % 1.2 ms 300 µs 45 kB"
    assert line_of(text, "o p ⋈ geo") == cached
    assert "last change: join grid, after batch 4" in text
    assert "8 × 1" in text
    assert "• a note" in text


def test_what_a_table_has_not_is_a_dash():
    text = told(a_join_view(), width=140)
    assert line_of(text, "geo static") == "geo static - 50 - -"
    assert line_of(text, "geo 60") == "geo 60 2 kB 1 -"


def test_what_is_not_known_is_a_dash_never_zero():
    text = told(a_fresh_join(), width=140)
    assert "No row arrived." in text
    assert "fullest" not in text
    assert "holds back" not in text
    assert "pipelines: one window each, nothing to order" in text
    assert line_of(text, "o p 1") == "o p 1 1 0 0 - -"
    assert line_of(text, "o 0") == "o 0 0 B 0 -"
    assert "nan" not in text
    assert "cache" not in text
    asked_never = CacheView("o", ("p",), 0, 0, NAN, NAN, 0)
    text = told(a_join_view(caches=(asked_never,), fullest=NAN), width=140)
    assert line_of(text, "o p 0") == "o p 0 - - - 0 B"
    assert "nan" not in text


def test_a_cache_that_may_lack_rows_is_told_with_its_partners():
    cache = CacheView("o", ("p", "geo"), 10, 5, 1e6, 1e5, 100, ("o",))
    assert "(p ⋈ geo) ⋉ o" in told(a_join_view(caches=(cache,)), width=140)


@pytest.mark.parametrize("width", [24, 40, 60, 80, 100, 140, 300])
def test_no_number_is_cut_off(width):
    text = told(a_join_view(), width=width)
    assert max(map(len, text.splitlines())) <= width
    joined = " ".join(text.split())
    for number in ("1,200", "1,100", "37", "12.3 MB", "2023-11-14 22:11:20", "77", "1.2 ms"):
        assert number in joined
    assert "…" not in text


def test_long_tables_say_what_is_left_out():
    inputs = tuple(an_input(f"input_{at}") for at in range(30))
    text = told(a_join_view(inputs=inputs), width=160, max_rows=4)
    assert "… 26 more" in text
    assert "input_3" in text
    assert "input_4" not in text
    assert "… 26 more" in told(a_join_view(inputs=inputs), width=40, max_rows=4)


def test_the_stream_that_holds_back_is_named():
    (said,) = holding_back(a_join_view())
    assert said.startswith("p holds back expiry: its rows are awaited from 2023-11-14 22:10:20 UTC")
    assert "2 min before those of any other stream" in said
    assert said in " ".join(told(a_join_view(), width=80).split())


def test_lateness_counts_for_who_holds_back():
    # The latest row of o is the newer one, but its stream may be an hour late.
    late = an_input("o", latest=T0, awaited_from=T0 - 60 * MINUTE)
    other = an_input("p", latest=T0 - MINUTE, awaited_from=T0 - MINUTE)
    (said,) = holding_back(a_join_view(inputs=(late, other)))
    assert said.startswith("o holds back expiry")
    assert "59 min before" in said


def test_rows_that_wait_are_told():
    view = a_join_view(inputs=(an_input("o", n_waiting=1_234), an_input("p"), a_table("geo")))
    assert "Rows that wait until no earlier one can come: o 1,234." in told(view)
    assert "wait until" not in told(a_join_view())


def test_one_bucket_is_as_full_as_the_mean():
    text = told(a_join_view(grid=(1, 1), fullest=1.0))
    assert "1 × 1 = 1 bucket." in text
    assert "fullest" not in text.split("inputs")[0]


def test_keys_that_are_cut_by_event_time_are_told():
    text = told(a_join_view(splits=("o in 2, p in 4",)))
    assert "8 buckets, those of 1 frequent key cut by event time, too (o in 2, p in 4)" in text
    assert "those of 2 frequent keys" in told(a_join_view(splits=("o in 2", "p in 8")))
    assert "frequent" not in told(a_join_view())


@pytest.mark.parametrize(
    "inputs",
    [
        (an_input("o"), an_input("p")),  # level with each other
        (an_input("o"), a_table("geo")),  # one stream alone
        (an_input("o"), an_input("p", awaited_from=None), an_input("q", awaited_from=T0)),
    ],
)
def test_no_stream_is_named_that_holds_back_nothing(inputs):
    assert holding_back(a_join_view(inputs=inputs)) == []


def test_long_names_are_clipped():
    name = "x" * 300
    long = an_input(name, stream=name, window=name)
    view = a_join_view(
        inputs=(long, an_input("p")),
        pipelines=(PipelineView(name, (ProbeView(name, 1, 1, 1, 0.5),), (name,)),),
        caches=(CacheView(name, (name,), 1, 1, 1.0, 1.0, 1),),
    )
    assert "x" * 41 not in told(view, width=400)


def test_an_event_time_that_no_calendar_has_is_a_number():
    view = a_join_view(inputs=(an_input("o", latest=2**62), an_input("p", latest=-1)))
    text = told(view, width=200)
    assert f"{2**62:,} µs" in text
    assert "1969-12-31 23:59:59.999999" in text


def test_the_facts_are_plain_values():
    found = sections_json(sections_of(a_fresh_join()))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    tables = {
        each["title"]: [part["rows"] for part in each["parts"] if part["kind"] == "table"]
        for each in found
    }
    assert tables["pipelines: one window each, nothing to order"][0][0][6] is None
    assert tables["inputs"][0][0][2] == 0
    changed = sections_json(sections_of(a_join_view(), CUT))
    (last,) = [each for each in changed if each["title"].startswith("last change")]
    assert last["parts"][0]["pairs"][1] == ["after", "4 × 2"]


# -- progress -----------------------------------------------------------------------------------


def test_a_batch_says_results_and_late_rows():
    line = batch_line(a_join_run().history.batches[2])
    assert "1,000 rows in 500 ms" in line
    assert "  492 out  " in line
    assert "2 late" in line
    assert "windows 1,800 rows, 144 kB" in line
    assert "pipeline o: p → geo" in line
    before, after = a_join_run().history.batches[2:4]
    assert "late" not in batch_line(after, before.lines)
    assert "windows 2,400 rows" in batch_line(after, before.lines)
    assert "pipeline o" not in batch_line(after, before.lines), "said before"


@pytest.mark.parametrize("width", [40, 120])
def test_progress_sums_what_a_join_did(width):
    console = Console(file=StringIO(), width=width, force_terminal=True, color_system=None)
    with ProgressLine("paid", console=console) as progress:
        for record in a_join_run(6).history.batches:
            progress.update(record)
    assert (progress.n_rows, progress.n_kept) == (6_000, 2_955)
    last = console.file.getvalue().rsplit("✔", 1)[1]
    if width == 120:
        assert "6,000 in 6 batches, 2,955 out (49.2 %)" in last
        assert "2 late" in last
        assert "3,600 rows, 288 kB: geo 1,800, p 1,200, o 600" in last
    assert max(map(len, last.splitlines())) <= width + len("\x1b[?25h")


# -- the report ---------------------------------------------------------------------------------


def test_the_report_has_the_facts_and_figures_of_a_join(tmp_path):
    page = own_part(page_of(a_join_run(), tmp_path))
    for part in (
        "RANGE 10 MINUTES",
        "o.country = geo.code",
        "p holds back expiry",
        "Late rows",
        "Caches of joined rows",
        "p ⋈ geo",
        "Order of pipeline o: 2 windows",
        "of those that reach a window",
        "The orders of 1 pipeline changed 1 time.",
        "Last change: pipeline o order, after batch 4",
    ):
        assert part in page
    figures = figures_of(page)
    assert set(figures) == {
        KEPT,
        "Size of the windows",
        "Order in force",
        "Rows without a partner, of those that reach a window",
        "Expected cost per row, in force and as written (grey)",
        "Rows per second",
        RESULTS,
        LATE,
    }
    kept = {line["name"]: line["y"] for line in figures[KEPT]["data"]}
    assert kept["geo"][:3] == [300, 600, 900]
    assert figures[LATE]["data"][0]["y"][:4] == [0, 1, 2, 0]
    assert figures[RESULTS]["data"][0]["y"][-1] == 511


def test_no_late_row_needs_no_figure(tmp_path):
    batches = tuple(
        replace(each, operators=(each.operators[0], replace(each.operators[1], n_late=0)))
        for each in a_join_run(4).history.batches
    )
    figures = figures_of(page_of(run_of(a_join_view(), batches), tmp_path))
    assert LATE not in figures
    assert RESULTS in figures


def test_a_join_without_batches_or_rows(tmp_path):
    page = page_of(a_join_run(0, a_fresh_join()), tmp_path)
    assert "No row arrived." in page
    assert figures_of(page) == {}
    assert "nan" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    empty = tuple(
        BatchRecord(at, 0, 0, NAN, operators=(a_join_record(at, ("o", "p")),)) for at in range(2)
    )
    assert KEPT in figures_of(page_of(run_of(a_fresh_join(), empty), tmp_path))


def test_batches_from_before_joins_were_recorded(tmp_path):
    known = BatchRecord(1, 10, 1, 0.1, operators=(a_join_record(1),))
    run = run_of(a_join_view(), (BatchRecord(0, 10, 1, 0.1), known))
    figures = figures_of(page_of(run, tmp_path))
    assert figures[KEPT]["data"][0]["y"] == [None, 200]
    assert figures[RESULTS]["data"][0]["y"] == [None, 501]


def test_tables_of_many_inputs_are_cut_and_figures_are_not(tmp_path):
    inputs = tuple(an_input(f"input {at}") for at in range(46))
    page = page_of(a_join_run(3, a_join_view(inputs=inputs)), tmp_path)
    assert "Shown are 30 of 46." in page
    assert len(figures_of(page)[KEPT]["data"]) == 46


def test_a_long_run_is_thinned_and_keeps_the_last_state_of_a_point(tmp_path):
    page = page_of(a_join_run(2_500), tmp_path)
    assert "2,500 batches as 834 points of up to 3 batches each" in page
    assert len(own_part(page)) < 400_000
    figures = figures_of(page)
    assert {len(trace["x"]) for each in figures.values() for trace in each["data"]} == {834}
    (kept,) = [line for line in figures[KEPT]["data"] if line["name"] == "o"]
    assert len(kept["y"]) == 834
    assert kept["y"][0] == 300
    assert figures[RESULTS]["data"][0]["y"][0] == 501  # the mean of three batches


TIERS = (
    TierView("o", 12_000_000, LearnedBound(0.999, 11_000_000, n_rows=40_000), 7),
    TierView("p", None, LearnedBound(0.999, 0), 0),
)
DONE = {
    ("matched", "o"): DoneRows(True, 100, 85, saved_ns=5e9, cost_ns=2e9, n_left=3_000),
    ("passed", "p"): DoneRows(False, 100, 10),
}
CLUSTERS = (
    ClusterView("o", 0, LearnedBound(0.999, 3_000_000, n_rows=5_000, n_beyond=2), is_used=True),
    ClusterView("p", 0, LearnedBound(0.999, 0), is_used=False),
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
        "products": ("results",),
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
    known = InputDiscards((Period(0, 40_000, 11_000_000),), 40_000, 12_000_000, **said)
    discards = {"o": known, "p": InputDiscards()}
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
