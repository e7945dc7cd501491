"""Metrics in Prometheus' text format, by its own client library (extra ``metrics``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from eddyline.data.plain_json import writable
from eddyline.report.metrics import KINDS
from eddyline.report.optional import package

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eddyline.report.metrics import Metric, MetricKind

NEEDS = ("Prometheus' format", "metrics")
"""What needs the optional package, and the extra that has it."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of ``prometheus_text`` for HTTP."""


@runtime_checkable
class Measured(Protocol):
    """A query that runs."""

    def metrics(self) -> tuple[Metric, ...]:
        """Return its metrics."""
        ...


def prometheus_text(runs: Iterable[Measured]) -> bytes:
    """Return the metrics of queries that run, in the format that Prometheus scrapes.

    A query whose metrics cannot be read hides no other one: a comment has the type of its error.

    Args:
        runs: the queries; those that run together are one, which is told once.

    Raises:
        PluginError: the extra ``metrics`` is not installed.
    """
    registry = package("prometheus_client.registry", NEEDS).CollectorRegistry()
    found: list[Metric] = []
    untold: list[str] = []
    for run in runs:
        try:
            found += run.metrics()
        except Exception as error:  # noqa: BLE001 - the others are told
            query, kind = getattr(run, "name", ""), type(error).__name__
            untold.append(f"# query {query!r}: metrics cannot be read: {kind}\n")
    registry.register(_Collector(found))
    text: bytes = package("prometheus_client.exposition", NEEDS).generate_latest(registry)
    return text + "".join(untold).encode()


class _Collector:
    """Hands metrics to the client library, each of one name and labels once."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._by_kind: dict[MetricKind, dict[tuple[str, ...], Metric]] = {}
        for each in metrics:
            values = tuple(map(writable, each.labels.values()))
            self._by_kind.setdefault(each.kind, {}).setdefault(values, each)

    def collect(self) -> Iterator[Any]:
        """Yield the families of the client library."""
        core = package("prometheus_client.core", NEEDS)
        families = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
            "histogram": core.HistogramMetricFamily,
        }
        for kind in (each for each in KINDS if each in self._by_kind):
            metrics = self._by_kind[kind]
            labels = list(next(iter(metrics.values())).labels)
            family = families[kind.type](kind.name, f"{kind.help} In {kind.unit}.", labels=labels)
            for values, metric in metrics.items():
                _add(family, metric, values)
            yield family


def _add(family: Any, metric: Metric, labels: tuple[str, ...]) -> None:
    if metric.kind.type != "histogram":
        family.add_metric(labels, metric.value)
        return
    buckets = [("+Inf" if at == float("inf") else str(at), n) for at, n in metric.buckets]
    family.add_metric(labels, buckets=buckets, sum_value=metric.value)
