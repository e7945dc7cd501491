"""Metrics as values, and as a text for Prometheus."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest
from prometheus_client.parser import text_string_to_metric_families

from eddyline.errors import PluginError
from eddyline.joins.view import JoinRecord
from eddyline.report.clock import ClockRecord
from eddyline.report.metrics import KINDS, metrics_of, prometheus_text
from eddyline.rules.view import RuleRecord
from eddyline.runtime.journal import JournalEntry
from eddyline.runtime.records import SECONDS, Backlog, BatchRecord, Counters, OrderRecord
from eddyline.sources.rejected import RejectedRecord

ORDER = OrderRecord("native", ("a", "b"), (1, 0), (0.5, float("nan")), 12.5, 40.0)
JOIN = JoinRecord(("s", "t"), (400, 600), (2_000, 3_000), n_late=1, n_results=7)
CLOCK = ClockRecord(0, reached=(1_700_000_090_000_000, 1_700_000_000_000_000))
REJECTED = RejectedRecord("source orders", 2)
RECORDS = (ORDER, JOIN, RuleRecord(5, "all", 10, 3, n_skipped=2), CLOCK, REJECTED)


def counted():
    counters = Counters()
    for batch_id, seconds in enumerate((0.1, 0.2, 400.0)):
        counters.count(BatchRecord(batch_id, 100, 10, seconds, 1.0 + batch_id, RECORDS))
    counters.count_decisions(
        [
            JournalEntry(0, "native", "order", ["a", "b"], ["b", "a"]),
            JournalEntry(0, "native", "order", ["a", "b"], ["b", "a"], {"partition": 1}),
            JournalEntry(1, "native", "stale", evidence={"n": 1}),
            JournalEntry(1, "native", "pin", ["b", "a"], ["b", "a"]),
            JournalEntry(1, "native", "pin", ["b", "a"], ["a", "b"]),
            JournalEntry(1, "run", "restore", after={"native": ["b", "a"]}),
        ]
    )
    return counters


@dataclass
class Measured:
    name: str
    is_running: bool = True

    def metrics(self):
        return metrics_of(
            self.name,
            counted(),
            is_running=self.is_running,
            n_pinned=1,
            records=RECORDS,
            backlog=Backlog(1_200),
        )


def values(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_the_text_has_every_value():
    found = values(prometheus_text([Measured("q")]))
    query = ("query", "q")
    join, native = ("component", "join"), ("component", "native")
    assert found["eddyline_rows_in_total", query] == 300
    assert found["eddyline_rows_out_total", query] == 30
    assert found["eddyline_batches_total", query] == 3
    assert found["eddyline_batch_seconds_sum", query] == pytest.approx(400.3)
    assert found["eddyline_batch_seconds_count", query] == 3
    assert found["eddyline_batch_seconds_bucket", ("le", "0.1"), query] == 1
    assert found["eddyline_batch_seconds_bucket", ("le", "300.0"), query] == 2
    assert found["eddyline_last_batch_timestamp_seconds", query] == 3
    assert found["eddyline_plan_changes_total", native, query] == 2
    assert found["eddyline_cost_ns_per_row", native, ("plan", "now"), query] == 12.5
    assert found["eddyline_cost_ns_per_row", native, ("plan", "as_written"), query] == 40
    assert found["eddyline_late_rows_total", join, query] == 3
    assert found["eddyline_rejected_values_total", ("component", "source orders"), query] == 6
    assert found["eddyline_state_bytes", join, query] == 5_000
    assert found["eddyline_skipped_rules", ("component", "rules"), query] == 2
    assert found["eddyline_running", query] == 1
    assert found["eddyline_event_time_lag_seconds", query] == 90
    assert found["eddyline_newest_event_timestamp_seconds", query] == 1_700_000_090
    assert found["eddyline_backlog_rows", query] == 1_200
    names = {metric.name for metric in Measured("q").metrics()}
    assert names == {kind.name for kind in KINDS}


def test_queries_share_a_metric_and_those_that_run_together_are_told_once():
    text = prometheus_text([Measured("q"), Measured("q"), Measured('r"\n', is_running=False)])
    found = values(text)
    assert found["eddyline_running", ("query", "q")] == 1
    assert found["eddyline_running", ("query", 'r"\n')] == 0
    assert text.count(b"# HELP eddyline_running ") == 1
    assert prometheus_text([]) == b""


def test_a_query_that_cannot_tell_hides_no_other_one():
    class Broken(Measured):
        def metrics(self):
            raise RuntimeError("a value of a row")

    text = prometheus_text([Broken("b\n"), Measured("q")])
    assert values(text)["eddyline_running", ("query", "q")] == 1
    assert text.endswith(b"# query 'b\\n': metrics cannot be read: RuntimeError\n")


@pytest.mark.parametrize(
    "name", ['a"b\\c\nd', "a\r\nb}{", "\u202eabc", "", "\x00\x1b", "x" * 10_000]
)
def test_any_name_is_a_label(name):
    found = values(prometheus_text([Measured(name), Measured("caf\udce9")]))
    assert found["eddyline_running", ("query", name)] == 1
    assert found["eddyline_running", ("query", "caf?")] == 1


def test_names_and_units_keep_to_the_conventions():
    for kind in KINDS:
        assert kind.name.endswith("_total") == (kind.type == "counter")
        assert kind.help.endswith(".")
        assert kind.unit


def test_what_is_not_known_is_not_told():
    nothing = {"records": [], "backlog": Backlog(why="nobody knows")}
    (found,) = {
        metric.name
        for metric in metrics_of("q", Counters(), is_running=False, n_pinned=0, **nothing)
        if metric.value or any(n for _, n in metric.buckets)
    } or {None}
    assert found is None


def test_batches_are_counted_up_to_the_bound_of_their_class():
    counters = Counters()
    for batch_id, bound in enumerate(SECONDS):
        counters.count(BatchRecord(batch_id, 0, 0, bound))
    assert counters.by_seconds == [1] * len(SECONDS) + [0]


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client.registry", None)
    with pytest.raises(PluginError, match=r"pip install 'eddyline\[metrics\]'"):
        prometheus_text([])
