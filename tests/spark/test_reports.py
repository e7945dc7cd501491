"""What tasks report arrives once, and nothing of it is lost silently."""

from __future__ import annotations

from dataclasses import asdict

from eddyline.filters.binding import bind
from eddyline.options import FilterOptions
from eddyline.query.predicates import predicate
from eddyline.runtime.journal import JournalEntry
from eddyline.spark.filters.operator import FilterPipeline
from eddyline.spark.filters.task import TaskReport
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile


def test_entries_that_a_task_leaves_out_are_counted():
    functions = tuple(predicate(lambda u: u, reads=["u"], name=name) for name in ("a", "b"))
    pipeline = FilterPipeline(bind(functions, {"u": "double"}, ansi=True), FilterOptions(), "q")
    entry = asdict(JournalEntry(3, "arrow", "order", ["a", "b"], ["b", "a"]))
    profile, loading = FilterProfile.empty(("a", "b")), CostSums.empty(2)
    reports = [
        TaskReport(0, 0, profile, (entry, entry), 7, (1, 0), loading),
        TaskReport(1, 0, profile, (entry,), 1, (1, 0), loading),
    ]
    pipeline.learn_arrow("arrow", [report.to_bytes() for report in reports], 3)
    taken = pipeline.take_entries()
    assert [each.event for each in taken] == ["order", "order", "left_out", "order"]
    assert taken[2].evidence == {"partition": 0, "n_entries": 5}
