"""Windows that need order, DSTREAM and RSTREAM against the definition, whatever comes how."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs
from tests.joins.test_bucket import Operator, bag

from eddyline.joins.bucket import BatchPlan
from eddyline.joins.grid import Grid
from eddyline.joins.manifest import Manifest, ManifestFolder
from eddyline.joins.order_plan import OrderPlan
from eddyline.joins.ordered import OrderedBatch, results_of_all
from eddyline.joins.rows import ALWAYS
from eddyline.query.windows import RowsWindow
from eddyline.testing.join_strategies import join_cases
from eddyline.testing.reference_joins import results


class OrderedOperator(Operator):
    """The bucket of a join that needs order; between batches only its manifest is kept."""

    at = "_at"

    def __init__(self, case, draw, folder):
        super().__init__(case, draw, folder)
        self.manifests = ManifestFolder(fs.LocalFileSystem(), folder)
        self.manifest = Manifest(-1, "drawn", (1,) * len(self.query.keys))
        self.timed = [
            each.name for each in self.query.inputs if case.times[each.stream] is not None
        ]

    def order(self):
        by_name = {each.name: each for each in self.query.inputs}
        rows = {
            name: by_name[name].window
            for name in self.timed
            if isinstance(by_name[name].window, RowsWindow)
        }
        columns = {
            name: tuple(self.case.tables[by_name[name].stream].column_names) for name in rows
        }
        lateness = dict.fromkeys(self.timed, self.case.lateness)
        return OrderPlan(self.query.emits, lateness, self.manifest.latest, rows, columns, columns)

    def plan(self, number):
        self.latest = self.manifest.latest
        lows = {
            name: self.latest[name] - self.case.lateness if name in self.latest else ALWAYS
            for name in self.timed
        }
        grid = Grid(self.manifest.grid)
        return BatchPlan(
            number, self.graph, self.orders(), self.lengths(), lows, grid=grid, order=self.order()
        )

    def rows(self, each, arrived):
        return self.marked(each, arrived)

    def batch(self, tables, *, number):
        plan = self.plan(number)
        inputs = self.inputs(tables, is_first=number == 0)
        before = self.manifest.windows.get(0, {})
        for _ in range(self.draw(st.sampled_from([0, 0, 1]))):  # an attempt that fails
            failed = OrderedBatch(plan, self.manifests.files, self.folder, before)
            for _ in failed.run(inputs):
                if self.draw(st.booleans()):
                    break
        task = OrderedBatch(plan, self.manifests.files, self.folder, before)
        self.found += task.run(inputs)
        latest = dict(self.manifest.latest)
        for name in self.timed:
            if name in inputs:
                newest = int(inputs[name].starts.max())
                latest[name] = max(latest.get(name, newest), newest)
        made = Manifest(number, "drawn", self.manifest.grid, {0: task.report.after}, latest)
        self.manifests.commit(made)
        self.manifest = ManifestFolder(self.manifests.files, self.folder).latest()  # a restart

    def answered(self):
        """The instant before which all was emitted."""
        order = self.order()
        return order.until(self.manifest.latest)


def wanted(case, until=None):
    found = results(case.query, case.tables, case.times)
    if until is not None:
        found = found.filter(pa.array(found["_at"].to_numpy() < until))
    return bag(found)


def needs_order(case):
    counts = [
        isinstance(each.window, RowsWindow) and case.times[each.stream] is not None
        for each in case.query.inputs
    ]
    return case.query.emits != "istream" or any(counts)


@given(case=join_cases().filter(needs_order), data=st.data())
def test_any_cut_any_order_any_retry_give_the_definition(case, data):
    with TemporaryDirectory() as folder:
        operator = OrderedOperator(case, data.draw, folder)
        for number, tables in enumerate(case.batches or [{}]):
            operator.batch(tables, number=number)
        assert operator.results() == wanted(case, operator.answered())


@given(case=join_cases().filter(needs_order), data=st.data())
def test_all_rows_at_once_give_the_definition(case, data):
    with TemporaryDirectory() as folder:
        operator = OrderedOperator(case, data.draw, folder)
        everything = {name: rows for name, rows in case.tables.items() if case.times[name]}
        inputs = operator.inputs(everything, is_first=True)
        operator.found += results_of_all(operator.plan(0), inputs)
        assert operator.results() == wanted(case)
