"""The stream ``system``: metrics and journal of runs as rows.

A row is one number of one entity at one time. ``values_of`` has the numbers of a batch, from the
record that metrics, progress and page are made of, so that nothing is counted twice. ``entries_of``
has those of decisions. Their names are those of ``runtime.records.Counting``.

| component | entity | names |
|---|---|---|
| ``run`` | ``batch`` | ``n_rows``, ``n_kept``, ``seconds``, ``n_batches`` (more than 1 of old batches that were merged), ``lag_s`` |
| ``run`` | ``run`` | ``running`` (1, or 0 once it has ended), ``failed`` |
| a component | the same | its sums in the batch, and its levels after it |
| a component | a part of it, such as a window or a filter | levels after the batch |
| a component | ``journal`` | the event of a decision (1), and ``event.evidence`` for each number |
"""  # noqa: E501 - a table

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from eddyline.report.formatting import finite
from eddyline.runtime.journal import RUN
from eddyline.runtime.records import event_times, lag_s, numbers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eddyline.runtime.journal import JournalEntry
    from eddyline.runtime.records import BatchRecord

NAME = "system"
"""Name of the stream in SQL."""

BATCH = "batch"
"""Entity of the numbers of a whole micro-batch."""

JOURNAL = "journal"
"""Entity of decisions."""


class Row(NamedTuple):
    """A row of the stream."""

    at: int
    """When that was so (µs since 1970)."""
    query: str
    batch: int
    """The newest micro-batch that is done; -1 before the first."""
    component: str
    entity: str
    name: str
    value: float


def values_of(
    batch: BatchRecord, *, is_mean: bool = False
) -> Iterator[tuple[str, str, str, float]]:
    """Yield component, entity, name and value of each number that is known of a batch.

    Args:
        batch: the batch, or several that were merged.
        is_mean: whether counts of several batches are those of the mean one.
    """
    n = batch.n_batches if is_mean else 1
    by_component = numbers_of(batch.operators, batch.n_rows)
    whole = {
        "n_rows": batch.n_rows / n,
        "n_kept": batch.n_kept / n,
        "seconds": batch.seconds / n,
        "n_batches": batch.n_batches,
        "lag_s": lag_s(*event_times(by_component.values())),
    }
    entities = [(RUN, BATCH, whole)]
    for component, numbers in by_component.items():
        sums = {name: value / n for name, value in numbers.sums.items()}
        entities.append((component, component, {**sums, **numbers.levels}))
        entities += [(component, part, {**levels}) for part, levels in numbers.parts.items()]
    for component, entity, values in entities:
        for name, value in values.items():
            if (number := finite(value)) is not None:
                yield component, entity, name, float(number)


def rows_of(query: str, batch: BatchRecord) -> Iterator[Row]:
    """Yield the rows of a batch; of queries that run together, each has its own rows out."""
    micros = round(1e6 * batch.ended_at)
    for component, entity, name, value in values_of(batch):
        yield Row(micros, query, batch.batch_id, component, entity, name, value)
    for member, n_kept in batch.kept_by.items():
        yield Row(micros, member, batch.batch_id, RUN, BATCH, "n_kept", float(n_kept))


def entries_of(query: str, entries: Iterable[JournalEntry]) -> Iterator[Row]:
    """Yield the rows of decisions."""
    for entry in entries:
        noted = datetime.fromisoformat(entry.at) if entry.at else datetime.fromtimestamp(0, UTC)
        micros = round(1e6 * noted.timestamp())
        prefix = (micros, query, entry.batch_id, entry.component, JOURNAL)
        yield Row(*prefix, entry.event, 1.0)
        for name, value in entry.evidence.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and (number := finite(value)) is not None:
                yield Row(*prefix, f"{entry.event}.{name}", float(number))


def state_rows(query: str, batch_id: int, status: str, seconds: float) -> list[Row]:
    """Return the rows of how a run stands (``running``, ``ended``, ``failed``), ``seconds`` now."""
    prefix = (round(1e6 * seconds), query, batch_id, RUN, RUN)
    rows = [Row(*prefix, "running", float(status == "running"))]
    return [*rows, Row(*prefix, "failed", 1.0)] if status == "failed" else rows
