"""Aggregates over streams: any cut into batches gives what the definition gives."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from eddyline.aggregates.loop import AggregateLoop
from eddyline.query.query import RowsWindow
from eddyline.spark.aggregates import operator
from tests.examples import examples
from tests.oracles import duckdb_aggregates
from tests.oracles.aggregate_strategies import KINDS, ZONE, aggregate_cases, over_cases
from tests.oracles.aggregates import Over, arrived, differences
from tests.spark.aggregates.aggregate_streams import (
    ended,
    found,
    has_answers,
    query_of,
    settings,
    wanted,
    write_case,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]  # jobs are slow


def check(spark, case, **options):
    """Check the results of a case against the reference, and against DuckDB's."""
    with tempfile.TemporaryDirectory() as folder, settings(spark, zone=ZONE):
        write_case(case, Path(folder))
        table = ended(query_of(spark, case, Path(folder), **options)).to_arrow()
    answer = found(case, table)
    assert differences(answer, wanted(case)) == ([], []), case
    assert differences(answer, of_duckdb(case)) == ([], []), case


def of_duckdb(case):
    low = arrived(case.batches, case.lateness).low
    low = -(2**62) if low is None else low
    if isinstance(case.of, Over):
        return duckdb_aggregates.over(case.on_time, case.of, low)
    if isinstance(case.window, RowsWindow):
        return wanted(case)
    return duckdb_aggregates.results(case.on_time, case.of, case.window, low, case.emits)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.large] * (kind != "slides")) for kind in KINDS],
)
def test_group_by(spark, kind):
    @given(case=aggregate_cases([kind]).filter(has_answers))
    @examples(12, phases=PHASES)
    def each(case):
        check(spark, case)

    each()


@pytest.mark.large
@given(case=over_cases().filter(has_answers))
@examples(15, phases=PHASES)
def test_over(spark, case):
    check(spark, case)


@given(case=aggregate_cases())
@examples(6, phases=PHASES)
def test_streams_that_give_little(spark, case):
    check(spark, case)


class Turning(AggregateLoop):
    """Takes another plan for each batch."""

    def step(self, fresh, batch_id=-1):
        found = super().step(fresh, batch_id)
        self.plan = self.plans[(self.plans.index(self.plan) + 1) % len(self.plans)]
        return found


@pytest.mark.large
@given(case=aggregate_cases().filter(has_answers), first=st.sampled_from(["early", "late"]))
@examples(10, phases=PHASES)
def test_another_plan_for_each_batch(spark, case, first):
    """What tasks make of rows is what Spark makes of them: files have cells of both."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator, "AggregateLoop", partial(Turning, plan=first))
        check(spark, case, adaptive=False)


@pytest.mark.large
@given(case=st.one_of(aggregate_cases(), over_cases()).filter(has_answers))
@examples(12, phases=PHASES)
def test_plans_as_written(spark, case):
    check(spark, case, adaptive=False)
