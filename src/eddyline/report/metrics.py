"""Metrics of a run: named values with units, also for Prometheus.

Names and units are Prometheus' conventions: counters end in ``_total`` and never decrease while a
query lives, whatever the restarts. The text is written by Prometheus' own client library (extra
``metrics``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from eddyline.data.files import writable
from eddyline.registry import package
from eddyline.runtime.records import SECONDS, event_times, lag_s, numbers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eddyline.runtime.records import Backlog, Counters, Numbers, Record


@dataclass(frozen=True, slots=True)
class MetricKind:
    """What a metric is, whatever its value."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    unit: str
    """``rows``, ``seconds``, ``bytes``, ``ns per row``, …"""
    help: str


@dataclass(frozen=True, slots=True)
class Metric:
    """One value of a metric."""

    kind: MetricKind
    labels: Mapping[str, str] = field(default_factory=dict)
    value: float = 0.0
    """The value; of a histogram, the sum of what was observed."""
    buckets: tuple[tuple[float, int], ...] = ()
    """Of a histogram: upper bounds, the last infinite, and how many were not above."""

    @property
    def name(self) -> str:
        """The name of the metric."""
        return self.kind.name


ROWS_IN = MetricKind("eddyline_rows_in_total", "counter", "rows", "Rows that arrived.")
ROWS_OUT = MetricKind("eddyline_rows_out_total", "counter", "rows", "Rows that the sink took.")
BATCHES = MetricKind("eddyline_batches_total", "counter", "batches", "Micro-batches done.")
BATCH_SECONDS = MetricKind(
    "eddyline_batch_seconds", "histogram", "seconds", "Wall time of micro-batches."
)
LAST_BATCH = MetricKind(
    "eddyline_last_batch_timestamp_seconds", "gauge", "seconds", "End of the newest micro-batch."
)
FAILURES = MetricKind("eddyline_failures_total", "counter", "batches", "Micro-batches that failed.")
RUNNING = MetricKind("eddyline_running", "gauge", "runs", "1 while the query runs, else 0.")
PINNED = MetricKind("eddyline_pinned_plans", "gauge", "plans", "Plans that a person has pinned.")
PLAN_CHANGES = MetricKind(
    "eddyline_plan_changes_total", "counter", "plans", "Other plans that were put in force."
)
LATE_ROWS = MetricKind(
    "eddyline_late_rows_total", "counter", "rows", "Rows that came too late to count."
)
REJECTED = MetricKind(
    "eddyline_rejected_values_total", "counter", "values", "Values of a source that gave no row."
)
STATE_ROWS = MetricKind("eddyline_state_rows", "gauge", "rows", "Rows of state that are kept.")
STATE_BYTES = MetricKind("eddyline_state_bytes", "gauge", "bytes", "Size of the state's files.")
COST = MetricKind(
    "eddyline_cost_ns_per_row",
    "gauge",
    "ns per row",
    "Expected cost of an order on the newest evidence, the one in force or that as written.",
)
EVENT_TIME_LAG = MetricKind(
    "eddyline_event_time_lag_seconds",
    "gauge",
    "seconds",
    "How far the watermark is behind the newest event time that has arrived.",
)
NEWEST_EVENT = MetricKind(
    "eddyline_newest_event_timestamp_seconds",
    "gauge",
    "seconds",
    "The newest event time that has arrived.",
)
BACKLOG = MetricKind(
    "eddyline_backlog_rows",
    "gauge",
    "rows",
    "Rows that had arrived and were not processed as of the newest micro-batch.",
)
SKIPPED = MetricKind("eddyline_skipped_rules", "gauge", "rules", "Rules that do not run.")

KINDS = (
    ROWS_IN, ROWS_OUT, BATCHES, BATCH_SECONDS, LAST_BATCH, FAILURES, RUNNING, PINNED, PLAN_CHANGES,
    LATE_ROWS, REJECTED, STATE_ROWS, STATE_BYTES, COST, SKIPPED, EVENT_TIME_LAG, NEWEST_EVENT,
    BACKLOG,
)  # fmt: skip
"""All metrics that there are."""


def metrics_of(
    query: str,
    counters: Counters,
    *,
    is_running: bool,
    n_pinned: int,
    records: Iterable[Record],
    backlog: Backlog,
) -> tuple[Metric, ...]:
    """Return the metrics of a query.

    Args:
        query: its name.
        counters: of its whole life.
        is_running: whether it runs.
        n_pinned: plans that a person has pinned.
        records: its components as they stand.
        backlog: its input that waits.
    """
    query_labels = {"query": query}
    metrics = [
        Metric(ROWS_IN, query_labels, counters.n_rows),
        Metric(ROWS_OUT, query_labels, counters.n_kept),
        Metric(BATCHES, query_labels, counters.n_batches),
        Metric(BATCH_SECONDS, query_labels, counters.seconds, _buckets(counters)),
        Metric(FAILURES, query_labels, counters.n_failures),
        Metric(RUNNING, query_labels, float(is_running)),
        Metric(PINNED, query_labels, n_pinned),
    ]
    if counters.n_batches:
        metrics.append(Metric(LAST_BATCH, query_labels, counters.ended_at))
    for component, n in counters.plan_changes.copy().items():  # a batch may add one meanwhile
        metrics.append(Metric(PLAN_CHANGES, query_labels | {"component": component}, n))
    for component, n_rejected in counters.n_rejected.copy().items():
        metrics.append(Metric(REJECTED, query_labels | {"component": component}, n_rejected))
    by_component = numbers_of(records, 0)
    metrics += _lags(query_labels, by_component.values(), backlog)
    for component, numbers in by_component.items():
        labels = query_labels | {"component": component}
        if "n_late" in numbers.sums:
            metrics.append(Metric(LATE_ROWS, labels, counters.n_late.get(component, 0)))
        metrics += _levels(labels, numbers)
    return tuple(metrics)


def _buckets(counters: Counters) -> tuple[tuple[float, int], ...]:
    bounds = (*SECONDS, float("inf"))
    return tuple(zip(bounds, accumulate(counters.by_seconds), strict=True))


def _lags(labels: dict[str, str], numbers: Iterable[Numbers], backlog: Backlog) -> Iterator[Metric]:
    """Yield how far the query is behind its input, as far as it is known."""
    newest, complete = event_times(numbers)
    if newest is not None:
        yield Metric(NEWEST_EVENT, labels, newest / 1e6)
        if (lag := lag_s(newest, complete)) is not None:
            yield Metric(EVENT_TIME_LAG, labels, lag)
    if backlog.n_rows is not None:
        yield Metric(BACKLOG, labels, backlog.n_rows)


def _levels(labels: dict[str, str], numbers: Numbers) -> Iterator[Metric]:
    """Yield how a component stands, as far as it is known."""
    kinds = {
        "n_kept": (STATE_ROWS, {}),
        "n_bytes": (STATE_BYTES, {}),
        "n_skipped": (SKIPPED, {}),
        "cost_ns": (COST, {"plan": "now"}),
        "as_written_ns": (COST, {"plan": "as_written"}),
    }
    for name, (kind, more) in kinds.items():
        if name in numbers.levels:
            yield Metric(kind, labels | more, numbers.levels[name])


NEEDS = ("Prometheus' format", "metrics")
"""What needs the optional package, and the extra that has it."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of ``prometheus_text`` for HTTP."""


@runtime_checkable
class Measured(Protocol):
    """A query that runs."""

    def metrics(self) -> tuple[Metric, ...]:
        """Return its metrics."""


def prometheus_text(runs: Iterable[Measured]) -> bytes:
    """Return the metrics of queries that run, in the format that Prometheus scrapes.

    A query whose metrics cannot be read hides no other one: a comment has the type of its error.

    Args:
        runs: the queries; those that run together are one, which is told once.

    Raises:
        PluginError: the extra ``metrics`` is not installed.
    """
    registry = package("prometheus_client.registry", NEEDS).CollectorRegistry()
    metrics: list[Metric] = []
    untold: list[str] = []
    for run in runs:
        try:
            metrics += run.metrics()
        except Exception as error:  # noqa: BLE001 - the others are told
            query, kind = getattr(run, "name", ""), type(error).__name__
            untold.append(f"# query {query!r}: metrics cannot be read: {kind}\n")
    registry.register(_Collector(metrics))
    text: bytes = package("prometheus_client.exposition", NEEDS).generate_latest(registry)
    return text + "".join(untold).encode()


class _Collector:
    """Hands metrics to the client library, each of one name and labels once."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._by_kind: dict[MetricKind, dict[tuple[str, ...], Metric]] = {}
        for metric in metrics:
            values = tuple(map(writable, metric.labels.values()))
            self._by_kind.setdefault(metric.kind, {}).setdefault(values, metric)

    def collect(self) -> Iterator[Any]:
        """Yield the families of the client library."""
        core = package("prometheus_client.core", NEEDS)
        families = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
            "histogram": core.HistogramMetricFamily,
        }
        for kind in (candidate for candidate in KINDS if candidate in self._by_kind):
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
    buckets = [("+Inf" if bound == float("inf") else str(bound), n) for bound, n in metric.buckets]
    family.add_metric(labels, buckets=buckets, sum_value=metric.value)
