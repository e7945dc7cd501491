"""The rows of the stream about the system, against the metrics of the same batches."""

from __future__ import annotations

import math
from collections import defaultdict

from eddyline.report.metrics import metrics_of
from eddyline.report.system import Row, entries_of, rows_of, state_rows
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import Backlog, BatchRecord, Counters, OrderRecord, StoredRecord
from tests.report.test_metrics import JOIN, ORDER, RECORDS

BATCHES = [
    BatchRecord(at, 100, 10 + at, 0.25 * (1 + at), 1_700_000_000.5 + at, RECORDS) for at in range(3)
]
ROWS = [row for batch in BATCHES for row in rows_of("q", batch)]


def test_sums_and_last_levels_are_the_metrics():
    counters = Counters()
    for batch in BATCHES:
        counters.count(batch)
    metrics = metrics_of(
        "q", counters, is_running=True, n_pinned=0, records=RECORDS, backlog=Backlog()
    )
    of_metrics = {(each.name, each.labels.get("component", "run")): each.value for each in metrics}
    of_metrics[("cost", "native")] = next(
        each.value for each in metrics if each.labels.get("plan") == "now"
    )
    sums, last = defaultdict(float), {}
    for row in ROWS:
        sums[row.component, row.entity, row.name] += row.value
        last[row.component, row.entity, row.name] = row.value
    whole = ("run", "batch")
    assert sums[*whole, "n_rows"] == of_metrics["eddyline_rows_in_total", "run"]
    assert sums[*whole, "n_kept"] == of_metrics["eddyline_rows_out_total", "run"]
    assert sums[*whole, "seconds"] == of_metrics["eddyline_batch_seconds", "run"]
    assert sums[*whole, "n_batches"] == of_metrics["eddyline_batches_total", "run"]
    assert sums["join", "join", "n_late"] == of_metrics["eddyline_late_rows_total", "join"]
    assert last["join", "join", "n_bytes"] == of_metrics["eddyline_state_bytes", "join"]
    assert last[*whole, "lag_s"] == of_metrics["eddyline_event_time_lag_seconds", "run"]
    assert last["native", "native", "cost_ns"] == of_metrics["cost", "native"]


def test_parts_of_a_component_have_rows_of_their_own():
    windows = {
        (row.entity, row.name): row.value
        for row in ROWS
        if row.component == "join" and row.entity != "join" and row.batch == 2
    }
    assert windows == {
        (name, kind): value
        for at, name in enumerate(JOIN.inputs)
        for kind, value in (("n_kept", JOIN.n_kept[at]), ("n_bytes", JOIN.n_bytes[at]))
    }
    filters = {
        (r.entity, r.name): r.value for r in ROWS if r.component == "native" and r.batch == 0
    }
    assert filters["b", "place"] == 1.0
    assert filters["a", "place"] == 2.0
    assert filters["a", "drop_frac"] == 0.5
    assert ("b", "drop_frac") not in filters  # it is nan: not known


def test_a_stored_record_gives_the_rows_of_its_record():
    whole = BATCHES[0]
    stored = BatchRecord(
        0,
        100,
        10,
        0.25,
        whole.ended_at,
        tuple(StoredRecord.from_record(each, 100) for each in RECORDS),
    )
    assert [*rows_of("q", stored)] == [*rows_of("q", whole)]
    assert StoredRecord.from_record(ORDER, 100).with_earlier(
        StoredRecord.from_record(ORDER, 50), 0.5
    ).parts == {
        "a": {"place": 2.0, "drop_frac": 0.5},
        "b": {"place": 1.0},
    }


def test_queries_that_run_together_have_their_own_rows_out():
    batch = BatchRecord(4, 9, 5, 0.1, 2.0, (), kept_by={"a": 2, "b": 3})
    kept = {row.query: row.value for row in rows_of("both", batch) if row.name == "n_kept"}
    assert kept == {"both": 5.0, "a": 2.0, "b": 3.0}


def test_nothing_but_numbers_becomes_a_row():
    batch = BatchRecord(0, 0, 0, math.nan, 1.0, (OrderRecord("x", (), (), (), math.nan, math.inf),))
    assert {(row.component, row.name) for row in rows_of("q", batch)} == {
        ("run", "n_rows"), ("run", "n_kept"), ("run", "n_batches"), ("x", "n_rows"),
        ("x", "n_evaluations"),
    }  # fmt: skip
    evidence = {"n": 3, "why": "text", "is_new": True, "cost": math.nan, "list": [1]}
    entry = JournalEntry(7, "native", "order", evidence=evidence, at="2026-01-02T03:04:05Z")
    at = 1_767_323_045_000_000
    assert [*entries_of("q", [entry])] == [
        Row(at, "q", 7, "native", "journal", "order", 1.0),
        Row(at, "q", 7, "native", "journal", "order.n", 3.0),
    ]


def test_a_failed_run_is_told_apart_from_one_that_ended():
    names = {
        status: [(row.name, row.value) for row in state_rows("q", 3, status, 1.0)]
        for status in ("running", "ended", "failed")
    }
    assert names == {
        "running": [("running", 1.0)],
        "ended": [("running", 0.0)],
        "failed": [("running", 0.0), ("failed", 1.0)],
    }
