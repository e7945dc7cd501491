"""The Arrow block as a worker runs it, without Spark: an iterator of tuples of arrays in."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from eddyline.errors import PredicateError
from eddyline.filters.executor import ArrowExecutor
from eddyline.filters.loop import MAX_BATCH_ROWS, FilterLoop, batch_rows
from eddyline.options import FilterOptions
from eddyline.query.predicates import predicate
from eddyline.runtime.journal import MAX_ENTRIES, TaskReport
from eddyline.runtime.order_loop import WINDOW_ROWS, OrderLoop
from eddyline.spark.filters import task as worker
from eddyline.spark.filters.task import MAX_RUNS, FilterTask
from eddyline.stats.costs import CostSums
from eddyline.stats.profile import FilterProfile, ProfileWindow

RNG = np.random.default_rng(3)
ROWS = 20_000
U, V = RNG.random(ROWS), RNG.random(ROWS)
SIZES = [
    [ROWS],
    [1, 2, 7, 49, 50, 51, 100],
    [0, 1, 0, 0, 4096, 0],
    [0, 0, 3],
    [4096] * 4,
    [1],
]


class RowClock:
    """A clock that a predicate moves on by 10 ns a row, whatever the machine is busy with."""

    now_ns = 0

    def __call__(self):
        return self.now_ns


ROW_CLOCK = RowClock()


def less(values, bound):
    ROW_CLOCK.now_ns += 10 * len(values)
    return pc.less(values, bound)


def block(**given):
    often = predicate(lambda u: less(u, 0.9), reads=["u"], name="often")
    seldom = predicate(lambda v: less(v, 0.1), reads=["v"], name="seldom")
    default = FilterTask(
        component="arrow",
        predicates=(often, seldom),
        columns=((0,), (1,)),
        options=FilterOptions(),
        run_id=uuid.uuid4().hex,
        batch_id=-1,
        state=None,
        may_switch=True,
        carries_errors=False,
    )
    return replace(default, **given)


def batches(sizes):
    starts = np.cumsum([0, *sizes])
    for start, size in zip(starts, sizes, strict=False):
        yield pa.array(U[start : start + size]), pa.array(V[start : start + size])


def run(made, sizes):
    """Return the result of all batches, and the reports."""
    parts = list(made.run(batches(sizes)))
    rows = [row for part in parts for row in part.to_pylist()]
    return rows, [flat(TaskReport.from_bytes(row["report"])) for row in rows if row["report"]]


def flat(report):
    """Return a report with what it observed beside it."""
    return SimpleNamespace(
        partition=report.partition,
        attempt=report.attempt,
        entries=report.entries,
        n_entries=report.n_entries,
        profile=report.profile.profile,
        loading=report.profile.loading,
        order=report.profile.order,
    )


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("carries_errors", [False, True])
@pytest.mark.parametrize("adaptive", [False, True])
def test_every_row_is_answered_and_the_last_one_reports(sizes, carries_errors, adaptive):
    options = FilterOptions(adaptive=adaptive, sample_prob=0.1)
    rows, reports = run(block(carries_errors=carries_errors, options=options), sizes)
    n = sum(sizes)
    assert [row["keep"] for row in rows] == ((U < 0.9) & (V < 0.1))[:n].tolist()
    (report,) = reports
    assert rows[-1]["report"]
    assert report.profile.n_rows == n
    assert report.profile.n_kept == sum(row["keep"] for row in rows)
    assert (report.partition, report.attempt) == (0, 0)
    fields = ["keep", "report", "error"] if carries_errors else ["keep", "report"]
    assert list(rows[0]) == fields
    assert all(row.get("error") is None for row in rows)


@pytest.mark.parametrize("sizes", [[], [0], [0, 0, 0]])
def test_no_rows_no_report(sizes):
    assert list(block().run(batches(sizes))) == []


@pytest.mark.parametrize("options", [{"adaptive": False}, {}])
def test_batches_are_answered_one_by_one_while_nothing_is_known(options, monkeypatch):
    monkeypatch.setitem(OrderLoop.__init__.__kwdefaults__, "min_fill", 500)
    # At most one batch is held back, to know which one is the last.
    taken = []

    def source():
        for batch in batches([100] * 5):
            taken.append(len(batch[0]))
            yield batch

    for number, part in enumerate(block(options=FilterOptions(**options)).run(source()), 1):
        assert len(part) == 100
        assert len(taken) == min(number + 1, 5)


def test_batches_are_gathered_once_costs_are_known():
    """Calls on few rows would cost more than the rows themselves."""
    sizes = []

    def count(u):
        sizes.append(len(u))
        return pc.less(u, 0.9)

    made = block(predicates=(predicate(count, reads=["u"]), block().predicates[1]))
    parts = list(made.run(batches([500] * 40)))
    assert [len(part) for part in parts[:2]] == [500, 500]
    assert len(parts) < 12
    assert max(sizes) > 1_000
    keep = pa.concat_arrays([part.field("keep") for part in parts])
    assert keep.to_pylist() == ((U < 0.9) & (V < 0.1)).tolist()


def test_a_batch_has_so_many_bytes_and_no_more(monkeypatch):
    monkeypatch.setattr(worker, "MAX_BATCH_BYTES", 30_000)
    parts = list(block().run(batches([500] * 40)))
    assert max(len(part) for part in parts) == 2_000
    assert sum(len(part) for part in parts) == ROWS


def test_calls_that_cost_much_beside_the_rows_get_more_of_them():
    """The rows of a call are as many as its fixed part is worth."""
    loop = FilterLoop("arrow", ("a", "b"), FilterOptions())
    sizes = []
    for per_row_ns in (10.0, 1_000.0, 100_000.0):
        rows = np.array([500.0, 4_000.0])
        for n in rows:
            cost = np.full(2, n)
            profile = FilterProfile.empty(("a", "b"))
            profile = replace(profile, costs=CostSums.of_calls(cost, 20_000.0 + per_row_ns * cost))
            loop.window.push(replace(profile, passed=2_000.0, n_passed=2_000.0))
        sizes.append(batch_rows(loop))
        loop.window = ProfileWindow(("a", "b"), 1000)
    assert sizes[0] == MAX_BATCH_ROWS
    assert sizes[1] == pytest.approx(100_000 / (0.02 * 2_000), rel=0.01)
    assert sizes[2] < 50
    assert batch_rows(loop) == 1, "nothing is known"


def test_the_type_of_the_result():
    (part,) = block(carries_errors=True).run(batches([5]))
    expected = pa.struct({"keep": pa.bool_(), "report": pa.binary(), "error": pa.string()})
    assert part.type == expected
    assert not any(part.field(name).null_count for name in ("keep",))


def test_the_task_adapts_and_says_so():
    rows, (report,) = run(block(query="q"), [1000] * 20)
    assert len(rows) == ROWS
    assert report.order == (1, 0)
    entries = report.entries
    assert len(entries) == report.n_entries == 1
    assert (entries[0].before, entries[0].after) == (["often", "seldom"], ["seldom", "often"])


def test_a_task_that_may_not_switch_only_observes():
    _, (report,) = run(block(may_switch=False), [1000] * 20)
    assert report.order == (0, 1)
    assert report.entries == ()
    assert report.profile.n_tuples > 100


def test_the_off_switch():
    _, (report,) = run(block(options=FilterOptions(adaptive=False, sample_prob=1.0)), [1000] * 5)
    assert report.order == (0, 1)
    assert (report.profile.n_tuples, report.profile.n_extra, report.entries) == (0, 0, ())
    assert report.profile.rows_in.tolist() == [5000, (U[:5000] < 0.9).sum()]


def test_the_report_is_bounded():
    options = FilterOptions(sample_prob=1.0, max_overhead=1.0)
    _, (report,) = run(block(options=options), [1000] * 20)
    assert report.profile.n_tuples == WINDOW_ROWS
    assert len(report.entries) <= MAX_ENTRIES
    assert report.profile.n_rows == ROWS


def test_the_sample_does_not_depend_on_the_cut(monkeypatch):
    settings = {"warmup_prob": 0.05, "min_fill": 1000, "window_rows": 10**6}
    for name, value in settings.items():
        monkeypatch.setitem(OrderLoop.__init__.__kwdefaults__, name, value)
    options = FilterOptions(sample_prob=0.05)
    seen = []
    for sizes in ([ROWS], [1000] * 20, [0, 777, 1223, 8000, 10_000]):
        _, (report,) = run(block(options=options, may_switch=False), sizes)
        seen.append(report.profile.codes.tolist())
    assert seen[0] == seen[1] == seen[2]


class TestKeptState:
    @pytest.fixture(autouse=True)
    def clock(self, monkeypatch):
        monkeypatch.setitem(ArrowExecutor.__init__.__kwdefaults__, "clock", ROW_CLOCK)

    def test_the_next_task_of_a_run_goes_on(self):
        made = block()
        run(made, [1000] * 20)
        _, (report,) = run(made, [10])
        assert report.order == (1, 0)
        assert report.entries == ()
        assert report.profile.n_rows == 10

    def test_another_run_starts_afresh(self):
        run(block(), [1000] * 20)
        _, (report,) = run(block(), [10])
        assert report.order == (0, 1)

    def test_a_new_run_starts_from_what_the_driver_knows(self):
        made = block()
        run(made, [1000] * 20)
        state = worker._loops[made.run_id].snapshot()
        _, (report,) = run(block(state=state), [10])
        assert report.order == (1, 0)

    def test_few_runs_are_kept(self):
        for _ in range(3 * MAX_RUNS):
            run(block(), [1])
        assert len(worker._loops) == MAX_RUNS

    def test_a_run_in_use_is_kept(self):
        made = block()
        for _ in range(2 * MAX_RUNS):
            run(made, [1])
            run(block(), [1])
        assert made.run_id in worker._loops


class TestErrors:
    def fussy(self, **given):
        def fussy(u):
            if pc.any(pc.less(u, 0.01)).as_py():
                raise ValueError("too small")
            return pc.less(u, 0.5)

        seldom = block().predicates[1]
        checks = (predicate(fussy, reads=["u"]), seldom)
        return block(predicates=checks, **given)

    @property
    def bad(self):
        return (U < 0.01) & (V < 0.1)

    def test_that_count_fail_the_task(self):
        assert self.bad.any()
        with pytest.raises(PredicateError, match=r"'fussy' raised ValueError: too small"):
            run(self.fussy(), [1000] * 20)

    @pytest.mark.parametrize("sizes", [[ROWS], [1000] * 20, [1, 0, 4999, 5000, 10_000]])
    def test_that_a_later_predicate_may_drop_are_carried(self, sizes):
        rows, (report,) = run(self.fussy(carries_errors=True), sizes)
        errors = [row["error"] for row in rows]
        assert [error is not None for error in errors] == self.bad.tolist()
        assert all("too small" in error for error in errors if error)
        assert [row["keep"] for row in rows] == ((U < 0.5) & (V < 0.1)).tolist()
        assert report.profile.n_kept == sum(row["keep"] for row in rows) - self.bad.sum()

    def test_a_failed_task_leaves_the_run_usable(self):
        made = self.fussy()
        with pytest.raises(PredicateError):
            run(made, [1000] * 20)
        _, (report,) = run(replace(made, carries_errors=True), [1000] * 20)
        assert report.profile.n_rows == ROWS


def test_what_the_first_calls_load_is_not_what_an_evaluation_costs():
    """The first micro-batch in a process imports and compiles; the report keeps that apart."""
    calls = []

    def loads_first(u):
        calls.append(len(u))
        if len(calls) == 1:
            time.sleep(0.1)
        return pc.less(u, 0.9)

    slow = predicate(loads_first, reads=["u"], name="slow")
    other = predicate(lambda v: pc.less(v, 0.5), reads=["v"], name="other")
    run_id = uuid.uuid4().hex
    first = block(predicates=(slow, other), run_id=f"{run_id}/arrow/0")
    _, (report,) = run(first, [4096] * 4)
    assert report.loading.total_ns[0] > 0.1e9
    assert report.profile.costs.total_ns[0] < 0.1e9
    _, (report,) = run(replace(first, run_id=f"{run_id}/arrow/1"), [4096] * 4)
    assert report.loading.total_ns.sum() == 0.0

    calls.clear()
    once = block(predicates=(slow, other), run_id=f"{uuid.uuid4().hex}/arrow/0")
    _, (report,) = run(once, [100])  # called once only: there is no better cost
    assert report.profile.costs.total_ns[0] > 0.1e9
    assert report.loading.total_ns[0] == 0.0
