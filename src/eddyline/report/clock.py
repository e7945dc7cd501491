"""Sections about the clock of a stream: event time, late rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eddyline.report.formatting import count, span
from eddyline.report.sections import Section, Table, columns, notes
from eddyline.runtime.records import Numbers, event_time_levels
from eddyline.state.rows import ALWAYS, FOREVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eddyline.constraints.bounds import LearnedLateness


ARRIVED = columns(
    "stream, arrived: count, late: count, no time: count, "
    "latest (UTC): time, complete to (UTC): time"
)


COMPONENT = "clock"
"""Name of what counts late rows, in records and metrics."""


@dataclass(frozen=True, slots=True)
class ClockRecord:
    """The clock of a stream after one micro-batch."""

    n_late: int
    """Rows of the batch that came too late."""
    component: str = COMPONENT
    plan: None = None
    reached: tuple[int | None, int | None] = (None, None)
    """How far event time is after the batch (µs); see ``EventTime.reached``."""

    def numbers(self, n_rows: int) -> Numbers:
        """Return its counts, and how far event time is."""
        return Numbers({"n_rows": n_rows, "n_late": self.n_late}, event_time_levels(self.reached))

    def with_earlier(self, earlier: ClockRecord, share: float) -> ClockRecord:  # noqa: ARG002
        """Return one record for several batches: counts add up."""
        return replace(self, n_late=self.n_late + earlier.n_late)


def lines(record: ClockRecord) -> tuple[str, ...]:
    """Return the late rows of a batch, for the progress."""
    return (f"{count(record.n_late)} late",) if record.n_late else ()


def sections(
    stream: str,
    *,
    n_rows: int,
    n_untimed: int,
    n_late: int,
    latest: int,
    low: int,
    has_lateness: bool,
    learned: Mapping[str, LearnedLateness],
) -> list[Section]:
    """Return how far a stream is.

    Args:
        stream: its name.
        n_rows: rows that arrived.
        n_untimed: rows among them without an event time, which are left out.
        n_late: rows that came too late.
        latest: the latest event time (µs).
        low: its watermark (µs).
        has_lateness: whether it was given a lateness.
        learned: the streams whose lateness is learned, and what is known of it.
    """
    times = [None if time == ALWAYS else time for time in (latest, low)]
    row = (stream, n_rows, n_late, n_untimed, *times)
    advice = []
    if not has_lateness and not learned:
        advice.append(
            f"{stream} was given no lateness: a row is late if a batch before had a later one; "
            f"engine.stream(…, lateness='1 minute') waits for it"
        )
    tables = Table(ARRIVED, (row,)), *learned_tables(learned)
    return [Section("Event time", tables), *notes(advice)]


LEARNED = columns("stream, lateness, to hold, held, measured: count, beyond: count")


def learned_tables(learned: Mapping[str, LearnedLateness]) -> Iterator[Table]:
    """Yield a table of what was learned of streams, if it was of one."""
    rows = tuple(
        (
            name,
            # Any row is in time before something is known.
            "any, so far" if lateness.bound == FOREVER else span(lateness.bound),
            exactly(lateness.share),
            exactly(lateness.held),
            lateness.n_rows,
            lateness.n_beyond,
        )
        for name, lateness in learned.items()
    )
    if rows:
        yield Table(LEARNED, rows, "The lateness that is learned, and the rows beyond it.")


def exactly(share: float) -> str:
    """Write a share to a thousandth of a per cent; ``?`` if nothing was measured.

    >>> exactly(0.9999), exactly(float("nan"))
    ('99.990 %', '?')
    """
    return "?" if math.isnan(share) else f"{share:.3%}".replace("%", " %")
