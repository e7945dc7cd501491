"""Metrics of a query that runs, as named values with their units.

Names and units are Prometheus' conventions: counters end in ``_total`` and never decrease while a
query lives, whatever the restarts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from eddyline.runtime.counters import SECONDS
from eddyline.runtime.records import OrderRecord
from eddyline.watch.formatting import finite

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from eddyline.runtime.counters import Counters, Figures
    from eddyline.runtime.operator import Record


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
STATE_ROWS = MetricKind("eddyline_state_rows", "gauge", "rows", "Rows of state that are kept.")
STATE_BYTES = MetricKind("eddyline_state_bytes", "gauge", "bytes", "Size of the state's files.")
COST = MetricKind(
    "eddyline_cost_ns_per_row",
    "gauge",
    "ns per row",
    "Expected cost of an order on the newest evidence, the one in force or that as written.",
)
SKIPPED = MetricKind("eddyline_skipped_rules", "gauge", "rules", "Rules that do not run.")

KINDS = (
    ROWS_IN, ROWS_OUT, BATCHES, BATCH_SECONDS, LAST_BATCH, FAILURES, RUNNING, PINNED, PLAN_CHANGES,
    LATE_ROWS, STATE_ROWS, STATE_BYTES, COST, SKIPPED,
)  # fmt: skip
"""All metrics that there are."""


def metrics_of(
    query: str,
    counters: Counters,
    *,
    is_running: bool,
    n_pinned: int,
    records: Iterable[Record],
    figures: Mapping[str, Figures],
) -> tuple[Metric, ...]:
    """Return the metrics of a query.

    Args:
        query: its name.
        counters: of its whole life.
        is_running: whether it runs.
        n_pinned: plans that a person has pinned.
        records: its components as they stand.
        figures: of its operators, by name.
    """
    of = {"query": query}
    found = [
        Metric(ROWS_IN, of, counters.n_rows),
        Metric(ROWS_OUT, of, counters.n_kept),
        Metric(BATCHES, of, counters.n_batches),
        Metric(BATCH_SECONDS, of, counters.seconds, _buckets(counters)),
        Metric(FAILURES, of, counters.n_failures),
        Metric(RUNNING, of, float(is_running)),
        Metric(PINNED, of, n_pinned),
    ]
    if counters.n_batches:
        found.append(Metric(LAST_BATCH, of, counters.ended_at))
    for component, n in counters.plan_changes.items():
        found.append(Metric(PLAN_CHANGES, of | {"component": component}, n))
    for record in records:
        if isinstance(record, OrderRecord):
            found += _costs(of | {"component": record.component}, record)
    for name, each in figures.items():
        found += _figures(of | {"component": name}, each)
    return tuple(found)


def _buckets(counters: Counters) -> tuple[tuple[float, int], ...]:
    bounds = (*SECONDS, float("inf"))
    return tuple(zip(bounds, accumulate(counters.by_seconds), strict=True))


def _costs(labels: dict[str, str], record: OrderRecord) -> Iterator[Metric]:
    for plan, cost in (("now", record.cost_ns), ("as_written", record.as_written_ns)):
        if (known := finite(cost)) is not None:
            yield Metric(COST, labels | {"plan": plan}, known)


def _figures(labels: dict[str, str], figures: Figures) -> Iterator[Metric]:
    values = {
        LATE_ROWS: figures.n_late,
        STATE_ROWS: figures.n_state_rows,
        STATE_BYTES: figures.n_state_bytes,
        SKIPPED: figures.n_skipped_rules,
    }
    for kind, value in values.items():
        if value is not None:
            yield Metric(kind, labels, value)
