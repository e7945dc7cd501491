"""The reference agrees with Spark's own ``window()`` where that can say the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, given

from eddyline.query.query import SlideWindow
from tests.examples import examples
from tests.oracles.aggregate_strategies import ZONE, aggregate_cases, as_found, table_of
from tests.oracles.aggregates import START, differences, results
from tests.spark.aggregates.aggregate_streams import settings

pytestmark = pytest.mark.spark


def is_spark_s(case):
    """Return whether Spark knows such windows, and breaks ties as the reference does."""
    names = {call.function for call in case.of.calls}
    return (
        isinstance(case.window, SlideWindow)
        and case.emits is None
        and case.window.slide <= case.window.length
        and START in case.of.output
        and names.isdisjoint({"first", "last"})
    )


def text_of(of, window):
    """Return the query as Spark reads it: it is told when windows start, not when they end."""
    spans = (window.length, window.slide, (window.origin - window.length) % window.slide)
    micros = ", ".join(f"'{span} microseconds'" for span in spans)
    groups = [f"{each.text} AS {name}" for name, each in of.groups]
    calls = [f"{each.text} AS {each.column}" for each in of.calls]
    columns = ", ".join([*groups, *calls, "window.start AS ws, window.end AS we"])
    where = of.where.text if of.where else "TRUE"
    by = ", ".join([*(each.text for _, each in of.groups), f"window(ts, {micros})"])
    having = f" HAVING {of.having.text}" if of.having else ""
    return f"SELECT {columns} FROM {{df}} WHERE {where} GROUP BY {by}{having}"


@pytest.mark.large
@given(case=aggregate_cases(["tumbling", "slides"]).filter(is_spark_s))
@examples(30, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_windows_of_spark(spark, case):
    rows = [row for batch in case.batches for row in batch]
    of = replace(case.of, output=tuple(name for name in case.of.output if name != "h"))
    with settings(spark, zone=ZONE, partitions=1):
        answer = spark.sql(text_of(of, case.window), df=spark.createDataFrame(table_of(rows)))
        found = as_found(answer.toArrow(), of.output)
    wanted = results([rows], case.lateness, of, case.window, whole=True)
    assert differences(found, wanted) == ([], [])
