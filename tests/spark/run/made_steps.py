"""Steps that no text of a query has, for the queries of ``lives``."""

from __future__ import annotations

from eddyline.alarms.alarm_set import AlarmSet
from eddyline.models import graph
from eddyline.models.fitting.declared import Declared, read_equations
from eddyline.models.streams.plan import StreamInput, StreamPlan
from eddyline.query.correlations import CorrelateStep, Correlation, Reference
from eddyline.query.steps import ProjectStep
from tests.spark.run.early_models import SHAPE

CORRELATED = (
    ProjectStep(
        "s",
        (
            "ts",
            "inline(array(named_struct('__place', 0, '__mask', 1L, '__key', array(string(k)), "
            "'__text', string(NULL), '__whole', 0L, '__fraction', 0L, '__carried', string(id), "
            "'__event', CAST(NULL AS STRUCT<x: INT>), "
            "'__alert', CAST(NULL AS STRUCT<first: BIGINT, events: BIGINT, value: DOUBLE>))))",
        ),
        "m",
    ),
    CorrelateStep(
        "m",
        (
            (
                0,
                Correlation("c", "event_count", (Reference("r", ()),), 3_000_000, (("gte", 3),)),
            ),
        ),
    ),
    ProjectStep("m", ("bigint(__key[0]) AS k", "ts")),
)
"""Alerts where there were three rows of a ``k`` in three seconds."""

HELD = StreamPlan(
    (StreamInput(Declared(("k",), "ts", read_equations({"x": "id"}), 1_000_000), SHAPE),),
    graph.Input(0, SHAPE),
)
ALARMS = AlarmSet({"any": "x >= 0", "high": "x < 1e9 AND k >= 20"})
"""Alarms of rows as models that hold for a second: they hold as long as there are models."""
