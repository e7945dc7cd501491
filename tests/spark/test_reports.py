"""What tasks report arrives once, and nothing of it is lost silently."""

from __future__ import annotations

from eddyline.filters.binding import bind
from eddyline.options import FilterOptions
from eddyline.query.predicates import predicate
from eddyline.runtime.journal import JournalEntry, TaskReport
from eddyline.spark.filters.operator import FilterOperator
from eddyline.spark.filters.task import TaskProfile
from eddyline.spark.operator import Batch, Observed
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile


def test_entries_that_a_task_leaves_out_are_counted():
    functions = tuple(predicate(lambda u: u, reads=["u"], name=name) for name in ("a", "b"))
    operator = FilterOperator(bind(functions, {"u": "double"}, ansi=True), FilterOptions(), "q")
    entry = JournalEntry(3, "arrow", "order", ["a", "b"], ["b", "a"])
    profile = TaskProfile(FilterProfile.empty(("a", "b")), CostSums.empty(2), (1, 0))
    reports = [
        TaskReport("arrow", 0, 0, profile, (entry, entry), 7),
        TaskReport("arrow", 1, 0, profile, (entry,), 1),
    ]
    metrics = {"arrow": [report.to_bytes() for report in reports]}
    taken = operator.learn([Observed("arrow", metrics)], Batch(3))
    assert [each.event for each in taken] == ["order", "order", "left_out", "order"]
    assert taken[2].evidence == {"partition": 0, "n_entries": 5}
