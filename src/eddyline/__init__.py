"""Continuous queries on Spark with plans that adapt while they run.

A plan may change the work, never the answer.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eddyline.query.predicates import predicate, sql_predicate

if TYPE_CHECKING:
    from eddyline import models, sigma
    from eddyline.aggregates.functions import Aggregate
    from eddyline.alarms.alarm_set import AlarmSet
    from eddyline.change import detector, detector_bank
    from eddyline.query.rules.rule import Rule
    from eddyline.report.metrics import prometheus_text
    from eddyline.sources.delta import delta
    from eddyline.sources.iceberg import iceberg
    from eddyline.sources.kafka import kafka
    from eddyline.spark.aggregates.window_aggregate import window_aggregate
    from eddyline.spark.engine import Engine
    from eddyline.spark.filters.conjunction import all_of
    from eddyline.spark.joins.window_join import window_join
    from eddyline.spark.rules.rule_set import RuleSet
    from eddyline.spark.session import session
    from eddyline.spark.sources.reading import register_sources

__version__ = "0.1.0"

_ON_USE = {
    "Aggregate": "eddyline.aggregates.functions",
    "AlarmSet": "eddyline.alarms.alarm_set",
    "Engine": "eddyline.spark.engine",
    "Rule": "eddyline.query.rules.rule",
    "RuleSet": "eddyline.spark.rules.rule_set",
    "all_of": "eddyline.spark.filters.conjunction",
    "delta": "eddyline.sources.delta",
    "detector": "eddyline.change",
    "detector_bank": "eddyline.change",
    "iceberg": "eddyline.sources.iceberg",
    "kafka": "eddyline.sources.kafka",
    "models": "eddyline.models",
    "prometheus_text": "eddyline.report.metrics",
    "register_sources": "eddyline.spark.sources.reading",
    "session": "eddyline.spark.session",
    "sigma": "eddyline.sigma",
    "window_aggregate": "eddyline.spark.aggregates.window_aggregate",
    "window_join": "eddyline.spark.joins.window_join",
}
"""Public names whose modules are imported when they are first used; most of them need pyspark."""

__all__ = [
    "Aggregate",
    "AlarmSet",
    "Engine",
    "Rule",
    "RuleSet",
    "all_of",
    "delta",
    "detector",
    "detector_bank",
    "iceberg",
    "kafka",
    "models",
    "predicate",
    "prometheus_text",
    "register_sources",
    "session",
    "sigma",
    "sql_predicate",
    "window_aggregate",
    "window_join",
]


def __getattr__(name: str) -> Any:
    if name not in _ON_USE:
        msg = f"module 'eddyline' has no attribute {name!r}"
        raise AttributeError(msg)
    module = import_module(_ON_USE[name])
    return module if module.__name__ == f"eddyline.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
