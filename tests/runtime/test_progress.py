from __future__ import annotations

import json
import math

import numpy as np
import pytest

from eddyline.errors import StateError
from eddyline.joins.view import JoinRecord
from eddyline.models.streams.view import ModelRecord
from eddyline.rules.view import RuleRecord
from eddyline.runtime.records import (
    BatchRecord,
    OrderRecord,
    Progress,
    StoredRecord,
    coarser,
    line_of,
    n_batches,
    read_progress,
    weighted,
)


def order_record(cost_ns=40.0, n_rows=0, n_evaluations=30, ids=("a", "b")):
    drops = (0.5, math.nan)
    return OrderRecord("arrow", ids, (1, 0), drops, cost_ns, 100.0, n_evaluations, n_rows)


def record(batch_id, n_rows=10, **given):
    joined = JoinRecord(("s", "t"), (batch_id, 1), (80 * batch_id, 80), 1, 5)
    operators = given.pop("operators", (order_record(n_rows=n_rows), joined))
    ended = 1_000.0 + 10.0 * batch_id
    return BatchRecord(batch_id, n_rows, 3, 0.5, ended, operators, ("a > b",), **given)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "eddyline" / "progress.jsonl"


def test_batches_come_back_as_plain_values(path):
    Progress(path).add(record(4))
    (back,) = read_progress(path)
    assert (back.batch_id, back.n_rows, back.n_kept, back.seconds) == (4, 10, 3, 0.5)
    assert (back.ended_at, back.began_at, back.lines) == (1_040.0, 1_039.5, ("a > b",))
    order, joined = back.operators
    assert order.plan == ["b", "a"]
    assert order.sums == {"n_rows": 10.0, "n_evaluations": 30.0, "saved_s": pytest.approx(6e-7)}
    assert order.levels == {"cost_ns": 40.0, "as_written_ns": 100.0}
    assert joined.sums == {"n_rows": 10.0, "n_late": 1.0, "n_results": 5.0}
    assert joined.levels == {"n_kept": 5.0, "n_bytes": 400.0, "n_waiting": 0.0}
    assert line_of(back) == line_of(record(4)), "what is plain stays so"


def test_what_is_not_known_is_no_number(path):
    Progress(path).add(record(0, operators=(order_record(cost_ns=math.nan, n_rows=7),)))
    (back,) = read_progress(path)
    assert back.operators[0].sums == {"n_rows": 7.0, "n_evaluations": 30.0}
    assert back.operators[0].levels == {"as_written_ns": 100.0}


def test_totals_stay_right_when_the_file_is_thinned(path):
    progress = Progress(path, max_bytes=20_000)
    for batch_id in range(500):
        progress.add(record(batch_id, n_rows=batch_id))
        assert path.stat().st_size <= 20_000
    back = read_progress(path)
    assert len(back) < 100
    assert n_batches(back) == 500
    assert [back[0].began_at, back[-1].batch_id] == [999.5, 499]
    assert sum(each.n_rows for each in back) == sum(range(500))
    assert sum(each.seconds for each in back) == pytest.approx(250.0)
    for name, expected in (("n_late", 500), ("n_results", 2_500)):
        assert sum(each.operators[1].sums[name] for each in back) == expected
    assert back[-1].operators[1].levels["n_kept"] == 500, "as it stood after the last batch"
    assert [each.n_batches for each in back[-10:]] == [1] * 10, "the newest stay whole"
    assert back[0].n_batches > 5


def test_memory_is_thinned_alike_and_counts_stay(path):
    progress = Progress(max_records=100)
    for batch_id in range(1_000):
        progress.add(record(batch_id))
        assert len(progress.records) <= 100
    assert n_batches(progress.records) == 1_000
    orders = [each.operators[0] for each in progress.records]
    assert sum(each.n_evaluations for each in orders) == 30 * 1_000
    assert [each.cost_ns for each in orders] == pytest.approx([40.0] * len(orders))
    assert sum(each.operators[1].n_results for each in progress.records) == 5_000
    older = [each.n_batches for each in progress.records if each.n_batches > 1]
    assert max(older) <= 2 * np.median(older), "about equally many in each"
    assert not path.exists()


def test_a_restart_goes_on_behind_half_a_line(path):
    Progress(path).add(record(0))
    with path.open("ab") as file:
        file.write(b'{"batch_id": 1, "n_ro')
    assert [each.batch_id for each in read_progress(path)] == [0]
    progress = Progress(path)
    assert progress.records == [], "those of this process"
    progress.add(record(1))
    assert [each.batch_id for each in read_progress(path)] == [0, 1]


def test_a_batch_that_ran_again_counts_once(path):
    Progress(path).add(record(0))
    for n_rows in (7, 10):
        Progress(path).add(record(1, n_rows=n_rows))
    assert [(each.batch_id, each.n_rows) for each in read_progress(path)] == [(0, 10), (1, 10)]


def test_lines_of_later_versions_are_read(path):
    Progress(path).add(record(0))
    line = json.loads(path.read_text())
    path.write_text(json.dumps({**line, "temperature": 7}) + "\n")
    assert read_progress(path) == [read_progress(path)[0]]


@pytest.mark.parametrize("line", ['{"batch_id": 1,', '{"batch": 1}', "[1]", "7"])
def test_a_line_that_is_no_batch_is_named(path, line):
    Progress(path).add(record(1))
    with path.open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(StateError, match=r"line 2 of the progress .*progress.jsonl is no batch"):
        read_progress(path)


def test_places_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="cannot write the progress"):
        Progress(tmp_path / "file" / "progress.jsonl")
    with pytest.raises(StateError, match="cannot read the progress"):
        read_progress(tmp_path)


def test_queries_that_ran_together_are_told_apart():
    both, one = {"low": 2, "even": 0}, {"even": 1}
    records = [record(at, kept_by=both if at < 6 else one) for at in range(12)]
    merged = coarser(records, 1, 0)
    assert [each.n_batches for each in merged] == [6, 6]
    assert [each.kept_by for each in merged] == [{"low": 12, "even": 0}, {"even": 6}]


def test_records_of_several_batches():
    two = order_record(20.0, 30).with_earlier(order_record(40.0, 10), 0.9)
    assert (two.cost_ns, two.n_rows, two.n_evaluations) == (25.0, 40, 60), "by the rows it met"
    uncounted = order_record(20.0).with_earlier(order_record(40.0), 0.25)
    assert uncounted.cost_ns == 25.0, "by the rows of the batches"
    other = order_record(ids=("c", "d"))
    assert other.with_earlier(order_record(), 0.5) is other, "of another text"
    rules = RuleRecord(6, "bitmaps", 30, 7).with_earlier(RuleRecord(5, "all", 10, 2), 0.5)
    assert rules == RuleRecord(6, "bitmaps", 40, 9)
    newest = ModelRecord(100, 5, 2, 800)
    assert newest.with_earlier(ModelRecord(50, 3, 9, 100), 0.5) == newest
    assert math.isnan(weighted(math.nan, math.nan, 0.5))


def test_a_record_that_counts_nothing_stands_for_those_before_it():
    class Plain:
        component, plan = "newest", "late"

    newer, earlier = Plain(), Plain()
    joined = record(1, operators=(newer,)).with_earlier(record(0, operators=(earlier,)))
    assert joined.operators == (newer,)
    assert StoredRecord.from_record(newer, 10) == StoredRecord("newest", "late")
