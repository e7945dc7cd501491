"""Models whose results are given early, what DuckDB finds of them, and which of them hold."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import eddyline as el
from eddyline.models import graph
from eddyline.models.fitting.declared import Declared, read_equations
from eddyline.models.revisions import VERSION
from eddyline.models.solving.text import read_condition
from eddyline.models.steps import Shape, Where
from eddyline.models.streams.plan import StreamInput, StreamPlan

SHAPE = Shape(("k",), ("x",))
SOON = StreamPlan(
    (StreamInput(Declared(("k",), "ts", read_equations({"x": "id % 7"}), 4_000_000), SHAPE),),
    graph.Unary(Where(read_condition("x > 2", ["x"]), "x > 2"), graph.Input(0, SHAPE)),
    is_early=True,
)
"""Rows as models for four seconds or up to the next one: a row that comes later takes back."""

ANSWER = (
    "WITH e AS (SELECT k, ts, max(id % 7) AS x FROM s GROUP BY k, ts), l AS (SELECT *, "
    "least(ts + INTERVAL 4 SECONDS, lead(ts) OVER own) AS hi, max(ts) OVER (PARTITION BY k) AS "
    "last FROM e WINDOW own AS (PARTITION BY k ORDER BY ts)) SELECT k, ts AS origin, ts AS lo, hi, "
    "false AS is_point, false AS tomb, [x::DOUBLE] AS coef_x, 0 AS err_x, "
    "hi <= greatest(last, {low}) AS validated FROM l WHERE x > 2"
)
"""Its results over the rows of ``s``; ``low`` is the instant before which all rows have come."""


def newest(written: pa.Table) -> pa.Table:
    """Return the results that hold."""
    rows = SparkSession.builder.getOrCreate().createDataFrame(written)
    return el.models.latest(rows).toArrow()


def ended(written: pa.Table) -> tuple[int, pa.Table]:
    """Return how many batches are over for sure, and what they gave."""
    n_batches = pc.max(written[VERSION]).as_py() or 0
    return n_batches, written.filter(pc.less(written[VERSION], n_batches))
